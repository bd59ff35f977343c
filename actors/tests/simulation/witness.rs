//! The witness: reads the journal as it grows, looks at host, store and directory after every step, and says which
//! promise is broken. It knows the truth about every process from the host.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_actors::fakes::{FakeHost, FakeWorld, Life, MemoryStore};
use mainstay_actors::{Core, Counters};
use mainstay_messages::event::{Event, Seq, What};
use mainstay_messages::record::{ContainerPhase, ContainerRecord, Paused, SandboxPhase};
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::TaskStatus;
use mainstay_messages::{ContainerId, Exit, ExitStatus, SandboxId};

use crate::promise;
use crate::stage::Stage;

/// See the module.
pub struct Witness {
    pub stage: Stage,
    pub host: FakeHost,
    pub store: MemoryStore,
    read: Seq,
    /// The terminal facts.
    ends: BTreeMap<TaskKey, Exit>,
    pub ready: BTreeSet<SandboxId>,
    pub created: BTreeSet<ContainerId>,
    started: BTreeSet<ContainerId>,
    /// The exits that readers have seen since the daemon came up.
    shown: BTreeMap<ContainerId, Exit>,
    listed: BTreeSet<String>,
    facts: Tally,
    /// Whether no daemon was killed so far.
    uninterrupted: bool,
}

/// How often some facts were written since the daemon came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    parked: u64,
    unclaimed: u64,
    restarts: u64,
    absorbed: u64,
}

impl Witness {
    /// Of a world that is still empty.
    pub fn new(stage: Stage, world: &FakeWorld) -> Self {
        Self {
            stage,
            host: world.host.clone(),
            store: world.store.clone(),
            read: Seq(0),
            ends: BTreeMap::new(),
            ready: BTreeSet::new(),
            created: BTreeSet::new(),
            started: BTreeSet::new(),
            shown: BTreeMap::new(),
            listed: BTreeSet::new(),
            facts: Tally::default(),
            uninterrupted: true,
        }
    }

    /// The daemon is gone: what it showed and counted is no measure for the next one.
    pub fn daemon_ended(&mut self, left: &FakeWorld) {
        (self.host, self.store) = (left.host.clone(), left.store.clone());
        self.read_journal();
        self.shown.clear();
        self.listed.clear();
        self.facts = Tally::default();
        self.uninterrupted = false;
    }

    /// After every step.
    pub fn look(&mut self, core: &Core) {
        self.read_journal();
        self.invariant_nothing_exists_without_a_record();
        self.invariant_no_container_runs_after_its_exit(core);
        self.invariant_what_is_recorded_stays_listed(core);
        self.invariant_names_are_unique(core);
        self.invariant_what_is_seen_is_durable(core);
    }

    /// Reads what is new in the journal (P1).
    pub fn read_journal(&mut self) {
        for event in self.store.events_after(self.read) {
            promise!(self.stage, event.seq == self.read.next(), "{} follows {}", event.seq, self.read);
            self.read = event.seq;
            self.stage.note(format_args!("    {} {:?} {}", event.at.0, event.subject, event.what));
            self.learn(event);
        }
    }

    fn learn(&mut self, event: Event) {
        let Event { subject, what, .. } = event;
        let task = |container: ContainerId| TaskKey {
            sandbox: subject.sandbox.clone().unwrap_or_else(|| "none".parse().expect("an id")),
            container,
            exec: subject.exec.clone(),
        };
        match (what, subject.sandbox.clone(), subject.container.clone()) {
            (What::SandboxReady, Some(sandbox), _) => drop(self.ready.insert(sandbox)),
            (What::ContainerCreated, _, Some(container)) => {
                promise!(self.stage, self.created.insert(container.clone()), "{container} was created twice");
            }
            (What::ContainerStarted { .. }, _, Some(container)) => {
                let first = self.started.insert(container.clone());
                promise!(self.stage, first, "P1: {container} was started twice");
            }
            (What::ContainerExited { exit } | What::ExecExited { exit }, _, Some(container)) => {
                self.invariant_one_true_terminal_fact(task(container), exit);
            }
            (What::ExitParked, ..) => self.facts.parked += 1,
            (What::ExitUnclaimed { .. }, ..) => self.facts.unclaimed += 1,
            (What::ExitAbsorbed { .. }, ..) => self.facts.absorbed += 1,
            (What::ActorRestarted { .. }, ..) => self.facts.restarts += 1,
            _ => {}
        }
    }

