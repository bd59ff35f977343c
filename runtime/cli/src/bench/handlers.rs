//! The life cycle benchmark beside each other: several handlers in one run, in turns, with the floor, and what a pod of each takes
//! of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use futures::stream::{self, StreamExt, TryStreamExt};
use mainstay::config::HANDLER_DEFAULT;
use mainstay::{Config, Handler, HandlerSettings, Runtime, SandboxSpec};
use serde::Serialize;

use super::lifecycle::{self, Outcome, Steps, WARM_UP_PODS};
use super::series::Summary;
use super::{Lifecycle, memory, sleeper};

/// What the type of a shim of containerd's begins with.
const SHIM_TYPE_PREFIX: &str = "io.containerd.";
/// What the name of its program begins with.
const SHIM_NAME_PREFIX: &str = "containerd-shim-";

/// One of those that are compared.
#[derive(Clone, Debug)]
struct Compared {
    /// As the command line has it.
    title: String,
    handler: Handler,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Bare clone, mounts and exec in five new namespaces.
    floor: Option<Summary>,
    /// In the order of the command line.
    handlers: Vec<OfHandler>,
}

/// What was measured of one handler.
#[derive(Debug, Serialize)]
struct OfHandler {
    handler: String,
    /// One pod after the other, of each handler in turns.
    sequential: BTreeMap<&'static str, Summary>,
    /// Several pods at a time.
    parallel: BTreeMap<&'static str, Summary>,
    /// Pods a second, several at a time, from nothing to removed.
    parallel_pods_per_second: f64,
    memory: Option<MemoryOfPod>,
}

/// What the processes of a pod take beside the container's own, in KiB.
#[derive(Clone, Copy, Debug, Serialize)]
struct MemoryOfPod {
    /// Processes of a pod: its shim, and what stands behind it.
    processes: f64,
    /// Their PSS, for each pod.
    pss_kib: u64,
    /// Their private memory, for each pod.
    private_kib: u64,
}

/// One of the rounds of what was measured.
type Round = fn(&OfHandler) -> &BTreeMap<&'static str, Summary>;

/// What a word of the command line means.
fn settings(word: &str) -> HandlerSettings {
    let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
    let program = Some(word.to_owned());
    if word == HANDLER_DEFAULT {
        HandlerSettings::default()
    } else if word.starts_with(SHIM_TYPE_PREFIX) || name.starts_with(SHIM_NAME_PREFIX) {
        HandlerSettings { shim: program, ..HandlerSettings::default() }
    } else {
        HandlerSettings { runtime: program, ..HandlerSettings::default() }
    }
}

/// Adds the handlers of the command line to a configuration.
fn configure(options: &Lifecycle, config: &mut Config) -> Outcome<Vec<Compared>> {
    let compared = options.handlers.iter().enumerate().map(|(index, word)| {
        let handler: Handler = format!("bench{index}").parse()?;
        config.handler.0.insert(handler.clone(), settings(word));
        Ok(Compared { title: word.clone(), handler })
    });
    compared.collect()
}

/// Measures all of them on one runtime.
pub(super) async fn measure(options: &Lifecycle, directory: &Path, mut config: Config) -> Outcome<Report> {
    let compared = configure(options, &mut config)?;
    let runtime = Runtime::start(config).await?;
    let outcome = measure_on(&runtime, options, directory, &compared).await;
    runtime.close(mainstay::Shutdown::StopContainers).await?;
    outcome
}

async fn measure_on(
    runtime: &Runtime,
    options: &Lifecycle,
    directory: &Path,
    compared: &[Compared],
) -> Outcome<Report> {
    for n in 0..WARM_UP_PODS {
        for one in compared {
            life(runtime, one, &format!("warm-{n}")).await?;
        }
    }
    // In turns, so that a machine that drifts drifts for all of them.
    let mut sequential: Vec<Vec<Steps>> = vec![Vec::new(); compared.len()];
    for n in 0..options.pods {
        for (all, one) in sequential.iter_mut().zip(compared) {
            all.push(life(runtime, one, &format!("seq-{n}")).await?);
        }
    }
    let floor = lifecycle::floor(options.pods, &directory.join("floor"))?;
    let mut handlers = Vec::new();
    for (one, sequential) in compared.iter().zip(sequential) {
        let start = Instant::now();
        let parallel: Vec<Steps> = stream::iter(0..options.pods)
            .map(|n| async move { life(runtime, one, &format!("par-{n}")).await })
            .buffer_unordered(options.parallel.max(1) as usize)
            .try_collect()
            .await?;
        let time = start.elapsed();
        let memory = match options.memory_pods {
            0 => None,
            pods => Some(memory_of(runtime, one, pods).await?),
        };
        handlers.push(OfHandler {
            handler: one.title.clone(),
            sequential: lifecycle::summaries(&sequential),
            parallel: lifecycle::summaries(&parallel),
            parallel_pods_per_second: f64::from(options.pods) / time.as_secs_f64(),
            memory,
        });
    }
    Ok(Report { floor: floor.summary(), handlers })
}

