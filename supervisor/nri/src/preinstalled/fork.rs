//! Forking a plugin.
//!
//! Owns: what its process has before its program begins: environment, descriptors, group, and that it dies with whoever
//! forked it. Never: waits for it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use mainstay_nri_api::{PLUGIN_INDEX_VARIABLE, PLUGIN_NAME_VARIABLE, PLUGIN_SOCKET_VARIABLE};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::Preinstalled;

/// The descriptor that a plugin is given.
const PLUGIN_FD: RawFd = 3;

/// Starts the program. It is killed when the thread that calls this ends.
pub(super) fn fork(plugin: &Preinstalled, socket: &UnixStream, printed: io::PipeWriter) -> io::Result<Child> {
    let _occupied = occupy_place()?;
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, PLUGIN_FD + 1)?;
    let (original, parent) = (socket.as_raw_fd(), rustix::process::getpid());
    let mut command = Command::new(&plugin.path);
    command
        .env_clear()
        .env(PLUGIN_NAME_VARIABLE, plugin.name.name())
        .env(PLUGIN_INDEX_VARIABLE, plugin.name.index())
        .env(PLUGIN_SOCKET_VARIABLE, PLUGIN_FD.to_string())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(printed.try_clone()?)
        .stderr(printed);
    // SAFETY: the closure only makes system calls on a descriptor that is open as long as `command` is used; it allocates
    // nothing and takes no lock, as is needed between fork and exec of a program with threads.
    unsafe {
        command.pre_exec(move || settle_child(original, parent));
    }
    command.spawn()
}

/// Runs in the child: it dies with its parent, has its connection in place, and nothing else of ours.
fn settle_child(socket: RawFd, parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        // It died before the kernel was told.
        return Err(Errno::SRCH.into());
    }
    // SAFETY: plain system call; what was open there in this child is the placeholder of `occupy_place`.
    if unsafe { libc::dup2(socket, PLUGIN_FD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Only marked: the standard library reports a failed exec over one of them.
    let first_other = PLUGIN_FD as libc::c_uint + 1;
    // SAFETY: plain system call without pointers.
    let marked = unsafe {
        libc::syscall(libc::SYS_close_range, first_other, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes sure that the place of the connection is in use, so that nothing that the standard library opens for starting a process
/// lies there and is overwritten in the child.
fn occupy_place() -> io::Result<Vec<OwnedFd>> {
    let mut held = Vec::new();
    loop {
        let fd: OwnedFd = File::open("/dev/null")?.into();
        if fd.as_raw_fd() > PLUGIN_FD {
            return Ok(held);
        }
        held.push(fd);
    }
}
