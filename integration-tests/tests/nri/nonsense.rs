//! Plugins that talk nonsense, and plugins that fail at random.

use std::time::Duration;

use mainstay::{FailPolicy, PluginSettings, Repair};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};
use mainstay_nri_plugin::faults::Fault;

use crate::stage::{LATE_MS, SHORT_MS, Stub, live, spec, start, with_plugins};

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
