//! Fakes of the ports, for tests and simulations: a store in memory, a supervisor over a pretended host, a source of
//! images, a clock that follows tokio's (which can be paused), ids that count.
//!
//! They implement the real interfaces. The host and the store outlive the actors, so that a test can end the
//! actors and start others on what is left, as after a crash.

mod fence;
mod host;
mod images;
mod store;
mod supervisor;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_messages::id::ID_BYTES;
use mainstay_messages::{Error, Result, Timestamp};
use tokio::time::Instant;

pub use host::{
    Behaviour, Call, Director, FakeHost, Life, Made, Messenger, OnSignal, Program, REANNOUNCE_MS, ReceiptWay,
};
pub use images::{Act, FakeImages, Tally};
pub use store::{MemoryStore, StoreCall, StoreFault};
pub use supervisor::FakeSupervisor;

use crate::core::{Core, Parts};
use crate::ports::{Clock, Ids, Ports, Store, Supervisor};
use actix::Actor;

/// The wall clock at the beginning of a test: 2027-01-01.
const EPOCH_NANOS: u64 = 1_798_761_600_000_000_000;

/// A wall clock that goes with tokio's clock.
#[derive(Clone, Debug)]
pub struct FakeClock {
    began: Instant,
}

/// Ids that count.
#[derive(Debug, Default)]
pub struct CountingIds {
    next: AtomicU64,
}

/// All of them together: what a test starts actors on.
#[derive(Clone)]
pub struct FakeWorld {
    /// The store.
    pub store: MemoryStore,
    /// The host, with its shims.
    pub host: FakeHost,
    ids: Arc<CountingIds>,
    clock: FakeClock,
}

impl FakeClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Timestamp(EPOCH_NANOS.saturating_add(elapsed))
    }
}

impl Ids for CountingIds {
    fn random(&self) -> [u8; ID_BYTES] {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bytes = [0; ID_BYTES];
        bytes[ID_BYTES - 8..].copy_from_slice(&number.to_be_bytes());
        // Different beginnings, as random ids have them.
        bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        bytes
    }
}

impl FakeWorld {
    /// An empty host with an empty store. Call it inside a tokio runtime.
    pub fn new() -> Self {
        let clock = FakeClock::new();
        Self {
            store: MemoryStore::default(),
            host: FakeHost::new(Arc::new(clock.clone())),
            ids: Arc::default(),
            clock,
        }
    }

    /// Starts the actors on it, on the current arbiter.
    pub fn start(&self) -> Core {
        let ports = Ports {
            store: Arc::new(self.store.clone()),
            clock: Arc::new(self.clock.clone()),
            ids: Arc::clone(&self.ids) as Arc<dyn Ids>,
        };
        let parts = Parts { ports, log_dir: "/logs".into(), last: self.store.last() };
        let supervisor = |facts| Supervisor::of(&FakeSupervisor::new(self.host.clone(), facts).start());
        let Ok(core) = Core::start(parts, |facts| Ok::<_, Infallible>(supervisor(facts)));
        core
    }

    /// The daemon is killed at this instant. What its actors still do reaches neither store nor host; the answer
    /// is what is left, for others to be started on.
    #[must_use]
    pub fn crash(self) -> Self {
        self.store.fence().close();
        self.host.fence().close();
        let (store, host) = (self.store.behind_a_new_fence(), self.host.behind_a_new_fence());
        Self { store, host, ..self }
    }

    /// Starts the actors on what is left of an earlier start, and has them take it over.
    ///
    /// # Errors
    /// Those of the store, and [`Error::Unavailable`] when the router has ended.
    pub async fn restart(&self, how: crate::HowDown) -> Result<Core> {
        let loaded = self.store.load().await?;
        let core = self.start();
        // Answered when all is listed, as whoever starts the real actors waits for it.
        let taken_over = core.router.send(crate::Recover { loaded, how }).await;
        taken_over.map_err(|error| Error::unavailable("the router", error))?;
        Ok(core)
    }
}

impl Default for FakeWorld {
    fn default() -> Self {
        Self::new()
    }
}
