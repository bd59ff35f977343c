//! How the end of a process becomes known that another shim made.
//!
//! ```text
//!  the kernel says that it has ended ─┐
//!  the shim answers a Wait ───────────┼──▶ adopted? ──yes──▶ copied output is read ──▶ its exit
//!  the shim sends an event ───────────┘       └──no──▶ parked until it is
//!  the shim has died: it is reaped here ─────────────────────────────────────────────▶ its exit
//! ```
//!
//! The first one counts; what it says is made exact by the kernel where that can be done, since the Task API has one number for a
//! code and for a signal. What comes twice, late, or for nobody is absorbed.
//!
//! Owns: waiting for the end of a process, and what a status means. Never: decides what an exit sets off.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use mainstay_messages::ContainerId;
use mainstay_messages::process::UnknownReason;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::task::{StateRequest, StateResponse, Status, WaitRequest, WaitResponse};
use tokio::io::Interest;
use tokio::time::{sleep, timeout};

use super::client::CallError;
use super::events::Event;
use super::external::External;
use super::{TaskShim, wait_status};
use crate::logger::{self, Seldom};
use crate::process::Process;
use crate::readiness;
use crate::shim::Shim;
use crate::task::Ending;

/// How long a shim may take to say how a process ended of which the kernel says only that it has, in milliseconds.
const EXIT_SAID_MS: u64 = 3_000;
/// How long the question may take how it stands with a process, in milliseconds.
const STATE_MS: u64 = 1_000;
/// How long after a Wait that failed the next one is sent, in milliseconds.
const WAIT_AGAIN_MS: u64 = 1_000;
/// The most exits that wait for their process to be adopted; more are absorbed, and learnt in another way.
const PARKED_MAX: usize = 1_024;
/// What a status has on top of a signal.
const SIGNAL_BASE: u32 = 128;

/// Exits that came before the answer that says which process it is.
#[derive(Debug, Default)]
pub(super) struct Parked {
    exits: HashMap<ProcessKey, Early>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Early {
    /// The number of the process.
    pid: u32,
    how: Ending,
}

impl Parked {
    /// The first one counts.
    fn park(&mut self, key: ProcessKey, early: Early) {
        if self.exits.len() < PARKED_MAX {
            self.exits.entry(key).or_insert(early);
        }
    }

    /// That of this process. One of an earlier process of the same name counts for nothing.
    fn take(&mut self, key: &ProcessKey, pid: u32) -> Option<Ending> {
        self.exits.remove(key).filter(|early| early.pid == pid).map(|early| early.how)
    }

    /// Nobody of this name is waited for any more.
    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.exits.remove(key);
    }

    /// The same, of all processes of a container.
    pub(super) fn forget_container(&mut self, container: &ContainerId) {
        self.exits.retain(|key, _| key.container != *container);
    }
}

/// What a status of the Task API means, as far as it can be told: shells and shims say 128 and the signal's number.
pub(super) fn said(status: u32) -> Ending {
    match status.checked_sub(SIGNAL_BASE).map(u8::try_from) {
        Some(Ok(signal @ 1..=31)) => Ending::Signaled { signal },
        _ => match u8::try_from(status) {
            Ok(code) => Ending::Exited { code },
            Err(_) => Ending::Unknown { reason: UnknownReason::NotKnownToShim },
        },
    }
}

impl TaskShim {
    /// Hears an event.
    pub(super) fn hear(self: &Rc<Self>, shim: &Rc<Shim>, event: Event) {
        match event {
            Event::Exit { process, pid, status } => {
                self.hear_exit(shim, &process, Early { pid, how: said(status) });
            }
            Event::Oom { process } => {
                if let Ok(container) = shim.container(&process.container) {
                    container.note_oom_kill();
                }
            }
            Event::Other => {}
        }
    }

    fn hear_exit(&self, shim: &Rc<Shim>, key: &ProcessKey, early: Early) {
        match shim.process(key) {
            Ok(process) if process.exit().is_some() => {}
            Ok(process) if process.identity().is_none() => {
                self.parked.borrow_mut().park(key.clone(), early);
            }
            Ok(process) if process.pid_or_zero() == early.pid => self.ended(shim, &process, early.how),
            _ => self.stray(key, "there is no such process"),
        }
    }

    fn stray(&self, key: &ProcessKey, why: &str) {
        if let Some(count) = self.strays.comes() {
            logger::warning!("an exit of {key} was told, but {why}; it is the {count}. such exit of the pod");
        }
    }

    /// A process was adopted: its end is waited for from now on, and an end that came before is delivered.
    pub(super) fn expect_end(self: &Rc<Self>, shim: &Rc<Shim>, process: &Rc<Process>, by: &Rc<External>) {
        let parked = self.parked.borrow_mut().take(&process.key, process.pid_or_zero());
        if let Some(how) = parked {
            self.ended(shim, process, how);
        }
        let (backend, shim, process, by) = (self.clone(), shim.clone(), process.clone(), by.clone());
        tokio::task::spawn_local(async move {
            let how = tokio::select! {
                () = process.wait_ended() => return,
                how = end_of(&process, &by) => how,
            };
            backend.ended(&shim, &process, how);
        });
    }

    /// A process has ended, or is said to have.
    fn ended(&self, shim: &Rc<Shim>, process: &Rc<Process>, how: Ending) {
        let (None, Some(identity)) = (process.exit(), process.identity()) else { return };
        if lives(process) {
            return self.stray(&process.key, "it has not ended");
        }
        let exact = process.pidfd().and_then(|pidfd| wait_status::ending(identity, pidfd.as_fd()));
        let how = exact.unwrap_or(how);
        let (shim, process) = (shim.clone(), process.clone());
        tokio::task::spawn_local(async move {
            if process.key.exec.is_none() {
                // First, since what is left holds its output open.
                if let Some(Err(failure)) =
                    shim.container(&process.key.container).ok().map(|it| it.kill_all())
                {
                    logger::error!("{}: killing what is left: {}", process.key, failure.sentence());
                }
                process.output.copied().await;
            }
            if process.exit().is_none() {
                shim.forget_process(&process);
                shim.process_ended(&process, how);
            }
        });
    }
}

