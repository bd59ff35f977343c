//! Plugins that have containers stopped, and that change others beside the one that they are asked about.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay::{ContainerId, ContainerPhase, Exit, Resources, Runtime, Subject, What};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};
use mainstay_nri_plugin::faults::Faults;
use mainstay_nri_plugin::{Adjusted, Plugin, Result, Runtime as Asked, Updated, api};

use crate::stage::{Stub, live, start, with_plugins};

/// How long the plugin waits for an answer to what it asks for by itself.
const ASK_LIMIT: Duration = Duration::from_secs(30);
/// What a program that heard that it is to end ends with.
const HEARD: &str = "trap 'exit 7' TERM; touch /ready; while :; do sleep 0.05; done";

/// A plugin that wants containers stopped, or changed, in what it answers and by itself.
#[derive(Clone, Default)]
struct Bailiff(Arc<Mutex<Wishes>>);

#[derive(Default)]
struct Wishes {
    runtime: Option<Asked>,
    /// For the next answer to a creation or an update.
    evict: Vec<api::ContainerEviction>,
    /// For the next answer to the end of a container.
    update: Vec<api::ContainerUpdate>,
}

impl Bailiff {
    fn wants(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.0.lock().expect("sound"));
    }

    fn evictions(&self) -> Vec<api::ContainerEviction> {
        std::mem::take(&mut self.0.lock().expect("sound").evict)
    }

    /// Asks by itself.
    async fn ask(
        &self,
        update: Vec<api::ContainerUpdate>,
        evict: Vec<api::ContainerEviction>,
    ) -> Vec<api::ContainerUpdate> {
        let runtime = self.0.lock().expect("sound").runtime.clone().expect("it is connected");
        runtime.update_containers(update, evict, ASK_LIMIT).await.expect("answered")
    }
}

#[mainstay_nri_plugin::async_trait]
impl Plugin for Bailiff {
    fn events(&self) -> api::EventMask {
        api::EventMask::ALL
    }

    async fn connected(&self, runtime: Asked) {
        self.wants(|wishes| wishes.runtime = Some(runtime));
    }

    async fn create_container(&self, _: api::PodSandbox, _: api::Container) -> Result<Adjusted> {
        Ok(Adjusted { evict: self.evictions(), ..Default::default() })
    }

    async fn update_container(
        &self,
        _: api::PodSandbox,
        _: api::Container,
        _: api::LinuxResources,
    ) -> Result<Updated> {
        Ok(Updated { evict: self.evictions(), ..Default::default() })
    }

    async fn stop_container(
        &self,
        _: api::PodSandbox,
        _: api::Container,
    ) -> Result<Vec<api::ContainerUpdate>> {
        Ok(std::mem::take(&mut self.0.lock().expect("sound").update))
    }
}

fn eviction(container: &ContainerId, reason: &str) -> api::ContainerEviction {
    let (container_id, reason) = (container.to_string(), reason.to_owned());
    api::ContainerEviction { container_id, reason, ..Default::default() }
}

fn pids(container: impl ToString, limit: i64) -> api::ContainerUpdate {
    let resources = api::LinuxResources {
        pids: Some(api::LinuxPids { limit, ..Default::default() }).into(),
        ..Default::default()
    };
    let linux = api::LinuxContainerUpdate { resources: Some(resources).into(), ..Default::default() };
    let container_id = container.to_string();
    api::ContainerUpdate { container_id, linux: Some(linux).into(), ..Default::default() }
}

/// Its exit, once it was evicted; that it was, and why, is in its record and its life, and the exit is its own.
async fn evicted(runtime: &Runtime, container: &ContainerId, reason: &str) -> Exit {
    let exit = runtime.exit_of(container).await;
    let record =
        runtime.container(container).expect("it is neither removed nor started again").record.clone();
    assert_eq!(record.phase, ContainerPhase::Exited);
    let eviction = record.evicted.expect("it is remembered");
    assert_eq!((eviction.plugin.as_str(), eviction.reason.as_str()), ("10-bailiff", reason));
    let life = runtime.explain(Subject::Container(container.clone())).await.expect("explained");
    let told: Vec<_> = life
        .iter()
        .filter(|event| matches!(event.what, What::ContainerEvicted { .. }))
        .map(|event| event.what.to_string())
        .collect();
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    assert_eq!(told, [format!("container evicted by plugin 10-bailiff{because}")]);
    exit
}

/// A container that says when it hears signals.
async fn listening(runtime: &Runtime, pod: &mainstay::SandboxId, name: &str) -> ContainerId {
    let container = runtime.started(pod, name, HEARD).await;
    wait::until_async("it hears signals", async || {
        runtime.sh(&container, "test -e /ready").await.exit.code() == 0
    })
    .await;
    container
}