async fn life(runtime: &Runtime, of: &Compared, name: &str) -> Outcome<Steps> {
    let step = lifecycle::one_pod(runtime, pod_spec(of, name)?).await;
    step.map_err(|error| format!("{}: {error}", of.title).into())
}

fn pod_spec(of: &Compared, name: &str) -> Outcome<SandboxSpec> {
    let mut spec = SandboxSpec::new(name.parse()?);
    spec.handler = Some(of.handler.clone());
    Ok(spec)
}

async fn memory_of(runtime: &Runtime, of: &Compared, pods: u32) -> Outcome<MemoryOfPod> {
    let mut made = Vec::new();
    for n in 0..pods {
        let pod = runtime.run_sandbox(pod_spec(of, &format!("mem-{n}"))?).await?;
        let container = runtime.create_container(&pod, sleeper()?).await?;
        runtime.start_container(&container).await?;
        made.push((pod, container));
    }
    let parents = parents()?;
    let (mut processes, mut pss, mut private) = (0u32, 0, 0);
    for (pod, container) in &made {
        let shim =
            runtime.sandbox(pod)?.record.shim.as_ref().ok_or("a ready pod without a shim")?.process.pid;
        let init = runtime.container(container)?.record.process.as_ref().map(|process| process.pid);
        for pid in below(shim, init, &parents) {
            // One that has ended meanwhile takes nothing.
            let Ok(memory) = memory::of(pid) else { continue };
            processes += 1;
            pss += memory.pss;
            private += memory.private;
        }
    }
    for (pod, _) in &made {
        runtime.remove_sandbox(pod).await?;
    }
    let each = |bytes: u64| bytes / u64::from(pods) / 1024;
    Ok(MemoryOfPod {
        processes: f64::from(processes) / f64::from(pods),
        pss_kib: each(pss),
        private_kib: each(private),
    })
}

/// Every process with its parent.
fn parents() -> Outcome<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may just have ended.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses may hold anything; the state and the parent follow it.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        all.extend(parent.map(|parent| (pid, parent)));
    }
    Ok(all)
}

/// A process and all below it, but for one with all that is below that.
fn below(top: u32, except: Option<u32>, parents: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([top]);
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid) && Some(*pid) != except)
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Prints a column for each handler.
pub(super) fn print_table(options: &Lifecycle, report: &Report) {
    let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
    let pair = |summary: Option<&Summary>| {
        summary.map_or_else(String::new, |times| format!("{} {:>8}", ms(times.p50_us), ms(times.p90_us)))
    };
    let line = |title: &str, cells: &mut dyn Iterator<Item = String>| {
        println!("{title:<34}{}", cells.map(|cell| format!("{cell:>26}")).collect::<String>());
    };
    let all = || report.handlers.iter();
    line("p50 and p90, in ms", &mut all().map(|one| one.handler.clone()));
    if let Some(floor) = &report.floor {
        line("floor: clone, mounts, exec", &mut std::iter::once(pair(Some(floor))));
    }
    let rounds: [(String, Round); 2] = [
        ("one at a time".to_owned(), |one| &one.sequential),
        (format!("{} at a time", options.parallel), |one| &one.parallel),
    ];
    for (title, round) in rounds {
        println!("{title}");
        for step in all().next().into_iter().flat_map(|first| round(first).keys()) {
            line(&format!("  {}", &step[2..]), &mut all().map(|one| pair(round(one).get(step))));
        }
    }
    line(
        "pods/s from nothing to removed",
        &mut all().map(|one| format!("{:.1}", one.parallel_pods_per_second)),
    );
    let of = |what: &dyn Fn(MemoryOfPod) -> String| -> Vec<String> {
        all().map(|one| one.memory.map_or_else(String::new, what)).collect()
    };
    line("processes of a pod", &mut of(&|memory| format!("{:.1}", memory.processes)).into_iter());
    line("their PSS (KiB)", &mut of(&|memory| memory.pss_kib.to_string()).into_iter());
    line("their private memory (KiB)", &mut of(&|memory| memory.private_kib.to_string()).into_iter());
}

/// Refuses words that cannot be told apart in a table.
pub(super) fn check(options: &Lifecycle) -> Result<(), Box<dyn Error>> {
    let mut seen = BTreeSet::new();
    match options.handlers.iter().find(|word| !seen.insert(*word)) {
        Some(twice) => Err(format!("--handler {twice}: given twice").into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_kind_of_program_it_is() {
        assert_eq!(settings("mainstay"), HandlerSettings::default());
        for word in ["runc", "/usr/bin/crun"] {
            assert_eq!(settings(word).runtime.as_deref(), Some(word));
        }
        for word in ["io.containerd.runc.v2", "containerd-shim-runc-v2", "/opt/containerd-shim-kata-v2"] {
            assert_eq!(settings(word).shim.as_deref(), Some(word));
        }
    }

    #[test]
    fn the_container_is_not_counted() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 3), (6, 5), (7, 1)];
        assert_eq!(below(2, Some(5), &parents), BTreeSet::from([2, 3, 4]));
        assert_eq!(below(7, None, &parents), BTreeSet::from([7]));
    }
}
