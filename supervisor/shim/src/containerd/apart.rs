//! Work that may hang in the kernel, in a process of its own that shares the shim's namespaces.
//!
//! Owns: the fork, and what comes back of it. Never: holds up the shim; one that hangs is killed, and ends when the kernel lets it.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mainstay_messages::Signal;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::identity::send_signal;
use crate::readiness::watch;

/// The longest report of a failure, in bytes.
const REPORT_MAX_BYTES: usize = 4 * 1024;
/// What stands before a report: the kernel's number of the error, 0 for none.
const CODE_BYTES: usize = 4;

/// Does something apart, for at most so long. An error of kind `TimedOut` without a number is that of the limit.
pub(super) async fn apart(limit: Duration, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (news, teller) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the shim has one thread, and the child goes on with ordinary Rust until it ends.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            drop(news);
            report(teller, work());
            // SAFETY: ends the process without running what the parent will run at its own end.
            unsafe { libc::_exit(0) }
        }
        pid => pid,
    };
    drop(teller);
    // The reaper has had no turn since, so the number is still its own.
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork answered process id 0"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let news = watch(news, Interest::READABLE)?;
    match timeout(limit, hear(&news)).await {
        Ok(heard) => heard,
        Err(_) => {
            // It may have ended this moment.
            let _ = send_signal(pidfd.as_fd(), Signal::KILL);
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

fn report(teller: OwnedFd, outcome: io::Result<()>) {
    let mut said = vec![1];
    if let Err(error) = outcome {
        let mut text = error.to_string();
        crate::logger::cut(&mut text, REPORT_MAX_BYTES - CODE_BYTES - 1);
        said = error.raw_os_error().unwrap_or(0).to_ne_bytes().to_vec();
        said.extend_from_slice(text.as_bytes());
    }
    // Who does not hear it has given up waiting.
    let _ = std::fs::File::from(teller).write_all(&said);
}

async fn hear(news: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let (mut said, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        match rustix::io::read(news.as_fd(), &mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            // Cleared before the next read, so readiness that comes meanwhile is not lost.
            Err(Errno::AGAIN) => news.readable().await?.clear_ready(),
            Err(error) => return Err(error.into()),
        }
    }
    match said.split_first_chunk::<CODE_BYTES>() {
        None if said == [1] => Ok(()),
        None => Err(io::Error::other("its process ended before it was done")),
        Some((code, text)) => match i32::from_ne_bytes(*code) {
            0 => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            code => Err(io::Error::from_raw_os_error(code)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Every fork of this process has one thread: that of the test which forks, and the child runs nothing but its work.
    fn run(limit: Duration, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(apart(limit, work))
    }

    #[test]
    fn what_becomes_of_it_is_told() {
        let long = Duration::from_secs(60);
        run(long, || Ok(())).expect("done");
        let error = run(long, || Err(io::Error::from_raw_os_error(libc::ENOSPC))).expect_err("failed");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let error = run(long, || Err(io::Error::other("layer 3"))).expect_err("failed");
        assert_eq!(error.to_string(), "layer 3");
    }

    #[test]
    fn what_hangs_is_given_up() {
        let hang = || loop {
            std::thread::park();
        };
        let error = run(Duration::from_millis(50), hang).expect_err("it hangs");
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::TimedOut, None));
    }
}
