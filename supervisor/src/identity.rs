//! Which process a number stands for (P10).
//!
//! Owns: reading a process's identity from `/proc`, and turning a recorded identity into a pidfd that
//! surely is that process. Never: signals or waits for anything.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use mainstay_messages::ProcessIdentity;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Field 22 of `/proc/PID/stat`, counted from the first field after the command name (proc_pid_stat(5)).
const START_TIME_AFTER_NAME: usize = 22 - 3;

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
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_pid(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The start time in `/proc/PID/stat`. The command name may hold spaces and parentheses, so fields are
/// counted from the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(START_TIME_AFTER_NAME)?.parse().ok()
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
