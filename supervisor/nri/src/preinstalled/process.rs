//! The process of a plugin that the runtime started.
//!
//! Owns: the process and all that it starts in its process group, what it prints, and its end. Never: outlives its plugin, or
//! leaves one that outlives the runtime.
//!
//! Each has a thread of its own, which forks it, reads what it prints, and reaps it. The kernel kills the process when this thread
//! ends (PR_SET_PDEATHSIG is about the thread that forked), so also when the runtime is killed: that needs no
//! record, no disk and no next start of the runtime. A thread costs little, and there are few plugins.

use std::fmt;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};

use super::Preinstalled;
use super::fork::fork;
use super::output::{Lines, Logged};
use crate::link::{Accepted, HandshakeError, Peer};
use crate::name::PluginName;

/// How long a plugin whose connection is closed may take to end, in milliseconds, before it is killed.
pub const STOP_GRACE_MS: u64 = 2_000;
/// The stack of the thread of a plugin, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// How much of its output is read at once, in bytes.
const READ_BYTES: usize = 8 << 10;

/// Why a plugin was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The system refused.
    #[error("plugin {name} cannot be started")]
    Io {
        /// The plugin.
        name: PluginName,
        /// Why.
        source: io::Error,
    },
    /// It is started, but its connection ended at once; so it is killed.
    #[error("plugin {name} cannot be spoken with")]
    Handshake {
        /// The plugin.
        name: PluginName,
        /// Why.
        source: HandshakeError,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// The process of a plugin. Dropped, it is killed.
#[derive(Debug)]
pub struct PluginProcess {
    pid: i32,
    pidfd: Arc<OwnedFd>,
    ended: watch::Receiver<Option<End>>,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it exited with code {code}"),
            Self::Killed(signal) => write!(f, "it was killed by signal {signal}"),
        }
    }
}

impl PluginProcess {
    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<End> {
        *self.ended.borrow()
    }

    /// Waits for its end. All of its process group has ended then, and it is reaped.
    pub async fn ended(&self) -> End {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await.map(|end| *end) {
            Ok(Some(end)) => end,
            // Its thread has gone without a word, and the kernel has killed it for that.
            Ok(None) | Err(_) => End::Killed(Signal::KILL.as_raw()),
        }
    }

    /// Sends SIGKILL. One that has ended is killed already.
    pub fn kill(&self) {
        if let Err(error) = pidfd_send_signal(&*self.pidfd, Signal::KILL)
            && error != Errno::SRCH
        {
            tracing::warn!(pid = self.pid, %error, "a plugin cannot be killed");
        }
    }

    /// Waits for its end, which its closed connection brings about, and kills it after [`STOP_GRACE_MS`].
    pub async fn stop(&self) -> End {
        match tokio::time::timeout(Duration::from_millis(STOP_GRACE_MS), self.ended()).await {
            Ok(end) => end,
            Err(_) => {
                self.kill();
                self.ended().await
            }
        }
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a plugin, which is expected to register next.
pub async fn launch(plugin: &Preinstalled) -> Result<(Accepted, PluginProcess), LaunchError> {
    let name = || plugin.name.clone();
    let cannot = |source: io::Error| LaunchError::Io { name: name(), source };
    let (ours, theirs) = StdUnixStream::pair().map_err(cannot)?;
    ours.set_nonblocking(true).map_err(cannot)?;
    let socket = UnixStream::from_std(ours).map_err(cannot)?;
    let process = start(plugin.clone(), theirs).await.map_err(cannot)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let peer = Peer { pid: Some(process.pid), uid, gid };
    let accepted = Accepted::new(socket, peer, Some(name()), None).await;
    Ok((accepted.map_err(|source| LaunchError::Handshake { name: name(), source })?, process))
}

async fn start(plugin: Preinstalled, socket: StdUnixStream) -> io::Result<PluginProcess> {
    let (started, starting) = oneshot::channel();
    let (ending, ended) = watch::channel(None);
    let name = format!("nri {}", plugin.name);
    thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
        let running = Running::start(&plugin, &socket);
        drop(socket);
        match running {
            Err(error) => drop(started.send(Err(error))),
            Ok(running) => {
                let (pid, pidfd) = (running.pid.as_raw_pid(), Arc::clone(&running.pidfd));
                // Whoever waits has gone when this fails, and nobody would ever end it.
                if started.send(Ok((pid, pidfd))).is_err() {
                    running.kill_group();
                }
                ending.send_replace(Some(running.until_end()));
            }
        }
    })?;
    let (pid, pidfd) = starting.await.map_err(io::Error::other)??;
    Ok(PluginProcess { pid, pidfd, ended })
}

/// A process, for the thread that forked it.
struct Running {
    name: PluginName,
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    output: PipeReader,
}

impl Running {
    fn start(plugin: &Preinstalled, socket: &StdUnixStream) -> io::Result<Self> {
        let (output, printed) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let child = fork(plugin, socket, printed)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a child without a process id"))?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { name: plugin.name.clone(), pid, pidfd: Arc::new(pidfd), output }),
            Err(error) => {
                // It is our child and not reaped, so that its number is its own.
                let mut child = child;
                let _ = child.kill().and_then(|()| child.wait());
                Err(error.into())
            }
        }
    }

    /// Logs what it prints until it has ended, then ends what it started and reaps it.
    fn until_end(mut self) -> End {
        let mut lines = Lines::new(Instant::now());
        let mut is_open = true;
        loop {
            let (mut printed, mut ended) = (PollFlags::empty(), PollFlags::empty());
            let mut fds = vec![PollFd::new(&*self.pidfd, PollFlags::IN)];
            if is_open {
                fds.push(PollFd::new(&self.output, PollFlags::IN));
            }
            if retry_on_intr(|| poll(&mut fds, None)).is_ok() {
                ended = fds[0].revents();
                printed = fds.get(1).map_or(printed, PollFd::revents);
            }
            drop(fds);
            if !printed.is_empty() {
                is_open = self.read(&mut lines);
            }
            if !ended.is_empty() {
                break;
            }
        }
        // As long as it is not reaped the number of its group is its own.
        self.kill_group();
        while is_open && self.read(&mut lines) {
            let mut fds = [PollFd::new(&self.output, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            is_open = matches!(poll(&mut fds, Some(&now)), Ok(1));
        }
        self.log(lines.finish(Instant::now()));
        self.reap()
    }

    /// Reads once. Whether there may be more.
    fn read(&mut self, lines: &mut Lines) -> bool {
        let mut bytes = [0; READ_BYTES];
        match self.output.read(&mut bytes) {
            Ok(0) => false,
            Ok(read) => {
                let logged = lines.push(&bytes[..read], Instant::now());
                self.log(logged);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    fn log(&self, logged: Vec<Logged>) {
        for logged in logged {
            match logged {
                Logged::Line(line) => tracing::info!(plugin = %self.name, "{line}"),
                Logged::LeftOut(lines) => {
                    tracing::warn!(plugin = %self.name, lines, "the plugin prints too much; lines were left out");
                }
            }
        }
    }

    fn kill_group(&self) {
        // There is none when it has ended alone.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    fn reap(&self) -> End {
        let status = retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED));
        let Ok(Some(status)) = status else { return End::Killed(Signal::KILL.as_raw()) };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Killed(signal.unwrap_or(Signal::KILL.as_raw())),
        }
    }
}
