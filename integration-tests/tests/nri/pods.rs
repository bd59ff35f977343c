//! What plugins hear of pods, and what their answer is to a pod.

use std::sync::Arc;
use std::time::Duration;

use mainstay::{Error, IfRunning, Network, PodPlan, Resources, SandboxChange, SandboxId, SandboxPhase};
use mainstay_integration_tests::net::Internet;
use mainstay_integration_tests::{Shorthand, peer, script_spec, wait, world};
use mainstay_nri_plugin::faults::{Fault, Faults};
use mainstay_nri_plugin::{Plugin, api};

use crate::stage::{Stub, live, spec, start, with_plugins};

#[tokio::test]
async fn a_plugin_is_told_of_a_whole_life_in_order() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    runtime.stop_container(&container, Default::default()).await.expect("stopped");
    runtime.remove_container(&container, IfRunning::Refuse).await.expect("removed");
    runtime.stop_sandbox(&pod, None).await.expect("stopped");
    assert_eq!(stub.heard(pod.as_str()), ["RunPodSandbox", "StopPodSandbox"]);
    runtime.remove_sandbox(&pod).await.expect("removed");
    assert_eq!(stub.heard(pod.as_str()), ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]);
    let life = [
        "CreateContainer",
        "ValidateContainerAdjustment",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "StopContainer",
        "RemoveContainer",
    ];
    assert_eq!(stub.heard(container.as_str()), life);
    world.finish(runtime).await;
}

/// Cases 22 and 46 (crio#8790, cd#5768): a failing hook left a name taken, an address leaked, a namespace behind.
#[tokio::test]
async fn a_hook_that_fails_undoes_the_pod_and_the_same_request_works_at_once() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let first = Stub::start(&config, "10", "first");
    let second = Stub::start(&config, "20", "second");
    let third = Stub::start(&config, "30", "third");
    for plugin in ["10-first", "20-second", "30-third"] {
        live(&runtime, plugin).await;
    }
    second.faults.set("RunPodSandbox", Fault::Refuse("not today".to_owned()), Some(1));
    let error = runtime.run_sandbox(spec("p")).await.expect_err("a plugin says no");
    assert!(matches!(error, Error::HookFailed { .. }), "{error}");
    assert_eq!(error.to_string(), "RunPodSandbox: plugin 20-second: not today");
    assert!(runtime.sandboxes().is_empty());
    world.assert_nothing_left().await;
    let failed = first.pods().pop().expect("it was told");
    for stub in [&first, &second] {
        assert_eq!(stub.heard(&failed), ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]);
    }
    assert_eq!(third.heard(&failed), [""; 0], "it never heard of it");
    let pod = runtime.pod("p").await;
    assert_eq!(third.heard(pod.as_str()), ["RunPodSandbox"]);
    world.finish(runtime).await;
}

/// While the hook has not answered, readers see no pod that is ready, it takes no container, and other pods run.
#[tokio::test]
async fn a_pod_is_not_ready_before_its_hook_has_answered() {
    let world = world!();
    let config = with_plugins(&world, |config| config.nri.parallel_max = 8);
    let runtime = Arc::new(start(&config).await);
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    stub.faults.set("RunPodSandbox", Fault::Late(Duration::from_millis(1_000)), Some(1));
    let slow = tokio::spawn({
        let runtime = Arc::clone(&runtime);
        async move { runtime.run_sandbox(spec("slow")).await }
    });
    let id = wait::until("the hook is called", || stub.pods().pop()).await;
    let id: SandboxId = id.parse().expect("an id");
    let other = runtime.pod("other").await;
    let shown = runtime.sandbox(&id).expect("listed");
    if !slow.is_finished() {
        assert_eq!(shown.record.phase, SandboxPhase::Starting);
        let refused = runtime.create_container(&id, script_spec("c", "true")).await;
        assert!(slow.is_finished() || refused.is_err(), "it takes no container");
    }
    slow.await.expect("it ends").expect("it runs");
    assert_eq!(runtime.sandbox(&id).expect("listed").record.phase, SandboxPhase::Ready);
    runtime.remove_sandbox(&other).await.expect("removed");
    world.finish(Arc::into_inner(runtime).expect("the only one")).await;
}

/// A plugin that keeps the addresses and the namespaces of the pods of which it is told that they run.
#[derive(Clone, Default)]
struct Surveyor(Arc<std::sync::Mutex<Vec<api::PodSandbox>>>);

#[mainstay_nri_plugin::async_trait]
impl Plugin for Surveyor {
    fn events(&self) -> api::EventMask {
        api::EventMask::NONE.with(api::Event::RUN_POD_SANDBOX)
    }

    async fn run_pod_sandbox(&self, pod: api::PodSandbox) -> mainstay_nri_plugin::Result<()> {
        self.0.lock().expect("sound").push(pod);
        Ok(())
    }
}

