//! The clients: what they ask for, what they hear, and whether what they hear is so. Some leave before they hear
//! anything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mainstay_actors::router::{PoisonContainer, PoisonSandbox};
use mainstay_actors::{Core, Routed};
use mainstay_messages::container::{
    IfRunning, KillContainer, KillExec, MeasureContainer, PauseContainer, RemoveContainer, ReopenLog,
    ResumeContainer, StartContainer, StartExec, StopContainer, UpdateContainer,
};
use mainstay_messages::router::{CreateContainer, RunSandbox, TaskKey};
use mainstay_messages::sandbox::{MeasureSandbox, RemoveSandbox, StopSandbox};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{Consult, TaskStatus};
use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, ExecSpec, Result, SandboxId, SandboxSpec, Signal,
};
use tokio::time::Instant;

use crate::promise;
use crate::witness::Witness;

/// The longest that a caller waits, whatever happens, in milliseconds: several steps of work that are each given up
/// when their time is over.
const ANSWER_MAX_MS: u64 = 900_000;

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Wish {
    Run { name: String, variant: u64 },
    Create { pod: SandboxId, name: String, variant: u64 },
    Start(ContainerId),
    Stop(ContainerId, Option<u64>),
    Kill(ContainerId, Signal),
    Remove(ContainerId, IfRunning),
    Exec(ContainerId),
    KillExec(ContainerId, ExecId, Signal),
    Pause(ContainerId),
    Resume(ContainerId),
    Update(ContainerId, u64),
    ReopenLog(ContainerId),
    Measure(ContainerId),
    StopPod(SandboxId, Option<u64>),
    RemovePod(SandboxId),
    MeasurePod(SandboxId),
    PoisonContainer(ContainerId),
    PoisonPod(SandboxId),
}

/// What a client hears.
#[derive(Clone, Debug)]
pub enum Heard {
    Done,
    Pod(SandboxId),
    Container(ContainerId),
    Exec(ExecId),
}

/// Who waits for an answer, and what those who have got one know.
pub struct Clients {
    pub witness: Rc<RefCell<Witness>>,
    waiting: Rc<RefCell<BTreeMap<u64, (Wish, Instant)>>>,
    pub known: Rc<RefCell<Known>>,
    calls: u64,
}

/// The ids that clients have heard of, also those of things that are gone.
#[derive(Default)]
pub struct Known {
    pub pods: Vec<SandboxId>,
    pub containers: Vec<(SandboxId, ContainerId)>,
    pub execs: Vec<(ContainerId, ExecId)>,
}

/// How long a client waits before it leaves.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    Endless,
    Ms(u64),
}

impl Clients {
    /// Nobody yet.
    pub fn new(witness: Rc<RefCell<Witness>>) -> Self {
        Self { witness, waiting: Rc::default(), known: Rc::default(), calls: 0 }
    }

    /// A client asks for something. Must be called where the actors live: it dies with them.
    pub fn ask(&mut self, core: &Core, wish: Wish, patience: Patience) {
        self.calls += 1;
        let (call, core) = (self.calls, core.clone());
        let (witness, known) = (Rc::clone(&self.witness), Rc::clone(&self.known));
        let waiting = Rc::clone(&self.waiting);
        witness.borrow().stage.note(format_args!("call {call}: {wish:?}, {patience:?}"));
        waiting.borrow_mut().insert(call, (wish.clone(), Instant::now()));
        tokio::task::spawn_local(async move {
            let answer = match patience {
                Patience::Endless => Some(wish.send(&core).await),
                Patience::Ms(ms) => {
                    tokio::time::timeout(Duration::from_millis(ms), wish.send(&core)).await.ok()
                }
            };
            waiting.borrow_mut().remove(&call);
            let mut witness = witness.borrow_mut();
            witness.stage.note(format_args!("call {call}: {answer:?}"));
            match answer {
                Some(Some(Ok(heard))) => {
                    known.borrow_mut().learn(&wish, &heard);
                    is_so(&mut witness, &core, &wish, &heard);
                }
                Some(None) => witness.stage.broken(format!("the router died: {wish:?}")),
                Some(Some(Err(error))) => may_be_refused(&witness, &wish, &error),
                None => {}
            }
        });
    }

