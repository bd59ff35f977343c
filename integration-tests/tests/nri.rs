//! Plugins on real pods: what they are told, what a failure of theirs costs, and that nothing else is harmed.

use std::sync::Arc;
use std::time::Duration;

use mainstay::{
    Config, ContainerId, ContainerPhase, Error, EventOptions, FailPolicy, HookOutcome, IfRunning, Journaled,
    Network, PluginSettings, PluginState, PluginStatus, Repair, Resources, Runtime, SandboxId, SandboxPhase,
    SandboxSpec, Shutdown, Subject, What,
};
use mainstay_integration_tests::net::Internet;
use mainstay_integration_tests::{Shorthand, World, peer, script_spec, wait, world};
use mainstay_nri_plugin::faults::{Fault, Faults, Obedient};
use mainstay_nri_plugin::{Adjusted, Door, Identity, Options, Plugin, Updated, api, run};
use tokio::task::JoinHandle;

/// A deadline for tests in which it passes, in milliseconds: long enough for a plugin that does answer, on a slow machine too.
const LATE_MS: u64 = 1_500;
/// A deadline where it does not matter who keeps it, in milliseconds.
const SHORT_MS: u64 = 200;

/// A plugin that runs in this test, and what it was told.
struct Stub {
    faults: Faults,
    task: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    /// Connects, and again when it is cut off.
    fn start(config: &Config, index: &str, name: &str) -> Self {
        Self::with(config, index, name, Obedient, Faults::default())
    }

    fn with(config: &Config, index: &str, name: &str, plugin: impl Plugin, faults: Faults) -> Self {
        let mut options = Options::new(Identity::new(index, name), Door::Socket(config.nri.socket.clone()));
        options.faults = faults.clone();
        let task = tokio::spawn(async move { drop(run(plugin, options).await) });
        Self { faults, task }
    }

    /// What it was told of an object, in order.
    fn heard(&self, id: &str) -> Vec<&'static str> {
        let about = |told: &&mainstay_nri_plugin::faults::Told| match told.container.as_str() {
            "" => told.pod == id,
            container => container == id,
        };
        self.faults.told().iter().filter(about).map(|told| told.call).collect()
    }

    /// How often it was told.
    fn count(&self, call: &str) -> usize {
        self.faults.told().iter().filter(|told| told.call == call).count()
    }

    /// The pods of which it was told that they run, in order.
    fn pods(&self) -> Vec<String> {
        let told = self.faults.told();
        told.iter().filter(|told| told.call == "RunPodSandbox").map(|told| told.pod.clone()).collect()
    }
}

/// A configuration with plugins.
fn with_plugins(world: &World, change: impl FnOnce(&mut Config)) -> Config {
    let mut config = world.config();
    config.nri.enable = true;
    change(&mut config);
    config
}

async fn start(config: &Config) -> Runtime {
    Runtime::start(config.clone()).await.expect("the runtime starts")
}

async fn status(runtime: &Runtime, plugin: &str) -> Option<PluginStatus> {
    let plugins = runtime.plugins().await.expect("listed");
    plugins.into_iter().find(|shown| shown.name == plugin)
}

async fn live(runtime: &Runtime, plugin: &str) {
    let what = format!("plugin {plugin} is live");
    wait::until_async(&what, async || {
        status(runtime, plugin).await.is_some_and(|shown| shown.state == PluginState::Live)
    })
    .await;
}

fn spec(name: &str) -> SandboxSpec {
    SandboxSpec::new(name.parse().expect("a good name"))
}

async fn hooks(runtime: &Runtime, pod: &SandboxId) -> Vec<(String, Vec<HookOutcome>)> {
    let events = runtime.explain(Subject::Sandbox(pod.clone())).await.expect("explained");
    let hooks = events.into_iter().filter_map(|event| match event.what {
        What::HookCalled { hook, calls } => Some((hook, calls.iter().map(|call| call.outcome).collect())),
        _ => None,
    });
    hooks.collect()
}

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

