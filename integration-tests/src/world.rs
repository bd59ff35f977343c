//! One runtime with directories and a cgroup of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mainstay::{
    Config, ContainerId, ContainerSpec, ExecOutput, ExecSpec, Exit, Runtime, SandboxId, SandboxSpec, Shutdown,
};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::ledger::{Ledger, cgroup_tops};
use crate::{peer, wait};

/// How long the clearing away of a world may take, in milliseconds; a runtime that a failed test has left may still be ending.
const DROP_MS: u64 = 20_000;
/// Time between two rounds of it, in milliseconds.
const DROP_POLL_MS: u64 = 20;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// A place for a runtime.
#[derive(Debug)]
pub struct World {
    directory: TempDir,
    cgroup: String,
    program: PathBuf,
    change: fn(&mut Config),
}

impl World {
    /// A world whose shims are executed from `program`; none when not root.
    pub fn new(program: &str) -> Option<Self> {
        if !peer::is_root() {
            return None;
        }
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::Builder::new().prefix("mst-").tempdir().expect("a temporary directory");
        let cgroup = format!("/mainstay-test-{}-{number}", std::process::id());
        Some(Self { directory, cgroup, program: program.into(), change: |_| {} })
    }

    /// The program under test.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The directory that everything of this world is in.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// The same, with another configuration.
    #[must_use]
    pub fn with(mut self, change: fn(&mut Config)) -> Self {
        self.change = change;
        self
    }

    /// A configuration for a runtime in it.
    pub fn config(&self) -> Config {
        let mut config = Config {
            shim_program: Some(self.program.clone()),
            ..Config::beside(self.path(), self.cgroup.clone())
        };
        (self.change)(&mut config);
        config
    }

    /// Starts a runtime in it.
    pub async fn start(&self) -> Runtime {
        Runtime::start(self.config()).await.expect("the runtime starts")
    }

    /// Whether no runtime has it. Looked at before the ledger is taken, it says that the ledger is complete.
    fn is_abandoned(&self) -> bool {
        let lock = self.config().state_dir.join("lock");
        match fs::File::open(lock) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            // No runtime was ever started here.
            Err(_) => true,
        }
    }

    /// What of it is there now.
    pub fn ledger(&self) -> Ledger {
        Ledger::take(self.path(), &self.cgroup)
    }

    /// Removes what pods there are, closes the runtime, and checks that nothing is left: no process, mount, cgroup (the
    /// world's own neither), or directory of a pod.
    pub async fn finish(self, runtime: Runtime) {
        for pod in runtime.sandboxes() {
            wait::finish("a pod is removed", runtime.remove_sandbox(&pod.record.id)).await.expect("removed");
        }
        runtime.close(Shutdown::StopContainers).await.expect("the runtime closes");
        assert!(cgroup_tops(&self.cgroup).is_empty(), "the cgroup above the pods goes with the runtime");
        self.assert_nothing_left().await;
    }

    /// Checks that nothing is left.
    pub async fn assert_nothing_left(&self) {
        let mut last = Ledger::default();
        let clean = |ledger: &Ledger| {
            ledger.processes.is_empty()
                && ledger.shims.is_empty()
                && ledger.mounts.is_empty()
                && ledger.directories.is_empty()
                && ledger.cgroups.iter().all(|path| path.ends_with(self.cgroup.trim_start_matches('/')))
        };
        let waited = tokio::time::timeout(std::time::Duration::from_millis(wait::CONDITION_MS / 4), async {
            wait::until("nothing is left", || {
                last = self.ledger();
                clean(&last).then_some(())
            })
            .await;
        });
        assert!(waited.await.is_ok(), "left behind: {last:#?}");
    }
}

