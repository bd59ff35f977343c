//! What can happen to a container, and what it wants to have done.

use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::Paused;
use mainstay_messages::router::ExitReceipt;
use mainstay_messages::spec::{ContainerSpec, ExecSpec, Resources, WindowSize};
use mainstay_messages::supervisor::{Consult, SignalScope, TaskKnowledge, TaskMade, TaskState};
use mainstay_messages::{ContainerId, Error, ExecId, Exit, Result, Signal, Timestamp};

use crate::call::CallId;

/// Whatever can happen to a container.
#[derive(Clone, Debug)]
pub enum Input {
    /// Make it, or join the making of it.
    Create {
        /// Who asks.
        call: CallId,
        /// What for.
        spec: Box<ContainerSpec>,
    },
    /// Let it run.
    Start {
        /// Who asks.
        call: CallId,
    },
    /// Stop it.
    Stop {
        /// Who asks.
        call: CallId,
        /// With this signal.
        signal: Option<Signal>,
        /// And this time until SIGKILL.
        grace_ms: Option<u64>,
    },
    /// Stop it, for a plugin.
    Evict {
        /// Who asks.
        call: CallId,
        /// Which plugin.
        plugin: String,
        /// Why, for people.
        reason: String,
    },
    /// Send it a signal.
    Kill {
        /// Who asks.
        call: CallId,
        /// Which signal.
        signal: Signal,
    },
    /// Remove it.
    Remove {
        /// Who asks.
        call: CallId,
        /// And if it runs?
        running: IfRunning,
    },
    /// Run another process in it.
    Exec {
        /// Who asks.
        call: CallId,
        /// The new exec's id.
        id: ExecId,
        /// What to run.
        spec: Box<ExecSpec>,
    },
    /// Send a signal to an exec.
    KillExec {
        /// Who asks.
        call: CallId,
        /// Which exec.
        id: ExecId,
        /// Which signal.
        signal: Signal,
    },
    /// Change the size of a terminal.
    Resize {
        /// Who asks.
        call: CallId,
        /// Which exec; none for PID 1.
        exec: Option<ExecId>,
        /// The new size.
        size: WindowSize,
    },
    /// Open its log again.
    ReopenLog {
        /// Who asks.
        call: CallId,
    },
    /// Measure it.
    Measure {
        /// Who asks.
        call: CallId,
    },
    /// Freeze it, or let it go on.
    Freeze {
        /// Who asks.
        call: CallId,
        /// What it is to be.
        to: Paused,
    },
    /// Change its limits.
    Update {
        /// Who asks.
        call: CallId,
        /// The limits that change.
        change: Box<Resources>,
        /// Whether plugins are asked about it.
        consult: Consult,
    },
    /// A process of it ended.
    Exit {
        /// Who reports it.
        call: CallId,
        /// Which exec; none for PID 1.
        exec: Option<ExecId>,
        /// How.
        exit: Exit,
    },
    /// What the sandbox, or the shim, says about a task that an earlier actor made.
    Adopt(Knowledge),
    /// The sandbox's answer.
    Admitted(Result<()>),
    /// The shim's answer to the creation.
    TaskCreated(Result<TaskMade>),
    /// The shim's answer to the start.
    TaskStarted(Result<Timestamp>),
    /// The shim's answer to the deletion.
    TaskDeleted(Result<()>),
    /// The shim's answer to the start of an exec: its process id.
    ExecStarted(ExecId, Result<u32>),
    /// The shim's answer to a freeze, or to its end.
    Frozen(Paused, Result<()>),
    /// The shim's answer to a change of limits.
    Updated(Box<Resources>, Result<Option<Box<Resources>>>),
    /// The answer to a query about PID 1 or an exec.
    Queried(Option<ExecId>, Result<TaskKnowledge>),
    /// The answer to a look at the task.
    Looked(Result<TaskKnowledge>),
    /// The shim's answer to a SIGKILL for an exec, whatever it was.
    ExecKilled,
    /// What the journal says about what earlier actors did.
    JournalSearched(Result<ExecLore>),
    /// A timer.
    Woke(Wake),
    /// Go on with the removal, if nothing stands against it.
    Dismantle,
    /// A write that had failed is durable.
    Written,
}

/// What is known of the task of an adopted container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Its shim knows it.
    Task(TaskState),
    /// Its shim answers, and does not know it.
    NotKnown(UnknownReason),
    /// There is no shim; exits may still be reported from its records.
    ShimGone(UnknownReason),
    /// Nobody answers.
    Unreachable(String),
}

