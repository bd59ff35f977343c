//! FIFOs between another shim and this one, for the streams of one process that do not go by a logger.
//!
//! That shim copies: it opens its ends when it is told of the process, by name. Ours are opened before, without waiting, and a
//! writing end of each is held until that shim has its own: so nobody waits for anybody, and the end of the output is read only
//! when that shim has let go.
//!
//! Owns: the files, and which ends are held for how long. Never: reads or writes.

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mainstay_task_api::streams::Terminal;
use rustix::fs::{FileType, Mode, OFlags, mknodat, open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::output::pump::Ends;
use crate::process::Process;
use crate::readiness::watch;
use crate::stdin::StdinMode;

/// The FIFOs of a process.
#[derive(Debug)]
pub(super) struct Fifos {
    directory: PathBuf,
    pub(super) stdin: Option<PathBuf>,
    pub(super) stdout: PathBuf,
    /// A terminal has none.
    pub(super) stderr: Option<PathBuf>,
}

/// The ends of this shim.
#[derive(Debug)]
pub(super) struct OwnEnds {
    pub(super) stdin: Option<AsyncFd<OwnedFd>>,
    pub(super) output: Ends,
    /// To be dropped when the other shim has its ends.
    pub(super) held: Vec<OwnedFd>,
}

impl Fifos {
    /// Makes them, and opens our ends.
    pub(super) fn make(directory: PathBuf, process: &Process) -> std::io::Result<(Self, OwnEnds)> {
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let with_stdin = process.stdin.mode() != StdinMode::Null;
        let fifos = Self {
            stdin: with_stdin.then(|| directory.join("0")),
            stdout: directory.join("1"),
            stderr: (process.terminal == Terminal::No).then(|| directory.join("2")),
            directory,
        };
        let mut held = Vec::new();
        let stdin = fifos.stdin.as_deref().map(open_stdin).transpose()?;
        let stdout = open_output(&fifos.stdout, &mut held)?;
        let stderr = fifos.stderr.as_deref().map(|path| open_output(path, &mut held)).transpose()?;
        Ok((fifos, OwnEnds { stdin, output: Ends::Fifos { stdout, stderr }, held }))
    }
}

impl Drop for Fifos {
    /// Removes the files; who has them open keeps them.
    fn drop(&mut self) {
        if let Err(error) = crate::delete::remove_own(&self.directory) {
            crate::logger::warning!("{:?}: {error}", self.directory);
        }
    }
}

/// Makes a FIFO that only this user can open.
pub(super) fn make(path: &Path) -> std::io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0)?)
}

/// Our end reads as well: so it is there before that of the other shim.
fn open_stdin(path: &Path) -> std::io::Result<AsyncFd<OwnedFd>> {
    make(path)?;
    watch(open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?, Interest::WRITABLE)
}

fn open_output(path: &Path, held: &mut Vec<OwnedFd>) -> std::io::Result<AsyncFd<OwnedFd>> {
    make(path)?;
    let reading = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    held.push(open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    watch(reading, Interest::READABLE)
}
