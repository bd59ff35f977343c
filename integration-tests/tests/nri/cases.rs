//! Faults that other runtimes had in the field with plugins, as they were reported.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay::faults::FAULTS_DIRECTORY;
use mainstay::{
    Config, ContainerId, ContainerPhase, Error, FailPolicy, IfRunning, Repair, Runtime, SandboxPhase,
};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Shorthand, script_spec, wait, world};
use mainstay_messages::admin::Reference;
use mainstay_nri_plugin::faults::Fault;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{LATE_MS, Stub, live, spec, start, status, with_plugins};

/// The plugin of case 61.
const WORKER: &str = "15-worker";
/// How often an undo fails before it works.
const UNDO_FAILURES: u32 = 5;
/// How long the slow answer of case 61 takes, in milliseconds: longer than the plugin has.
const SLOW_MS: u64 = 2 * LATE_MS;

/// Case 22 (crio#8790, crio#9097): a plugin hung in CreateContainer, the request timed out, and the record of its name was not
/// cleared; where the clean-up failed 20 times it was given up, and the name was taken for ever.
///
/// Here the plugin hangs, dies while it is asked, or the caller leaves meanwhile. Each time the error is clear, and the same name works.
#[tokio::test]
async fn a_name_is_free_again_whatever_became_of_its_creation() {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.fail = FailPolicy::Closed;
    });
    let runtime = start(&config).await;
    let stub = Stub::start(&config, "10", "stub");
    live(&runtime, "10-stub").await;
    let pod = runtime.pod("p").await;
    // It hangs, and its deadline passes; then it is killed while it is asked.
    for (fault, why) in [(Fault::Hang, "1500 ms"), (Fault::Die, "10-stub")] {
        stub.faults.set("CreateContainer", fault, Some(1));
        let error = runtime.create_container(&pod, script_spec("c", "true")).await.expect_err("no answer");
        assert!(matches!(&error, Error::HookFailed { hook, .. } if hook == "CreateContainer"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(runtime.containers_of(&pod).is_empty(), "nothing of it is listed");
        live(&runtime, "10-stub").await;
        let container = runtime.started(&pod, "c", "exec sleep 1000").await;
        runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    }
    // A caller that does not wait changes nothing: what it began is undone, and the name is free.
    stub.faults.set("CreateContainer", Fault::Hang, Some(1));
    let given_up = runtime.create_container(&pod, script_spec("c", "true"));
    tokio::time::timeout(Duration::from_millis(LATE_MS / 3), given_up).await.expect_err("it hangs");
    let made = again(async || runtime.create_container(&pod, script_spec("c", "exec sleep 1000")).await);
    let container = made.await;
    runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    live(&runtime, "10-stub").await;
    assert_eq!(runtime.audit(Repair::No).await.expect("audited"), []);
    world.finish(runtime).await;
}

/// Until it is not refused because the one before is still being undone.
async fn again<T>(ask: impl AsyncFn() -> mainstay::Result<T>) -> T {
    let end = Instant::now() + Duration::from_millis(wait::CONDITION_MS);
    loop {
        match ask().await {
            Ok(value) => return value,
            Err(Error::InProgress { .. } | Error::Terminating { .. } | Error::NameTaken { .. })
                if Instant::now() < end =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The other half of case 22: the clean-up itself fails again and again. It is tried for as long as the record stands, and
/// plugins hear of the end when it has worked.
#[tokio::test]
async fn a_clean_up_that_fails_is_tried_until_it_works_and_the_name_is_free() {
    let world = world!().with(|config| config.nri.enable = true);
    let faults = world.path().join("faults");
    std::fs::create_dir(&faults).expect("made");
    let daemon = Daemon::start(&world, &[(FAULTS_DIRECTORY, faults.clone())]).await;
    let stub = Stub::start(&world.config(), "10", "stub");
    wait::until("it is told of all there is", || (stub.count("Synchronize") > 0).then_some(())).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    let fail = |point: &str| {
        let file = faults.join(point);
        std::fs::write(&file, format!("fail {UNDO_FAILURES}")).expect("written");
        file
    };
    stub.faults.set("RunPodSandbox", Fault::Refuse("not today".to_owned()), Some(1));
    let fault = fail("run-pod.shim.undo.before");
    let error = client.run_sandbox(spec("p")).await.expect_err("a plugin says no");
    assert_eq!(error.to_string(), "RunPodSandbox: plugin 10-stub: not today");
    let failed = stub.pods().pop().expect("it was told");
    let pods = client.list_sandboxes().await.expect("listed");
    assert!(pods.iter().all(|pod| pod.record.phase != SandboxPhase::Ready), "{pods:?}");
    let heard = stub.heard(&failed);
    // It stands until all of it is gone, and until then no plugin hears that it is.
    assert!(!fault.exists() || !heard.contains(&"RemovePodSandbox"), "{heard:?}");
    let pod = again(async || client.run_sandbox(spec("p")).await).await;
    assert!(!fault.exists(), "each failure has happened");
    assert_eq!(stub.heard(&failed), ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]);
    stub.faults.set("CreateContainer", Fault::Refuse("not now".to_owned()), Some(1));
    let fault = fail("create-container.hook.undo.before");
    let create = async || client.create_container(Reference("p".to_owned()), script_spec("c", "true")).await;
    let error = create().await.expect_err("a plugin says no");
    assert_eq!(error.to_string(), "CreateContainer: plugin 10-stub: not now");
    again(create).await;
    assert!(!fault.exists(), "each failure has happened");
    assert_eq!(client.audit(Repair::No).await.expect("audited"), []);
    again(async || client.remove_sandbox(Reference(pod.to_string())).await).await;
    drop((client, daemon));
    world.assert_nothing_left().await;
}

/// Case 61 (cd#10773, nri#114, nri#316): a plugin that took 3 s once was thrown out, and later pods silently ran without it,
/// even when it was required.
///
/// Of 20 containers the plugin answers too late for the 5th, exits while it is asked about the 10th, and is killed while it is asked
/// about the 15th. Each costs that request alone, by the plugin's policy; the plugin stays or is started again, and knows all
/// there is.
#[rstest]
#[case::optional(Need::Optional)]
#[case::required(Need::Required)]
#[tokio::test]
async fn a_slow_answer_an_exit_and_a_kill_cost_their_requests_alone(#[case] need: Need) {
    let world = world!();
    let config = with_plugins(&world, |config| {
        config.nri.request_timeout_ms = LATE_MS;
        config.nri.registration_timeout_ms = LATE_MS;
        if need == Need::Required {
            config.nri.required = vec![WORKER.parse().expect("a good name")];
        }
    });
    let worker = Worker::install(&config);
    // The last line counts first.
    worker.plan(&format!(
        "CreateContainer*1=die\nCreateContainer*4=late:0\nCreateContainer*1=late:{SLOW_MS}\nCreateContainer*4=late:0\n"
    ));
    let runtime = Arc::new(start(&config).await);
    live(&runtime, WORKER).await;
    // Read by the next process of it.
    worker.plan("CreateContainer*1=hang\nCreateContainer*4=late:0\n");
    let pod = runtime.pod("p").await;
    let mut made = Vec::new();
    for number in 1..=20 {
        live(&runtime, WORKER).await;
        let before = status(&runtime, WORKER).await.expect("listed").pid;
        let creation = tokio::spawn({
            let (runtime, pod) = (Arc::clone(&runtime), pod.clone());
            async move { runtime.create_container(&pod, script_spec(&format!("c{number}"), "true")).await }
        });
        if number == 15 {
            let asked = async || hanging(&runtime, &made).await;
            wait::until_async("it is asked about the container", asked).await;
            kill(before.expect("it is a process of the runtime's"));
            worker.plan("");
        }
        let outcome = creation.await.expect("it ends");
        // It also has a say in what all plugins together made of a container, and whoever was to agree and is not there has not.
        let hook = match (number, need) {
            (5 | 10 | 15, Need::Required) => Some("CreateContainer"),
            (10 | 15, Need::Optional) => Some("ValidateContainerAdjustment"),
            _ => None,
        };
        match (outcome, hook) {
            (Ok(container), None) => made.push(container),
            (Err(Error::HookFailed { hook, plugin, .. }), Some(expected)) => {
                assert_eq!((hook.as_str(), plugin.as_str()), (expected, WORKER), "container {number}");
            }
            (other, _) => panic!("container {number}, {need:?}: {other:?}"),
        }
        let listed = runtime.containers_of(&pod);
        assert_eq!(listed.len(), made.len(), "what was refused has left nothing");
        if number == 5 {
            live(&runtime, WORKER).await;
            assert_eq!(status(&runtime, WORKER).await.expect("listed").pid, before, "it is the same process");
        }
    }
    live(&runtime, WORKER).await;
    let shown = status(&runtime, WORKER).await.expect("listed");
    assert_eq!(shown.strikes, 0);
    assert_eq!(shown.objects as usize, made.len() + 1, "it knows the pod and all containers");
    if need == Need::Required {
        // While it is not there nothing is made, and what is there can be removed.
        worker.plan("Configure=hang\n");
        runtime.restart_plugin(WORKER).await.expect("it is there");
        let error = runtime.create_container(&pod, script_spec("x", "true")).await.expect_err("it is absent");
        assert!(matches!(&error, Error::HookFailed { plugin, .. } if plugin == WORKER), "{error}");
        let gone = made.pop().expect("there are some");
        runtime.remove_container(&gone, IfRunning::Refuse).await.expect("removed");
        worker.plan("");
        live(&runtime, WORKER).await;
    }
    assert_eq!(runtime.audit(Repair::No).await.expect("audited"), []);
    world.finish(Arc::into_inner(runtime).expect("the only one")).await;
}

/// Whether nothing is made without the plugin of case 61.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Optional,
    Required,
}

/// An installed plugin, whose plan is read when it is configured.
struct Worker(PathBuf);

impl Worker {
    fn install(config: &Config) -> Self {
        for directory in [&config.nri.plugin_dir, &config.nri.plugin_config_dir] {
            std::fs::create_dir_all(directory).expect("made");
        }
        let program = config.nri.plugin_dir.join(WORKER);
        std::fs::copy(env!("CARGO_BIN_EXE_mainstay-plugin-under-test"), program).expect("copied");
        Self(config.nri.plugin_config_dir.join(format!("{WORKER}.conf")))
    }

    fn plan(&self, text: &str) {
        std::fs::write(&self.0, text).expect("written");
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, Signal::KILL).expect("it runs");
}

/// Whether a container is being made that is none of these.
async fn hanging(runtime: &Runtime, made: &[ContainerId]) -> bool {
    runtime
        .containers()
        .iter()
        .any(|shown| shown.record.phase == ContainerPhase::Creating && !made.contains(&shown.record.id))
}
