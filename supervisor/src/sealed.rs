//! The sealed copy of the program that shims are executed from.
//!
//! Owns: the copy in memory, which nothing can change any more: neither an upgrade that overwrites the
//! file on disk while shims are started from it, nor a container that reaches `/proc/PID/exe` of a shim.
//! Never: starts anything.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// What a shim's process is called, and what its program recognises itself by.
pub const SHIM_NAME: &str = "mainstay-shim";

/// A program that can be executed by path, from this process and its children.
#[derive(Debug)]
pub struct SealedProgram {
    path: PathBuf,
    /// Kept open: the path leads through it.
    _copy: Option<OwnedFd>,
}

impl SealedProgram {
    /// A sealed copy of the program at `path`.
    pub fn copy(path: &Path) -> io::Result<Self> {
        let mut from = File::open(path)?;
        let mut copy = File::from(memfd()?);
        io::copy(&mut from, &mut copy)?;
        fcntl_add_seals(&copy, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(Self { path: format!("/proc/self/fd/{}", copy.as_raw_fd()).into(), _copy: Some(copy.into()) })
    }

    /// The file itself, for machines that refuse to execute memory (`vm.memfd_noexec`).
    pub fn file(path: &Path) -> Self {
        Self { path: path.to_owned(), _copy: None }
    }

    /// Where it is executed from.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Kernels from 6.3 on want to be told that it will be executed; older ones do not know the flag.
fn memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(SHIM_NAME, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(memfd_create(SHIM_NAME, flags)?),
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_copy_runs_and_cannot_be_changed() {
        let program = SealedProgram::copy(Path::new("/bin/echo")).expect("there is room");
        let output = Command::new(program.path()).arg("hello").output();
        match output {
            Ok(output) => assert_eq!(output.stdout, b"hello\n"),
            Err(error) => return println!("skipped: this machine does not execute memory ({error})"),
        }
        let mut writer = File::options().write(true).open(program.path()).expect("opens");
        assert!(writer.write_all(b"#!").is_err());
        assert!(writer.set_len(0).is_err());
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = SealedProgram::copy(Path::new("/nonexistent/program")).expect_err("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
