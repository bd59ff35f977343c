//! The restart benchmark: a daemon with many pods is killed, and the next one is ready and has adopted them.
//!
//! The daemon is this very program, in a process of its own on directories of its own; what it keeps running is removed
//! before the command ends, also when a measurement fails. Then the audit has to be clean and the daemon's cgroup empty, or
//! the command fails and says what is left: what a restart loses sight of must not go unseen here.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use mainstay::{Config, Repair, SandboxId, SandboxSpec, Seq, What};
use mainstay_admin::Client;
use mainstay_messages::admin::{Follow, Item, Reference, StreamRequest};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::series::{Series, Summary};
use super::{Restart, cgroups, memory, sleeper};
use crate::arguments::Format;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pods that are made or removed at the same time.
const AT_A_TIME: usize = 4;
/// Time between two looks whether the daemon answers, in microseconds: short beside what is measured.
const LOOK_US: u64 = 500;
/// The longest time until a daemon is ready, or has adopted everything, in milliseconds; then the measurement has failed.
const PATIENCE_MS: u64 = 120_000;

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Pods, each with one running container.
    pods: u32,
    /// From the start of the process until the socket answers.
    ready: Summary,
    /// From the start of the process until every shim is adopted.
    adopted: Summary,
    /// PSS of the daemon when it has adopted everything, in KiB.
    daemon_pss_kib: u64,
    /// PSS of all shims, for each pod, in KiB.
    shim_pss_per_pod_kib: u64,
    /// Private memory of a shim, the median, in KiB.
    shim_private_median_kib: u64,
}

/// A daemon that is measured. Killed when dropped.
struct Daemon {
    child: Child,
    started: Instant,
}

/// Measures, and prints a table or, for programs, one JSON document.
pub async fn run(options: &Restart, format: Format) -> Outcome<()> {
    let directory = options.directory.join(format!("mainstay-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let config = Config::beside(&directory, format!("/mainstay-bench-{}", std::process::id()));
    let outcome = measure(options, &directory, &config).await;
    let cleared = match clear(&directory, &config).await {
        Ok(()) => nothing_runs(&config.cgroup_parent),
        Err(error) => Err(error),
    };
    // What is left is worse than a measurement that failed.
    cleared.map_err(|error| format!("{error} (its directory is {})", directory.display()))?;
    let report = outcome?;
    std::fs::remove_dir_all(&directory)?;
    match format {
        Format::Json => println!("{}", serde_json::to_string(&report)?),
        Format::Text => print_table(&report),
    }
    Ok(())
}

async fn measure(options: &Restart, directory: &Path, config: &Config) -> Outcome<Report> {
    std::fs::write(config_file(directory), config.to_string())?;
    let mut daemon = Daemon::start(directory)?;
    let client = daemon.ready(config).await?.0;
    make_pods(&client, options.pods).await?;
    let (mut ready, mut adopted) = (Series::default(), Series::default());
    let mut client = client;
    for _ in 0..options.rounds.max(1) {
        let last = last_event(&client).await?;
        drop(client);
        daemon.kill()?;
        daemon = Daemon::start(directory)?;
        let (next, after) = daemon.ready(config).await?;
        ready.push(after);
        await_adoptions(&next, last, options.pods).await?;
        adopted.push(daemon.started.elapsed());
        client = next;
    }
    let (pss, private) = shims_memory(&client).await?;
    let summary = |series: Series| series.summary().ok_or("no round");
    Ok(Report {
        pods: options.pods,
        ready: summary(ready)?,
        adopted: summary(adopted)?,
        daemon_pss_kib: memory::of(daemon.child.id())?.pss / 1024,
        shim_pss_per_pod_kib: pss / u64::from(options.pods.max(1)) / 1024,
        shim_private_median_kib: private / 1024,
    })
}

async fn make_pods(client: &Client, pods: u32) -> Outcome<()> {
    let make = |n| async move {
        let pod = client.run_sandbox(SandboxSpec::new(format!("pod-{n}").parse()?)).await?;
        let container = client.create_container(reference(&pod), sleeper()?).await?;
        client.start_container(Reference(container.to_string())).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    stream::iter(0..pods).map(make).buffer_unordered(AT_A_TIME).try_collect().await
}

/// Removes everything, by a daemon that has nothing to find fault with then, and is ended in the usual way.
async fn clear(directory: &Path, config: &Config) -> Outcome<()> {
    let mut daemon = Daemon::start(directory)?;
    let client = daemon.ready(config).await?.0;
    let remove = |id: SandboxId| {
        let client = &client;
        async move { client.remove_sandbox(reference(&id)).await }
    };
    let pods = client.list_sandboxes().await?.into_iter().map(|pod| pod.record.id);
    stream::iter(pods).map(remove).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
    let findings = client.audit(Repair::No).await?;
    drop(client);
    daemon.end().await?;
    match findings.first() {
        None => Ok(()),
        Some(first) => {
            let (count, kind, place, reason) = (findings.len(), first.kind, &first.place, &first.reason);
            Err(format!("an audit finds {count} things; the first is a {kind} at {place}: {reason}").into())
        }
    }
}

/// An error when a process is left in the cgroup of a daemon that has ended.
fn nothing_runs(cgroup: &str) -> Outcome<()> {
    let left = cgroups::processes(cgroup)?;
    match left.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("{} processes are left in cgroup {cgroup}, process {first} first", left.len()).into())
        }
    }
}