/// Whether a process runs that can be seen, whatever is said of it.
fn lives(process: &Process) -> bool {
    process.pidfd().is_some() && !process.has_died()
}

/// Waits until a process has ended; says how.
async fn end_of(process: &Process, by: &External) -> Ending {
    tokio::select! {
        how = wait(process, by) => {
            if lives(process) {
                logger::warning!("{}: {} says that it has ended, and it has not", process.key, by.name);
                return by_kernel(process, by).await;
            }
            how
        }
        how = by_kernel(process, by) => how,
    }
}

/// Asks the shim, for as long as it lives.
async fn wait(process: &Process, by: &External) -> Ending {
    let request = WaitRequest {
        id: process.key.container.as_str().to_owned(),
        exec_id: process.key.exec_text().to_owned(),
        ..Default::default()
    };
    let refusals = Seldom::default();
    loop {
        match by.client.task_without_limit::<WaitResponse>("Wait", &request).await {
            Ok(answer) => return said(answer.exit_status),
            // Its orphans are reaped here.
            Err(CallError::Gone { .. }) => return std::future::pending().await,
            Err(error) if error.is_not_found() => {
                logger::warning!("{}: {error}", process.key);
                // Where the process can be seen, its end will be.
                return match process.pidfd() {
                    Some(_) => std::future::pending().await,
                    None => Ending::Unknown { reason: UnknownReason::NotKnownToShim },
                };
            }
            Err(error) => {
                if let Some(count) = refusals.comes() {
                    logger::warning!("{}: {error}; that was try {count}", process.key);
                }
            }
        }
        sleep(Duration::from_millis(WAIT_AGAIN_MS)).await;
    }
}

/// Watches the process itself.
async fn by_kernel(process: &Process, by: &External) -> Ending {
    let (Some(identity), Some(pidfd)) = (process.identity(), process.pidfd()) else {
        return std::future::pending().await;
    };
    let watched = pidfd.try_clone().and_then(|fd| readiness::watch(fd, Interest::READABLE));
    let watched = match watched {
        Ok(watched) => watched,
        Err(error) => {
            logger::warning!("{}: its process cannot be watched: {error}", process.key);
            return std::future::pending().await;
        }
    };
    if watched.readable().await.is_err() {
        return std::future::pending().await;
    }
    if let Some(how) = wait_status::ending(identity, pidfd.as_fd()) {
        return how;
    }
    // It has been reaped, and the kernel is an older one: whoever reaped it knows.
    sleep(Duration::from_millis(EXIT_SAID_MS)).await;
    let request = StateRequest {
        id: process.key.container.as_str().to_owned(),
        exec_id: process.key.exec_text().to_owned(),
        ..Default::default()
    };
    match timeout(Duration::from_millis(STATE_MS), by.task::<StateResponse>("State", &request, STATE_MS))
        .await
    {
        Ok(Ok(state)) if state.status.enum_value_or_default() == Status::STOPPED => said(state.exit_status),
        Ok(Err(CallError::Gone { .. })) => std::future::pending().await,
        Ok(Err(error)) if error.is_not_found() => Ending::Unknown { reason: UnknownReason::NotKnownToShim },
        _ => Ending::Unknown { reason: UnknownReason::ShimOutOfReach },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_code_or_a_signal() {
        assert_eq!(said(0), Ending::Exited { code: 0 });
        assert_eq!(said(128), Ending::Exited { code: 128 });
        assert_eq!(said(137), Ending::Signaled { signal: 9 });
        assert_eq!(said(255), Ending::Exited { code: 255 });
        // Never an invented code.
        assert_eq!(said(u32::MAX), Ending::Unknown { reason: UnknownReason::NotKnownToShim });
    }

    #[test]
    fn the_first_exit_that_came_early_is_kept_up_to_a_limit() {
        let mut parked = Parked::default();
        let key = |number: usize| ProcessKey::parse("web", &format!("e{number}")).expect("good ids");
        let early = |pid, code| Early { pid, how: Ending::Exited { code } };
        parked.park(key(0), early(12, 3));
        parked.park(key(0), early(12, 4));
        (1..2 * PARKED_MAX).for_each(|number| parked.park(key(number), early(13, 0)));
        assert_eq!(parked.exits.len(), PARKED_MAX);
        assert_eq!(parked.take(&key(0), 12), Some(Ending::Exited { code: 3 }));
        assert_eq!(parked.take(&key(0), 12), None);
    }

    /// An exit of an exec that had been deleted stayed, and became that of the next one of its name, which ran.
    #[test]
    fn an_exit_of_an_earlier_process_is_not_that_of_the_next_one_of_its_name() {
        let mut parked = Parked::default();
        let key = |container: &str, exec: &str| ProcessKey::parse(container, exec).expect("good ids");
        let early = Early { pid: 12, how: Ending::Exited { code: 3 } };
        parked.park(key("web", "e"), early);
        assert_eq!(parked.take(&key("web", "e"), 13), None, "of another process");
        assert_eq!(parked.take(&key("web", "e"), 12), None, "and gone");
        for key in [key("web", ""), key("web", "e"), key("db", "e")] {
            parked.park(key, early);
        }
        parked.forget(&key("db", "e"));
        parked.forget_container(&key("web", "").container);
        assert!(parked.exits.is_empty());
    }
}
