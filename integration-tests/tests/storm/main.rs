//! A storm: plugins that fail, hang, die, talk nonsense, come late and flood at random, networks of CNI plugins that fail, and in
//! it pods that live and end. At its end nothing is left, the audit is clean, and every failure was undone: at once where nothing
//! but a plugin was in the way, and at last where a network could not be taken back.
//!
//! | setting | |
//! |---|---|
//! | `MAINSTAY_SOAK_SECONDS` | how long it lasts; 20 when not set |
//! | `MAINSTAY_SOAK_SEED` | what its choices follow from; when not set another one each time, which is printed |
//! | `MAINSTAY_NRI_PODS` | how many pods there are at a time; 24 when not set |
//!
//! The same seed makes the same choices, though not at the same moments.

#[path = "../soak/chance.rs"]
mod chance;
mod fakes;
mod lives;
mod plugins;
mod verdict;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use mainstay::{FailPolicy, Network, PluginSettings, Runtime};
use mainstay_integration_tests::net::Internet;
use mainstay_integration_tests::{peer, wait, world};

use chance::Chance;
use lives::{Tally, live};
use plugins::Plugins;

/// How long it lasts when nothing is set, in seconds.
const SECONDS_DEFAULT: u64 = 20;
/// How many pods there are at a time when nothing is set.
const PODS_DEFAULT: u64 = 24;
/// How many things are done at a time.
const WORKERS: u64 = 6;
/// Time for a plugin to answer, and to have its turn, in milliseconds: what hangs is to hold up little.
const PLUGIN_MS: u64 = 200;
/// Failures in a row after which a plugin is disconnected: not often, or it would be away most of the time.
const STRIKES_MAX: u32 = 5;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is not valid; expected a number")))
}

#[tokio::test]
async fn every_failure_is_undone_in_a_storm() {
    let world = world!();
    if peer::find("ip", "iproute2").is_none() {
        return;
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let seed = setting("MAINSTAY_SOAK_SEED").unwrap_or_else(clock);
    let seconds = setting("MAINSTAY_SOAK_SECONDS").unwrap_or(SECONDS_DEFAULT);
    let pods = setting("MAINSTAY_NRI_PODS").unwrap_or(PODS_DEFAULT);
    println!("MAINSTAY_SOAK_SEED={seed} MAINSTAY_SOAK_SECONDS={seconds} MAINSTAY_NRI_PODS={pods}");
    let _internet = Internet::enter();
    let mut config = world.config();
    fakes::install(&mut config, world.path());
    config.network.default = Network::Builtin;
    config.nri.enable = true;
    config.nri.request_timeout_ms = PLUGIN_MS;
    config.nri.turn_timeout_ms = PLUGIN_MS;
    config.nri.strikes_max = STRIKES_MAX;
    let closed = PluginSettings { fail: Some(FailPolicy::Closed), ..Default::default() };
    config.nri.plugins.insert(plugins::CLOSED.parse().expect("a good name"), closed);
    plugins::install(&config);
    let runtime = Runtime::start(config.clone()).await.expect("the runtime starts");
    let plugins = Plugins::begin(&config);
    plugins.are_live(&runtime).await;

    let tally = Tally::default();
    let until = Instant::now() + Duration::from_secs(seconds);
    let workers = (0..WORKERS).map(|n| {
        let slots: Vec<u64> = (0..pods).filter(|slot| slot % WORKERS == n).collect();
        live(&runtime, &plugins, &tally, Chance::new(seed, n), (slots, until))
    });
    join_all(workers).await;
    println!("{tally}");

    plugins.behave(&config);
    fakes::behave(world.path());
    plugins.are_live(&runtime).await;
    for pod in runtime.sandboxes() {
        wait::finish("a pod is removed", lives::removed(&runtime, &pod.record.id)).await;
    }
    verdict::check(&runtime, world.path()).await;
    world.finish(runtime).await;
    drop(plugins);
}
