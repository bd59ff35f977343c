//! A shim's process, held by a pidfd.
//!
//! Owns: waiting for its end, reaping it when it is a child of ours, and killing it. Never: waits for "any child",
//! since the program that embeds us has children too; and never uses a number where the pidfd would do (P10).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Time between the closing of a process's sockets and its end, in milliseconds; usually less than one.
pub(crate) const END_SHOWS_MS: u64 = 1_000;

/// A process that is watched until it ends.
#[derive(Clone, Debug)]
pub(crate) struct WatchedProcess {
    pidfd: Rc<AsyncFd<OwnedFd>>,
    ended: watch::Receiver<Option<String>>,
}

impl WatchedProcess {
    /// Begins to watch. One that is over already is known to have ended at once.
    pub fn new(pidfd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned, and so open and the same until the registration is dropped with it.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let pidfd = Rc::new(pidfd.map_err(io::Error::from)?);
        let (sender, ended) = watch::channel(None);
        if is_over(pidfd.get_ref().as_fd())? {
            sender.send_replace(Some(reap(pidfd.get_ref())));
            return Ok(Self { pidfd, ended });
        }
        let watched = Rc::clone(&pidfd);
        actix::spawn(async move {
            // An error here means that the runtime is going down; nobody waits any more then.
            if watched.readable().await.is_ok() {
                let _ = sender.send(Some(reap(watched.get_ref())));
            }
        });
        Ok(Self { pidfd, ended })
    }

    /// Its pidfd, for questions to the kernel.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.get_ref().as_fd()
    }

    /// Whether it is known to have ended.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for its end, and says how that came.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            // The watching task ends early only with its runtime, and whoever waits with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether it has ended, for whoever has just lost the connection to it: the end may show a little later.
    pub async fn has_ended_soon(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(END_SHOWS_MS), self.ended()).await.is_ok()
    }

    /// Sends SIGKILL. One that has ended is killed already.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether a process has ended: then its pidfd is readable.
pub(crate) fn is_over(pidfd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut list = [PollFd::new(&pidfd, PollFlags::IN)];
    Ok(poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// Takes the exit status of a child that has ended. An adopted shim is no child: its status is init's.
fn reap(pidfd: &OwnedFd) -> String {
    match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(Some(status)) => describe(&status),
        Ok(None) | Err(_) => "ended".to_owned(),
    }
}

fn describe(status: &WaitIdStatus) -> String {
    if let Some(code) = status.exit_status() {
        return format!("exited with code {code}");
    }
    match status.terminating_signal().and_then(|signal| u8::try_from(signal).ok()) {
        Some(signal) => format!("was killed by {}", mainstay_messages::Signal(signal)),
        None => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[allow(clippy::zombie_processes, reason = "reaping is what is tested")]
    fn start(program: &str, arguments: &[&str]) -> (u32, OwnedFd) {
        let child = Command::new(program).args(arguments).spawn().expect("started");
        let pid = Pid::from_raw(child.id() as i32).expect("not zero");
        (child.id(), pidfd_open(pid, PidfdFlags::empty()).expect("not reaped yet"))
    }

    #[actix::test]
    async fn says_how_a_child_ended_and_reaps_it() {
        let (pid, pidfd) = start("/bin/sh", &["-c", "exit 7"]);
        let process = WatchedProcess::new(pidfd).expect("watched");
        assert_eq!(process.ended().await, "exited with code 7");
        assert!(process.has_ended());
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "still a zombie");
        process.kill().expect("no stranger is hit");
    }

    /// Reaping "any child" took away the exit status of a child that belonged to the embedding program.
    #[actix::test]
    async fn leaves_other_children_alone() {
        let mut other = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("started");
        let (_, pidfd) = start("/bin/sleep", &["600"]);
        let process = WatchedProcess::new(pidfd).expect("watched");
        process.kill().expect("killed");
        assert_eq!(process.ended().await, "was killed by SIGKILL");
        assert_eq!(other.wait().expect("still there to be waited for").code(), Some(3));
    }
}
