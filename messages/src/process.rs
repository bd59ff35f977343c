//! Process identity, signals and exits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::time::Timestamp;

/// The exit code shown for a process that could not be started (reason `StartError`).
pub const EXIT_CODE_START_ERROR: u32 = 128;
/// The exit code shown when the true one is not known (reason `Unknown`).
pub const EXIT_CODE_UNKNOWN: u32 = 255;
/// Exit codes of processes that a signal ended are this plus the signal's number.
pub const EXIT_CODE_SIGNAL_BASE: u32 = 128;

/// A process that cannot be mistaken for a later one with the same number (P10).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The process id in the daemon's pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// The ids that a process runs as, as its container counts them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUser {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups, in their order.
    pub groups: Vec<u32>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It called exit with this code.
    Exited {
        /// 0 to 255.
        code: u8,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: u8,
    },
    /// It never ran.
    StartError {
        /// What failed, in one sentence.
        reason: String,
    },
    /// It is gone and nobody can tell how it ended.
    Unknown {
        /// Why nobody can tell.
        reason: UnknownReason,
    },
}

/// Why an exit code is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownReason {
    /// The shim died and left no exit record for this process.
    ShimDied,
    /// The machine was rebooted: nothing of before runs.
    HostRebooted,
    /// The shim answers, but does not know this process.
    NotKnownToShim,
    /// The process was gone, or its shim was, when the runtime came back.
    LostWhileDown,
    /// Its shim runs and cannot be reached, and the kernel had forgotten the process.
    ShimOutOfReach,
}

/// The kernel's out-of-memory killer and this exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OomVerdict {
    /// PID 1 died of SIGKILL, nobody had asked for a kill, and the kill count of its cgroup had risen.
    Killed,
    /// Anything else, also when only a child was killed.
    NotKilled,
}

/// The terminal fact of a process: exactly one for each that was started (P1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How it ended.
    pub status: ExitStatus,
    /// When it ended, as the shim's reaper saw it.
    pub at: Timestamp,
    /// Whether the kernel's out-of-memory killer ended it.
    pub oom: OomVerdict,
}

impl Exit {
    /// An exit whose code nobody knows.
    pub fn unknown(reason: UnknownReason, at: Timestamp) -> Self {
        Self { status: ExitStatus::Unknown { reason }, at, oom: OomVerdict::NotKilled }
    }

    /// The exit of a process that never ran.
    pub fn start_error(reason: impl Into<String>, at: Timestamp) -> Self {
        Self { status: ExitStatus::StartError { reason: reason.into() }, at, oom: OomVerdict::NotKilled }
    }

    /// The code that shells and CRI show: the code itself, 128 + signal, 128 or 255.
    pub fn code(&self) -> u32 {
        match self.status {
            ExitStatus::Exited { code } => u32::from(code),
            ExitStatus::Signaled { signal } => EXIT_CODE_SIGNAL_BASE + u32::from(signal),
            ExitStatus::StartError { .. } => EXIT_CODE_START_ERROR,
            ExitStatus::Unknown { .. } => EXIT_CODE_UNKNOWN,
        }
    }

    /// One word, as CRI has it: `Completed`, `Error`, `OOMKilled`, `StartError` or `Unknown`.
    pub fn reason(&self) -> &'static str {
        match (&self.status, self.oom) {
            (_, OomVerdict::Killed) => "OOMKilled",
            (ExitStatus::Exited { code: 0 }, _) => "Completed",
            (ExitStatus::Exited { .. } | ExitStatus::Signaled { .. }, _) => "Error",
            (ExitStatus::StartError { .. }, _) => "StartError",
            (ExitStatus::Unknown { .. }, _) => "Unknown",
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            ExitStatus::Exited { code } => write!(f, "exited with code {code}"),
            ExitStatus::Signaled { signal } => {
                write!(f, "killed by {}", Signal(*signal))?;
                if self.oom == OomVerdict::Killed {
                    f.write_str(" (out of memory)")?;
                }
                Ok(())
            }
            ExitStatus::StartError { reason } => write!(f, "could not be started: {reason}"),
            ExitStatus::Unknown { reason } => write!(f, "ended in a way nobody saw ({reason})"),
        }
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShimDied => "its shim died",
            Self::HostRebooted => "the host was rebooted",
            Self::NotKnownToShim => "its shim does not know it",
            Self::LostWhileDown => "lost while the runtime was down",
            Self::ShimOutOfReach => "its shim is out of reach",
        })
    }
}

