//! What a test does again and again.

use std::time::Duration;

use mainstay_actors::fakes::FakeWorld;
use mainstay_actors::{Core, Routed};
use mainstay_messages::container::{IfRunning, RemoveContainer, StartContainer, StopContainer};
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, ContainerSnapshot, SandboxPhase};
use mainstay_messages::router::{CreateContainer, RunSandbox};
use mainstay_messages::sandbox::{RemoveSandbox, StopSandbox};
use mainstay_messages::{ContainerId, ContainerSpec, Result, SandboxId, SandboxSpec};
use std::sync::Arc;

/// The longest virtual time that a test waits for something.
const PATIENCE: Duration = Duration::from_secs(600);

pub struct Test {
    pub world: FakeWorld,
    pub core: Core,
}

impl Test {
    /// Actors on an empty host, in paused time.
    pub fn new() -> Self {
        tokio::time::pause();
        Self::another()
    }

    /// Actors on a host of their own, beside others.
    pub fn another() -> Self {
        let world = FakeWorld::new();
        let core = world.start();
        Self { world, core }
    }

    pub async fn run(&self, name: &str) -> Result<SandboxId> {
        let spec = SandboxSpec::new(name.parse().expect("a name"));
        self.core.router.send(RunSandbox { spec }).await.expect("the router runs")
    }

    pub async fn pod(&self) -> SandboxId {
        self.run("pod").await.expect("a pod")
    }

    pub async fn create(&self, sandbox: &SandboxId, name: &str) -> Result<ContainerId> {
        let spec = ContainerSpec::new(name.parse().expect("a name"), ["true"]);
        let message = CreateContainer { sandbox: sandbox.clone(), spec };
        self.core.router.send(message).await.expect("the router runs")
    }

    pub async fn start(&self, container: &ContainerId) -> Result<()> {
        let message = StartContainer { container: container.clone() };
        self.core.router.send(Routed(message)).await.expect("the router runs")
    }

    /// A container that runs.
    pub async fn running(&self, sandbox: &SandboxId, name: &str) -> ContainerId {
        let container = self.create(sandbox, name).await.expect("a container");
        self.start(&container).await.expect("it starts");
        container
    }

    pub async fn stop(&self, container: &ContainerId, grace_ms: u64) -> Result<()> {
        let message = StopContainer { container: container.clone(), signal: None, grace_ms: Some(grace_ms) };
        self.core.router.send(Routed(message)).await.expect("the router runs")
    }

    pub async fn remove(&self, container: &ContainerId, running: IfRunning) -> Result<()> {
        let message = RemoveContainer { container: container.clone(), running };
        self.core.router.send(Routed(message)).await.expect("the router runs")
    }

    pub async fn stop_pod(&self, sandbox: &SandboxId, grace_ms: Option<u64>) -> Result<()> {
        let message = StopSandbox { sandbox: sandbox.clone(), grace_ms };
        self.core.router.send(Routed(message)).await.expect("the router runs")
    }

    pub async fn remove_pod(&self, sandbox: &SandboxId) -> Result<()> {
        let message = RemoveSandbox { sandbox: sandbox.clone() };
        self.core.router.send(Routed(message)).await.expect("the router runs")
    }

    pub fn shown(&self, container: &ContainerId) -> Arc<ContainerSnapshot> {
        self.core.directory.container(container).expect("it is listed")
    }

    pub fn phase(&self, container: &ContainerId) -> ContainerPhase {
        self.shown(container).record.phase
    }

    pub fn pod_phase(&self, sandbox: &SandboxId) -> SandboxPhase {
        self.core.directory.sandbox(sandbox).expect("it is listed").record.phase
    }

    /// Waits until a container has an exit; answers its code.
    pub async fn exit_code(&self, container: &ContainerId) -> u32 {
        let mut watch = self.core.directory.watch_container(container).expect("it is listed");
        let ended = watch.wait_for(|shown| shown.record.exit.is_some());
        let shown = tokio::time::timeout(PATIENCE, ended).await.expect("it ends").expect("it is watched");
        shown.record.exit.as_ref().expect("it has ended").code()
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waited = async {
            while !condition(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .unwrap_or_else(|_| panic!("waited in vain until {what}"));
    }

    /// Everything that the journal says, in order.
    pub fn facts(&self) -> Vec<What> {
        self.world.store.all_events().into_iter().map(|event| event.what).collect()
    }

    pub fn count(&self, wanted: impl Fn(&What) -> bool) -> usize {
        self.facts().iter().filter(|what| wanted(what)).count()
    }
}

/// Virtual time goes on.
pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