#[tokio::test]
async fn whom_a_plugin_evicts_is_stopped_and_everybody_sees_why() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let bailiff = Bailiff::default();
    let _stub = Stub::with(&config, "10", "bailiff", bailiff.clone(), Faults::default());
    live(&runtime, "10-bailiff").await;
    let pod = runtime.pod("p").await;
    // By itself: more than one at once, one of them twice, and one that never was.
    let [first, second] = [listening(&runtime, &pod, "a").await, listening(&runtime, &pod, "b").await];
    let nobody: ContainerId = "nobody".parse().expect("an id");
    let evict = vec![eviction(&first, "it is noisy"), eviction(&second, ""), eviction(&nobody, "who is it?")];
    assert_eq!(bailiff.ask(Vec::new(), evict).await, []);
    assert_eq!(bailiff.ask(Vec::new(), vec![eviction(&first, "it is still noisy")]).await, []);
    // Its own signal reached it, and it had its grace.
    assert_eq!(evicted(&runtime, &first, "it is noisy").await.code(), 7);
    assert_eq!(evicted(&runtime, &second, "").await.code(), 7);
    // In the answer to a creation, which does not wait for it.
    let third = listening(&runtime, &pod, "c").await;
    bailiff.wants(|wishes| wishes.evict.push(eviction(&third, "its room is needed")));
    let fourth = runtime.started(&pod, "d", "exec sleep 1000").await;
    assert_eq!(evicted(&runtime, &third, "its room is needed").await.code(), 7);
    // In the answer to an update: of the very one that is updated, too.
    bailiff.wants(|wishes| wishes.evict.push(eviction(&fourth, "it wants too much")));
    let limits = Resources { memory_bytes: Some(64 << 20), ..Resources::default() };
    runtime.update_container(&fourth, limits).await.expect("updated");
    evicted(&runtime, &fourth, "it wants too much").await;
    // One that has not begun to run never does.
    let fifth = runtime.created(&pod, "e", "touch /ran; exec sleep 1000").await;
    assert_eq!(bailiff.ask(Vec::new(), vec![eviction(&fifth, "too late")]).await, []);
    evicted(&runtime, &fifth, "too late").await;
    runtime.start_container(&fifth).await.expect_err("it has ended");
    // To evict what has ended changes nothing.
    assert_eq!(bailiff.ask(Vec::new(), vec![eviction(&fifth, "again")]).await, []);
    evicted(&runtime, &fifth, "too late").await;
    assert_eq!(runtime.containers_of(&pod).len(), 5);
    world.finish(runtime).await;
}

/// A creation that is refused evicts nobody: what the plugins wanted beside it is not done either.
#[tokio::test]
async fn a_creation_that_fails_evicts_nobody() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let bailiff = Bailiff::default();
    let stub = Stub::with(&config, "10", "bailiff", bailiff.clone(), Faults::default());
    let last = Stub::start(&config, "20", "last");
    for plugin in ["10-bailiff", "20-last"] {
        live(&runtime, plugin).await;
    }
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "a", "exec sleep 1000").await;
    bailiff.wants(|wishes| wishes.evict.push(eviction(&container, "its room is needed")));
    last.faults.set(
        "CreateContainer",
        mainstay_nri_plugin::faults::Fault::Refuse("no room".to_owned()),
        Some(1),
    );
    runtime.create_container(&pod, script_spec("b", "true")).await.expect_err("refused");
    assert!(bailiff.evictions().is_empty(), "it was in the answer");
    // Whatever had been begun would be seen by now: events of a pod are told in their order.
    runtime.started(&pod, "c", "exec sleep 1000").await;
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!((record.phase, record.evicted), (ContainerPhase::Running, None));
    world.finish(runtime).await;
    drop((stub, last));
}

/// What a plugin answered to the end of a container was dropped: others were to have its share.
#[tokio::test]
async fn what_a_plugin_answers_to_an_end_changes_others() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let bailiff = Bailiff::default();
    let _stub = Stub::with(&config, "10", "bailiff", bailiff.clone(), Faults::default());
    live(&runtime, "10-bailiff").await;
    let pod = runtime.pod("p").await;
    let stays = runtime.started(&pod, "stays", "exec sleep 1000").await;
    let ends = runtime.started(&pod, "ends", "exec sleep 1000").await;
    bailiff.wants(|wishes| wishes.update.push(pids(&stays, 55)));
    runtime.stop_container(&ends, mainstay::StopOptions::default()).await.expect("stopped");
    let limit = || {
        let record = runtime.container(&stays).expect("listed").record.clone();
        record.limits().pids == Some(55)
    };
    wait::until("its limit is raised", || limit().then_some(())).await;
    // By itself; what cannot be done is named.
    let failed = bailiff.ask(vec![pids(&stays, 66), pids("nobody", 5)], Vec::new()).await;
    assert_eq!(failed.iter().map(|update| update.container_id.as_str()).collect::<Vec<_>>(), ["nobody"]);
    assert_eq!(runtime.container(&stays).expect("listed").record.limits().pids, Some(66));
    world.finish(runtime).await;
}