/// The network is made before plugins are asked, and they were told of a pod without addresses.
#[tokio::test]
async fn a_plugin_sees_the_addresses_of_a_pod_when_it_runs() {
    let world = world!();
    if peer::find("ip", "iproute2").is_none() {
        return;
    }
    let _internet = Internet::enter();
    let config = with_plugins(&world, |config| config.network.default = Network::Builtin);
    let runtime = start(&config).await;
    let surveyor = Surveyor::default();
    let _stub = Stub::with(&config, "10", "surveyor", surveyor.clone(), Faults::default());
    live(&runtime, "10-surveyor").await;
    let pod = runtime.pod("p").await;
    let network = runtime.sandbox(&pod).expect("listed").record.network.clone().expect("it has one");
    let ips: Vec<_> = network.ips.iter().map(|address| address.ip.to_string()).collect();
    assert!(!ips.is_empty(), "{network:?}");
    let seen = surveyor.0.lock().expect("sound").pop().expect("it was told");
    assert_eq!((seen.id.as_str(), &seen.ips), (pod.as_str(), &ips));
    let namespaces: Vec<_> =
        seen.linux.namespaces.iter().map(|own| (own.type_.as_str(), own.path.as_str())).collect();
    assert_eq!(namespaces, [("network", network.namespace.to_str().expect("text"))]);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// A plugin that keeps what it is told of changes of pods.
#[derive(Clone, Default)]
struct Clerk(Arc<std::sync::Mutex<Vec<Changed>>>);

/// What is told of a change: how, the pod, what it takes beside its containers, and with them.
type Changed = (&'static str, api::PodSandbox, api::LinuxResources, api::LinuxResources);

#[mainstay_nri_plugin::async_trait]
impl Plugin for Clerk {
    fn events(&self) -> api::EventMask {
        api::EventMask::NONE.with(api::Event::UPDATE_POD_SANDBOX).with(api::Event::POST_UPDATE_POD_SANDBOX)
    }

    async fn update_pod_sandbox(
        &self,
        pod: api::PodSandbox,
        overhead: api::LinuxResources,
        resources: api::LinuxResources,
    ) -> mainstay_nri_plugin::Result<()> {
        self.0.lock().expect("sound").push(("before", pod, overhead, resources));
        Ok(())
    }

    async fn post_update_pod_sandbox(&self, pod: api::PodSandbox) -> mainstay_nri_plugin::Result<()> {
        let none = api::LinuxResources::default();
        self.0.lock().expect("sound").push(("after", pod, none.clone(), none));
        Ok(())
    }
}

/// Plugins are asked before a pod's limits change, and told when they are in force; one that says no leaves them as they were.
#[tokio::test]
async fn plugins_are_asked_before_a_pod_changes_and_told_after() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let (clerk, faults) = (Clerk::default(), Faults::default());
    let stub = Stub::with(&config, "10", "clerk", clerk.clone(), faults.clone());
    live(&runtime, "10-clerk").await;
    let pod = runtime.pod("p").await;
    let memory = |bytes| Resources { memory_bytes: Some(bytes), ..Resources::default() };
    let plan = PodPlan { overhead: memory(5 << 20), containers: memory(70 << 20) };
    let change = SandboxChange { limits: memory(90 << 20), plan };
    runtime.update_sandbox(&pod, change).await.expect("updated");
    wait::until("it is told after", || (stub.count("PostUpdatePodSandbox") == 1).then_some(())).await;
    let told = clerk.0.lock().expect("sound").clone();
    let [(first, was, overhead, resources), (second, is, ..)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((*first, *second), ("before", "after"));
    let bytes = |resources: &api::LinuxResources| resources.memory.limit.as_ref().map(|limit| limit.value);
    assert_eq!((bytes(overhead), bytes(resources)), (Some(5 << 20), Some(70 << 20)));
    assert_eq!((bytes(&was.linux.resources), bytes(&is.linux.resources)), (None, Some(90 << 20)));
    assert_eq!(bytes(&is.linux.pod_overhead), Some(5 << 20));
    assert_eq!(bytes(&is.linux.pod_resources), Some(70 << 20));
    // Where nobody says what it is expected to take, it is what it may take.
    faults.set("UpdatePodSandbox", Fault::Refuse("too much".to_owned()), Some(1));
    let change = SandboxChange { limits: memory(95 << 20), ..SandboxChange::default() };
    let error = runtime.update_sandbox(&pod, change.clone()).await.expect_err("refused");
    assert_eq!(error.to_string(), "UpdatePodSandbox: plugin 10-clerk: too much");
    let limits = || runtime.sandbox(&pod).expect("listed").record.limits().memory_bytes;
    assert_eq!(limits(), Some(90 << 20), "they are as they were");
    // One from before 0.10 does not know the call, for which there is no other: it goes on without it.
    faults.set("UpdatePodSandbox", Fault::Unknown, Some(1));
    runtime.update_sandbox(&pod, change).await.expect("updated");
    assert_eq!(limits(), Some(95 << 20));
    world.finish(runtime).await;
}