/// Case 61 (nri#114): one late answer was the death of a plugin, and later pods silently ran without it.
#[tokio::test]
async fn a_late_answer_costs_its_request_alone_and_the_plugin_stays() {
    let world = world!();
    let config = with_plugins(&world, |config| config.nri.request_timeout_ms = LATE_MS);
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    stub.faults.set("RunPodSandbox", Fault::Late(Duration::from_millis(3 * LATE_MS)), Some(1));
    let pod = runtime.pod("late").await;
    let missed = ("RunPodSandbox".to_owned(), vec![HookOutcome::Missed]);
    wait::until_async("the journal has it", async || hooks(&runtime, &pod).await.contains(&missed)).await;
    live(&runtime, "10-stub").await;
    assert_eq!(stub.count("Configure"), 1, "it is the same connection");
    wait::until("it is told of all there is again", || (stub.count("Synchronize") >= 2).then_some(())).await;
    live(&runtime, "10-stub").await;
    let next = runtime.pod("next").await;
    assert_eq!(stub.heard(next.as_str()), ["RunPodSandbox"]);
    assert_eq!(status(&runtime, "10-stub").await.expect("listed").strikes, 0);
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_plugin_that_hangs_is_given_up_after_its_strikes_and_comes_again() {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.synchronize_timeout_ms = LATE_MS;
        config.nri.strikes_max = 2;
    });
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    stub.faults.set("RunPodSandbox", Fault::Hang, None);
    let pods = [runtime.pod("a").await, runtime.pod("b").await, runtime.pod("c").await];
    wait::until("it has connected again", || (stub.count("Configure") >= 2).then_some(())).await;
    stub.faults.clear();
    live(&runtime, "10-stub").await;
    let mut given_up = false;
    let mut events = runtime.events(EventOptions::default());
    while let Some(entry) = events.next().await.expect("readable") {
        if let Journaled::Event(event) = entry
            && let What::PluginGone { plugin, reason } = event.what
        {
            given_up |= plugin == "10-stub" && reason.contains("2 times");
        }
    }
    assert!(given_up, "operators see it");
    assert_eq!(pods.len(), runtime.sandboxes().len());
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_plugin_that_fails_closed_and_does_not_answer_fails_the_request() {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.fail = FailPolicy::Closed;
    });
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    stub.faults.set("RunPodSandbox", Fault::Hang, Some(1));
    let error = runtime.run_sandbox(spec("p")).await.expect_err("it does not answer");
    assert!(matches!(&error, Error::HookFailed { plugin, .. } if plugin == "10-stub"), "{error}");
    live(&runtime, "10-stub").await;
    runtime.pod("p").await;
    world.finish(runtime).await;
}

/// nri#316: a required plugin that was absent was skipped.
#[tokio::test]
async fn without_a_required_plugin_nothing_is_made_and_everything_can_be_removed() {
    let world = world!();
    let config =
        with_plugins(&world, |config| config.nri.required = vec!["10-policy".parse().expect("good")]);
    let runtime = start(&config).await;
    let error = runtime.run_sandbox(spec("p")).await.expect_err("it is absent");
    let sentence = "RunPodSandbox: plugin 10-policy: it is required, and it is not connected";
    assert_eq!(error.to_string(), sentence);
    assert_eq!(status(&runtime, "10-policy").await.expect("listed").state, PluginState::Absent);
    let stub = Stub::start(&config, "10", "policy");
    live(&runtime, "10-policy").await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    drop(stub);
    wait::until_async("it is gone", async || {
        status(&runtime, "10-policy").await.is_some_and(|shown| shown.state == PluginState::Absent)
    })
    .await;
    let error = runtime.create_container(&pod, script_spec("d", "true")).await.expect_err("it is absent");
    assert!(matches!(error, Error::HookFailed { .. }), "{error}");
    runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    runtime.remove_sandbox(&pod).await.expect("removed");
    // It hears of what ended meanwhile as soon as it comes again.
    let stub = Stub::start(&config, "10", "policy");
    wait::until("it is told of the ends", || {
        let pod = stub.heard(pod.as_str()) == ["StopPodSandbox", "RemovePodSandbox"];
        (pod && stub.heard(container.as_str()) == ["StopContainer", "RemoveContainer"]).then_some(())
    })
    .await;
    world.finish(runtime).await;
}

