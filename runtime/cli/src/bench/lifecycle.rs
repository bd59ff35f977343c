//! The life cycle benchmark: pods with one container each, one after the other and several at a time.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use mainstay::{Config, ContainerId, IfRunning, Runtime, SandboxId, SandboxSpec, Shutdown, Subject, What};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::Serialize;
use tokio::io::unix::AsyncFd;

use super::series::{Series, Summary};
use super::{Lifecycle, handlers, memory, sleeper};
use crate::arguments::Format;

pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pods that are made and thrown away before anything counts.
pub(super) const WARM_UP_PODS: u32 = 3;

/// Times of the steps of one pod, by name. The names sort in the order in which the steps happen.
pub(super) type Steps = BTreeMap<&'static str, Duration>;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Bare clone, mounts and exec in five new namespaces.
    floor: Option<Summary>,
    /// One pod after the other.
    sequential: BTreeMap<&'static str, Summary>,
    /// Several pods at a time.
    parallel: BTreeMap<&'static str, Summary>,
    /// Pods a second, several at a time, from nothing to removed.
    parallel_pods_per_second: f64,
    /// What running pods take.
    memory: Option<MemoryReport>,
}

/// What running pods take, in KiB.
#[derive(Debug, Serialize)]
pub struct MemoryReport {
    /// Pods that ran.
    pods: u32,
    /// PSS of this process, which holds the runtime, without pods and with them.
    daemon_pss_before_kib: u64,
    /// The same with them.
    daemon_pss_after_kib: u64,
    /// PSS of all shims, for each pod.
    shim_pss_per_pod_kib: u64,
    /// Private memory of a shim, the median.
    shim_private_median_kib: u64,
}

/// Measures, and prints a table or, for programs, one JSON document.
pub async fn run(options: &Lifecycle, format: Format) -> Outcome<()> {
    handlers::check(options)?;
    let directory = options.directory.join(format!("mainstay-bench-{}", std::process::id()));
    let cgroup = format!("/mainstay-bench-{}", std::process::id());
    let config = configuration(options, &directory, cgroup)?;
    std::fs::create_dir_all(&directory)?;
    if options.handlers.is_empty() {
        let outcome = measure(options, &directory, config).await;
        std::fs::remove_dir_all(&directory)?;
        print(format, &outcome?, |report| print_table(options, report))
    } else {
        let outcome = handlers::measure(options, &directory, config).await;
        std::fs::remove_dir_all(&directory)?;
        print(format, &outcome?, |report| handlers::print_table(options, report))
    }
}

fn print<R: Serialize>(format: Format, report: &R, table: impl FnOnce(&R)) -> Outcome<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string(report)?),
        Format::Text => table(report),
    }
    Ok(())
}

