//! System calls that `rustix` has no function for: clone3, mount_setattr, close_range, seccomp, keyctl.
//!
//! Thin and typed; decisions are made by the callers.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;

const CLONE_PIDFD: u64 = 0x1000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// A new process id name space for the child.
pub(crate) const CLONE_NEWPID: u64 = libc::CLONE_NEWPID as u64;
/// A new user name space for the child.
pub(crate) const CLONE_NEWUSER: u64 = libc::CLONE_NEWUSER as u64;

/// The side of a clone that is running.
pub(crate) enum Cloned {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// `clone3` without shared memory: a fork that gives a pidfd, resets signal handlers and may be born in a v2 cgroup.
///
/// # Safety
///
/// The calling process must have one thread: the child runs ordinary Rust afterwards, so no lock may be held by a thread
/// that the child does not have. The child must end by exec or `_exit`, and never return into the caller's frames.
pub(crate) unsafe fn clone_process(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain old data, for which all zeroes is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the arguments live through the call; without CLONE_VM the child gets its own copy of this stack.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Cloned::Child),
        pid if pid > 0 => {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid =
                Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("clone3 answered process id 0"))?;
            Ok(Cloned::Parent { pid, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Which mounts `mount_setattr` changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    Top,
    Recursive,
}

/// Changes the attributes or the propagation of the mount that `mount` is the root of.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    depth: Depth,
    set: u64,
    clear: u64,
    propagation: u64,
) -> io::Result<()> {
    set_mount_attributes(mount, depth, &MountAttr { set, clear, propagation, userns_fd: 0 })
}

/// Has the files of a detached mount that nobody has seen yet belong to the ids that a user name space maps theirs to.
pub(crate) fn mount_map_ids(
    mount: BorrowedFd<'_>,
    depth: Depth,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
    // A descriptor that is open is not negative.
    let userns_fd = u64::from(namespace.as_raw_fd().unsigned_abs());
    let attributes = MountAttr { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns_fd };
    set_mount_attributes(mount, depth, &attributes)
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

fn set_mount_attributes(mount: BorrowedFd<'_>, depth: Depth, attr: &MountAttr) -> io::Result<()> {
    let recursive = if depth == Depth::Recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the empty path and the attributes are valid for the length of the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    check(result)
}

/// Closes every descriptor from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes no memory. The callers own every descriptor of the process (a forked child) and never use these again.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// Marks every descriptor from `first` on to be closed by exec.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: takes no memory, closes nothing now.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Loads a system call filter for this thread.
pub(crate) fn load_seccomp(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program points to `length` instructions; the kernel only reads and copies them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })
}

/// Gives this process a new session key ring without a name.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous key ring.
    check(unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    })
}

/// Replaces the program. Returns only on failure.
pub(crate) fn execve(program: &CStr, args: &[*const libc::c_char], env: &[*const libc::c_char]) -> io::Error {
    debug_assert!(args.last().is_some_and(|last| last.is_null()), "argv ends with null");
    debug_assert!(env.last().is_some_and(|last| last.is_null()), "envp ends with null");
    // SAFETY: both arrays end with a null pointer and point to strings that the caller keeps alive.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Gives every signal its default action and unblocks all, so that the new program starts as from a clean shell.
pub(crate) fn reset_signals() {
    /// Signals of the kernel; the C library hides two of them from `signal`, though they can be inherited ignored.
    const SIGNALS: std::ops::RangeInclusive<libc::c_int> = 1..=64;
    /// The kernel's `struct sigaction` (action, flags, restorer, mask): all zeroes are the default action.
    const DEFAULT_ACTION: [u64; 4] = [0; 4];
    const MASK_BYTES: usize = size_of::<u64>();
    const NONE_BLOCKED: [u64; 1] = [0];
    let old = std::ptr::null_mut::<u64>();
    for signal in SIGNALS {
        // SAFETY: the action lives through the call and installs no code; signals that cannot be changed answer EINVAL.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), old, MASK_BYTES) };
    }
    // SAFETY: the mask lives through the call, and no old one is asked for.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, NONE_BLOCKED.as_ptr(), old, MASK_BYTES)
    };
}

/// Ends this process at once, running no destructor of the parent's.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

pub(crate) fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