    /// The daemon is gone, and everybody who waited for it.
    pub fn daemon_ended(&mut self) {
        self.waiting.borrow_mut().clear();
    }

    /// Every caller is answered.
    pub fn invariant_nobody_waits_for_ever(&self) {
        for (call, (wish, since)) in self.waiting.borrow().iter() {
            let waited = since.elapsed().as_millis();
            let witness = self.witness.borrow();
            promise!(
                witness.stage,
                waited <= u128::from(ANSWER_MAX_MS),
                "call {call} has no answer: {wish:?}"
            );
        }
    }

    /// Nobody waits at all.
    pub fn invariant_nobody_waits(&self) {
        let waiting = self.waiting.borrow();
        promise!(self.witness.borrow().stage, waiting.is_empty(), "these have no answer: {waiting:?}");
    }

    /// How many wait for an answer about this container.
    pub fn waiting_for(&self, container: &ContainerId) -> usize {
        self.waiting.borrow().values().filter(|(wish, _)| wish.container() == Some(container)).count()
    }

    /// Calls that were made.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

impl Known {
    fn learn(&mut self, wish: &Wish, heard: &Heard) {
        match (wish, heard) {
            (_, Heard::Pod(id)) if !self.pods.contains(id) => self.pods.push(id.clone()),
            (Wish::Create { pod, .. }, Heard::Container(id)) => self.meet(pod, id),
            (Wish::Exec(container), Heard::Exec(id)) => self.execs.push((container.clone(), id.clone())),
            _ => {}
        }
    }

    fn meet(&mut self, pod: &SandboxId, id: &ContainerId) {
        let pair = (pod.clone(), id.clone());
        if !self.containers.contains(&pair) {
            self.containers.push(pair);
        }
    }

    /// What the directory lists is known too.
    pub fn read(&mut self, core: &Core) {
        for shown in core.directory.sandboxes() {
            if !self.pods.contains(&shown.record.id) {
                self.pods.push(shown.record.id.clone());
            }
        }
        for shown in core.directory.containers(None) {
            self.meet(&shown.record.sandbox, &shown.record.id);
        }
    }
}

impl Wish {
    /// The container that it is about.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            Self::Start(id)
            | Self::Stop(id, _)
            | Self::Kill(id, _)
            | Self::Remove(id, _)
            | Self::Exec(id)
            | Self::KillExec(id, ..)
            | Self::Pause(id)
            | Self::Resume(id)
            | Self::Update(id, _)
            | Self::ReopenLog(id)
            | Self::Measure(id) => Some(id),
            _ => None,
        }
    }

    /// None when the router is gone.
    async fn send(&self, core: &Core) -> Option<Result<Heard>> {
        let done = |answer: Result<()>| answer.map(|()| Heard::Done);
        let router = &core.router;
        /// Sends one message and says what its answer means.
        macro_rules! routed {
            ($message:expr) => {
                router.send(Routed($message)).await.ok().map(done)
            };
        }
        match self.clone() {
            Self::Run { name, variant } => {
                let mut spec = SandboxSpec::new(name.parse().expect("a name"));
                spec.labels.insert("variant".to_owned(), variant.to_string());
                router.send(RunSandbox { spec }).await.ok().map(|answer| answer.map(Heard::Pod))
            }
            Self::Create { pod, name, variant } => {
                let mut spec = ContainerSpec::new(name.parse().expect("a name"), ["true"]);
                spec.labels.insert("variant".to_owned(), variant.to_string());
                let message = CreateContainer { sandbox: pod, spec };
                router.send(message).await.ok().map(|answer| answer.map(Heard::Container))
            }
            Self::Start(container) => routed!(StartContainer { container }),
            Self::Stop(container, grace_ms) => routed!(StopContainer { container, signal: None, grace_ms }),
            Self::Kill(container, signal) => routed!(KillContainer { container, signal }),
            Self::Remove(container, running) => routed!(RemoveContainer { container, running }),
            Self::Exec(container) => {
                let message = Routed(StartExec { container, spec: ExecSpec::new(["true"]) });
                router.send(message).await.ok().map(|answer| answer.map(Heard::Exec))
            }
            Self::KillExec(container, exec, signal) => routed!(KillExec { container, exec, signal }),
            Self::Pause(container) => routed!(PauseContainer { container }),
            Self::Resume(container) => routed!(ResumeContainer { container }),
            Self::Update(container, pids) => {
                let change = Resources { pids: Some(pids), ..Resources::default() };
                routed!(UpdateContainer { container, change, consult: Consult::Plugins })
            }
            Self::ReopenLog(container) => routed!(ReopenLog { container }),
            Self::Measure(container) => {
                let answer = router.send(Routed(MeasureContainer { container })).await.ok();
                answer.map(|answer| answer.map(|_stats| Heard::Done))
            }
            Self::StopPod(sandbox, grace_ms) => routed!(StopSandbox { sandbox, grace_ms }),
            Self::RemovePod(sandbox) => routed!(RemoveSandbox { sandbox }),
            Self::MeasurePod(sandbox) => {
                let answer = router.send(Routed(MeasureSandbox { sandbox })).await.ok();
                answer.map(|answer| answer.map(|_stats| Heard::Done))
            }
            Self::PoisonContainer(container) => routed!(PoisonContainer { container }),
            Self::PoisonPod(sandbox) => routed!(PoisonSandbox { sandbox }),
        }
    }
}

