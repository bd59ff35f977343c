//! A supervisor on real shims, with directories and cgroups of its own that are gone afterwards.

// Each test file uses a part of it.
#![allow(dead_code)]

#[path = "wire.rs"]
pub mod wire;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context, Handler};
use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::router::{ExitReceipt, Noted, ShimDied, TaskExited, TaskKey};
use mainstay_messages::supervisor::{CreateTask, LaunchShim, StartTask};
use mainstay_messages::{
    ContainerId, ContainerSpec, Exit, ProcessIdentity, SandboxId, SandboxSpec, Timestamp,
};
use mainstay_supervisor::paths::Directories;
use mainstay_supervisor::{
    Claim, NoNetworks, PodNetworks, Program, ShimSupervisor, SupervisorSettings, find, identity,
};
use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use tokio::sync::{mpsc, oneshot};

/// Generous: only a fault makes a test wait this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Everything that belongs to one test.
pub struct World {
    pub settings: SupervisorSettings,
    pub directories: Directories,
    layout: Layout,
    _temp: tempfile::TempDir,
}

/// What the supervisor said.
#[derive(Clone, Debug)]
pub enum Fact {
    Exited(TaskKey, Exit),
    Died(SandboxId),
}

/// Stands for the router.
struct Ear {
    facts: mpsc::UnboundedSender<Fact>,
    /// How often an exit is answered with Pending first.
    reluctance: u32,
    heard: BTreeMap<String, u32>,
}

/// A supervisor and what it says.
pub struct Running {
    pub address: Addr<ShimSupervisor>,
    facts: mpsc::UnboundedReceiver<Fact>,
    stop: Option<oneshot::Sender<()>>,
}

impl Actor for Ear {
    type Context = Context<Self>;
}

impl Handler<TaskExited> for Ear {
    type Result = actix::MessageResult<TaskExited>;

    fn handle(&mut self, message: TaskExited, _: &mut Self::Context) -> Self::Result {
        let heard = self.heard.entry(format!("{:?}", message.task)).or_default();
        *heard += 1;
        let receipt = if *heard <= self.reluctance { ExitReceipt::Pending } else { ExitReceipt::Settled };
        // The test may have ended.
        let _ = self.facts.send(Fact::Exited(message.task, message.exit));
        actix::MessageResult(receipt)
    }
}

impl Handler<ShimDied> for Ear {
    type Result = ();

    fn handle(&mut self, message: ShimDied, _: &mut Self::Context) {
        let _ = self.facts.send(Fact::Died(message.sandbox));
    }
}

impl Handler<Noted> for Ear {
    type Result = ();

    // What was done, and how long it took, is nothing that a test waits for.
    fn handle(&mut self, _: Noted, _: &mut Self::Context) {}
}