/// cd#13901: a plugin that came late was told nothing of what was created while it was being told.
#[tokio::test]
async fn a_plugin_that_comes_late_hears_of_everything_once() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = Arc::new(start(&config).await);
    let before = runtime.pod("before").await;
    let container = runtime.started(&before, "c", "exec sleep 1000").await;
    let making = tokio::spawn({
        let runtime = Arc::clone(&runtime);
        async move {
            for number in 0..10 {
                runtime.pod(&format!("p{number}")).await;
            }
        }
    });
    let late = Late::default();
    let seen = late.clone();
    let stub = Stub::with(&config, "10", "late", late, Faults::default());
    live(&runtime, "10-late").await;
    making.await.expect("made");
    let mut heard: Vec<_> = seen.pods().into_iter().chain(stub.pods()).collect();
    heard.sort();
    let mut there: Vec<_> = runtime.sandboxes().iter().map(|pod| pod.record.id.to_string()).collect();
    there.sort();
    assert_eq!(heard, there);
    assert_eq!(seen.containers(), [container.to_string()]);
    world.finish(Arc::into_inner(runtime).expect("the only one")).await;
}

/// A plugin that keeps what it is told at first.
#[derive(Clone, Default)]
struct Late(Arc<std::sync::Mutex<(Vec<String>, Vec<String>)>>);

impl Late {
    fn pods(&self) -> Vec<String> {
        self.0.lock().expect("sound").0.clone()
    }

    fn containers(&self) -> Vec<String> {
        self.0.lock().expect("sound").1.clone()
    }
}

#[mainstay_nri_plugin::async_trait]
impl Plugin for Late {
    fn events(&self) -> api::EventMask {
        api::EventMask::ALL
    }

    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> mainstay_nri_plugin::Result<Vec<api::ContainerUpdate>> {
        let mut kept = self.0.lock().expect("sound");
        kept.0.extend(pods.into_iter().map(|pod| pod.id));
        kept.1.extend(containers.into_iter().map(|container| container.id));
        drop(kept);
        Ok(Vec::new())
    }
}

/// crio#8790: a plugin that refused a container left its name taken.
#[tokio::test]
async fn a_container_that_a_plugin_refuses_leaves_nothing_and_its_name_is_free() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    for call in ["CreateContainer", "StartContainer"] {
        stub.faults.set(call, Fault::Refuse("no".to_owned()), Some(1));
        let made = runtime.create_container(&pod, script_spec("c", "exec sleep 1000")).await;
        let (error, id) = match made {
            Err(error) => (error, refused(&stub)),
            Ok(id) => {
                let error = runtime.start_container(&id).await.expect_err("refused");
                let phase = runtime.container(&id).expect("listed").record.phase;
                assert_eq!(phase, ContainerPhase::Created, "it may be started another time");
                runtime.remove_container(&id, IfRunning::Kill).await.expect("removed");
                (error, id.to_string())
            }
        };
        assert!(error.to_string().contains(&format!("{call}: plugin 10-stub: no")), "{error}");
        wait::until("it is told of the end", || {
            stub.heard(&id).ends_with(&["StopContainer", "RemoveContainer"]).then_some(())
        })
        .await;
        assert!(runtime.containers_of(&pod).is_empty());
    }
    runtime.started(&pod, "c", "exec sleep 1000").await;
    world.finish(runtime).await;
}

fn refused(stub: &Stub) -> String {
    let told = stub.faults.told();
    told.iter().rfind(|told| told.call == "CreateContainer").expect("it was told").container.clone()
}

