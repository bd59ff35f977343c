//! The benchmark of plugins: what they cost a pod. The same pods without plugins and with so many, in turns, so that a machine
//! that drifts drifts for all of them.
//!
//! Owns: the plugins, which run in this process, hear of everything and change nothing. Never: a plugin that does any work: what
//! is measured is the way to it and back.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use mainstay::{Config, PluginState, Runtime, SandboxSpec, Shutdown, Subject, What};
use mainstay_nri_plugin::{Door, Identity, Options, Plugin, Result as Answer, api};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::series::{Series, Summary};
use super::{PluginsOptions, own_network};
use crate::arguments::Format;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pods that are made and thrown away before anything counts, with each number of plugins.
const WARM_UP_PODS: u32 = 3;
/// What the names of pods begin with that the last plugin does not want.
const REFUSED: &str = "refused-";
/// The word for a runtime that listens for no plugins at all.
const OFF: &str = "off";
/// Time between two looks at whether all plugins know of all there is, in milliseconds.
const LIVE_POLL_MS: u64 = 5;
/// Time for them to be so, in milliseconds.
const LIVE_MAX_MS: u64 = 30_000;

/// A plugin that hears of everything and changes nothing.
struct Bystander {
    /// What the names of pods begin with that it does not want.
    refuses: Option<&'static str>,
}

#[mainstay_nri_plugin::async_trait]
impl Plugin for Bystander {
    fn events(&self) -> api::EventMask {
        api::EventMask::ALL
    }

    async fn run_pod_sandbox(&self, pod: api::PodSandbox) -> Answer<()> {
        match self.refuses {
            Some(beginning) if pod.name.starts_with(beginning) => Err("the benchmark wants it so".into()),
            _ => Ok(()),
        }
    }
}

/// A runtime with so many plugins.
struct Stage {
    title: String,
    runtime: Runtime,
    plugins: Vec<JoinHandle<()>>,
    run: Series,
    parallel: Series,
    hook: Series,
    undone: Series,
}

/// What was measured with one number of plugins.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Running a pod, one at a time.
    run: Option<Summary>,
    /// The same, several at a time.
    run_in_parallel: Option<Summary>,
    /// One plugin's answer to RunPodSandbox, as the runtime counts it.
    hook: Option<Summary>,
    /// Running a pod that the last plugin refuses, until all of it is undone and the caller hears so.
    refused_and_undone: Option<Summary>,
}