impl Drop for World {
    /// Kills and removes what a failed test left. It is over when no runtime has the world's state directory any more, so that
    /// nothing new is started, and nothing is there that a runtime had started. A shim that was forked just now is among it: it
    /// looks like its zygote, which is found by the same directory.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(DROP_MS);
        // Twice: a shim that takes its name at this very moment can be missed once.
        let mut clean_looks = 0;
        while clean_looks < 2 {
            let abandoned = self.is_abandoned();
            let ledger = self.ledger();
            for pid in ledger.processes.iter().chain(&ledger.zygotes).chain(&ledger.shims) {
                kill(*pid);
            }
            for path in ledger.cgroups.iter().rev() {
                let _ = fs::remove_dir(path);
            }
            let processes = ledger.zygotes.len() + ledger.shims.len() + ledger.processes.len();
            if abandoned && processes == 0 && cgroup_tops(&self.cgroup).is_empty() {
                clean_looks += 1;
                continue;
            }
            clean_looks = 0;
            if Instant::now() >= deadline {
                eprintln!("{}: cannot be cleared away: {ledger:#?}", self.path().display());
                return;
            }
            std::thread::sleep(Duration::from_millis(DROP_POLL_MS));
        }
    }
}

/// Kills a process of this world: it was found in the world's own cgroup or by its directory a moment ago.
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Shorthands for what most tests do.
pub trait Shorthand {
    /// A ready pod.
    fn pod(&self, name: &str) -> impl Future<Output = SandboxId>;
    /// A container that runs a shell script on the host's root, created.
    fn created(&self, pod: &SandboxId, name: &str, script: &str) -> impl Future<Output = ContainerId>;
    /// The same, started.
    fn started(&self, pod: &SandboxId, name: &str, script: &str) -> impl Future<Output = ContainerId>;
    /// The exit of a container, in time.
    fn exit_of(&self, container: &ContainerId) -> impl Future<Output = Exit>;
    /// The outcome of a shell script in a container.
    fn sh(&self, container: &ContainerId, script: &str) -> impl Future<Output = ExecOutput>;
}

impl Shorthand for Runtime {
    async fn pod(&self, name: &str) -> SandboxId {
        let spec = SandboxSpec::new(name.parse().expect("a good name"));
        wait::finish("a pod runs", self.run_sandbox(spec)).await.expect("a pod runs")
    }

    async fn created(&self, pod: &SandboxId, name: &str, script: &str) -> ContainerId {
        let spec = script_spec(name, script);
        wait::finish("a container is created", self.create_container(pod, spec)).await.expect("created")
    }

    async fn started(&self, pod: &SandboxId, name: &str, script: &str) -> ContainerId {
        let container = self.created(pod, name, script).await;
        wait::finish("a container starts", self.start_container(&container)).await.expect("started");
        container
    }

    async fn exit_of(&self, container: &ContainerId) -> Exit {
        wait::finish("a container ends", self.wait(container)).await.expect("it has an exit")
    }

    async fn sh(&self, container: &ContainerId, script: &str) -> ExecOutput {
        let spec = ExecSpec::new(["sh", "-c", script]);
        wait::finish("an exec ends", self.exec_output(container, spec)).await.expect("it ran")
    }
}

/// A container that runs a shell script on a copy-on-write view of the host's root.
pub fn script_spec(name: &str, script: &str) -> ContainerSpec {
    ContainerSpec::new(name.parse().expect("a good name"), ["sh", "-c", script])
}

/// A container that waits to be asked.
pub fn waiting(name: &str, change: impl FnOnce(&mut ContainerSpec)) -> ContainerSpec {
    let mut spec = script_spec(name, "exec sleep 1000");
    change(&mut spec);
    spec
}

/// Makes a container and starts it, if both can be done.
pub async fn run(runtime: &Runtime, pod: &SandboxId, spec: ContainerSpec) -> mainstay::Result<ContainerId> {
    let container = wait::finish("a container is created", runtime.create_container(pod, spec)).await?;
    wait::finish("a container starts", runtime.start_container(&container)).await?;
    Ok(container)
}

/// What a script in a container prints, both streams together.
pub async fn says(runtime: &Runtime, container: &ContainerId, script: &str) -> String {
    let output = runtime.sh(container, &format!("{{ {script}; }} 2>&1")).await;
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