/// What is to stop, stops: neither a refusal nor silence of a plugin holds it up.
#[tokio::test]
async fn no_plugin_stands_in_the_way_of_an_end() {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.fail = FailPolicy::Closed;
    });
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    let container: ContainerId = runtime.started(&pod, "c", "exec sleep 1000").await;
    for call in ["StopContainer", "RemoveContainer"] {
        stub.faults.set(call, Fault::Refuse("no".to_owned()), None);
    }
    for call in ["StopPodSandbox", "RemovePodSandbox"] {
        stub.faults.set(call, Fault::Hang, None);
    }
    runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Garbage, noise, a flood and sudden death cost the plugin its connection at most, and other plugins and pods nothing.
#[tokio::test]
async fn a_plugin_that_talks_nonsense_harms_nobody_else() {
    let world = world!();
    let config = with_plugins(&world, |config| config.nri.request_timeout_ms = LATE_MS);
    let runtime = start(&config).await;
    let good = Stub::start(&config, "20", "good");
    let bad = Stub::start(&config, "10", "bad");
    live(&runtime, "20-good").await;
    for (number, fault) in
        [Fault::Garbage, Fault::Noise, Fault::Die, Fault::Frames(1_000), Fault::Flood(100), Fault::Unknown]
            .into_iter()
            .enumerate()
    {
        live(&runtime, "10-bad").await;
        bad.faults.set("RunPodSandbox", fault, Some(1));
        let pod = runtime.pod(&format!("p{number}")).await;
        assert_eq!(good.heard(pod.as_str()), ["RunPodSandbox"]);
    }
    live(&runtime, "10-bad").await;
    world.finish(runtime).await;
}

/// The runtime ends and begins again on what runs: plugins come again by themselves, and are told of it.
#[tokio::test]
async fn plugins_come_again_to_the_next_runtime() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let late = Late::default();
    let stub = Stub::with(&config, "10", "stub", late.clone(), Faults::default());
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = start(&config).await;
    live(&runtime, "10-stub").await;
    assert_eq!(late.pods(), [pod.to_string()]);
    assert_eq!(late.containers(), [container.to_string()]);
    runtime.remove_sandbox(&pod).await.expect("removed");
    assert_eq!(stub.heard(pod.as_str()), ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]);
    world.finish(runtime).await;
}

/// A plugin that changes what it is asked about.
struct Greeter;

#[mainstay_nri_plugin::async_trait]
impl Plugin for Greeter {
    fn events(&self) -> api::EventMask {
        api::EventMask::NONE.with(api::Event::CREATE_CONTAINER).with(api::Event::UPDATE_CONTAINER)
    }

    async fn create_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> mainstay_nri_plugin::Result<Adjusted> {
        let mut adjust = api::ContainerAdjustment::default();
        let value = format!("hello {}", container.name);
        adjust.env.push(api::KeyValue { key: "GREETING".to_owned(), value, ..Default::default() });
        adjust.annotations.insert("greeted".to_owned(), "yes".to_owned());
        Ok(Adjusted { adjust, ..Default::default() })
    }

    async fn update_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
        mut resources: api::LinuxResources,
    ) -> mainstay_nri_plugin::Result<Updated> {
        resources.pids = Some(api::LinuxPids { limit: 77, ..Default::default() }).into();
        let linux = api::LinuxContainerUpdate { resources: Some(resources).into(), ..Default::default() };
        let update = api::ContainerUpdate {
            container_id: container.id,
            linux: Some(linux).into(),
            ..Default::default()
        };
        Ok(Updated { update: vec![update], ..Default::default() })
    }
}