fn configuration(options: &Lifecycle, directory: &Path, cgroup: String) -> Outcome<Config> {
    let mut config = Config::beside(directory, cgroup);
    config.network.default = options.network.kind();
    config.network.cni_conf_dir.clone_from(&options.cni_conf_dir);
    config.network.cni_cache_dir = directory.join("cni");
    if config.network.default.is_attached() {
        // Bridge, rules and addresses are nobody's business on the machine. The threads of the runtime are begun from this one.
        // SAFETY: a new network namespace leaves this thread's descriptors, memory and files as they are.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    }
    Ok(config)
}

async fn measure(options: &Lifecycle, directory: &Path, config: Config) -> Outcome<Report> {
    let runtime = Runtime::start(config).await?;
    let outcome = measure_on(&runtime, options, directory).await;
    runtime.close(Shutdown::StopContainers).await?;
    outcome
}

async fn measure_on(runtime: &Runtime, options: &Lifecycle, directory: &Path) -> Outcome<Report> {
    for n in 0..WARM_UP_PODS {
        one_pod(runtime, named(&format!("warm-{n}"))?).await?;
    }
    let mut sequential = Vec::new();
    for n in 0..options.pods {
        sequential.push(one_pod(runtime, named(&format!("seq-{n}"))?).await?);
    }
    // The floor is taken between the two rounds, so that a machine that drifts drifts for all of them.
    let floor = floor(options.pods, &directory.join("floor"))?;
    let start = Instant::now();
    let parallel: Vec<Steps> = stream::iter(0..options.pods)
        .map(|n| async move { one_pod(runtime, named(&format!("par-{n}"))?).await })
        .buffer_unordered(options.parallel.max(1) as usize)
        .try_collect()
        .await?;
    let parallel_time = start.elapsed();
    let memory = match options.memory_pods {
        0 => None,
        pods => Some(measure_memory(runtime, pods).await?),
    };
    Ok(Report {
        floor: floor.summary(),
        sequential: summaries(&sequential),
        parallel: summaries(&parallel),
        parallel_pods_per_second: f64::from(options.pods) / parallel_time.as_secs_f64(),
        memory,
    })
}

fn named(name: &str) -> Outcome<SandboxSpec> {
    Ok(SandboxSpec::new(name.parse()?))
}

/// The life of one pod with one container that sleeps until it is killed.
pub(super) async fn one_pod(runtime: &Runtime, spec: SandboxSpec) -> Outcome<Steps> {
    let mut steps = Steps::new();
    let begin = Instant::now();
    let mut last = begin;
    let mut step = |steps: &mut Steps, name| {
        let now = Instant::now();
        steps.insert(name, now - last);
        last = now;
    };
    let pod = runtime.run_sandbox(spec).await?;
    step(&mut steps, "1 pod run");
    let container = runtime.create_container(&pod, sleeper()?).await?;
    step(&mut steps, "2 container create");
    runtime.start_container(&container).await?;
    step(&mut steps, "3 container start");
    steps.insert("4 pod and container to running", begin.elapsed());
    steps.extend(exit_latency(runtime, &container).await?);
    let mut last = Instant::now();
    runtime.remove_container(&container, IfRunning::Refuse).await?;
    steps.insert("7 container remove", last.elapsed());
    last = Instant::now();
    runtime.remove_sandbox(&pod).await?;
    steps.insert("8 pod stop and remove", last.elapsed());
    Ok(steps)
}

/// Kills PID 1 from outside, and measures from the moment at which the kernel says that it is dead.
async fn exit_latency(runtime: &Runtime, container: &ContainerId) -> Outcome<Steps> {
    let snapshot = runtime.container(container)?;
    let pid = snapshot.record.process.as_ref().ok_or("a running container without a process")?.pid;
    let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("process id 0")?;
    let process: OwnedFd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    // SAFETY: `AsyncFd` owns the descriptor, and an `OwnedFd` stays the same one until it is dropped.
    let process = unsafe { AsyncFd::register(process) }?;
    let mut events = runtime.events_from_now(Some(Subject::Container(container.clone())));
    let journal = async {
        while let Some(event) = events.next_event().await? {
            if matches!(event.what, What::ContainerExited { .. }) {
                return Ok(Instant::now());
            }
        }
        Err::<_, Box<dyn Error>>("the journal ended".into())
    };
    let waiter = async {
        runtime.wait(container).await?;
        Ok::<_, Box<dyn Error>>(Instant::now())
    };
    let death = async {
        pidfd_send_signal(&process, rustix::process::Signal::KILL)?;
        let _ = process.readable().await?;
        Ok::<_, Box<dyn Error>>(Instant::now())
    };
    let (death, journal, waiter) = tokio::try_join!(death, journal, waiter)?;
    Ok([
        ("5 exit: death to journal", journal.saturating_duration_since(death)),
        ("6 exit: death to waiter", waiter.saturating_duration_since(death)),
    ]
    .into())
}

async fn measure_memory(runtime: &Runtime, pods: u32) -> Outcome<MemoryReport> {
    let me = std::process::id();
    let before = memory::of(me)?.pss;
    let mut made: Vec<SandboxId> = Vec::new();
    for n in 0..pods {
        let pod = runtime.run_sandbox(SandboxSpec::new(format!("mem-{n}").parse()?)).await?;
        let container = runtime.create_container(&pod, sleeper()?).await?;
        runtime.start_container(&container).await?;
        made.push(pod);
    }
    let after = memory::of(me)?.pss;
    let mut shims = Vec::new();
    for pod in &made {
        let snapshot = runtime.sandbox(pod)?;
        let shim = snapshot.record.shim.as_ref().ok_or("a ready pod without a shim")?;
        shims.push(memory::of(shim.process.pid)?);
    }
    for pod in &made {
        runtime.remove_sandbox(pod).await?;
    }
    let mut private: Vec<u64> = shims.iter().map(|memory| memory.private).collect();
    private.sort_unstable();
    Ok(MemoryReport {
        pods,
        daemon_pss_before_kib: before / 1024,
        daemon_pss_after_kib: after / 1024,
        shim_pss_per_pod_kib: shims.iter().map(|memory| memory.pss).sum::<u64>() / u64::from(pods) / 1024,
        shim_private_median_kib: private.get(private.len() / 2).copied().unwrap_or_default() / 1024,
    })
}

/// The floor, measured by this program in a process with one thread.
pub(super) fn floor(rounds: u32, directory: &Path) -> Outcome<Series> {
    std::fs::create_dir_all(directory)?;
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "floor", "--rounds", &rounds.to_string(), "--directory"])
        .arg(directory)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("the floor could not be measured").into());
    }
    let text = String::from_utf8(output.stdout)?;
    let times: Result<Series, _> = text.lines().map(|line| line.parse().map(Duration::from_micros)).collect();
    Ok(times?)
}

pub(super) fn summaries(all: &[Steps]) -> BTreeMap<&'static str, Summary> {
    let mut series: BTreeMap<&'static str, Series> = BTreeMap::new();
    for (name, time) in all.iter().flatten() {
        series.entry(name).or_default().push(*time);
    }
    series.into_iter().filter_map(|(name, series)| Some((name, series.summary()?))).collect()
}

fn print_table(options: &Lifecycle, report: &Report) {
    let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
    println!("{:<34}{:>18}{:>20}", "", "one at a time", format!("{} at a time", options.parallel));
    println!("{:<34}{:>9}{:>9}{:>11}{:>9}   (ms)", "", "p50", "p90", "p50", "p90");
    if let Some(floor) = report.floor {
        println!("{:<34}{:>9}{:>9}", "floor: clone, mounts, exec", ms(floor.p50_us), ms(floor.p90_us));
    }
    for (name, one) in &report.sequential {
        let (p50, p90) =
            report.parallel.get(name).map_or_else(Default::default, |s| (ms(s.p50_us), ms(s.p90_us)));
        println!("{:<34}{:>9}{:>9}{p50:>11}{p90:>9}", &name[2..], ms(one.p50_us), ms(one.p90_us));
    }
    println!(
        "{:<34}{:>18}{:>18.1} pods/s",
        "pods from nothing to removed", "", report.parallel_pods_per_second
    );
    if let Some(memory) = &report.memory {
        println!(
            "memory at {} pods (KiB): daemon PSS {} ({} without pods), a shim PSS {}, private {}",
            memory.pods,
            memory.daemon_pss_after_kib,
            memory.daemon_pss_before_kib,
            memory.shim_pss_per_pod_kib,
            memory.shim_private_median_kib
        );
    }
}
