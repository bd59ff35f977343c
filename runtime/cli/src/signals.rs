//! Signals to this command, and what each of them means for what it runs. The meaning is pure.

use std::future::Future;

use mainstay_messages::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};

/// Signals that wait to be handled; more of the same say nothing new.
const SIGNALS_QUEUE_MAX: usize = 16;

const HUP: Signal = Signal(1);
/// Ctrl-C.
pub const INT: Signal = Signal(2);
const QUIT: Signal = Signal(3);
const USR1: Signal = Signal(10);
const USR2: Signal = Signal(12);
const ALRM: Signal = Signal(14);
const WINCH: Signal = Signal(28);

/// The signals that are taken. What is not here does what it always does.
const TAKEN: [Signal; 8] = [HUP, INT, QUIT, USR1, USR2, ALRM, Signal::TERM, WINCH];

/// The signals that came.
#[derive(Debug)]
pub struct Signals {
    queue: mpsc::Receiver<Signal>,
    /// The last one that asked us to end, and how many did.
    asked_to_end: Option<(Signal, u32)>,
}

/// Whose process a session shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The container was made by this command, which stands for it.
    Run,
    /// The process was started by this command in a container of somebody.
    Exec,
    /// The container is somebody's, and goes on without us.
    Attached,
}

/// Whether earlier signals asked for the end already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// None did.
    Calm,
    /// One did.
    AskedToEnd,
    /// More than one did.
    Insisted,
}

/// Whether a person sits at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// At a terminal.
    Terminal,
    /// Elsewhere: a script, a service.
    Elsewhere,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Stop the container: this signal, its grace time, SIGKILL.
    Stop(Signal),
    /// Kill the container now.
    Kill,
    /// Pass it on to the process.
    Pass(Signal),
    /// Leave; what runs goes on.
    Leave(Signal),
    /// The size of our terminal changed.
    Resize,
    /// Nothing.
    Nothing,
}

/// What a signal means. A PID 1 that has no handler for INT or TERM never gets them from the kernel, so
/// passing them on would leave `run` with a container that cannot be ended from the keyboard: they ask for a
/// stop instead.
pub fn meaning(signal: Signal, ownership: Ownership, before: Before, seat: Seat) -> Meaning {
    let ends = matches!(signal, INT | Signal::TERM) || (signal == HUP && seat == Seat::Terminal);
    match (ownership, signal) {
        (_, WINCH) => Meaning::Resize,
        (Ownership::Run, _) if ends => match before {
            Before::Calm => Meaning::Stop(signal),
            Before::AskedToEnd => Meaning::Kill,
            // A process that even SIGKILL does not end must not keep us.
            Before::Insisted => Meaning::Leave(signal),
        },
        (Ownership::Run | Ownership::Exec, _) => Meaning::Pass(signal),
        (Ownership::Attached, HUP | INT | QUIT | Signal::TERM) => Meaning::Leave(signal),
        (Ownership::Attached, _) => Meaning::Nothing,
    }
}

impl Signals {
    /// Takes the signals from now on.
    pub fn listen() -> Result<Self> {
        let (sender, queue) = mpsc::channel(SIGNALS_QUEUE_MAX);
        for taken in TAKEN {
            let mut stream = signal(SignalKind::from_raw(i32::from(taken.0)))
                .map_err(|e| Failure::machine(format!("taking {taken}"), e))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() {
                    // A full queue already has what this one would say.
                    let _ = sender.try_send(taken);
                }
            });
        }
        Ok(Self { queue, asked_to_end: None })
    }

    /// The next signal. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Signal {
        match self.queue.recv().await {
            Some(signal) => signal,
            // The tasks that feed the queue end with the runtime, and so does whoever waits here.
            None => std::future::pending().await,
        }
    }

    /// Waits for `work`, which is not to be left half done: a signal that asks for the end is remembered for
    /// [`Self::check`], and only a second one gives the work up.
    pub async fn patiently<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                signal = self.next() => {
                    let ends = matches!(signal, HUP | INT | QUIT | Signal::TERM);
                    if ends && self.note_end(signal) != Before::Calm {
                        return Err(Failure::Interrupted(signal));
                    }
                }
            }
        }
    }

    /// Waits for `work`, which may be left at any time: the first signal that asks for the end gives it up.
    pub async fn impatiently<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                signal = self.next() => {
                    if matches!(signal, HUP | INT | QUIT | Signal::TERM) {
                        self.note_end(signal);
                        return Err(Failure::Interrupted(signal));
                    }
                }
            }
        }
    }

    /// Fails when a signal asked for the end.
    pub fn check(&self) -> Result<()> {
        self.asked_to_end.map_or(Ok(()), |(signal, _)| Err(Failure::Interrupted(signal)))
    }

    /// Remembers a signal that asks for the end; the result is how it was before.
    pub fn note_end(&mut self, signal: Signal) -> Before {
        let before = self.before();
        let count = self.asked_to_end.map_or(0, |(_, count)| count);
        self.asked_to_end = Some((signal, count.saturating_add(1)));
        before
    }

    /// Whether signals asked for the end.
    pub fn before(&self) -> Before {
        match self.asked_to_end {
            None => Before::Calm,
            Some((_, 1)) => Before::AskedToEnd,
            Some(_) => Before::Insisted,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(INT, Ownership::Run, Before::Calm, Seat::Elsewhere, Meaning::Stop(INT))]
    #[case(Signal::TERM, Ownership::Run, Before::Calm, Seat::Terminal, Meaning::Stop(Signal::TERM))]
    #[case(INT, Ownership::Run, Before::AskedToEnd, Seat::Terminal, Meaning::Kill)]
    #[case(Signal::TERM, Ownership::Run, Before::AskedToEnd, Seat::Elsewhere, Meaning::Kill)]
    #[case(INT, Ownership::Run, Before::Insisted, Seat::Terminal, Meaning::Leave(INT))]
    #[case(HUP, Ownership::Run, Before::Calm, Seat::Elsewhere, Meaning::Pass(HUP))]
    #[case(HUP, Ownership::Run, Before::Calm, Seat::Terminal, Meaning::Stop(HUP))]
    #[case(QUIT, Ownership::Run, Before::Calm, Seat::Terminal, Meaning::Pass(QUIT))]
    #[case(USR1, Ownership::Run, Before::AskedToEnd, Seat::Terminal, Meaning::Pass(USR1))]
    #[case(INT, Ownership::Exec, Before::AskedToEnd, Seat::Terminal, Meaning::Pass(INT))]
    #[case(INT, Ownership::Attached, Before::Calm, Seat::Terminal, Meaning::Leave(INT))]
    #[case(USR2, Ownership::Attached, Before::Calm, Seat::Terminal, Meaning::Nothing)]
    #[case(WINCH, Ownership::Attached, Before::Calm, Seat::Terminal, Meaning::Resize)]
    fn meanings(
        #[case] signal: Signal,
        #[case] ownership: Ownership,
        #[case] before: Before,
        #[case] seat: Seat,
        #[case] expected: Meaning,
    ) {
        assert_eq!(meaning(signal, ownership, before, seat), expected);
    }
}
