//! The zygote: a process that has become everything that all shims have in common, and forks one for each pod.
//!
//! Executing a large program, loading and relocating it takes longer than the rest of a shim's start, and makes a third of
//! its memory its own. A fork of a process that has this behind it takes a fraction, and shares the pages.
//!
//! Owns: the fork, and what the new process is called. Never: holds anything of a pod, starts a thread, or outlives the
//! supervisor: its end is the end of the socket, after which it only clears away what the supervisor has left, if that is what
//! it was told ([`crate::leftovers`]). Of shims it knows nothing once they are born: they are children of the supervisor, as if
//! that had started them itself.
//!
//! ```text
//!   supervisor                           zygote                          shim
//!      │ ◀───────── ready ────────────── │
//!      │ ── words, log, sockets ───────▶ │ ── fork (CLONE_PARENT) ───────▶ │ takes its name, isolates itself, serves
//!      │ ◀── process id and pidfd ────── │
//!      │ ─────────── EOF ──────────────▶ │ exits                           │ runs on
//! ```

mod title;
mod wire;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use rustix::process::Pid;

use title::Title;

pub use wire::{
    FORK_ANSWER_MS, ForkError, Forked, REQUEST_MAX_BYTES, ShimFiles, await_ready, fork_shim, padding,
};

/// The option with the descriptor of its socket that makes a shim's program a zygote.
pub const ZYGOTE_OPTION: &str = "--zygote-fd";

/// What a shim is told that was forked and not executed.
pub(crate) struct Born {
    /// Its command line after the program's name.
    pub(crate) arguments: Vec<OsString>,
}

/// The descriptor of a zygote's socket, if these are the arguments of one.
pub(crate) fn socket(arguments: &[OsString]) -> Option<RawFd> {
    match arguments {
        [option, fd, ..] if option == OsStr::new(ZYGOTE_OPTION) => fd.to_str()?.parse().ok(),
        _ => None,
    }
}

/// Forks shims until the supervisor is gone. Returns in each of them with what it is told, and at last in the zygote with
/// nothing.
pub(crate) fn serve(socket: OwnedFd) -> io::Result<Option<Born>> {
    let title = Title::of_this_process()?;
    wire::ready(&socket)?;
    while let Some(request) = wire::receive(&socket)? {
        let request = match request {
            Ok(request) if title.has_room_for(&request.words) => request,
            Ok(_) => {
                wire::refuse(&socket, "the command line is too long")?;
                continue;
            }
            Err(reason) => {
                wire::refuse(&socket, reason)?;
                continue;
            }
        };
        // SAFETY: this process has one thread, and the child goes on with ordinary Rust as the parent would.
        match unsafe { fork_sibling() } {
            Ok(Side::Child) => {
                drop(socket);
                return born(&title, request).map(Some);
            }
            Ok(Side::Parent { pid, pidfd }) => wire::forked(&socket, pid, &pidfd)?,
            Err(error) => wire::refuse(&socket, &error.to_string())?,
        }
    }
    Ok(None)
}

/// The shim's first steps: its name in the process table, its log, the numbers of its descriptors.
fn born(title: &Title, request: wire::Request) -> io::Result<Born> {
    title.set(&request.words);
    rustix::stdio::dup2_stdout(&request.log)?;
    rustix::stdio::dup2_stderr(&request.log)?;
    let mut arguments: Vec<OsString> = request.words.into_iter().skip(1).map(OsString::from_vec).collect();
    let sockets = [("--listen-fd", Some(request.requests)), ("--streams-fd", Some(request.streams))];
    for (option, fd) in sockets.into_iter().chain([("--lifeline-fd", request.lifeline)]) {
        if let Some(fd) = fd {
            // Taken over by whoever reads the argument.
            arguments.extend([option.into(), fd.into_raw_fd().to_string().into()]);
        }
    }
    Ok(Born { arguments })
}

enum Side {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// A fork whose child is a child of this process's parent.
///
/// # Safety
///
/// The process must have one thread.
unsafe fn fork_sibling() -> io::Result<Side> {
    const CLONE_PIDFD: u64 = libc::CLONE_PIDFD as u64;
    const CLONE_PARENT: u64 = libc::CLONE_PARENT as u64;
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain old data, for which all zeroes is a valid value. With CLONE_PARENT the signal at the
    // child's end is that of this process, and none may be given.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_PARENT | CLONE_PIDFD;
    args.pidfd = (&raw mut pidfd) as u64;
    // SAFETY: the arguments live through the call; without CLONE_VM the child gets its own copy of this stack.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Side::Child),
        pid if pid > 0 => {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid =
                Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("clone3 answered process id 0"))?;
            Ok(Side::Parent { pid, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}
