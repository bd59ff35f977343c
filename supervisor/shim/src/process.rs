//! One process of a container: its life, its identity, its streams.
//!
//! Owns: what is known of the process, and what its launcher reports. Never: reaps (reaper.rs), announces
//! (exits.rs), or decides what is allowed when (task.rs).

mod launch;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use mainstay_launch::{LaunchError, Launching, WindowSize};
use mainstay_messages::{Exit, Signal};
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::Terminal;
use oci_spec::runtime as oci;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::identity::{Identity, send_signal};
use crate::logger;
use crate::output::Output;
use crate::stdin::Stdin;
use crate::task::{Ending, Input, Life, OomKills, Outcome, Phase, Role};

pub(crate) use launch::Goal;

/// The streams of a process, as the request that made it named them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamNames {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) key: ProcessKey,
    pub(crate) names: StreamNames,
    pub(crate) terminal: Terminal,
    pub(crate) output: Rc<Output>,
    pub(crate) stdin: Rc<Stdin>,
    life: RefCell<Life>,
    identity: Cell<Option<Identity>>,
    pidfd: RefCell<Option<Rc<OwnedFd>>>,
    launching: RefCell<Option<Launching>>,
    /// Why it could not be launched, for whoever waits for that.
    failure: RefCell<Option<LaunchError>>,
    master: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    /// The other end of its terminal, held open: a program that closes its terminal and opens it again later, as a
    /// console's does, must not end the reading of it.
    slave: RefCell<Option<OwnedFd>>,
    /// Whether the launcher waits for what is to be done on the host.
    environment: Cell<bool>,
    /// The size of a terminal that does not exist yet.
    size: Cell<Option<WindowSize>>,
    /// What an exec will run, until it is launched.
    program: RefCell<Option<oci::Process>>,
    ended: watch::Sender<Ended>,
}

/// Whether a process has ended, for those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has not.
    No,
    /// It has: its exit is recorded.
    Yes,
}

impl Process {
    pub(crate) fn new(
        key: ProcessKey,
        names: StreamNames,
        terminal: Terminal,
        output: Rc<Output>,
        stdin: Rc<Stdin>,
    ) -> Rc<Self> {
        let role = if key.exec.is_some() { Role::Exec } else { Role::Init };
        Rc::new(Self {
            key,
            names,
            terminal,
            output,
            stdin,
            life: RefCell::new(Life::new(role)),
            identity: Cell::new(None),
            pidfd: RefCell::default(),
            launching: RefCell::default(),
            failure: RefCell::default(),
            master: RefCell::default(),
            slave: RefCell::default(),
            environment: Cell::new(false),
            size: Cell::new(None),
            program: RefCell::default(),
            ended: watch::Sender::new(Ended::No),
        })
    }

    /// Where it is.
    pub(crate) fn phase(&self) -> Phase {
        self.life.borrow().phase().clone()
    }

    /// Its exit, once it has one.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.life.borrow().exit().cloned()
    }

    /// Takes an input of its life.
    pub(crate) fn apply(&self, input: Input) -> Result<Outcome, Failure> {
        let refused = |refusal| Failure::Refused { process: self.key.clone(), refusal };
        self.life.borrow_mut().apply(input).map_err(refused)
    }

    /// Who it is, once it exists.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity.get()
    }

    /// Its process id, 0 before it exists.
    pub(crate) fn pid_or_zero(&self) -> u32 {
        self.identity().map_or(0, |identity| identity.pid.as_raw_pid().unsigned_abs())
    }

    /// Takes charge of a process that somebody else made; without a descriptor of one that has been reaped.
    pub(crate) fn adopted(&self, identity: Identity, pidfd: Option<OwnedFd>) {
        self.identity.set(Some(identity));
        *self.pidfd.borrow_mut() = pidfd.map(Rc::new);
    }

    /// A descriptor of it, once it exists.
    pub(crate) fn pidfd(&self) -> Option<Rc<OwnedFd>> {
        self.pidfd.borrow().clone()
    }

    /// Whether it has ended, reaped or not.
    pub(crate) fn has_died(&self) -> bool {
        let Some(pidfd) = self.pidfd() else { return self.exit().is_some() };
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Sets what an exec will run.
    pub(crate) fn set_program(&self, program: oci::Process) {
        self.size.set(console_size(&program));
        *self.program.borrow_mut() = Some(program);
    }

    /// Takes what an exec will run.
    pub(crate) fn take_program(&self) -> Option<oci::Process> {
        self.program.borrow_mut().take()
    }

    /// Sets the size of a terminal that is about to be made.
    pub(crate) fn set_initial_size(&self, size: WindowSize) {
        self.size.set(Some(size));
    }

    /// The size of a terminal that is about to be made.
    pub(crate) fn initial_size(&self) -> Option<WindowSize> {
        self.size.get()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let gone = || Failure::Gone { process: self.key.clone() };
        let pidfd = self.pidfd().ok_or_else(gone)?;
        if self.exit().is_some() {
            return Err(gone());
        }
        send_signal(pidfd.as_fd(), signal).map_err(|error| match error {
            Errno::SRCH => gone(),
            other => Failure::System { doing: "signalling a process", source: other.into() },
        })
    }

    /// Sets the size of its terminal, also of one that does not exist yet.
    pub(crate) fn resize(&self, size: WindowSize) -> Result<(), Failure> {
        if self.terminal == Terminal::No {
            return Err(Failure::Invalid {
                field: "exec_id",
                value: format!("{}", self.key),
                expected: "a process that has a terminal",
            });
        }
        self.size.set(Some(size));
        let Some(master) = self.master.borrow().clone() else { return Ok(()) };
        let size =
            rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(master.as_fd(), size)
            .map_err(|error| Failure::System { doing: "setting a terminal's size", source: error.into() })
    }

    /// Ends an exec that was registered and never started. It was no process, so it has no exit to announce; those who
    /// wait on its streams are told.
    pub(crate) fn drop_unstarted(&self) {
        if self.key.exec.is_some() && self.phase() == Phase::Created {
            self.note(Input::Ended { how: Ending::NeverBegan, at: logger::now(), oom_kills: OomKills::Same });
            self.output.finish_in_turn();
            self.announce_ended();
        }
    }

    /// Its exit is recorded: those who wait are told, and what it held is let go.
    pub(crate) fn announce_ended(&self) {
        self.launching.borrow_mut().take();
        self.master.borrow_mut().take();
        self.slave.borrow_mut().take();
        self.program.borrow_mut().take();
        self.stdin.close();
        self.ended.send_replace(Ended::Yes);
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_ended(&self) {
        let mut ended = self.ended.subscribe();
        // It fails only when the sender is gone, which `self` holds.
        let _ = ended.wait_for(|ended| *ended == Ended::Yes).await;
    }

    fn note(&self, input: Input) {
        // Reports of the launcher are never refused.
        let _ = self.life.borrow_mut().apply(input);
    }
}

/// The size that a spec names.
pub(crate) fn console_size(program: &oci::Process) -> Option<WindowSize> {
    let size = program.console_size()?;
    let rows = u16::try_from(size.height()).ok()?;
    let columns = u16::try_from(size.width()).ok()?;
    Some(WindowSize { rows, columns })
}