    fn invariant_one_true_terminal_fact(&mut self, task: TaskKey, exit: Exit) {
        let life = self.host.life(&task).unwrap_or_default();
        // Whether the start of an exec that was not answered did anything, nobody can tell.
        let in_doubt = task.exec.is_some() && life.started.is_none();
        let unknown = matches!(exit.status, ExitStatus::Unknown { .. });
        promise!(
            self.stage,
            is_true(&exit, &life) || in_doubt && unknown,
            "P1: {task:?} has the end {exit:?}, in truth {life:?}"
        );
        let before = self.ends.insert(task.clone(), exit.clone());
        promise!(self.stage, before.is_none(), "P1: {task:?} has two ends: {before:?} and {exit:?}");
    }

    /// Nothing is in the host that no durable record names (P3).
    fn invariant_nothing_exists_without_a_record(&self) {
        for pod in self.host.pods() {
            promise!(self.stage, self.store.sandbox(&pod).is_some(), "P3: the shim of {pod} has no record");
        }
        for (_, container, status) in self.host.containers() {
            let recorded = self.store.container(&container).is_some();
            promise!(self.stage, recorded, "P3: the task of {container} ({status:?}) has no record");
        }
    }

    /// Readers never see a container run whose exit was published, nor its exit change (P6).
    fn invariant_no_container_runs_after_its_exit(&mut self, core: &Core) {
        for shown in core.directory.containers(None) {
            let (id, phase) = (&shown.record.id, shown.record.phase);
            let over = matches!(phase, ContainerPhase::Exited | ContainerPhase::Removing);
            let Some(exit) = &shown.record.exit else {
                promise!(self.stage, phase != ContainerPhase::Exited, "P6: {id} is exited without an exit");
                promise!(self.stage, !self.shown.contains_key(id), "P6: {id} has lost its exit");
                continue;
            };
            // An actor that fails again and again is shown as Unknown.
            promise!(
                self.stage,
                over || phase == ContainerPhase::Unknown,
                "P6: {id} is {phase} after its exit"
            );
            let first = self.shown.entry(id.clone()).or_insert_with(|| exit.clone());
            promise!(self.stage, first == exit, "P6: {id} has the exit {exit:?} after {first:?}");
        }
    }

    /// What readers see is in the store or was (P7), and what is in the store and was seen stays to be seen.
    fn invariant_what_is_recorded_stays_listed(&mut self, core: &Core) {
        let mut listed = BTreeSet::new();
        for shown in core.directory.sandboxes() {
            listed.insert(shown.record.id.to_string());
        }
        for shown in core.directory.containers(None) {
            let id = &shown.record.id;
            promise!(self.stage, self.created.contains(id), "P7: {id} is listed, and is not in the journal");
            listed.insert(id.to_string());
        }
        let (sandboxes, containers) = self.store.ids();
        let ids = sandboxes.iter().map(SandboxId::as_str).chain(containers.iter().map(ContainerId::as_str));
        for id in ids {
            let vanished = self.listed.contains(id) && !listed.contains(id);
            promise!(self.stage, !vanished, "P5: {id} is in the store and is not listed any more");
        }
        self.listed = listed;
    }

