//! A process that is being launched.
//!
//! Owns: what the launcher reports, and waiting for it. Never: makes the process (create.rs, run.rs).

use std::os::fd::OwnedFd;
use std::rc::Rc;

use mainstay_launch::{LaunchError, Launching, Reply};
use mainstay_messages::ExitStatus;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use tokio::io::Interest;

use super::Process;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::logger::{self, Chain};
use crate::output::pump::{self, Ends};
use crate::readiness;
use crate::task::{Input, Phase};

/// What somebody who launches a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// That something is to be done on the host, or that it is set up.
    Environment,
    /// That it is set up.
    Prepared,
    /// That its program has been executed.
    Executed,
}

impl Process {
    /// Takes charge of a process that was made just now.
    pub(crate) fn launched(&self, launching: Launching) -> Result<(), Failure> {
        let pidfd = launching.pidfd.try_clone().map_err(Failure::system("duplicating a pidfd"))?;
        self.identity.set(Some(Identity::of(launching.pid)));
        *self.pidfd.borrow_mut() = Some(Rc::new(pidfd));
        *self.launching.borrow_mut() = Some(launching);
        Ok(())
    }

    /// Lets PID 1 execute its program.
    pub(crate) fn release(&self) {
        if let Some(launching) = &*self.launching.borrow() {
            // One that has ended is reaped, and says why, in the usual way.
            let _ = launching.release();
        }
    }

    /// Lets PID 1 go on when what was to be done on the host is done.
    pub(crate) fn proceed(&self) {
        if let Some(launching) = &*self.launching.borrow() {
            // As above.
            let _ = launching.proceed();
        }
    }

    /// Hears what the launcher has to say. Called when its socket is readable, and when the process was reaped: an
    /// exit may overtake the last report, which is in the socket then.
    pub(crate) fn hear_launcher(&self) {
        loop {
            let reply = match self.launching.borrow_mut().as_mut().map(Launching::try_reply) {
                None | Some(Ok(None)) => return,
                Some(Ok(Some(reply))) => reply,
                Some(Err(error)) => Reply::Failed(error),
            };
            match reply {
                Reply::Environment => self.environment.set(true),
                Reply::Ready { terminal, warnings } => {
                    warnings.iter().for_each(|warning| logger::warning!("{}: {warning}", self.key));
                    if let Some(master) = terminal {
                        self.connect_terminal(master);
                    }
                    self.note(Input::Prepared);
                }
                Reply::Running => {
                    self.launching.borrow_mut().take();
                    self.note(Input::Executed);
                }
                Reply::Failed(error) => {
                    self.launching.borrow_mut().take();
                    self.note_failure(error);
                }
            }
        }
    }

    /// Notes why it could not be launched.
    pub(crate) fn note_failure(&self, error: LaunchError) {
        self.note(Input::Failed { reason: Chain(&error).to_string() });
        self.failure.borrow_mut().get_or_insert(error);
    }

    /// Waits until a launch is as far as `goal`, or has failed.
    pub(crate) async fn reach(&self, goal: Goal) -> Result<(), Failure> {
        let control =
            self.launching.borrow().as_ref().map(|launching| launching.control().try_clone_to_owned());
        let control = control.transpose().map_err(Failure::system("duplicating a socket"))?;
        let control = control.map(|fd| readiness::watch(fd, Interest::READABLE)).transpose();
        let control = control.map_err(Failure::system("waiting for a socket"))?;
        loop {
            self.hear_launcher();
            if let Some(error) = self.failure.borrow_mut().take() {
                return Err(error.into());
            }
            match (self.phase(), goal) {
                // A short program may have ended before this was looked at.
                (Phase::Exited(exit), Goal::Executed)
                    if !matches!(exit.status, ExitStatus::StartError { .. }) =>
                {
                    return Ok(());
                }
                (Phase::Exited(exit), _) => {
                    return Err(Failure::EndedEarly { process: self.key.clone(), how: exit.to_string() });
                }
                (Phase::Running, _) | (Phase::Created, Goal::Prepared | Goal::Environment) => return Ok(()),
                (_, Goal::Environment) if self.environment.get() => return Ok(()),
                _ => {}
            }
            let readable = async {
                match &control {
                    Some(fd) => fd.readable().await.map(|mut guard| guard.clear_ready()),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ready = readable => ready.map_err(Failure::system("waiting for a socket"))?,
                () = self.wait_ended() => {}
            }
        }
    }

    /// Gives it its terminal.
    pub(crate) fn connect_terminal(&self, master: OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        match ioctl_tiocgptpeer(&master, flags) {
            Ok(slave) => *self.slave.borrow_mut() = Some(slave),
            Err(error) => logger::warning!("{}: its terminal cannot be held open: {error}", self.key),
        }
        match readiness::watch(master, Interest::READABLE | Interest::WRITABLE) {
            Ok(master) => {
                let master = Rc::new(master);
                *self.master.borrow_mut() = Some(master.clone());
                // A resize may have come between the launch and this report.
                if let Some(Err(failure)) = self.initial_size().map(|size| self.resize(size)) {
                    logger::warning!("{}: {}", self.key, failure.sentence());
                }
                self.stdin.connect(master.clone());
                pump::start(&self.output, Ends::Terminal(master));
            }
            Err(error) => logger::error!("{}: its terminal cannot be read: {error}", self.key),
        }
    }
}
