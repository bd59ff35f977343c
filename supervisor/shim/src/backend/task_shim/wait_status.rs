//! How a process ended that is somebody else's child.
//!
//! Owns: asking the kernel. A zombie's status is in `/proc/PID/stat`, and that of a process that has been reaped is kept for
//! whoever holds a descriptor of it (from Linux 6.15 on). Never: reaps.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::identity::Identity;
use crate::task::Ending;

/// Field 52 of `/proc/PID/stat`, counted from the first after the name, which is the third.
const STATUS_FIELD: usize = 52 - 3;
/// Field 22, counted likewise.
const START_FIELD: usize = 22 - 3;
/// `PIDFD_INFO_EXIT` of include/uapi/linux/pidfd.h.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` of the same file, as its first version has it.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    status: i32,
}

/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: u64 = (3 << 30) | ((size_of::<PidfdInfo>() as u64) << 16) | (0xFF << 8) | 11;

/// How it ended, where the kernel can say it: while it is a zombie, or later on a new kernel.
pub(crate) fn ending(identity: Identity, pidfd: BorrowedFd<'_>) -> Option<Ending> {
    of_zombie(identity).or_else(|| of_reaped(pidfd)).and_then(decode)
}

fn of_zombie(identity: Identity) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", identity.pid.as_raw_pid())).ok()?;
    zombie_status(&stat, identity.start_ticks)
}

fn zombie_status(stat: &str, start_ticks: u64) -> Option<i32> {
    // A name may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let same = fields.get(START_FIELD)?.parse() == Ok(start_ticks);
    let ended = matches!(*fields.first()?, "Z" | "X");
    if same && ended { fields.get(STATUS_FIELD)?.parse().ok() } else { None }
}

fn of_reaped(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the descriptor lives through the call, and the kernel writes at most the size that the number of the call holds.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as libc::Ioctl, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.status)
}

/// What `wait` calls a status.
fn decode(status: i32) -> Option<Ending> {
    let byte = |number: i32| u8::try_from(number).ok();
    if libc::WIFEXITED(status) {
        return Some(Ending::Exited { code: byte(libc::WEXITSTATUS(status))? });
    }
    libc::WIFSIGNALED(status)
        .then(|| byte(libc::WTERMSIG(status)).map(|signal| Ending::Signaled { signal }))?
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// The process waits, as a zombie, for the one who started it.
    #[test]
    fn a_zombie_says_how_it_ended() {
        for (script, expected) in [
            ("exit 7", Ending::Exited { code: 7 }),
            ("kill -9 $$", Ending::Signaled { signal: 9 }),
            ("exit 137", Ending::Exited { code: 137 }),
        ] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
            let pid = Pid::from_child(&child);
            let identity = Identity::of(pid);
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("our child");
            let mut poll = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut poll, None).expect("it ends");
            assert_eq!(ending(identity, pidfd.as_fd()), Some(expected), "{script}");
            child.wait().expect("our child");
            // Nothing, where the kernel is older.
            let later = ending(identity, pidfd.as_fd());
            assert!(later.is_none_or(|later| later == expected), "{script}: {later:?}");
        }
    }

    #[test]
    fn a_stranger_with_the_same_number_says_nothing() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = |state: &str| format!("12 (a) b) {state} {}", fields[1..].join(" "));
        assert_eq!(zombie_status(&stat("Z"), 22), Some(52));
        assert_eq!(zombie_status(&stat("Z"), 23), None);
        assert_eq!(zombie_status(&stat("S"), 22), None);
        assert_eq!(zombie_status("", 22), None);
    }
}
