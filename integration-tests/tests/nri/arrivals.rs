//! Plugins that come, and come again.

use std::sync::Arc;

use mainstay::{PluginState, Runtime, Shutdown};
use mainstay_integration_tests::{Shorthand, wait, world};
use mainstay_nri_plugin::faults::Faults;

use crate::stage::{Late, Stub, live, spec, start, status, with_plugins};

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
