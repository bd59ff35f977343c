//! Which process a number stands for (P10).
//!
//! Owns: reading a process's identity from `/proc`, and turning a recorded identity into a pidfd that
//! surely is that process. Never: waits for anything.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process;

use mainstay_messages::process::ExitStatus;
use mainstay_messages::spec::IdMappings;
use mainstay_messages::{ProcessIdentity, ProcessUser, Signal};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Field 22 of `/proc/PID/stat`, counted from the first field after the command name (proc_pid_stat(5)).
const START_TIME_AFTER_NAME: usize = 22 - 3;
/// Field 4, counted in the same way.
const PARENT_AFTER_NAME: usize = 4 - 3;

/// Field 52, counted in the same way. The kernel shows it to those who may trace the process, and 0 to others.
const EXIT_CODE_AFTER_NAME: usize = 52 - 3;
/// `PIDFD_GET_INFO`, `PIDFD_INFO_EXIT` of <linux/pidfd.h>: kernels since 6.15 keep how a process ended for as long as
/// somebody holds its pidfd.
const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
/// See [`PIDFD_GET_INFO`].
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, or is stopped.
    Runs,
    /// It has ended, whether it was reaped or not.
    Ended,
}

/// `struct pidfd_info` of <linux/pidfd.h>, its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    /// Numbers of the process, its parent, users and groups.
    numbers: [u32; 11],
    exit_code: i32,
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

/// As whom a process runs, in the ids of its container; none when it is gone, or an id is none of the container's.
pub(crate) fn user_of(identity: &ProcessIdentity, ids: Option<&IdMappings>) -> Option<ProcessUser> {
    let status = fs::read_to_string(format!("/proc/{}/status", identity.pid)).ok()?;
    let user = user_in(&status)?;
    // What was read is that process's only if it is still there.
    identity_of(identity.pid).is_ok_and(|found| found == *identity).then_some(())?;
    let Some(ids) = ids else { return Some(user) };
    let (uid, gid) = ids.to_container(user.uid, user.gid)?;
    let group = |group: &u32| ids.to_container(user.uid, *group).map(|(_, group)| group);
    Some(ProcessUser { uid, gid, groups: user.groups.iter().map(group).collect::<Option<_>>()? })
}

/// The effective ids in `/proc/PID/status`.
fn user_in(status: &str) -> Option<ProcessUser> {
    let words = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::split_whitespace);
    let effective = |key: &str| words(key)?.nth(1)?.parse().ok();
    let groups = words("Groups:")?.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(ProcessUser { uid: effective("Uid:")?, gid: effective("Gid:")?, groups })
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

/// Sends a signal to the process of a pidfd. One that has ended has got it.
pub(crate) fn signal(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    // SAFETY: plain system call; the null pointer asks for the information that kill(2) would send along.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::c_int::from(signal.0),
            std::ptr::null::<libc::siginfo_t>(),
            0u32,
        )
    };
    match (sent, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if is_gone(&error) => Ok(()),
        (_, error) => Err(error),
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

/// How the process with this identity ended, if nobody has waited for it yet.
pub(crate) fn end_of_zombie(identity: &ProcessIdentity) -> io::Result<Option<ExitStatus>> {
    if identity.boot_id != boot_id()? {
        return Ok(None);
    }
    let stat = match fs::read_to_string(format!("/proc/{}/stat", identity.pid)) {
        Ok(stat) => stat,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if start_ticks(&stat) != Some(identity.start_ticks) || after_name(&stat, 0) != Some("Z") {
        return Ok(None);
    }
    Ok(after_name(&stat, EXIT_CODE_AFTER_NAME).and_then(|code| code.parse().ok()).and_then(status))
}

/// How the process of a pidfd ended, where the kernel still knows: somebody has waited for it.
pub(crate) fn end_of_pidfd(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the argument is a structure of the size that is part of the request's number, and lives until the call
    // returns.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    if answer != 0 || info.mask & PIDFD_INFO_EXIT == 0 {
        return None;
    }
    status(info.exit_code)
}

/// A status as wait(2) has it.
fn status(raw: i32) -> Option<ExitStatus> {
    let status = process::ExitStatus::from_raw(raw);
    let exited =
        status.code().and_then(|code| u8::try_from(code).ok()).map(|code| ExitStatus::Exited { code });
    let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok());
    exited.or_else(|| signal().map(|signal| ExitStatus::Signaled { signal }))
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
    use std::os::fd::AsFd;

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

    /// What a shim that hangs or is out of reach cannot tell, the kernel may: before anybody has waited for the process,
    /// and on a kernel that keeps it for the holders of a pidfd also after that.
    #[test]
    fn the_kernel_tells_how_a_process_ended() {
        let cases =
            [("exit 7", ExitStatus::Exited { code: 7 }), ("kill -9 $$", ExitStatus::Signaled { signal: 9 })];
        for (script, expected) in cases {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().expect("started");
            let identity = identity_of(child.id()).expect("not reaped yet");
            let pidfd = open(&identity).expect("readable").expect("not reaped yet");
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while fate(&identity).expect("readable") == Fate::Runs {
                assert!(std::time::Instant::now() < deadline, "it ends");
                std::thread::yield_now();
            }
            assert_eq!(end_of_zombie(&identity).expect("readable"), Some(expected.clone()));
            child.wait().expect("reaped");
            assert_eq!(end_of_zombie(&identity).expect("readable"), None);
            let kept = end_of_pidfd(pidfd.as_fd());
            assert!(kept.is_none() || kept == Some(expected), "{kept:?}");
        }
        let own = identity_of(std::process::id()).expect("this process runs");
        assert_eq!(end_of_zombie(&own).expect("readable"), None);
    }

    #[test]
    fn ids_are_the_effective_ones() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
        assert_eq!(user_in(status), Some(ProcessUser { uid: 2, gid: 6, groups: vec![9, 10] }));
        let none = "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t \n";
        assert_eq!(user_in(none), Some(ProcessUser { uid: 0, gid: 0, groups: Vec::new() }));
        assert_eq!(user_in("Uid:\t0\n"), None);
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