/// What was said to be done is done, and durable (P7).
fn is_so(witness: &mut Witness, core: &Core, wish: &Wish, heard: &Heard) {
    witness.read_journal();
    let (host, store) = (witness.host.clone(), witness.store.clone());
    let so = match (wish, heard) {
        (Wish::Run { .. }, Heard::Pod(id)) => witness.ready.contains(id),
        (Wish::Create { .. }, Heard::Container(id)) => witness.created.contains(id),
        (Wish::Start(id), _) => ran(witness, id, None),
        (Wish::Exec(container), Heard::Exec(exec)) => ran(witness, container, Some(exec.clone())),
        (Wish::Stop(id, _), _) => {
            let runs = |status: &TaskStatus| matches!(status, TaskStatus::Running | TaskStatus::Paused);
            !host.containers().iter().any(|(_, task, status)| task == id && runs(status))
        }
        (Wish::Remove(id, _), _) => {
            store.container(id).is_none()
                && !host.containers().iter().any(|(_, task, _)| task == id)
                && core.directory.container(id).is_none()
        }
        (Wish::StopPod(id, _), _) => !host.pods().contains(id),
        (Wish::RemovePod(id), _) => {
            store.sandbox(id).is_none()
                && !host.pods().contains(id)
                && core.directory.sandbox(id).is_none()
                && core.directory.containers(Some(id)).is_empty()
        }
        _ => true,
    };
    promise!(witness.stage, so, "P7: {wish:?} was answered with {heard:?}, and is not so");
}

/// It was started; or it has ended, and so nobody can tell whether a start that was not answered came before that.
fn ran(witness: &Witness, container: &ContainerId, exec: Option<ExecId>) -> bool {
    let is_it = |task: &TaskKey| task.container == *container && task.exec == exec;
    let lives = witness.host.lives();
    lives.iter().any(|(task, life)| is_it(task) && (life.started.is_some() || life.exit.is_some()))
}

/// An error that makes no sense for what was asked is a fault.
fn may_be_refused(witness: &Witness, wish: &Wish, error: &Error) {
    let idempotent = matches!(wish, Wish::Stop(..) | Wish::StopPod(..) | Wish::RemovePod(_));
    let odd = match error {
        Error::NotFound { .. } | Error::Terminating { .. } | Error::WrongPhase { .. } => idempotent,
        Error::Ambiguous { .. } | Error::InvalidArgument { .. } | Error::PermissionDenied { .. } => true,
        _ => false,
    };
    promise!(witness.stage, !odd, "{wish:?} was answered with {error:?}");
}
