//! How calls to the supervisor and reports from it go: by a rule for the next few calls of a kind, or by a
//! director who decides about each of them.

use mainstay_messages::router::TaskKey;
use mainstay_messages::{ContainerId, Error, ExecId, SandboxId, Signal};
use tokio::time::Instant;

/// A kind of call to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are named as the messages are")]
pub enum Call {
    LaunchShim,
    AdoptShim,
    StopShim,
    MeasureShim,
    CreateTask,
    StartTask,
    SignalTask,
    DeleteTask,
    StartExecTask,
    ResizeTask,
    ReopenTaskLog,
    MeasureTask,
    QueryTask,
    FreezeTask,
    UpdateTask,
    UpdatePod,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It is answered after so many milliseconds.
    Delay(u64),
    /// It does nothing and fails.
    Fail(Error),
    /// It does its work and fails all the same: something of it is left, or its answer breaks on the way.
    FailAfter(Error),
    /// It does nothing and is never answered.
    Hang,
    /// It does its work, and the answer comes so many milliseconds later.
    AnswerLate(u64),
    /// It does its work, and is never answered.
    AnswerNever,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which kind.
    pub call: Call,
    /// For which pod.
    pub sandbox: SandboxId,
    /// For which container, if it is about one.
    pub container: Option<ContainerId>,
    /// For which exec, if it is about one.
    pub exec: Option<ExecId>,
    /// The signal, of a `SignalTask`.
    pub signal: Option<Signal>,
    /// When.
    pub at: Instant,
}

/// How the report of an exit travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messenger {
    /// It arrives so many milliseconds later.
    pub after_ms: u64,
    /// What becomes of the receipt.
    pub receipt: ReceiptWay,
}

/// What becomes of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptWay {
    /// It comes back.
    Comes,
    /// It gets lost: the exit will be reported again.
    GetsLost,
}

/// Decides how each call and each report goes.
pub trait Director: Send + 'static {
    /// How this call goes; none when all goes well.
    fn call(&mut self, made: &Made) -> Option<Behaviour>;

    /// Who carries this report. Without anybody it is lost, and made again after
    /// [`super::host::REANNOUNCE_MS`].
    fn report(&mut self, task: &TaskKey) -> Vec<Messenger>;

    /// When the death of a shim is told: after each of these times, in milliseconds. At once if there is none.
    fn death(&mut self, _sandbox: &SandboxId) -> Vec<u64> {
        Vec::new()
    }
}

/// The next so many calls of a kind go like this.
pub(super) struct Rule {
    pub(super) call: Call,
    pub(super) behaviour: Behaviour,
    pub(super) times: u32,
}

impl Call {
    /// Whether it makes or starts something.
    pub(super) fn makes(self) -> bool {
        matches!(self, Self::LaunchShim | Self::CreateTask | Self::StartTask | Self::StartExecTask)
    }
}

impl Messenger {
    /// It arrives at once and its receipt comes back.
    pub const RELIABLE: Self = Self { after_ms: 0, receipt: ReceiptWay::Comes };
}

impl Made {
    /// A call about a pod, made now.
    pub(crate) fn of_pod(call: Call, sandbox: &SandboxId) -> Self {
        let sandbox = sandbox.clone();
        Self { call, sandbox, container: None, exec: None, signal: None, at: Instant::now() }
    }

    /// A call about a container, made now.
    pub(crate) fn of_container(call: Call, sandbox: &SandboxId, container: &ContainerId) -> Self {
        Self { container: Some(container.clone()), ..Self::of_pod(call, sandbox) }
    }

    /// A call about a process, made now.
    pub(crate) fn of_task(call: Call, task: &TaskKey) -> Self {
        let exec = task.exec.clone();
        Self { exec, ..Self::of_container(call, &task.sandbox, &task.container) }
    }
}