/// What the journal says about a container's PID 1 and its execs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecLore {
    /// Those that were started and have no terminal fact: when, and their process id.
    pub open: Vec<(ExecId, Timestamp, Option<u32>)>,
    /// Those that have one.
    pub ended: Vec<ExecId>,
    /// Whether PID 1 was told to run.
    pub start: StartLore,
}

/// Whether PID 1 of a container was told to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartLore {
    /// It was not, or its end is written down.
    #[default]
    NotTold,
    /// It was, and so may have run.
    Told,
}

/// A timer, with what it was set for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The grace of a stop is over.
    StopDeadline {
        /// The deadline that it was set for.
        deadline_ms: u64,
    },
    /// Kill again.
    KillAgain {
        /// The attempt that it follows.
        attempt: u32,
    },
    /// Answer those who wait too long for a kill.
    AnswerStops,
    /// Ask for the deletion again.
    DeleteAgain,
    /// Look after execs that were not reported.
    Orphans,
    /// See whether the task runs or stands still.
    Look,
    /// Put limits back whose change was not answered, so many failures ago.
    LimitsAgain {
        /// The failures.
        failures: u32,
    },
    /// The exit of a task whose shim is gone was not reported.
    GoneUnreported,
}

/// Whatever a container wants to have done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Answer calls.
    Answer {
        /// Which.
        calls: Vec<CallId>,
        /// With what.
        answer: Result<Answer>,
    },
    /// Answer calls with success if the write worked, else with the store's error.
    Confirm {
        /// Which.
        calls: Vec<CallId>,
    },
    /// Answer the report of an exit: settled if the write worked, else pending.
    Receipt {
        /// Which.
        call: CallId,
    },
    /// Ask another actor; the answer comes back as an input.
    Ask(Ask),
    /// Ask the supervisor; the answer goes to the caller.
    Forward {
        /// The caller.
        call: CallId,
        /// What is asked.
        what: Forward,
    },
    /// Set a timer.
    Wake {
        /// When.
        after_ms: u64,
        /// What for.
        wake: Wake,
    },
    /// Write a fact on which no state depends.
    Note(What),
    /// Feed an input back, after everything else.
    Again(Input),
    /// It is gone: readers, the router and the sandbox are told, then the calls are answered. Only if the
    /// write worked; else the calls are answered with the store's error.
    Retire {
        /// Whom to answer then.
        calls: Vec<CallId>,
        /// Who asked for it to be made, and why it could not be, whether the write worked or not.
        failed: Option<(Vec<CallId>, Error)>,
    },
    /// It never came to be: the router is told, then the calls are answered with this error, or with that of
    /// the store when there is none.
    Abandon {
        /// Whom to answer then.
        calls: Vec<CallId>,
        /// Why.
        error: Option<Error>,
    },
}

/// What is asked of others.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The sandbox: may it come into being?
    Admit,
    /// The shim: set up PID 1.
    Create,
    /// The shim: let it run.
    Start,
    /// The shim: send a signal.
    Signal {
        /// To an exec; none for PID 1.
        exec: Option<ExecId>,
        /// Which.
        signal: Signal,
        /// To whom.
        scope: SignalScope,
        /// Why, for the journal.
        cause: &'static str,
    },
    /// The shim: remove the task.
    Delete,
    /// The shim: run an exec.
    Exec {
        /// Its id.
        id: ExecId,
        /// What to run.
        spec: Box<ExecSpec>,
    },
    /// The shim: what is known of PID 1 or an exec?
    Query {
        /// Which exec; none for PID 1.
        exec: Option<ExecId>,
    },
    /// The shim: does it run, or stand still?
    Look,
    /// The journal: what became of the execs of earlier actors?
    SearchJournal,
    /// The shim: freeze it, or let it go on.
    Freeze(Paused),
    /// The shim: change its limits to these, or to what plugins make of them.
    Update(Box<Resources>, Consult),
}

/// What is passed on to the supervisor.
#[derive(Clone, Debug)]
pub enum Forward {
    /// A signal, to an exec or PID 1.
    Signal {
        /// Which exec; none for PID 1.
        exec: Option<ExecId>,
        /// Which signal.
        signal: Signal,
    },
    /// A new size.
    Resize {
        /// Which exec; none for PID 1.
        exec: Option<ExecId>,
        /// The size.
        size: WindowSize,
    },
    /// Open the log again.
    ReopenLog,
    /// Measure.
    Measure,
}

/// A good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The container is made.
    Created(ContainerId),
    /// The exec runs.
    Exec(ExecId),
    /// What became of the report of an exit.
    Receipt(ExitReceipt),
}
