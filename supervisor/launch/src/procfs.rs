//! The host's `/proc`, held by descriptor from before the root is changed.
//!
//! The launcher writes kernel files through this and never through a `/proc` that a container could have arranged: such a
//! write could be led to another file (CVE-2025-52881).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, openat, openat2, readlinkat};
use rustix::process::Pid;

const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// A handle of the host's proc file system.
pub(crate) struct HostProc {
    fd: OwnedFd,
}

impl HostProc {
    /// Opens `/proc`, and makes sure that it is one.
    pub(crate) fn open() -> io::Result<HostProc> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/proc", flags, Mode::empty())?;
        if is_procfs(&fd)? {
            Ok(HostProc { fd })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "/proc is no proc file system"))
        }
    }

    /// Writes a file below `/proc`, such as `self/oom_score_adj`.
    pub(crate) fn write(&self, path: &str, value: &[u8]) -> io::Result<()> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let file = openat2(&self.fd, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        let written = rustix::io::write(&file, value)?;
        if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Reads a small file below `/proc`.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.fd, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut content = String::new();
        io::Read::read_to_string(&mut std::fs::File::from(file), &mut content)?;
        Ok(content)
    }

    /// The number of this process where the file system was mounted.
    pub(crate) fn own_pid(&self) -> io::Result<Option<Pid>> {
        let target = readlinkat(&self.fd, "self", Vec::new())?;
        Ok(target.to_str().ok().and_then(|text| text.parse().ok()).and_then(Pid::from_raw))
    }

    /// Opens what a handle (`O_PATH`) refers to, for use.
    pub(crate) fn reopen(&self, handle: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        // A number has no NUL.
        let path = CString::new(format!("self/fd/{}", handle.as_raw_fd())).expect("no NUL in digits");
        Ok(openat(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty())?)
    }
}

/// Whether a file is in a proc file system.
pub(crate) fn is_procfs(fd: impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(fd)?.f_type as u64 == PROC_SUPER_MAGIC)
}