async fn last_event(client: &Client) -> Outcome<Seq> {
    let request = StreamRequest::Events { after: Seq(0), follow: Follow::No, object: None };
    let (mut stream, mut last) = (client.open(request).await?, Seq(0));
    while let Some(item) = stream.next().await {
        if let Item::Event(event) = item {
            last = event.seq;
        }
    }
    Ok(last)
}

async fn await_adoptions(client: &Client, after: Seq, pods: u32) -> Outcome<()> {
    let request = StreamRequest::Events { after, follow: Follow::Yes, object: None };
    let mut stream = client.open(request).await?;
    let all = async {
        let mut left = pods;
        while left > 0 {
            match stream.next().await {
                Some(Item::Event(event)) if matches!(event.what, What::ShimAdopted { .. }) => left -= 1,
                Some(_) => {}
                None => return Err("the journal ended"),
            }
        }
        Ok(())
    };
    Ok(tokio::time::timeout(Duration::from_millis(PATIENCE_MS), all).await??)
}

/// PSS of all shims together, and the median of what each has for itself, in bytes.
async fn shims_memory(client: &Client) -> Outcome<(u64, u64)> {
    let mut private = Vec::new();
    let mut pss = 0;
    for pod in client.list_sandboxes().await? {
        let shim = pod.record.shim.ok_or("a pod without a shim")?;
        let memory = memory::of(shim.process.pid)?;
        pss += memory.pss;
        private.push(memory.private);
    }
    private.sort_unstable();
    Ok((pss, private.get(private.len() / 2).copied().unwrap_or_default()))
}

fn config_file(directory: &Path) -> PathBuf {
    directory.join("config.toml")
}

fn reference(pod: &SandboxId) -> Reference {
    Reference(pod.to_string())
}

impl Daemon {
    fn start(directory: &Path) -> Outcome<Self> {
        let log = File::options().create(true).append(true).open(directory.join("daemon.log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["daemon".as_ref(), "--config".as_ref(), config_file(directory).as_os_str()]);
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        Ok(Self { child, started })
    }

    /// A client, as soon as the daemon has answered a request, and how long that took since its start.
    async fn ready(&self, config: &Config) -> Outcome<(Client, Duration)> {
        loop {
            if let Ok(client) = Client::connect(&config.admin_socket).await
                && client.version().await.is_ok()
            {
                return Ok((client, self.started.elapsed()));
            }
            if self.started.elapsed() > Duration::from_millis(PATIENCE_MS) {
                return Err("the daemon does not answer".into());
            }
            tokio::time::sleep(Duration::from_micros(LOOK_US)).await;
        }
    }

    /// Asks it to end, and waits until it has.
    async fn end(&mut self) -> Outcome<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).ok_or("process id 0")?;
        kill_process(pid, Signal::TERM)?;
        let asked = Instant::now();
        while self.child.try_wait()?.is_none() {
            if asked.elapsed() > Duration::from_millis(PATIENCE_MS) {
                return Err("the daemon does not end".into());
            }
            tokio::time::sleep(Duration::from_micros(LOOK_US)).await;
        }
        Ok(())
    }

    fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already where the measurement went as it should.
        let _ = self.kill();
    }
}

fn print_table(report: &Report) {
    let ms = |us: u64| format!("{}.{}", us / 1000, us % 1000 / 100);
    println!("{:<40}{:>9}{:>9}   (ms)", format!("restart with {} pods", report.pods), "p50", "max");
    for (what, summary) in [("start to ready", report.ready), ("start to all shims adopted", report.adopted)]
    {
        println!("{what:<40}{:>9}{:>9}", ms(summary.p50_us), ms(summary.max_us));
    }
    println!(
        "memory (KiB): daemon PSS {}, a shim PSS {}, private {}",
        report.daemon_pss_kib, report.shim_pss_per_pod_kib, report.shim_private_median_kib
    );
}
