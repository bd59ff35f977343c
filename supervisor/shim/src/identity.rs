//! Who a process is, and signals that reach that one and no other (P10).
//!
//! Owns: identities and signals by descriptor. Never: signals by number.

use std::os::fd::{AsRawFd, BorrowedFd};

use mainstay_messages::Signal;
use rustix::io::Errno;
use rustix::process::Pid;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: Pid,
    /// Field 22 of `/proc/PID/stat`; 0 if it could not be read.
    pub(crate) start_ticks: u64,
}

impl Identity {
    /// The identity of a child that has not been reaped.
    pub(crate) fn of(pid: Pid) -> Self {
        Self { pid, start_ticks: start_ticks(pid) }
    }
}

/// Sends a signal by descriptor.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    // SAFETY: a plain system call on a descriptor that lives through it; rustix has no real-time signals.
    let result = unsafe {
        let fd = pidfd.as_raw_fd();
        libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::c_int::from(signal.0), std::ptr::null::<u8>(), 0)
    };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The parent of a process that has not been reaped.
pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat_field(pid, 4)?)
}

/// Whether a process that has not been reaped is ending, or has ended.
pub(crate) fn is_ending(pid: Pid) -> bool {
    /// `PF_EXITING` of the kernel's `sched.h`.
    const EXITING: u32 = 0x4;
    stat_field(pid, 9).is_some_and(|flags: u32| flags & EXITING != 0)
}

/// Field 22 of `/proc/PID/stat`, or 0.
fn start_ticks(pid: Pid) -> u64 {
    stat_field(pid, 22).unwrap_or(0)
}

/// A number of `/proc/PID/stat`, from field 3 on. They are counted after the last `)`: a name may hold anything.
fn stat_field<N: std::str::FromStr>(pid: Pid, field: usize) -> Option<N> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(field - 3)?.parse().ok()
}
