//! A program that takes the output of a process: `binary:///path?key=value`.
//!
//! It is started with standard output on descriptor 3 and standard error on 4, closes 5 when it is ready, and has nothing in
//! its environment but `CONTAINER_ID` (for an exec its own id) and `CONTAINER_NAMESPACE`. Its arguments are the keys and values of the query.
//!
//! Owns: starting it, and that it ends. Never: waits longer than a named time for either.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use mainstay_messages::Signal;
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::identity::send_signal;
use crate::logger;
use crate::output::Output;
use crate::output::sink::Target;
use crate::readiness::watch;

/// How long the program may take until it is ready, in milliseconds.
const PROGRAM_READY_MS: u64 = 10_000;
/// How long it may take to end when there is nothing more to read, in milliseconds; then it is killed.
const PROGRAM_END_MS: u64 = 12_000;
/// What the program has its pipes as.
const STDOUT: i32 = 3;
const STDERR: i32 = 4;
const READY: i32 = 5;
/// Descriptors from here on are in nobody's way.
const OUT_OF_THE_WAY: i32 = 64;

/// Takes the numbers that a program has its pipes as, for the life of this process. Between fork and exec they are given to
/// the pipes, and what had one of them would be lost: the descriptor on which the standard library hears that the program
/// could not be executed was such a one.
pub(super) fn reserve_numbers() -> std::io::Result<()> {
    loop {
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > READY {
            return Ok(());
        }
        // Never closed.
        let _ = null.into_raw_fd();
    }
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    pub(super) fn new(path: PathBuf, query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes());
        let arguments = pairs.flat_map(|(key, value)| [key.into_owned(), value.into_owned()]).collect();
        Self { path, arguments }
    }
}

/// A program that takes output.
#[derive(Debug)]
pub(super) struct Running {
    pidfd: AsyncFd<OwnedFd>,
}

impl Running {
    /// Waits until it has all of the output, and has ended.
    pub(super) async fn see_out(self, output: Rc<Output>) {
        output.delivered().await;
        if timeout(Duration::from_millis(PROGRAM_END_MS), self.ended()).await.is_err() {
            logger::warning!(
                "the program that took the output is killed: it has not ended within {PROGRAM_END_MS} ms"
            );
            self.kill();
        }
    }

    async fn ended(&self) {
        // It fails only without a runtime.
        let _ = self.pidfd.readable().await;
    }

    fn kill(&self) {
        // It may have ended.
        let _ = send_signal(self.pidfd.as_fd(), Signal::KILL);
    }
}

/// Starts a program and waits until it is ready; the ends of its pipes that are written to.
pub(super) async fn start(
    program: &Program,
    id: &str,
    namespace: &str,
) -> Result<(Running, [Target; 2]), Failure> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| system(error.into()));
    let (stdout_theirs, stdout) = pipe()?;
    let (stderr_theirs, stderr) = pipe()?;
    let (ready, ready_theirs) = pipe()?;
    let theirs = [(STDOUT, stdout_theirs), (STDERR, stderr_theirs), (READY, ready_theirs)];
    let pidfd = spawn(program, id, namespace, theirs)?;
    let running = Running { pidfd: watch(pidfd, Interest::READABLE).map_err(system)? };
    let ready = watch(ready, Interest::READABLE).map_err(system)?;
    // A byte or the end. One that has closed it by dying is found out by whoever writes to it.
    if timeout(Duration::from_millis(PROGRAM_READY_MS), ready.readable()).await.is_err() {
        running.kill();
        return Err(Failure::Deadline {
            what: format!("{:?}, which is to take the output,", program.path),
            after_ms: PROGRAM_READY_MS,
            place: "; it says that it is ready by closing descriptor 5".to_owned(),
        });
    }
    // Its own copies of the ends that it reads are all that there are, so it sees the end of both pipes.
    let writing = |fd| watch(fd, Interest::WRITABLE).map(|fd| Target::Pipe(Rc::new(fd))).map_err(system);
    Ok((running, [writing(stdout)?, writing(stderr)?]))
}

fn system(source: std::io::Error) -> Failure {
    Failure::System { doing: "starting the program that takes the output", source }
}

fn spawn(
    program: &Program,
    id: &str,
    namespace: &str,
    theirs: [(i32, OwnedFd); 3],
) -> Result<OwnedFd, Failure> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear();
    command.env("CONTAINER_ID", id).env("CONTAINER_NAMESPACE", namespace);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let numbers = theirs.each_ref().map(|(target, fd)| (*target, fd.as_raw_fd()));
    // SAFETY: between fork and exec only fcntl, dup2 and close are called, on descriptors that live until after the spawn.
    unsafe {
        command.pre_exec(move || {
            let mut high = [0; 3];
            for (place, (_, fd)) in high.iter_mut().zip(numbers) {
                *place = check(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY))?;
            }
            for ((target, _), fd) in numbers.into_iter().zip(high) {
                check(libc::dup2(fd, target))?;
            }
            Ok(())
        });
    }
    let child = command.spawn().map_err(|source| Failure::File {
        path: program.path.clone(),
        doing: "started, to take the output",
        source,
    })?;
    // The reaper has had no turn since, so the number is still its own.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| system(std::io::Error::other("it has no process id")))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|error| system(error.into()))
}

fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