impl World {
    /// None, with a message, when this machine or user cannot run it.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Past the macros, whose output the harness swallows when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped {test}: only root can start containers");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("mainstay-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let temp = tempfile::Builder::new().prefix("ms").tempdir().expect("a temporary directory");
        let mut settings = SupervisorSettings::new(temp.path().join("run"), temp.path().join("lib"));
        settings.cgroup_parent = format!("/{name}");
        settings.netns_dir = temp.path().join("netns");
        settings.program = Program::Path(PathBuf::from(env!("CARGO_BIN_EXE_mainstay-shim-host")));
        let layout = Layout::detect().expect("cgroups are mounted");
        Some(Self { directories: settings.directories(), settings, layout, _temp: temp })
    }

    /// Starts a supervisor on a thread of its own, as a program would that can be ended while its shims run.
    pub async fn supervisor(&self) -> Running {
        self.reluctant_supervisor(0).await
    }

    /// One whose router answers the first reports of each exit with Pending.
    pub async fn reluctant_supervisor(&self, reluctance: u32) -> Running {
        self.supervisor_on(Arc::new(NoNetworks), reluctance).await
    }

    /// One whose pods get these networks.
    pub async fn supervisor_on(&self, networks: Arc<dyn PodNetworks>, reluctance: u32) -> Running {
        let (sender, facts) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, address) = oneshot::channel();
        let settings = self.settings.clone();
        std::thread::spawn(move || {
            actix::System::new().block_on(async move {
                let ear = Ear { facts: sender, reluctance, heard: BTreeMap::new() }.start();
                let (exits, deaths) = (ear.clone().recipient(), ear.clone().recipient());
                let claim = Claim::take(&settings).expect("good settings");
                let supervisor =
                    ShimSupervisor::new(settings, claim, networks, exits, deaths, ear.recipient());
                let address = supervisor.expect("a good machine").start();
                let _ = started.send(address);
                // Dropped with the test.
                let _ = stopped.await;
            });
        });
        Running { address: address.await.expect("started"), facts, stop: Some(stop) }
    }

    pub fn sandbox(&self, name: &str) -> SandboxRecord {
        let spec = SandboxSpec::new(name.parse().expect("a good name"));
        SandboxRecord::intent(name.parse().expect("a good id"), spec, Timestamp(1))
    }

    pub fn container(&self, sandbox: &SandboxRecord, name: &str, command: &[&str]) -> ContainerRecord {
        let spec = ContainerSpec::new(name.parse().expect("a good name"), command.iter().copied());
        let id: ContainerId = name.parse().expect("a good id");
        let log = self.directories.container_log(&sandbox.id, &id);
        ContainerRecord::intent(id, sandbox.id.clone(), spec, log, Timestamp(1))
    }

    pub fn cgroup(&self, below: &str) -> Cgroup {
        let path = format!("{}/{below}", self.settings.cgroup_parent);
        Cgroup::open(&self.layout, &CgroupPath::parse(&path).expect("a good path"))
    }

    /// Processes, cgroups and files of a pod that are left.
    pub fn left(&self, sandbox: &SandboxRecord) -> Vec<String> {
        let mut left = Vec::new();
        left.extend(find::find_shim(&self.directories, &sandbox.id).map(|shim| format!("shim {}", shim.pid)));
        let group = self.cgroup(sandbox.id.as_str());
        if group.v2_dir().is_ok_and(|dir| dir.is_some())
            || group.v1_procs().is_ok_and(|files| !files.is_empty())
        {
            left.push(format!("cgroup {}", group.path()));
        }
        left.extend(existing(&self.directories.pod(&sandbox.id)));
        let name = self.settings.namespace_names().path(&sandbox.id);
        left.extend(name.symlink_metadata().is_ok().then(|| name.display().to_string()));
        left
    }

    /// Files of a container that are left, beside its log.
    pub fn left_of(&self, container: &ContainerRecord) -> Vec<String> {
        let mut left: Vec<String> =
            existing(&self.directories.bundle(&container.sandbox, &container.id)).collect();
        left.extend(existing(&self.directories.layer(&container.id).directory));
        let group = self.cgroup(&format!("{}/{}", container.sandbox, container.id));
        if group.v2_dir().is_ok_and(|dir| dir.is_some()) {
            left.push(format!("cgroup {}", group.path()));
        }
        left
    }

    pub fn log(&self, container: &ContainerRecord) -> String {
        std::fs::read_to_string(&container.log_path).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for shim in find::find_shims(&self.directories) {
            if let Ok(Some(pidfd)) = identity::open(&shim.process) {
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
        }
        let group = CgroupPath::parse(&self.settings.cgroup_parent).expect("parsed before");
        let group = Cgroup::open(&self.layout, &group);
        let end = Instant::now() + Duration::from_secs(10);
        while group.kill().is_ok() && group.remove().is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Running {
    /// Launches the shim of a pod; the record then names it.
    pub async fn launch(&self, mut sandbox: SandboxRecord) -> SandboxRecord {
        let shim = self.address.send(LaunchShim { record: sandbox.clone() }).await.expect("it runs");
        sandbox.shim = Some(shim.expect("launched").shim);
        sandbox
    }

    pub async fn create(
        &self,
        sandbox: &SandboxRecord,
        container: &ContainerRecord,
    ) -> mainstay_messages::Result<ProcessIdentity> {
        let message = CreateTask { record: container.clone(), sandbox: sandbox.clone() };
        self.address.send(message).await.expect("it runs").map(|made| made.process)
    }

    /// Creates and starts a container.
    pub async fn run(&self, sandbox: &SandboxRecord, container: &ContainerRecord) -> ProcessIdentity {
        let process = self.create(sandbox, container).await.expect("created");
        let message = StartTask { sandbox: sandbox.id.clone(), container: container.id.clone() };
        self.address.send(message).await.expect("it runs").expect("started");
        process
    }

    /// Sends a command that has to succeed.
    pub async fn done<M, T>(&self, message: M) -> T
    where
        M: actix::Message<Result = mainstay_messages::Result<T>> + Send + 'static,
        T: Send + 'static,
        ShimSupervisor: Handler<M>,
        Context<ShimSupervisor>: actix::dev::ToEnvelope<ShimSupervisor, M>,
    {
        self.address.send(message).await.expect("it runs").expect("done")
    }

    /// The next fact.
    pub async fn fact(&mut self) -> Fact {
        let fact = tokio::time::timeout(DEADLINE, self.facts.recv()).await.expect("a fact in time");
        fact.expect("the supervisor runs")
    }

    /// The next exit, whose process has to be this one.
    pub async fn exit_of(&mut self, container: &str) -> Exit {
        match self.fact().await {
            Fact::Exited(task, exit) => {
                assert_eq!(task.container.as_str(), container, "{task:?} {exit:?}");
                exit
            }
            other => panic!("{other:?} instead of an exit"),
        }
    }

    /// Ends the supervisor as the end of its program would: nothing is told to anybody.
    pub fn vanish(mut self) {
        drop(self.stop.take());
    }
}

/// Waits until something is so.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a signal to a process of this test.
pub fn signal(process: &ProcessIdentity, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.pid).expect("a pid")).expect("not zero");
    assert!(runs(process), "process {} has ended already", process.pid);
    kill_process(pid, signal).expect("ours");
}

/// Whether a process runs: not ended, and no zombie.
pub fn runs(process: &ProcessIdentity) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.is_empty()
        && !state.starts_with('Z')
        && identity::identity_of(process.pid).is_ok_and(|now| now == *process)
}

fn existing(path: &Path) -> impl Iterator<Item = String> {
    path.exists().then(|| path.display().to_string()).into_iter()
}
