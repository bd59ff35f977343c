//! Where the output of a process goes: FIFOs, files, or a logger that is started for it. Owns: opening them. Never: copies.

use std::fs::OpenOptions;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use mainstay_task_api::task::{CreateTaskRequest, ExecProcessRequest};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, dup2, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

/// What a process has as its standard streams, as the request said it.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
}

impl From<&CreateTaskRequest> for Wanted {
    fn from(request: &CreateTaskRequest) -> Self {
        Self { stdin: request.stdin.clone(), stdout: request.stdout.clone(), stderr: request.stderr.clone() }
    }
}

impl From<&ExecProcessRequest> for Wanted {
    fn from(request: &ExecProcessRequest) -> Self {
        Self { stdin: request.stdin.clone(), stdout: request.stdout.clone(), stderr: request.stderr.clone() }
    }
}

/// Opened streams.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
}

/// Opens them. A logger gets the namespace and the container's id, as containerd gives them.
pub fn open(wanted: &Wanted, namespace: &str, id: &str) -> io::Result<Streams> {
    let stdin = match wanted.stdin.as_str() {
        "" => Stdio::null(),
        path => {
            // Without waiting for a writer; who reads waits for what comes.
            let file = OpenOptions::new().read(true).custom_flags(nonblocking()).open(path)?;
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            file.into()
        }
    };
    if let Some(logger) = wanted.stdout.strip_prefix("binary://") {
        let (stdout, stderr) = start_logger(logger, namespace, id)?;
        return Ok(Streams { stdin, stdout: stdout.into(), stderr: stderr.into() });
    }
    Ok(Streams { stdin, stdout: open_write(&wanted.stdout)?, stderr: open_write(&wanted.stderr)? })
}

fn nonblocking() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

fn open_write(uri: &str) -> io::Result<Stdio> {
    if uri.is_empty() {
        return Ok(Stdio::null());
    }
    if let Some(path) = uri.strip_prefix("file://") {
        return Ok(OpenOptions::new().create(true).append(true).open(path)?.into());
    }
    // Read and write: a FIFO without a reader does not hold us up.
    Ok(OpenOptions::new().read(true).write(true).open(uri)?.into())
}

/// Starts `PATH?KEY=VALUE&…` with the reading ends on descriptors 3 and 4, and waits until it closes 5.
fn start_logger(uri: &str, namespace: &str, id: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let words = query.split('&').filter(|pair| !pair.is_empty()).flat_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        [key.to_owned(), value.to_owned()]
    });
    let (stdout_read, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr_read, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (ready_read, ready) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new(path);
    command
        .args(words.filter(|word| !word.is_empty()))
        .env("CONTAINER_ID", id)
        .env("CONTAINER_NAMESPACE", namespace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    crate::container::with_descriptors(&mut command, [stdout_read, stderr_read, ready]);
    // Not waited for: it lives as long as it likes, and init or a sub-reaper has it then.
    command.spawn()?;
    drop(command);
    // Whether it says something or just closes it: then it is ready.
    rustix::io::read(ready_read, &mut [0; 1])?;
    Ok((stdout, stderr))
}

/// Puts descriptors where a child expects them: on 3 and the following. For use between fork and exec.
pub fn place_descriptors(descriptors: &[OwnedFd]) -> io::Result<()> {
    // High first: none of them may be overwritten before it was moved.
    let mut high = Vec::with_capacity(8);
    for descriptor in descriptors {
        high.push(rustix::io::fcntl_dupfd_cloexec(descriptor, 16)?);
    }
    for (number, descriptor) in high.iter().enumerate() {
        let wanted = 3 + i32::try_from(number).map_err(io::Error::other)?;
        dup_to(descriptor, wanted)?;
    }
    Ok(())
}

fn dup_to(descriptor: &OwnedFd, wanted: i32) -> io::Result<()> {
    // SAFETY: whatever has this number belongs to a child that is about to execute another program; it is never dropped, and so
    // nothing is closed twice.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(wanted) });
    dup2(descriptor, &mut target)?;
    Ok(fcntl_setfd(target.as_fd(), FdFlags::empty())?)
}
