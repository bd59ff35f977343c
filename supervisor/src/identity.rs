//! Which process a number stands for (P10).
//!
//! Owns: reading a process's identity from `/proc`, and turning a recorded identity into a pidfd that
//! surely is that process. Never: signals or waits for anything.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use mainstay_messages::ProcessIdentity;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Field 22 of `/proc/PID/stat`, counted from the first field after the command name (proc_pid_stat(5)).
const START_TIME_AFTER_NAME: usize = 22 - 3;
/// Field 4, counted in the same way.
const PARENT_AFTER_NAME: usize = 4 - 3;

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, or is stopped.
    Runs,
    /// It has ended, whether it was reaped or not.
    Ended,
}

/// The pid namespace of a process, held open. It cannot become that of a stranger while it is held.
#[derive(Debug)]
pub(crate) struct PidNamespace {
    file: File,
}

impl PidNamespace {
    /// That of the process with this identity, which must run.
    pub fn open(identity: &ProcessIdentity) -> io::Result<Self> {
        let file = File::open(format!("/proc/{}/ns/pid", identity.pid))?;
        // Looked at after the opening: a number that has passed on since the identity was recorded shows here.
        match fate(identity)? {
            Fate::Runs => Ok(Self { file }),
            Fate::Ended => Err(io::Error::new(io::ErrorKind::NotFound, "it has ended")),
        }
    }

    /// A path to it, for other processes of this machine, as long as it is held.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

/// The id of this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The identity of a process that the caller knows to be alive, or a zombie: its own child, or the peer of
/// a connection that is open.
pub fn identity_of(pid: u32) -> io::Result<ProcessIdentity> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let start_ticks = start_ticks(&stat).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is malformed"))
    })?;
    Ok(ProcessIdentity { pid, start_ticks, boot_id: boot_id()? })
}

/// A pidfd of the process with this identity; none when it is gone, or its number is another's now.
pub fn open(identity: &ProcessIdentity) -> io::Result<Option<OwnedFd>> {
    if identity.boot_id != boot_id()? {
        return Ok(None);
    }
    let Some(pidfd) = open_pid(identity.pid)? else { return Ok(None) };
    // The pidfd is open: from here on the number cannot pass to another process without the pidfd being
    // of one that has ended. So the start time that is read now belongs to it, or it is gone.
    match identity_of(identity.pid) {
        Ok(found) if found == *identity => Ok(Some(pidfd)),
        Ok(_) => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has become of the process with this identity.
pub fn fate(identity: &ProcessIdentity) -> io::Result<Fate> {
    if identity.boot_id != boot_id()? {
        return Ok(Fate::Ended);
    }
    // One read tells number, state and start time of one and the same process.
    let stat = match fs::read_to_string(format!("/proc/{}/stat", identity.pid)) {
        Ok(stat) => stat,
        Err(error) if is_gone(&error) => return Ok(Fate::Ended),
        Err(error) => return Err(error),
    };
    let state = after_name(&stat, 0).unwrap_or_default();
    let same = start_ticks(&stat) == Some(identity.start_ticks);
    Ok(if same && !matches!(state, "Z" | "X") { Fate::Runs } else { Fate::Ended })
}

/// The parent of a process; none when it has ended.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat, PARENT_AFTER_NAME)?.parse().ok()
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

fn open_pid(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The start time in `/proc/PID/stat`.
fn start_ticks(stat: &str) -> Option<u64> {
    after_name(stat, START_TIME_AFTER_NAME)?.parse().ok()
}

/// A field of `/proc/PID/stat`. The command name may hold spaces and parentheses, so fields are counted from the last
/// one.
fn after_name(stat: &str, field: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_command_name_shifts_no_field() {
        let stat = "7 (a) R 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 2 3 0 0 20 0 1 0 987654 1000 1 1";
        assert_eq!(start_ticks(stat), Some(987_654));
        assert_eq!(start_ticks("7 (x) S 1"), None);
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn finds_itself() {
        let own = identity_of(std::process::id()).expect("this process runs");
        assert!(open(&own).expect("pidfd_open works").is_some());
    }

    #[test]
    fn tells_who_runs_from_who_has_ended() {
        let own = identity_of(std::process::id()).expect("this process runs");
        assert_eq!(fate(&own).expect("readable"), Fate::Runs);
        let later = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own.clone() };
        assert_eq!(fate(&later).expect("readable"), Fate::Ended, "a stranger");
        let rebooted = ProcessIdentity { boot_id: "another".into(), ..own };
        assert_eq!(fate(&rebooted).expect("readable"), Fate::Ended);
        let mut child = std::process::Command::new("/bin/true").spawn().expect("started");
        let identity = identity_of(child.id()).expect("not reaped yet");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while fate(&identity).expect("readable") == Fate::Runs {
            assert!(std::time::Instant::now() < deadline, "a zombie has ended");
            std::thread::yield_now();
        }
        assert_eq!(parent_of(child.id()), Some(std::process::id()));
        child.wait().expect("reaped");
        assert_eq!(fate(&identity).expect("readable"), Fate::Ended);
    }

    /// A PID that was recorded before a reboot, or before the number went round, is another process now. A
    /// runtime that looks at the number alone kills a stranger.
    #[test]
    fn never_takes_a_stranger() {
        let own = identity_of(std::process::id()).expect("this process runs");
        let later = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own.clone() };
        assert!(open(&later).expect("no error").is_none());
        let rebooted = ProcessIdentity { boot_id: "another".into(), ..own.clone() };
        assert!(open(&rebooted).expect("no error").is_none());
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(open(&ProcessIdentity { pid, ..own.clone() }).expect("no error").is_none());
        }
    }
}
