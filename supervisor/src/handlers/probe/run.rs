//! One run of a program that is asked something.
//!
//! Owns: its process, and the limits of its time and its answer. Never: waits for what it has left behind, or keeps more of what
//! it says than the longest answer.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit};

use super::PROBE_MS;

/// The longest answer, in bytes. It is written to memory, and its writer is held to that.
const ANSWER_MAX_BYTES: u64 = 256 * 1024;
/// How much is shown of what a program has said when it failed, in bytes.
pub(super) const WORDS_MAX_BYTES: usize = 256;

/// Runs a program to its end; its output, or why there is none.
pub(super) fn run(path: &Path, argument: &str) -> std::result::Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot be run: {error}");
    let mut output = memory().map_err(failed)?;
    let mut errors = memory().map_err(failed)?;
    let mut child = Command::new(path)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(errors.try_clone().map_err(failed)?)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let limited = limit_files(&child);
    let in_time = limited.is_ok() && has_ended(&child, Duration::from_millis(PROBE_MS));
    if !in_time {
        kill_group(&child);
    }
    let status = child.wait().map_err(failed)?;
    limited.map_err(failed)?;
    if !in_time {
        return Err(format!("did not answer within {PROBE_MS} ms, and was killed"));
    }
    let answer = read(&mut output).map_err(failed)?;
    if answer.len() as u64 == ANSWER_MAX_BYTES {
        return Err(format!(
            "says more than {ANSWER_MAX_BYTES} bytes, beginning with {:?}",
            first_words(&answer)
        ));
    }
    if status.success() {
        return Ok(answer);
    }
    let said = read(&mut errors).map_err(failed)?;
    Err(format!("failed ({status}) and said {:?}", words(if said.is_empty() { &answer } else { &said })))
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("answer", MemfdFlags::CLOEXEC)?.into())
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(ANSWER_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Holds a program to the longest answer: what is written to memory is no file that anything else limits.
fn limit_files(child: &Child) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(ANSWER_MAX_BYTES), maximum: Some(ANSWER_MAX_BYTES) };
    match prlimit(pid, Resource::Fsize, limit) {
        // It has ended.
        Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn has_ended(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // A child that was not waited for is there, dead or alive.
    let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

/// Its group has its number for as long as it was not waited for.
fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The last line of an answer, short.
pub(super) fn words(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(&answer[answer.len().saturating_sub(4 * WORDS_MAX_BYTES)..]);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(WORDS_MAX_BYTES).collect()
}

/// The first line of an answer, short.
fn first_words(answer: &[u8]) -> String {
    words(answer.get(..WORDS_MAX_BYTES).unwrap_or(answer))
}
