//! What truly became of each process, for whoever compares it with what was written down.

use mainstay_messages::process::UnknownReason;
use mainstay_messages::{Exit, Timestamp};

/// The truth about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When it was told to run; none if it never was.
    pub started: Option<Timestamp>,
    /// How it ended, if its shim lived to see it.
    pub exit: Option<Exit>,
    /// The reasons for which its end may be written down as not known.
    pub excuses: Vec<UnknownReason>,
}

impl Life {
    pub(super) fn excuse(&mut self, reason: UnknownReason) {
        if !self.excuses.contains(&reason) {
            self.excuses.push(reason);
        }
    }
}
