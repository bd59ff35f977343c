//! All actors of one runtime, started together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use actix::{Actor, Addr, AsyncContext, Context, Recipient};
use mainstay_messages::event::Seq;
use mainstay_messages::router::{Noted, ShimDied, TaskExited};
use tokio::time::Instant;

use crate::counters::Counters;
use crate::directory::{Directory, Publisher};
use crate::image::pulls::ImagePulls;
use crate::image::{Patience, Pulls};
use crate::journal::{EventLog, Journal};
use crate::ports::{ImageSource, Ports, Supervisor};
use crate::router::Router;
use crate::world::{Shared, World};

/// What the actors are started with.
pub struct Parts {
    /// Store, clock, ids.
    pub ports: Ports,
    /// Where the output of containers is logged that name no file: `LOG_DIR/SANDBOX/CONTAINER.log`.
    pub log_dir: PathBuf,
    /// The number of the last event in the store.
    pub last: Seq,
}

/// Where the supervisor sends what it sees.
#[derive(Clone)]
pub struct Facts {
    /// A process ended.
    pub exited: Recipient<TaskExited>,
    /// A shim died.
    pub died: Recipient<ShimDied>,
    /// Something happened that changes nothing.
    pub noted: Recipient<Noted>,
}

/// The actors of one runtime. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    /// Takes all commands: `RunSandbox`, `CreateContainer`, and [`crate::Routed`] for everything else.
    pub router: Addr<Router>,
    /// The events.
    pub events: EventLog,
    /// The snapshots.
    pub directory: Directory,
    /// The numbers.
    pub counters: Arc<Counters>,
    world: World,
}

impl Core {
    /// Starts them on the current arbiter. `supervisor` is told where its facts go and answers where the
    /// supervisor is reached. Send [`crate::Recover`] to the router next.
    ///
    /// # Errors
    /// That of `supervisor`; then nothing was started but the journal, which ends with its last address.
    pub fn start<E>(
        parts: Parts,
        supervisor: impl FnOnce(Facts) -> Result<Supervisor, E>,
    ) -> Result<Self, E> {
        let directory = Directory::default();
        let counters = Arc::new(Counters::default());
        let events = EventLog::new(Arc::clone(&parts.ports.store), parts.last);
        let journal = Journal::new(Arc::clone(&parts.ports.store), events.clone()).start().recipient();
        let shared = |supervisor| Shared {
            ports: parts.ports,
            journal,
            supervisor,
            publisher: Publisher::new(directory.clone()),
            counters: Arc::clone(&counters),
            log_dir: parts.log_dir,
            notes: Arc::new(AtomicUsize::new(0)),
            began: Instant::now(),
        };
        let context = Context::<Router>::new();
        let facts = Facts {
            exited: context.address().recipient(),
            died: context.address().recipient(),
            noted: context.address().recipient(),
        };
        let supervisor = supervisor(facts)?;
        let world = World::new(shared(supervisor));
        let router = context.run(Router::new(world.clone()));
        Ok(Self { router, events, directory, counters, world })
    }

    /// Starts the pulls of images from `source`, on the current arbiter, which has to be that of the others.
    pub fn start_pulls(&self, source: Arc<dyn ImageSource>, patience: Patience) -> Pulls {
        ImagePulls::start(source, patience, self.world.clone())
    }
}
