//! A process of the launcher's that does one thing on the host, reports, and ends.
//!
//! Owns: waiting for it without blocking. It is killed when nobody waits for it any more; the reaper reaps it.

use std::os::fd::{AsFd, OwnedFd};

use mainstay_launch::{Launching, Reply};
use mainstay_messages::Signal;
use tokio::io::Interest;

use crate::failure::Failure;
use crate::identity::send_signal;
use crate::readiness;

/// The process.
struct Errand {
    launching: Launching,
}

impl Drop for Errand {
    fn drop(&mut self) {
        // It has ended already where all went its way.
        let _ = send_signal(self.launching.pidfd.as_fd(), Signal::KILL);
    }
}

/// Waits for what it has to say; the warnings.
pub(crate) async fn done(launching: Launching) -> Result<Vec<String>, Failure> {
    let control: OwnedFd =
        launching.control().try_clone_to_owned().map_err(Failure::system("duplicating a socket"))?;
    let mut errand = Errand { launching };
    let control =
        readiness::watch(control, Interest::READABLE).map_err(Failure::system("waiting for a socket"))?;
    loop {
        match errand.launching.try_reply()? {
            Some(Reply::Ready { warnings, .. }) => return Ok(warnings),
            Some(Reply::Failed(error)) => return Err(error.into()),
            Some(Reply::Environment | Reply::Running) | None => {}
        }
        let ready = control.readable().await.map(|mut guard| guard.clear_ready());
        ready.map_err(Failure::system("waiting for a socket"))?;
    }
}
