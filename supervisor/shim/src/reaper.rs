//! Reaps every child, those too that the kernel hands to the shim as sub-reaper.
//!
//! Owns: SIGCHLD and waitpid. The signal is a wake-up and nothing else: signals merge, so after each one all children
//! that have ended are reaped. Never: drops an exit on a timer or a full queue; there is neither.

use std::rc::Rc;

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logger;
use crate::shim::Shim;
use crate::task::Ending;

/// Begins to listen; to be done before the first child exists.
pub(crate) fn listen() -> std::io::Result<Signal> {
    signal(SignalKind::child())
}

/// Reaps for as long as the shim lives.
pub(crate) async fn run(shim: Rc<Shim>, mut children: Signal) {
    loop {
        reap_all(&shim);
        if children.recv().await.is_none() {
            logger::error!("SIGCHLD cannot be received any more");
            return;
        }
    }
}

/// Reaps all children that have ended.
fn reap_all(shim: &Rc<Shim>) {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(how) = ending(status) {
                    shim.reaped(pid, how);
                }
            }
            Ok(None) | Err(Errno::CHILD) => return,
            Err(Errno::INTR) => {}
            Err(error) => return logger::error!("waiting for children: {error}"),
        }
    }
}

fn ending(status: WaitStatus) -> Option<Ending> {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(Ending::Exited { code: byte(code) }),
        (None, Some(signal)) => Some(Ending::Signaled { signal: byte(signal) }),
        // Stopped or continued: not asked for, and not an end.
        (None, None) => None,
    }
}
