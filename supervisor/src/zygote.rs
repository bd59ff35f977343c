//! The supervisor's zygote, which its shims are forked from.
//!
//! Owns: starting it, asking it, and ending it with the supervisor. It is a part of this program that happens to be a
//! process: it holds nothing of any pod, and so no record names it. Never: is needed: where there is none, shims are
//! executed. All of it blocks.
//!
//! ```text
//!              first use                asked, silent: killed
//!   NotStarted ─────────► Running ◄──────────────────────────► NotStarted
//!        │                             gone
//!        └──► Impossible: it does not start; shims are executed from now on
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use mainstay_shim::zygote::{ForkError, Forked, ShimFiles, await_ready, fork_shim};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

/// The place of a zygote.
#[derive(Debug, Default)]
pub(crate) struct Zygote(Mutex<Life>);

#[derive(Debug, Default)]
enum Life {
    #[default]
    NotStarted,
    Running(Process),
    Impossible,
}

/// A zygote that runs; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    /// Our end of its socket.
    pub socket: OwnedFd,
    pub pidfd: OwnedFd,
}

impl Zygote {
    /// Starts it if it does not run, so that the first pod does not wait for it.
    pub fn warm(&self, start: impl FnOnce() -> io::Result<Process>) {
        let mut life = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*life, Life::NotStarted) {
            *life = begin(start);
        }
    }

    /// Forks a shim with this command line, the program's name first.
    pub fn fork(
        &self,
        start: impl FnOnce() -> io::Result<Process>,
        words: &[String],
        files: &ShimFiles<'_>,
    ) -> Result<Forked, ForkError> {
        let mut life = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Life::Running(process) = &*life {
            match fork_shim(process.socket.as_fd(), words, files) {
                Err(ForkError::Gone(error)) => {
                    tracing::warn!(%error, "the zygote is gone, another one is started");
                    *life = Life::NotStarted;
                }
                Err(ForkError::Silent(error)) => {
                    *life = Life::NotStarted;
                    return Err(ForkError::Silent(error));
                }
                answer => return answer,
            }
        }
        if matches!(*life, Life::NotStarted) {
            *life = begin(start);
        }
        match &*life {
            Life::Running(process) => fork_shim(process.socket.as_fd(), words, files),
            Life::NotStarted | Life::Impossible => Err(ForkError::Gone(io::ErrorKind::NotFound.into())),
        }
    }
}

fn begin(start: impl FnOnce() -> io::Result<Process>) -> Life {
    let begun = start().and_then(|process| await_ready(process.socket.as_fd()).map(|()| process));
    match begun {
        Ok(process) => Life::Running(process),
        Err(error) => {
            tracing::warn!(%error, "no zygote can be started: each shim is executed, which takes longer");
            Life::Impossible
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It holds nothing that would have to be put in order. Both fail only when somebody else has reaped it.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};

    use rustix::net::{
        AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair,
    };
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// A process that never answers, with a socket that says what `said` is.
    fn silent(said: &[u8], theirs: &mut Option<OwnedFd>) -> io::Result<Process> {
        let (socket, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        send(&other, said, SendFlags::empty())?;
        *theirs = Some(other);
        let child = Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn()?;
        let pid = Pid::from_raw(child.id() as i32).expect("not zero");
        Ok(Process { socket, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    fn fork(zygote: &Zygote, start: impl FnOnce() -> io::Result<Process>) -> ForkError {
        let null = File::open("/dev/null").expect("there");
        let fd = null.as_fd();
        let files = ShimFiles { log: fd, requests: fd, streams: fd, lifeline: None };
        zygote.fork(start, &["mainstay-shim".to_owned()], &files).expect_err("nobody forks")
    }

    /// Whoever was asked and was silent may have forked all the same: a shim that is executed beside it would serve the same
    /// sockets. So that launch fails, and the next one has a new zygote.
    #[test]
    fn one_that_hangs_costs_one_launch() {
        let (zygote, mut first, mut second) = (Zygote::default(), None, None);
        zygote.warm(|| silent(b"mainstay zygote 1", &mut first));
        let error = fork(&zygote, || unreachable!("one runs"));
        assert!(matches!(error, ForkError::Silent(_)), "{error:?}");
        let error = fork(&zygote, || silent(b"mainstay zygote 1", &mut second));
        assert!(matches!(error, ForkError::Silent(_)) && second.is_some(), "{error:?}");
    }

    #[test]
    fn one_that_is_gone_is_replaced_at_once() {
        let (zygote, mut first, mut second) = (Zygote::default(), None, None);
        zygote.warm(|| silent(b"mainstay zygote 1", &mut first));
        // Not only closed: a child that another test is just starting may have a copy.
        shutdown(first.expect("started"), Shutdown::Both).expect("connected");
        let error = fork(&zygote, || silent(b"mainstay zygote 1", &mut second));
        assert!(matches!(error, ForkError::Silent(_)) && second.is_some(), "{error:?}");
    }

    /// A program that knows no zygote is asked once, not for every pod.
    #[test]
    fn a_program_that_is_none_is_started_once() {
        let (zygote, mut theirs) = (Zygote::default(), None);
        zygote.warm(|| silent(b"usage: program [options]", &mut theirs));
        let error = fork(&zygote, || unreachable!("it is known to be impossible"));
        assert!(matches!(error, ForkError::Gone(_)), "{error:?}");
    }
}