/// Measures, and prints a table or, for programs, one JSON document.
pub async fn run(options: &PluginsOptions, format: Format) -> Outcome<()> {
    let directory = options.directory.join(format!("mainstay-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome = measure(options, &directory).await;
    std::fs::remove_dir_all(&directory)?;
    let report = outcome?;
    match format {
        Format::Json => println!("{}", serde_json::to_string(&BTreeMap::from_iter(report))?),
        Format::Text => print_table(options, &report),
    }
    Ok(())
}

async fn measure(options: &PluginsOptions, directory: &Path) -> Outcome<Vec<(String, Report)>> {
    if options.network.kind().is_attached() {
        // SAFETY: a new network namespace leaves this thread's descriptors, memory and files as they are.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    }
    let mut stages = Vec::new();
    let counts = [None].into_iter().chain(options.counts.iter().copied().map(Some));
    for (index, count) in counts.enumerate() {
        stages.push(Stage::begin(options, directory, (u8::try_from(index)?, count)).await?);
    }
    let outcome = in_turns(options, &mut stages).await;
    let mut reports = Vec::new();
    for stage in stages {
        reports.push(stage.end().await?);
    }
    outcome?;
    Ok(reports)
}

async fn in_turns(options: &PluginsOptions, stages: &mut [Stage]) -> Outcome<()> {
    for stage in &*stages {
        for n in 0..WARM_UP_PODS {
            stage.pod(&format!("warm-{n}")).await?;
        }
    }
    for n in 0..options.pods {
        for stage in &mut *stages {
            let (took, hooks) = stage.pod(&format!("seq-{n}")).await?;
            stage.run.push(took);
            hooks.into_iter().for_each(|took| stage.hook.push(took));
        }
    }
    let parallel = options.parallel.max(1);
    for round in 0..options.pods.div_ceil(parallel) {
        for stage in &mut *stages {
            let pods = stream::iter(0..parallel).map(|n| format!("par-{round}-{n}"));
            let shared = &*stage;
            let took: Vec<_> = pods
                .map(|name| async move { shared.pod(&name).await })
                .buffer_unordered(parallel as usize)
                .try_collect()
                .await?;
            took.into_iter().for_each(|(took, _)| stage.parallel.push(took));
        }
    }
    for n in 0..options.pods {
        for stage in stages.iter_mut().filter(|stage| !stage.plugins.is_empty()) {
            let began = Instant::now();
            let refused = stage.runtime.run_sandbox(spec(&format!("{REFUSED}{n}"))?).await;
            stage.undone.push(began.elapsed());
            if refused.is_ok() {
                return Err("a pod runs that a plugin has refused".into());
            }
        }
    }
    Ok(())
}

impl Stage {
    async fn begin(
        options: &PluginsOptions,
        directory: &Path,
        (index, count): (u8, Option<u8>),
    ) -> Outcome<Self> {
        let title = count.map_or(OFF.to_owned(), |count| count.to_string());
        let place = directory.join(&title);
        std::fs::create_dir_all(&place)?;
        let cgroup = format!("/mainstay-bench-{}-{index}", std::process::id());
        let mut config = Config::beside(&place, cgroup);
        own_network(&mut config, &options.network, index)?;
        config.network.cni_conf_dir.clone_from(&options.cni_conf_dir);
        config.network.cni_cache_dir = place.join("cni");
        config.nri.enable = count.is_some();
        let runtime = Runtime::start(config.clone()).await?;
        let count = count.unwrap_or(0);
        let plugins = (0..count).map(|number| {
            let refuses = (number + 1 == count).then_some(REFUSED);
            let identity = Identity::new(format!("{number:02}"), "bystander");
            let options = Options::new(identity, Door::Socket(config.nri.socket.clone()));
            tokio::spawn(async move {
                // One that cannot connect is missed by whoever waits until all are live.
                drop(mainstay_nri_plugin::run(Bystander { refuses }, options).await);
            })
        });
        let plugins: Vec<_> = plugins.collect();
        let all_live = async {
            loop {
                let shown = runtime.plugins().await?;
                if shown.iter().filter(|plugin| plugin.state == PluginState::Live).count() == plugins.len() {
                    return Ok::<_, Box<dyn Error>>(());
                }
                tokio::time::sleep(Duration::from_millis(LIVE_POLL_MS)).await;
            }
        };
        tokio::time::timeout(Duration::from_millis(LIVE_MAX_MS), all_live).await??;
        let series = Series::default;
        Ok(Self {
            title,
            runtime,
            plugins,
            run: series(),
            parallel: series(),
            hook: series(),
            undone: series(),
        })
    }

    /// The life of one pod: how long it took to run, and each plugin to answer.
    async fn pod(&self, name: &str) -> Outcome<(Duration, Vec<Duration>)> {
        let began = Instant::now();
        let pod = self.runtime.run_sandbox(spec(name)?).await?;
        let took = began.elapsed();
        let mut hooks = Vec::new();
        if !self.plugins.is_empty() {
            for event in self.runtime.explain(Subject::Sandbox(pod.clone())).await? {
                if let What::HookCalled { calls, .. } = event.what {
                    hooks.extend(calls.iter().map(|call| Duration::from_micros(call.took_us)));
                }
            }
        }
        self.runtime.remove_sandbox(&pod).await?;
        Ok((took, hooks))
    }

    async fn end(self) -> Outcome<(String, Report)> {
        self.plugins.iter().for_each(JoinHandle::abort);
        self.runtime.close(Shutdown::StopContainers).await?;
        let report = Report {
            run: self.run.summary(),
            run_in_parallel: self.parallel.summary(),
            hook: self.hook.summary(),
            refused_and_undone: self.undone.summary(),
        };
        Ok((self.title, report))
    }
}

fn spec(name: &str) -> Outcome<SandboxSpec> {
    Ok(SandboxSpec::new(name.parse()?))
}

fn print_table(options: &PluginsOptions, reports: &[(String, Report)]) {
    let ms = |summary: Option<Summary>, of: fn(Summary) -> u64| {
        summary.map(of).map_or_else(|| "-".to_owned(), |us| format!("{}.{:03}", us / 1000, us % 1000))
    };
    let p50 = |summary| ms(summary, |summary| summary.p50_us);
    let p90 = |summary| ms(summary, |summary| summary.p90_us);
    let at_a_time = format!("{} at a time", options.parallel);
    println!(
        "{:<12}{:>20}{:>20}{:>20}{:>20}",
        "pod run with", "one at a time", at_a_time, "a hook", "refused"
    );
    println!("{:<12}{:>20}{:>20}{:>20}{:>20}   (p50, p90, ms)", "plugins", "", "", "and back", "and undone");
    for (title, report) in reports {
        let cell = |summary| format!("{} {:>9}", p50(summary), p90(summary));
        println!(
            "{title:<12}{:>20}{:>20}{:>20}{:>20}",
            cell(report.run),
            cell(report.run_in_parallel),
            cell(report.hook),
            cell(report.refused_and_undone)
        );
    }
}
