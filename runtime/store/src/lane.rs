//! A thread that works off a bounded queue in order. Never blocks whoever offers work.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use mainstay_messages::Error;

/// A worker thread and the way to it.
pub(crate) struct Lane<Job> {
    name: &'static str,
    limit: usize,
    /// None after [`Lane::close`].
    ends: Mutex<Option<Ends<Job>>>,
}

struct Ends<Job> {
    queue: Sender<Job>,
    thread: JoinHandle<()>,
}

impl<Job: Send + 'static> Lane<Job> {
    /// Starts the thread. `work` ends when its receiver is disconnected and empty.
    pub(crate) fn start(
        name: &'static str,
        limit: usize,
        work: impl FnOnce(Receiver<Job>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, jobs) = bounded(limit);
        let thread = Builder::new().name(format!("store-{name}")).spawn(move || work(jobs))?;
        Ok(Self { name, limit, ends: Mutex::new(Some(Ends { queue, thread })) })
    }

    /// Queues a job behind all that were offered before it.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Error> {
        let ends = self.ends();
        let Some(ends) = ends.as_ref() else {
            return Err(Error::unavailable("store", "it is closed"));
        };
        ends.queue.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => Error::ResourceExhausted {
                what: format!("store {} queue", self.name),
                limit: self.limit as u64,
            },
            TrySendError::Disconnected(_) => {
                Error::unavailable("store", format!("its {} thread died", self.name))
            }
        })
    }
}

impl<Job> Lane<Job> {
    /// Takes no more jobs, and waits until those that are queued are done and the thread has ended.
    pub(crate) fn close(&self) {
        let Some(Ends { queue, thread }) = self.ends().take() else { return };
        drop(queue);
        if thread.join().is_err() {
            tracing::error!(thread = self.name, "a thread of the store had panicked");
        }
    }

    /// Jobs that wait, and how many may.
    pub(crate) fn queue(&self) -> (usize, usize) {
        (self.ends().as_ref().map_or(0, |ends| ends.queue.len()), self.limit)
    }

    fn ends(&self) -> MutexGuard<'_, Option<Ends<Job>>> {
        // Nothing can panic between two changes of what the lock guards.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Job> Drop for Lane<Job> {
    fn drop(&mut self) {
        self.close();
    }
}
