//! The churn benchmark: many pods are run and removed, and what is there before and after is compared: processes, mounts,
//! cgroups, files, descriptors, threads, memory. And what the durable writes of a pod's life cost.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use futures::stream::{self, StreamExt, TryStreamExt};
use mainstay::{Config, IfRunning, Runtime, SandboxSpec, Shutdown};
use serde::Serialize;

use super::{Churn, cgroups, memory, sleeper};
use crate::arguments::Format;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pods that are run and removed before the first count: caches are filled by then, and threads started.
const WARM_UP_PODS: u32 = 20;

/// What there is of a runtime and of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Open descriptors of this process.
    descriptors: usize,
    /// Its threads.
    threads: usize,
    /// Mounts that it sees.
    mounts: usize,
    /// Processes of this program, which are shims or the zygote, and whatever else it has started.
    children: usize,
    /// Cgroups of the runtime, in all hierarchies.
    cgroups: usize,
    /// Files and directories of the runtime, without the store's.
    files: usize,
    /// PSS of this process, in KiB.
    pss_kib: u64,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Pods that were run and removed between the two counts, each with one container.
    pods: u32,
    /// How long that took.
    seconds: f64,
    /// Before.
    before: Ledger,
    /// After.
    after: Ledger,
    /// Commits of one pod's life.
    commits_per_pod: f64,
    /// Transactions that they were written in.
    transactions_per_pod: f64,
    /// Time that the writer took for them, in microseconds.
    write_us_per_pod: f64,
}

/// Measures, and prints a table or, for programs, one JSON document.
pub async fn run(options: &Churn, format: Format) -> Outcome<()> {
    let directory = options.directory.join(format!("mainstay-bench-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let cgroup = format!("/mainstay-bench-{}", std::process::id());
    let runtime = Runtime::start(Config::beside(&directory, cgroup.clone())).await?;
    let outcome = measure(&runtime, options, &directory, &cgroup).await;
    runtime.close(Shutdown::StopContainers).await?;
    fs::remove_dir_all(&directory)?;
    let report = outcome?;
    match format {
        Format::Json => println!("{}", serde_json::to_string(&report)?),
        Format::Text => print_table(&report),
    }
    Ok(())
}

async fn measure(runtime: &Runtime, options: &Churn, directory: &Path, cgroup: &str) -> Outcome<Report> {
    run_pods(runtime, WARM_UP_PODS, options.parallel).await?;
    let (before, counted) = (Ledger::take(directory, cgroup)?, counters(runtime));
    let begun = Instant::now();
    run_pods(runtime, options.pods, options.parallel).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let (after, counts) = (Ledger::take(directory, cgroup)?, counters(runtime));
    let risen = |name: &str| (counts[name] - counted[name]) as f64 / f64::from(options.pods.max(1));
    Ok(Report {
        pods: options.pods,
        seconds,
        before,
        after,
        commits_per_pod: risen("store_commits"),
        transactions_per_pod: risen("store_transactions"),
        write_us_per_pod: risen("store_write_us"),
    })
}

async fn run_pods(runtime: &Runtime, pods: u32, parallel: u32) -> Outcome<()> {
    let live = |n| async move {
        let pod = runtime.run_sandbox(SandboxSpec::new(format!("churn-{n}").parse()?)).await?;
        let container = runtime.create_container(&pod, sleeper()?).await?;
        runtime.start_container(&container).await?;
        runtime.remove_container(&container, IfRunning::Kill).await?;
        runtime.remove_sandbox(&pod).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    stream::iter(0..pods).map(live).buffer_unordered(parallel.max(1) as usize).try_collect().await
}

fn counters(runtime: &Runtime) -> BTreeMap<String, u64> {
    runtime.counters().into_iter().collect()
}

impl Ledger {
    fn take(directory: &Path, cgroup: &str) -> Outcome<Self> {
        let me = std::process::id();
        let count = |path: &str| fs::read_dir(path).map(Iterator::count);
        let children = fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap_or_default();
        let tops = cgroups::tops(cgroup)?;
        Ok(Self {
            descriptors: count("/proc/self/fd")?,
            threads: count("/proc/self/task")?,
            mounts: fs::read_to_string("/proc/self/mountinfo")?.lines().count(),
            children: children.split_ascii_whitespace().count(),
            cgroups: tops.iter().map(|top| count_below(top, fs::FileType::is_dir)).sum(),
            files: count_below(&directory.join("state"), |_| true)
                + count_below(&directory.join("root/layers"), |_| true)
                + count_below(&directory.join("root/logs"), |_| true),
            pss_kib: memory::of(me)?.pss / 1024,
        })
    }

    fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("descriptors", self.descriptors as u64),
            ("threads", self.threads as u64),
            ("mounts", self.mounts as u64),
            ("child processes", self.children as u64),
            ("cgroups", self.cgroups as u64),
            ("files of pods", self.files as u64),
            ("PSS (KiB)", self.pss_kib),
        ]
    }
}

/// How much of a kind is below a directory; nothing where there is none.
fn count_below(directory: &Path, counts: fn(&fs::FileType) -> bool) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let count = |entry: fs::DirEntry| {
        let Ok(kind) = entry.file_type() else { return 0 };
        let below = if kind.is_dir() { count_below(&entry.path(), counts) } else { 0 };
        below + usize::from(counts(&kind))
    };
    entries.map(count).sum()
}

fn print_table(report: &Report) {
    println!("{} pods run and removed in {:.1} s", report.pods, report.seconds);
    println!("{:<24}{:>10}{:>10}", "", "before", "after");
    for ((what, before), (_, after)) in report.before.rows().into_iter().zip(report.after.rows()) {
        println!("{what:<24}{before:>10}{after:>10}");
    }
    println!(
        "a pod's life: {:.1} commits in {:.1} transactions, {:.0} us of the writer",
        report.commits_per_pod, report.transactions_per_pod, report.write_us_per_pod
    );
}