    /// What readers see is in the journal (P7). Only after a write that failed memory may be ahead of it.
    fn invariant_what_is_seen_is_durable(&self, core: &Core) {
        if core.counters.failed_commits.get() > 0 {
            return;
        }
        for shown in core.directory.sandboxes() {
            let id = &shown.record.id;
            let so = shown.record.phase != SandboxPhase::Ready || self.ready.contains(id);
            promise!(self.stage, so, "P7: pod {id} is seen to be ready, and the journal does not know");
        }
        for shown in core.directory.containers(None) {
            let record = &shown.record;
            let task = TaskKey { sandbox: record.sandbox.clone(), container: record.id.clone(), exec: None };
            // After an end that nobody saw, it does not matter any more that it was started.
            let started = self.started.contains(&record.id) || self.ends.contains_key(&task);
            let started = record.started_at.is_none() || started;
            promise!(
                self.stage,
                started,
                "P7: {} is seen to be started, and the journal does not know",
                record.id
            );
            let ended = record.exit.is_none() || self.ends.get(&task) == record.exit.as_ref();
            promise!(
                self.stage,
                ended,
                "P7: {} is seen to have ended, and the journal does not know",
                record.id
            );
        }
    }

    fn invariant_names_are_unique(&self, core: &Core) {
        // A creation that was given up may be found after a crash, and is undone; its name may be another's by then. While
        // nobody answers it is listed as Unknown, like any other, so that it can be removed.
        let mut names = BTreeSet::new();
        for shown in core.directory.sandboxes() {
            let record = &shown.record;
            let passing = record.is_half_made() || record.phase == SandboxPhase::Removing;
            let unique = passing || names.insert((None, record.name().clone()));
            promise!(self.stage, unique, "two pods have the name {}", record.name());
        }
        for shown in core.directory.containers(None) {
            let record = &shown.record;
            let passing = record.is_half_made() || record.phase == ContainerPhase::Removing;
            let unique = passing || names.insert((Some(record.sandbox.clone()), record.name().clone()));
            promise!(self.stage, unique, "two containers have the name {}", record.name());
        }
    }

    /// When all is calm, host, store and directory say the same.
    pub fn all_agree(&mut self, core: &Core) {
        self.look(core);
        let stage = &self.stage;
        promise!(stage, self.host.unsettled() == 0, "P1: {} exits are not settled", self.host.unsettled());
        let (sandboxes, containers) = self.store.ids();
        let shown = core.directory.sandboxes();
        promise!(
            stage,
            shown.len() == sandboxes.len(),
            "{} pods are listed, {sandboxes:?} stored",
            shown.len()
        );
        let shims = self.host.pods();
        for shown in shown {
            let record = &shown.record;
            let stored = self.store.sandbox(&record.id);
            promise!(
                stage,
                stored.as_ref() == Some(record),
                "P7: {record:?} is listed, {stored:?} is stored"
            );
            let rests =
                matches!(record.phase, SandboxPhase::Ready | SandboxPhase::NotReady | SandboxPhase::Stopped);
            promise!(stage, rests && shown.activity.is_none(), "P4: {shown:?} has not come to rest");
            let (ready, runs) = (record.phase == SandboxPhase::Ready, shims.contains(&record.id));
            promise!(stage, ready == runs, "pod {} is {}, its shim runs: {runs}", record.id, record.phase);
        }
        let tasks: BTreeMap<ContainerId, TaskStatus> =
            self.host.containers().into_iter().map(|(_, id, status)| (id, status)).collect();
        let shown = core.directory.containers(None);
        promise!(stage, shown.len() == containers.len(), "{} are listed, {containers:?} stored", shown.len());
        for shown in shown {
            let record = &shown.record;
            let stored = self.store.container(&record.id);
            promise!(
                stage,
                stored.as_ref() == Some(record),
                "P7: {record:?} is listed, {stored:?} is stored"
            );
            promise!(stage, shown.activity.is_none(), "P4: {shown:?} has not come to rest");
            let agrees = matches!(
                (record.phase, record.paused, tasks.get(&record.id)),
                (ContainerPhase::Created, _, Some(TaskStatus::Created))
                    | (ContainerPhase::Running, Paused::No, Some(TaskStatus::Running))
                    | (ContainerPhase::Running, Paused::Yes, Some(TaskStatus::Paused))
                    | (ContainerPhase::Exited, _, None | Some(TaskStatus::Exited(_)))
            );
            let ContainerRecord { id, phase, paused, .. } = record;
            promise!(
                stage,
                agrees,
                "container {id} is {phase}, paused: {paused:?}, against {:?}",
                tasks.get(id)
            );
            let in_force = self.host.limits(id).and_then(|limits| limits.pids);
            let (wanted, changed) = (record.limits().pids, self.host.limits(id).is_some());
            // What a killed daemon or a lost actor was changing, nobody puts back; and what has ended is not limited.
            let excused = !self.uninterrupted || core.counters.restarts.get() > 0 || record.exit.is_some();
            let agree = !changed || in_force == wanted;
            promise!(
                stage,
                agree || excused,
                "P4: container {id} has room for {in_force:?} tasks, not {wanted:?}"
            );
        }
        self.invariant_every_process_that_ended_has_its_fact();
        self.counters_agree(&core.counters);
    }