/// What a plugin changes is what runs, and what the runtime remembers.
#[tokio::test]
async fn a_container_gets_what_plugins_change_of_it() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    let runtime = start(&config).await;
    let stub = Stub::with(&config, "10", "greeter", Greeter, Faults::default());
    live(&runtime, "10-greeter").await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let said = runtime.sh(&container, "tr '\\0' '\\n' < /proc/1/environ").await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("GREETING=hello c"), "{said}");
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!(record.annotations()["greeted"], "yes");
    let limits = Resources { memory_bytes: Some(64 << 20), ..Resources::default() };
    runtime.update_container(&container, limits).await.expect("updated");
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!(record.limits().pids, Some(77));
    assert_eq!(record.limits().memory_bytes, Some(64 << 20));
    // Two plugins that want the same are told apart.
    let other = Stub::with(&config, "20", "other", Greeter, Faults::default());
    live(&runtime, "20-other").await;
    let error = runtime.create_container(&pod, script_spec("d", "true")).await.expect_err("both want it");
    let sentence = error.to_string();
    for part in ["10-greeter", "20-other", "greeted"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    world.finish(runtime).await;
    drop((stub, other));
}

/// Plugins that are installed are started, configured, started again when they die, and gone with the runtime.
#[tokio::test]
async fn an_installed_plugin_is_started_and_started_again() {
    let world = world!();
    let config = with_plugins(&world, |_| {});
    for directory in [&config.nri.plugin_dir, &config.nri.plugin_config_dir] {
        std::fs::create_dir_all(directory).expect("made");
    }
    let program = config.nri.plugin_dir.join("15-installed");
    std::fs::copy(env!("CARGO_BIN_EXE_mainstay-plugin-under-test"), &program).expect("copied");
    let plan = config.nri.plugin_config_dir.join("installed.conf");
    std::fs::write(&plan, "RunPodSandbox*1=refuse:as configured\n").expect("written");
    let runtime = start(&config).await;
    live(&runtime, "15-installed").await;
    let error = runtime.run_sandbox(spec("p")).await.expect_err("its configuration says so");
    assert_eq!(error.to_string(), "RunPodSandbox: plugin 15-installed: as configured");
    std::fs::write(&plan, "StopPodSandbox*1=die\n").expect("written");
    let first = status(&runtime, "15-installed").await.expect("listed").pid.expect("it is ours");
    runtime.restart_plugin("15-installed").await.expect("it is there");
    let second = another(&runtime, first).await;
    let pod = runtime.pod("p").await;
    runtime.stop_sandbox(&pod, None).await.expect("stopped");
    another(&runtime, second).await;
    world.finish(runtime).await;
    let rest = || {
        std::fs::read_dir("/proc")
            .expect("there")
            .flatten()
            .any(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program))
    };
    wait::until("it is gone with the runtime", || (!rest()).then_some(())).await;
}

/// Waits until the installed plugin is live with another process.
async fn another(runtime: &Runtime, before: u32) -> u32 {
    wait::until_async("it is live again", async || {
        let shown = status(runtime, "15-installed").await;
        shown.is_some_and(|shown| shown.state == PluginState::Live && shown.pid != Some(before))
    })
    .await;
    status(runtime, "15-installed").await.expect("listed").pid.expect("it is ours")
}

/// How many pods [`random_failures_leave_nothing`] runs when nothing else is set in `MAINSTAY_NRI_PODS`.
const PODS_DEFAULT: u64 = 24;

