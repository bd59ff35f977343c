//! Plugins that do not answer, or are not there.

use std::time::Duration;

use mainstay::{Error, EventOptions, FailPolicy, HookOutcome, IfRunning, Journaled, PluginState, What};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};
use mainstay_nri_plugin::faults::Fault;

use crate::stage::{LATE_MS, Stub, hooks, live, spec, start, status, with_plugins};

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