/// A signal by number, 1 to 64, shown and read by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(pub u8);

/// Names and numbers of the signals of Linux on x86-64 and aarch64 (signal(7)).
const SIGNALS: [(&str, u8); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];
/// The highest signal number of Linux (SIGRTMAX).
const SIGNAL_MAX: u8 = 64;
/// The first real-time signal that programs may use (glibc keeps 32 and 33).
const SIGRTMIN: u8 = 34;

impl Signal {
    /// Asks a process to end.
    pub const TERM: Signal = Signal(15);
    /// Ends a process.
    pub const KILL: Signal = Signal(9);
}

impl FromStr for Signal {
    type Err = Error;

    /// Reads `TERM`, `SIGTERM`, `sigterm`, `15`, `RTMIN+3` or `RTMAX-1`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = match name.parse::<u8>() {
            Ok(number) => Some(number),
            Err(_) => real_time(name)
                .or_else(|| SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)),
        };
        match number {
            Some(number @ 1..=SIGNAL_MAX) => Ok(Signal(number)),
            _ => Err(Error::invalid(
                "signal",
                format!("{text:?}"),
                format!("a name such as TERM or SIGKILL, RTMIN+N, or a number from 1 to {SIGNAL_MAX}"),
            )),
        }
    }
}

fn real_time(name: &str) -> Option<u8> {
    let offset = |text: &str, sign: char| match text {
        "" => Some(0),
        _ => text.strip_prefix(sign)?.parse::<u8>().ok(),
    };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return offset(rest, '+')?.checked_add(SIGRTMIN);
    }
    SIGNAL_MAX.checked_sub(offset(name.strip_prefix("RTMAX")?, '-')?).filter(|n| *n >= SIGRTMIN)
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("TERM", 15)]
    #[case("SIGTERM", 15)]
    #[case("sigkill", 9)]
    #[case("64", 64)]
    #[case("RTMIN", 34)]
    #[case("SIGRTMIN+3", 37)]
    #[case("RTMAX-1", 63)]
    fn reads_signals(#[case] text: &str, #[case] number: u8) {
        assert_eq!(text.parse::<Signal>().expect("a good signal"), Signal(number));
    }

    #[rstest]
    #[case("")]
    #[case("0")]
    #[case("65")]
    #[case("-9")]
    #[case("BLA")]
    #[case("RTMIN+200")]
    #[case("RTMIN+250")]
    fn refuses_signals(#[case] text: &str) {
        assert!(text.parse::<Signal>().is_err());
    }

    #[rstest]
    #[case(ExitStatus::Exited { code: 0 }, OomVerdict::NotKilled, 0, "Completed")]
    #[case(ExitStatus::Exited { code: 3 }, OomVerdict::NotKilled, 3, "Error")]
    #[case(ExitStatus::Signaled { signal: 9 }, OomVerdict::NotKilled, 137, "Error")]
    #[case(ExitStatus::Signaled { signal: 9 }, OomVerdict::Killed, 137, "OOMKilled")]
    #[case(ExitStatus::StartError { reason: "x".into() }, OomVerdict::NotKilled, 128, "StartError")]
    #[case(ExitStatus::Unknown { reason: UnknownReason::ShimDied }, OomVerdict::NotKilled, 255, "Unknown")]
    fn codes_and_reasons(
        #[case] status: ExitStatus,
        #[case] oom: OomVerdict,
        #[case] code: u32,
        #[case] reason: &str,
    ) {
        let exit = Exit { status, at: Timestamp(1), oom };
        assert_eq!((exit.code(), exit.reason()), (code, reason));
    }
}