    /// Every process that was started, and does not run any more, has its terminal fact (P1).
    fn invariant_every_process_that_ended_has_its_fact(&self) {
        for (task, life) in self.host.lives() {
            let over = life.exit.is_some() || !life.excuses.is_empty();
            let told = self.ends.contains_key(&task);
            promise!(
                self.stage,
                life.started.is_none() || !over || told,
                "P1: {task:?} has no end: {life:?}"
            );
        }
    }

    fn counters_agree(&self, counters: &Counters) {
        let Tally { parked, unclaimed, restarts, absorbed } = self.facts;
        let stage = &self.stage;
        let lost = counters.lost_notes.get();
        let counted = counters.parked.get();
        promise!(stage, (parked..=parked + lost).contains(&counted), "{counted} parked, {parked} facts");
        let counted = counters.restarts.get();
        promise!(
            stage,
            (restarts..=restarts + lost).contains(&counted),
            "{counted} restarts, {restarts} facts"
        );
        let counted = counters.unclaimed.get();
        promise!(stage, unclaimed >= counted, "{counted} unclaimed, {unclaimed} facts");
        let counted = counters.absorbed.get();
        promise!(stage, counted >= absorbed, "{counted} absorbed, {absorbed} facts");
    }

    /// When all was removed, nothing is left.
    pub fn nothing_is_left(&mut self, core: &Core) {
        self.all_agree(core);
        let stage = &self.stage;
        promise!(stage, core.directory.sandboxes().is_empty(), "{:?} are listed", core.directory.sandboxes());
        promise!(stage, core.directory.containers(None).is_empty(), "containers are listed");
        promise!(stage, self.store.ids() == (Vec::new(), Vec::new()), "{:?} are stored", self.store.ids());
        promise!(stage, self.host.shims() == 0, "P4: {:?} are left", self.host.pods());
        for (task, life) in self.host.lives() {
            let told = life.started.is_none() || self.ends.contains_key(&task);
            promise!(stage, told, "P1: {task:?} has no end: {life:?}");
        }
    }

    /// How many ends are known, and how many of them are not known how.
    pub fn ends(&self) -> (u64, u64) {
        let unknown = |exit: &&Exit| matches!(exit.status, ExitStatus::Unknown { .. });
        let unknown = self.ends.values().filter(unknown).count() as u64;
        (self.ends.len() as u64, unknown)
    }
}

/// Whether a terminal fact tells the truth: the true end, or that it is not known where nobody can know it, or that
/// it never ran where it did not.
fn is_true(exit: &Exit, life: &Life) -> bool {
    match &exit.status {
        ExitStatus::Unknown { reason } => life.excuses.contains(reason),
        ExitStatus::StartError { .. } => life.started.is_none(),
        ExitStatus::Exited { .. } | ExitStatus::Signaled { .. } => life.exit.as_ref() == Some(exit),
    }
}