/// Many pods, and plugins that fail in every way at random: all of it is undone, and every plugin that heard of a beginning
/// hears of the end, or is told anew of all there is.
#[tokio::test]
async fn random_failures_leave_nothing() {
    let world = world!();
    let pods =
        std::env::var("MAINSTAY_NRI_PODS").ok().and_then(|pods| pods.parse().ok()).unwrap_or(PODS_DEFAULT);
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = SHORT_MS;
        config.nri.turn_timeout_ms = SHORT_MS;
        config.nri.strikes_max = 3;
        config.nri.plugins.insert(
            "20-closed".parse().expect("good"),
            PluginSettings { fail: Some(FailPolicy::Closed), ..Default::default() },
        );
    });
    let runtime = start(&config).await;
    let stubs = [Stub::start(&config, "10", "open"), Stub::start(&config, "20", "closed")];
    for plugin in ["10-open", "20-closed"] {
        live(&runtime, plugin).await;
    }
    let calls = [
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemovePodSandbox",
        "Synchronize",
    ];
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let (mut made, mut failed) = (0, 0);
    for number in 0..pods {
        let stub = &stubs[usize::try_from(roll(2)).expect("small")];
        let call = calls[usize::try_from(roll(6)).expect("small")];
        let fault = match roll(6) {
            0 => Fault::Hang,
            1 => Fault::Die,
            2 => Fault::Garbage,
            3 => Fault::Late(Duration::from_millis(2 * SHORT_MS)),
            _ => Fault::Refuse("at random".to_owned()),
        };
        stub.faults.set(call, fault, Some(1));
        let life = async {
            let pod = runtime.run_sandbox(spec(&format!("p{number}"))).await?;
            let container = runtime.create_container(&pod, script_spec("c", "exec sleep 1000")).await;
            let started = match &container {
                Ok(container) => runtime.start_container(container).await,
                Err(error) => Err(error.clone()),
            };
            runtime.remove_sandbox(&pod).await.expect("what is to end ends");
            started
        };
        match wait::finish("a life ends", life).await {
            Ok(()) => made += 1,
            Err(_) => failed += 1,
        }
    }
    println!("{made} lives, {failed} of them cut short by a plugin");
    assert!(runtime.sandboxes().is_empty());
    assert_eq!(runtime.audit(Repair::No).await.expect("audited"), []);
    world.finish(runtime).await;
}

/// Prints what plugins cost: `cargo test --release -p mainstay-integration-tests --test nri -- --ignored --nocapture`
#[tokio::test]
#[ignore = "it measures, and proves nothing"]
async fn figures() {
    const ROUNDS: u32 = 40;
    for (title, enable, plugins) in
        [("off", false, 0), ("no plugin", true, 0), ("one plugin", true, 1), ("five plugins", true, 5)]
    {
        let world = world!();
        let config = with_plugins(&world, |config| config.nri.enable = enable);
        let runtime = Arc::new(start(&config).await);
        let stubs: Vec<_> =
            (0..plugins).map(|number| Stub::start(&config, &format!("{number}0"), "stub")).collect();
        for number in 0..plugins {
            live(&runtime, &format!("{number}0-stub")).await;
        }
        let (mut runs, mut hook_times, mut batches, mut undone) = (vec![], vec![], vec![], vec![]);
        for round in 0..ROUNDS {
            let began = std::time::Instant::now();
            let pod = runtime.pod(&format!("p{round}")).await;
            runs.push(began.elapsed());
            for event in runtime.explain(Subject::Sandbox(pod.clone())).await.expect("explained") {
                if let What::HookCalled { calls, .. } = event.what {
                    hook_times.extend(calls.iter().map(|call| Duration::from_micros(call.took_us)));
                }
            }
            runtime.remove_sandbox(&pod).await.expect("removed");
        }
        for round in 0..ROUNDS / 4 {
            let began = std::time::Instant::now();
            let four = (0..4).map(|number| {
                let runtime = Arc::clone(&runtime);
                tokio::spawn(async move { runtime.pod(&format!("q{round}-{number}")).await })
            });
            let four: Vec<_> = four.collect();
            let mut pods = Vec::new();
            for pod in four {
                pods.push(pod.await.expect("it runs"));
            }
            batches.push(began.elapsed());
            for pod in pods {
                runtime.remove_sandbox(&pod).await.expect("removed");
            }
        }
        for round in 0..ROUNDS / 4 {
            let Some(stub) = stubs.last() else { break };
            stub.faults.set("RunPodSandbox", Fault::Refuse("no".to_owned()), Some(1));
            let began = std::time::Instant::now();
            runtime.run_sandbox(spec(&format!("r{round}"))).await.expect_err("refused");
            undone.push(began.elapsed());
        }
        println!(
            "{title:14} run-pod p50 {:?}; a call of a hook p50 {:?}; four pods at once p50 {:?}; a pod whose hook fails, undone p50 {:?}",
            median(&mut runs),
            median(&mut hook_times),
            median(&mut batches),
            median(&mut undone)
        );
        world.finish(Arc::into_inner(runtime).expect("the only one")).await;
    }
}

fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
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
