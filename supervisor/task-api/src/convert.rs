//! Between the wire's shapes and those of `mainstay-messages`.
//!
//! Owns: exits, statistics, process keys and times. Never: fails on a value of ours; what a peer sends is checked.

use mainstay_messages::process::{Exit, ExitStatus, OomVerdict, UnknownReason};
use mainstay_messages::supervisor::Stats;
use mainstay_messages::{ContainerId, ExecId, Timestamp};
use protobuf::EnumOrUnknown;
use thiserror::Error;

use crate::extension as wire;
use crate::extension::exit::Status;
use crate::well_known_types::timestamp::Timestamp as WireTimestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A process of a shim: a container's PID 1, or an exec in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// The container.
    pub container: ContainerId,
    /// The exec; none for PID 1.
    pub exec: Option<ExecId>,
}

/// Why a peer's message cannot be understood.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// A field that must be there.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A number outside of its range.
    #[error("{field}: {value} is not valid; expected 0 to 255")]
    Range {
        /// The field.
        field: &'static str,
        /// What was there.
        value: u32,
    },
    /// A bad id.
    #[error(transparent)]
    Id(#[from] mainstay_messages::Error),
}

impl ProcessKey {
    /// Reads the pair of ids that requests of the Task API carry; an empty exec id means PID 1.
    pub fn parse(container: &str, exec: &str) -> Result<Self, ConvertError> {
        let exec = if exec.is_empty() { None } else { Some(exec.parse()?) };
        Ok(Self { container: container.parse()?, exec })
    }

    /// The exec id as the Task API has it: empty for PID 1.
    pub fn exec_text(&self) -> &str {
        self.exec.as_ref().map_or("", ExecId::as_str)
    }
}

impl std::fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.exec {
            None => write!(f, "container {}", self.container),
            Some(exec) => write!(f, "exec {exec} of container {}", self.container),
        }
    }
}

impl From<&ProcessKey> for wire::ProcessKey {
    fn from(key: &ProcessKey) -> Self {
        Self {
            container: key.container.as_str().to_owned(),
            exec: key.exec_text().to_owned(),
            ..Default::default()
        }
    }
}

impl TryFrom<&wire::ProcessKey> for ProcessKey {
    type Error = ConvertError;

    fn try_from(key: &wire::ProcessKey) -> Result<Self, ConvertError> {
        Self::parse(&key.container, &key.exec)
    }
}

impl From<&Exit> for wire::Exit {
    fn from(exit: &Exit) -> Self {
        let status = match &exit.status {
            ExitStatus::Exited { code } => Status::Code(u32::from(*code)),
            ExitStatus::Signaled { signal } => Status::Signal(u32::from(*signal)),
            ExitStatus::StartError { reason } => Status::StartError(reason.clone()),
            ExitStatus::Unknown { reason } => Status::Unknown(EnumOrUnknown::new(match reason {
                UnknownReason::ShimDied => wire::UnknownReason::SHIM_DIED,
                UnknownReason::HostRebooted => wire::UnknownReason::HOST_REBOOTED,
                UnknownReason::NotKnownToShim => wire::UnknownReason::NOT_KNOWN_TO_SHIM,
                UnknownReason::LostWhileDown => wire::UnknownReason::LOST_WHILE_DOWN,
                UnknownReason::ShimOutOfReach => wire::UnknownReason::SHIM_OUT_OF_REACH,
            })),
        };
        Self {
            status: Some(status),
            at_ns: exit.at.0,
            oom_killed: exit.oom == OomVerdict::Killed,
            ..Default::default()
        }
    }
}

impl TryFrom<&wire::Exit> for Exit {
    type Error = ConvertError;

    fn try_from(exit: &wire::Exit) -> Result<Self, ConvertError> {
        let byte = |field, value: u32| u8::try_from(value).map_err(|_| ConvertError::Range { field, value });
        let status = match exit.status.as_ref().ok_or(ConvertError::Missing { field: "exit.status" })? {
            Status::Code(code) => ExitStatus::Exited { code: byte("exit.code", *code)? },
            Status::Signal(signal) => ExitStatus::Signaled { signal: byte("exit.signal", *signal)? },
            Status::StartError(reason) => ExitStatus::StartError { reason: reason.clone() },
            Status::Unknown(reason) => ExitStatus::Unknown {
                reason: match reason.enum_value_or_default() {
                    wire::UnknownReason::SHIM_DIED => UnknownReason::ShimDied,
                    wire::UnknownReason::HOST_REBOOTED => UnknownReason::HostRebooted,
                    wire::UnknownReason::NOT_KNOWN_TO_SHIM => UnknownReason::NotKnownToShim,
                    wire::UnknownReason::LOST_WHILE_DOWN => UnknownReason::LostWhileDown,
                    wire::UnknownReason::SHIM_OUT_OF_REACH => UnknownReason::ShimOutOfReach,
                },
            },
        };
        let oom = if exit.oom_killed { OomVerdict::Killed } else { OomVerdict::NotKilled };
        Ok(Self { status, at: Timestamp(exit.at_ns), oom })
    }
}

