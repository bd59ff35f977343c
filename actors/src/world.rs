//! What all actors of one runtime share: the ports, the journal, the supervisor, the directory, the counters.
//! Nothing of it is the state of an object.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::Recipient;
use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::Commit;
use tokio::time::Instant;

use crate::counters::Counters;
use crate::directory::Publisher;
use crate::machine::Now;
use crate::ports::{Ports, Supervisor};

/// The most notes that wait for the journal. More are dropped and counted: they are facts that no state
/// depends on, such as a signal that was sent.
pub const NOTES_MAX: usize = 4_096;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

/// What a [`World`] is made of.
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) journal: Recipient<Commit>,
    pub(crate) supervisor: Supervisor,
    pub(crate) publisher: Publisher,
    pub(crate) counters: Arc<Counters>,
    /// Where the output of containers is logged that name no file.
    pub(crate) log_dir: PathBuf,
    pub(crate) notes: Arc<AtomicUsize>,
    pub(crate) began: Instant,
}

impl World {
    /// See the module.
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        let elapsed = self.began.elapsed().as_millis();
        Now { wall: self.ports.clock.now(), mono_ms: u64::try_from(elapsed).unwrap_or(u64::MAX) }
    }

    /// Writes facts on which no state depends; nobody waits for them. They keep their order with the commits
    /// of the same actor.
    pub(crate) fn note(&self, facts: Vec<Fact>) {
        if self.notes.fetch_add(1, Ordering::Relaxed) >= NOTES_MAX {
            self.notes.fetch_sub(1, Ordering::Relaxed);
            self.counters.lost_notes.add();
            tracing::warn!(?facts, "the journal does not keep up; facts were dropped");
            return;
        }
        let written = self.journal.send(Commit { changes: Vec::new(), facts });
        let (counters, notes) = (Arc::clone(&self.counters), Arc::clone(&self.notes));
        actix::spawn(async move {
            let result = written.await;
            notes.fetch_sub(1, Ordering::Relaxed);
            if !matches!(result, Ok(Ok(_))) {
                counters.lost_notes.add();
                tracing::warn!(?result, "facts could not be written");
            }
        });
    }

    /// Writes one fact on which no state depends.
    pub(crate) fn note_now(&self, subject: Subject, what: What) {
        self.note(vec![Fact { at: self.ports.clock.now(), subject, what }]);
    }
}

impl Deref for World {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
