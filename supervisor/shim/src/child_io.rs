//! The pipes between a process and the shim.
//!
//! Owns: making both ends of each. Never: reads or writes them.

use std::io;
use std::os::fd::OwnedFd;

use mainstay_launch::{Io, Stdio};
use mainstay_task_api::streams::Terminal;
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::output::pump::Ends;
use crate::process::Process;
use crate::readiness::watch;
use crate::stdin::StdinMode;

/// The shim's ends.
#[derive(Debug)]
pub(crate) enum ShimEnds {
    /// Pipes.
    Pipes {
        /// The writing end of standard input, unless that is `/dev/null`.
        stdin: Option<AsyncFd<OwnedFd>>,
        /// The reading ends.
        output: Ends,
    },
    /// The terminal's master comes from the launcher.
    Terminal,
}

/// Makes both ends of a process's streams.
pub(crate) fn make(process: &Process) -> io::Result<(Io, ShimEnds)> {
    if process.terminal == Terminal::Yes {
        return Ok((Io::Terminal { size: process.initial_size() }, ShimEnds::Terminal));
    }
    let (stdin, stdin_ours) = match process.stdin.mode() {
        StdinMode::Null => (open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None),
        StdinMode::Open | StdinMode::Once => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (theirs, Some(watch(ours, Interest::WRITABLE)?))
        }
    };
    let (stdout_ours, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr_ours, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let output = Ends::Pipes {
        stdout: watch(stdout_ours, Interest::READABLE)?,
        stderr: watch(stderr_ours, Interest::READABLE)?,
    };
    Ok((Io::Pipes(Stdio { stdin, stdout, stderr }), ShimEnds::Pipes { stdin: stdin_ours, output }))
}