impl From<&Stats> for wire::Stats {
    fn from(stats: &Stats) -> Self {
        Self {
            at_ns: stats.at.0,
            cpu_usage_ns: stats.cpu_usage_ns,
            cpu_user_ns: stats.cpu_user_ns,
            cpu_system_ns: stats.cpu_system_ns,
            memory_usage_bytes: stats.memory_usage_bytes,
            memory_working_set_bytes: stats.memory_working_set_bytes,
            memory_rss_bytes: stats.memory_rss_bytes,
            memory_limit_bytes: stats.memory_limit_bytes,
            pids: stats.pids,
            pids_limit: stats.pids_limit,
            oom_kills: stats.oom_kills,
            log_bytes_lost: stats.log_bytes_lost,
            ..Default::default()
        }
    }
}

impl From<&wire::Stats> for Stats {
    fn from(stats: &wire::Stats) -> Self {
        Self {
            at: Timestamp(stats.at_ns),
            cpu_usage_ns: stats.cpu_usage_ns,
            cpu_user_ns: stats.cpu_user_ns,
            cpu_system_ns: stats.cpu_system_ns,
            memory_usage_bytes: stats.memory_usage_bytes,
            memory_working_set_bytes: stats.memory_working_set_bytes,
            memory_rss_bytes: stats.memory_rss_bytes,
            memory_limit_bytes: stats.memory_limit_bytes,
            pids: stats.pids,
            pids_limit: stats.pids_limit,
            oom_kills: stats.oom_kills,
            log_bytes_lost: stats.log_bytes_lost,
        }
    }
}

/// A time as the Task API has it.
pub fn wire_timestamp(at: Timestamp) -> WireTimestamp {
    WireTimestamp {
        // Both fit: the seconds of 64-bit nanoseconds are far below 2^63, the rest below 10^9.
        seconds: at.seconds() as i64,
        nanos: (at.0 % NANOS_PER_SECOND) as i32,
        ..Default::default()
    }
}

/// A time of the Task API; what no clock of ours can show becomes the nearest that it can.
pub fn timestamp(at: &WireTimestamp) -> Timestamp {
    let seconds = u64::try_from(at.seconds).unwrap_or(0);
    let nanos = u64::try_from(at.nanos).unwrap_or(0);
    Timestamp(seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_come_back_as_they_went() {
        for (status, oom) in [
            (ExitStatus::Exited { code: 255 }, OomVerdict::NotKilled),
            (ExitStatus::Signaled { signal: 9 }, OomVerdict::Killed),
            (ExitStatus::StartError { reason: "no such file".into() }, OomVerdict::NotKilled),
            (ExitStatus::Unknown { reason: UnknownReason::LostWhileDown }, OomVerdict::NotKilled),
        ] {
            let exit = Exit { status, at: Timestamp(1_234_567_890_123_456_789), oom };
            assert_eq!(Exit::try_from(&wire::Exit::from(&exit)).expect("ours"), exit);
        }
    }

    /// An exit without a status must never become an invented 0.
    #[test]
    fn an_empty_exit_is_an_error() {
        assert!(Exit::try_from(&wire::Exit::default()).is_err());
        let exit = wire::Exit { status: Some(Status::Code(256)), ..Default::default() };
        assert!(Exit::try_from(&exit).is_err());
    }

    #[test]
    fn stats_come_back_as_they_went() {
        let stats = Stats { at: Timestamp(7), cpu_usage_ns: Some(0), log_bytes_lost: 3, ..Stats::default() };
        assert_eq!(Stats::from(&wire::Stats::from(&stats)), stats);
    }

    #[test]
    fn times_come_back_as_they_went() {
        let at = Timestamp(1_798_761_600_999_999_999);
        assert_eq!(timestamp(&wire_timestamp(at)), at);
        assert_eq!(timestamp(&WireTimestamp { seconds: -5, ..Default::default() }), Timestamp(0));
    }
}
