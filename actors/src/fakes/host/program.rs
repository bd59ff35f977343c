//! What pretended processes do.

use mainstay_messages::{ExitStatus, Signal};

/// What a process does by itself and when it gets signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// It exits by itself after so many milliseconds with this code.
    pub runs: Option<(u64, u8)>,
    /// What a signal other than KILL does.
    pub on_term: OnSignal,
    /// What KILL does.
    pub on_kill: OnSignal,
}

/// What a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSignal {
    /// It kills, after so many milliseconds.
    Dies(u64),
    /// The program handles it and exits after so many milliseconds with this code.
    Exits(u64, u8),
    /// Nothing.
    Ignores,
}

impl Default for Program {
    /// Runs until it is told to end, and then ends soon.
    fn default() -> Self {
        Self { runs: None, on_term: OnSignal::Dies(10), on_kill: OnSignal::Dies(1) }
    }
}

impl Program {
    /// How a signal ends it, and after how many milliseconds.
    pub(super) fn on(self, signal: Signal) -> Option<(u64, ExitStatus)> {
        let reaction = if signal == Signal::KILL { self.on_kill } else { self.on_term };
        match reaction {
            OnSignal::Dies(ms) => Some((ms, ExitStatus::Signaled { signal: signal.0 })),
            OnSignal::Exits(ms, code) => Some((ms, ExitStatus::Exited { code })),
            OnSignal::Ignores => None,
        }
    }
}
