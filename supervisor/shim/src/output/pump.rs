//! Reads a process's output in turns.
//!
//! Owns: when to read. Never: reads more than a turn before the other tasks of the shim have had theirs, so a
//! container that floods delays neither another one's output nor the reaping of exits.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until, timeout};

use super::attach::CLIENT_CLOSE_MS;
use super::source::{FIFO_DRAIN_MS, Source, SourceKind, Turn};
use super::{Output, PUMP_TURN_BYTES, Phase, Stream};
use crate::logger;

/// Where a process's output comes from.
#[derive(Debug)]
pub(crate) enum Ends {
    /// The reading ends of two pipes.
    Pipes {
        /// Of standard output.
        stdout: AsyncFd<OwnedFd>,
        /// Of standard error.
        stderr: AsyncFd<OwnedFd>,
    },
    /// The master of a terminal.
    Terminal(Rc<AsyncFd<OwnedFd>>),
    /// The reading ends of FIFOs that somebody else copies into.
    Fifos {
        /// Of standard output, or of a terminal.
        stdout: AsyncFd<OwnedFd>,
        /// Of standard error.
        stderr: Option<AsyncFd<OwnedFd>>,
    },
}

/// What keeps the pump from reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Held { until: Instant },
    Blocked,
    Over,
}

/// Begins to read the output of a process that has just been made.
pub(crate) fn start(output: &Rc<Output>, ends: Ends) {
    let sources = match ends {
        Ends::Pipes { stdout, stderr } => vec![
            Source::new(Stream::Stdout, SourceKind::Pipe, Rc::new(stdout)),
            Source::new(Stream::Stderr, SourceKind::Pipe, Rc::new(stderr)),
        ],
        Ends::Terminal(master) => vec![Source::new(Stream::Stdout, SourceKind::Terminal, master)],
        Ends::Fifos { stdout, stderr } => {
            let stdout = Source::new(Stream::Stdout, SourceKind::Fifo, Rc::new(stdout));
            let stderr = stderr.map(|fd| Source::new(Stream::Stderr, SourceKind::Fifo, Rc::new(fd)));
            [stdout].into_iter().chain(stderr).collect()
        }
    };
    *output.sources.borrow_mut() = sources;
    if let Phase::Held { until: None } = output.phase.get() {
        output.phase.set(Phase::Held { until: Some(output.hold_deadline()) });
    }
    tokio::task::spawn_local(run(output.clone()));
}

async fn run(output: Rc<Output>) {
    loop {
        match output.gate() {
            Gate::Over => return,
            Gate::Blocked => blocked(&output).await,
            Gate::Held { until } => tokio::select! {
                () = output.changed.notified() => {}
                () = sleep_until(until) => output.give_up_holding(),
            },
            Gate::Open => turn(&output).await,
        }
    }
}

/// Waits for a client that must not lose anything. One that takes nothing for a long time after the process has
/// ended is given up: nothing waits for it any more but this.
async fn blocked(output: &Output) {
    let patience = match output.phase.get() {
        Phase::Ending { .. } => Duration::from_millis(CLIENT_CLOSE_MS),
        _ => return output.changed.notified().await,
    };
    if timeout(patience, output.changed.notified()).await.is_err() {
        output.end();
    }
}

/// Reads a turn's worth of each source; then gives way, or waits for more.
async fn turn(output: &Output) {
    let sources = output.sources.borrow().clone();
    let mut busy = false;
    for source in &sources {
        busy |= output.read_some(source, PUMP_TURN_BYTES) == Turn::More;
    }
    if output.is_at_end() {
        output.read.notify_waiters();
    }
    if output.is_drained() {
        output.end();
    } else if busy {
        tokio::task::yield_now().await;
    } else {
        tokio::select! {
            () = output.changed.notified() => {}
            () = readable(sources.first()) => {}
            () = readable(sources.get(1)) => {}
            () = overdue(&sources) => {}
        }
    }
}

/// Waits until a source that nothing comes from is to be given up.
async fn overdue(sources: &[Rc<Source>]) {
    match sources.iter().filter_map(|source| source.until()).min() {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

async fn readable(source: Option<&Rc<Source>>) {
    match source {
        Some(source) if !source.is_at_end() => source.readable().await,
        _ => std::future::pending().await,
    }
}

impl Output {
    fn gate(&self) -> Gate {
        match self.phase.get() {
            Phase::Over => Gate::Over,
            Phase::Held { until } | Phase::Ending { held_until: until @ Some(_) } => {
                Gate::Held { until: until.unwrap_or_else(|| self.hold_deadline()) }
            }
            Phase::Flowing | Phase::Ending { held_until: None } if self.blocked() => Gate::Blocked,
            Phase::Flowing | Phase::Ending { held_until: None } => Gate::Open,
        }
    }

    /// Nobody came: what the process writes is discarded from now on.
    fn give_up_holding(&self) {
        let after_ms = self.hold.as_millis();
        logger::warning!(
            "nobody has opened the output of an exec for {after_ms} ms: it is discarded from now on"
        );
        self.phase.set(match self.phase.get() {
            Phase::Held { .. } => Phase::Flowing,
            Phase::Ending { .. } => Phase::Ending { held_until: None },
            other => other,
        });
    }

    /// Whether the process has ended and all that it wrote has been read.
    fn is_drained(&self) -> bool {
        matches!(self.phase.get(), Phase::Ending { .. }) && self.is_at_end()
    }

    fn is_at_end(&self) -> bool {
        self.sources.borrow().iter().all(|source| source.is_at_end())
    }

    /// Waits, for a bounded time, until all has been read that somebody else copies for a process that has ended.
    pub(crate) async fn copied(&self) {
        let all = async {
            while self.sources.borrow().iter().any(|source| source.is_copied() && !source.is_at_end()) {
                // There is one thread, so nothing happens between the look and the wait.
                self.read.notified().await;
            }
        };
        // What does not come in time is a grandchild's.
        let _ = timeout(Duration::from_millis(FIFO_DRAIN_MS), all).await;
    }
}
