//! What `--json` prints: flat, stable, in snake_case, with times as RFC 3339. These shapes are an interface
//! of their own: a field may be added, and none is renamed or taken away.

mod finding;
mod network;
mod shim;

use std::collections::BTreeMap;

use mainstay_messages::admin::{ContainerStats, LineEnd, LogRecord, Object, OutputStream, VersionInfo};
use mainstay_messages::event::{Event, What};
use mainstay_messages::image::{Image, ImageId, ImageRun};
use mainstay_messages::network::PodNetwork;
use mainstay_messages::process::{ExitStatus, OomVerdict};
use mainstay_messages::record::{
    Activity, ContainerSnapshot, Eviction, ExecSnapshot, Paused, SandboxSnapshot,
};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{DiskUsage, Stats};
use mainstay_messages::{ContainerSpec, ExecSpec, Exit, SandboxSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Told;

pub use finding::FindingView;
pub use network::{NetworkView, addresses};
pub use shim::ShimView;

/// A failure, as it is told on standard error: `{"error": {"kind": …, "message": …, "details": {…}}}`.
pub fn failure(failure: &impl Told) -> Value {
    json!({ "error": { "kind": failure.kind(), "message": failure.sentence(), "details": failure.details() } })
}

/// How a process ended.
#[derive(Debug, Serialize)]
pub struct ExitView {
    code: u32,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u8>,
    oom_killed: bool,
    message: String,
    at: String,
}

/// A pod.
#[derive(Debug, Serialize)]
pub struct PodView<'a> {
    id: &'a str,
    name: &'a str,
    phase: &'a str,
    reason: Option<&'a str>,
    created_at: String,
    shim_pid: Option<u32>,
    network: Option<NetworkView<'a>>,
    activity: Option<ActivityView<'a>>,
    /// Since they were changed; else they are those of the spec.
    limits: Option<&'a Resources>,
    labels: &'a BTreeMap<String, String>,
}

/// A container.
#[derive(Debug, Serialize)]
pub struct ContainerView<'a> {
    id: &'a str,
    name: &'a str,
    pod: &'a str,
    phase: &'a str,
    /// The id of the image that it is made of.
    image: Option<&'a ImageId>,
    command: &'a [String],
    pid: Option<u32>,
    created_at: String,
    started_at: Option<String>,
    exit: Option<ExitView>,
    /// That a plugin wanted it to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    evicted: Option<EvictionView<'a>>,
    activity: Option<ActivityView<'a>>,
    log_path: String,
    labels: &'a BTreeMap<String, String>,
    paused: bool,
    /// Those of its pod, in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    /// Since they were changed; else they are those of the spec.
    limits: Option<&'a Resources>,
    /// What it has on the disk, where that was asked for and could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_usage: Option<DiskUsage>,
}

/// Who wanted a container to end.
#[derive(Debug, Serialize)]
pub struct EvictionView<'a> {
    plugin: &'a str,
    reason: &'a str,
    at: String,
}

/// An exec.
#[derive(Debug, Serialize)]
pub struct ExecView<'a> {
    id: &'a str,
    container: &'a str,
    phase: &'a str,
    command: &'a [String],
    pid: Option<u32>,
    created_at: String,
    exit: Option<ExitView>,
}

/// An image.
#[derive(Debug, Serialize)]
pub struct ImageView<'a> {
    id: &'a str,
    tags: &'a [String],
    digests: &'a [String],
    platform: &'a str,
    created_at: Option<String>,
    pulled_at: String,
    blob_bytes: u64,
    unpacked_bytes: u64,
    layers: &'a [String],
    run: &'a ImageRun,
}

/// What is going on with an object.
#[derive(Debug, Serialize)]
pub struct ActivityView<'a> {
    operation: &'a str,
    step: &'a str,
    since: String,
}

/// One object, whole.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ObjectView<'a> {
    /// A pod.
    Pod {
        /// The pod.
        #[serde(flatten)]
        pod: Box<PodView<'a>>,
        /// Its containers.
        containers: Vec<ContainerView<'a>>,
        /// What was asked for.
        spec: &'a SandboxSpec,
    },
    /// A container.
    Container {
        /// The container.
        #[serde(flatten)]
        container: Box<ContainerView<'a>>,
        /// Its execs.
        execs: Vec<ExecView<'a>>,
        /// What was asked for.
        spec: &'a ContainerSpec,
    },
    /// An exec.
    Exec {
        /// The exec.
        #[serde(flatten)]
        exec: ExecView<'a>,
        /// What was asked for.
        spec: &'a ExecSpec,
    },
}

/// What a container uses.
#[derive(Debug, Serialize)]
pub struct StatsView<'a> {
    id: &'a str,
    name: &'a str,
    at: Option<String>,
    error: Option<String>,
    cpu_usage_ns: Option<u64>,
    cpu_user_ns: Option<u64>,
    cpu_system_ns: Option<u64>,
    memory_usage_bytes: Option<u64>,
    memory_working_set_bytes: Option<u64>,
    memory_rss_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    pids: Option<u64>,
    pids_limit: Option<u64>,
    oom_kills: Option<u64>,
    log_bytes_lost: u64,
}

/// A journal entry.
#[derive(Debug, Serialize)]
pub struct EventView<'a> {
    seq: u64,
    at: String,
    pod: Option<&'a str>,
    container: Option<&'a str>,
    exec: Option<&'a str>,
    kind: String,
    detail: Value,
    text: String,
}

/// A line of a log.
#[derive(Debug, Serialize)]
pub struct LogView {
    at: String,
    stream: &'static str,
    /// What was written; bytes that are not UTF-8 are replaced, and then `bytes` has all of them.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    newline: bool,
}

/// Versions.
#[derive(Debug, Serialize)]
pub struct VersionView<'a> {
    version: &'a str,
    daemon: Option<DaemonView<'a>>,
    daemon_error: Option<&'a str>,
}

/// The daemon.
#[derive(Debug, Serialize)]
pub struct DaemonView<'a> {
    version: &'a str,
    protocol: u16,
    pid: u32,
    root_dir: String,
    state_dir: String,
    started_at: String,
    counters: &'a BTreeMap<String, u64>,
}

impl<'a> From<&'a Image> for ImageView<'a> {
    fn from(image: &'a Image) -> Self {
        Self {
            id: &image.id.0,
            tags: &image.tags,
            digests: &image.digests,
            platform: &image.platform,
            created_at: image.created_at.map(|at| at.to_string()),
            pulled_at: image.pulled_at.to_string(),
            blob_bytes: image.blob_bytes,
            unpacked_bytes: image.unpacked_bytes,
            layers: &image.layers,
            run: &image.run,
        }
    }
}

impl<'a> From<&'a Eviction> for EvictionView<'a> {
    fn from(Eviction { plugin, reason, at }: &'a Eviction) -> Self {
        Self { plugin, reason, at: at.to_string() }
    }
}

impl From<&Exit> for ExitView {
    fn from(exit: &Exit) -> Self {
        Self {
            code: exit.code(),
            reason: exit.reason(),
            signal: match exit.status {
                ExitStatus::Signaled { signal } => Some(signal),
                ExitStatus::Exited { .. } | ExitStatus::StartError { .. } | ExitStatus::Unknown { .. } => {
                    None
                }
            },
            oom_killed: exit.oom == OomVerdict::Killed,
            message: exit.to_string(),
            at: exit.at.to_string(),
        }
    }
}

impl<'a> From<&'a Activity> for ActivityView<'a> {
    fn from(activity: &'a Activity) -> Self {
        Self { operation: &activity.operation, step: &activity.step, since: activity.since.to_string() }
    }
}

impl<'a> From<&'a SandboxSnapshot> for PodView<'a> {
    fn from(SandboxSnapshot { record, activity }: &'a SandboxSnapshot) -> Self {
        Self {
            id: record.id.as_str(),
            name: record.name().as_str(),
            phase: record.phase.word(),
            reason: record.reason.as_deref(),
            created_at: record.created_at.to_string(),
            shim_pid: record.shim.as_ref().map(|shim| shim.process.pid),
            network: NetworkView::of(record),
            activity: activity.as_ref().map(Into::into),
            limits: record.limits.as_ref(),
            labels: &record.spec.labels,
        }
    }
}

impl ContainerView<'_> {
    /// With what it has on the disk.
    pub fn with_disk_usage(self, disk_usage: Option<DiskUsage>) -> Self {
        Self { disk_usage, ..self }
    }

    /// With what its pod has of a network.
    #[must_use]
    pub fn in_pod(self, network: Option<&PodNetwork>) -> Self {
        Self { addresses: addresses(network), ..self }
    }
}

impl<'a> From<&'a ContainerSnapshot> for ContainerView<'a> {
    fn from(ContainerSnapshot { record, activity }: &'a ContainerSnapshot) -> Self {
        Self {
            id: record.id.as_str(),
            name: record.name().as_str(),
            pod: record.sandbox.as_str(),
            phase: record.phase.word(),
            image: record.spec.rootfs.stands_on(),
            command: &record.spec.process.command,
            pid: record.process.as_ref().map(|process| process.pid),
            created_at: record.created_at.to_string(),
            started_at: record.started_at.map(|at| at.to_string()),
            exit: record.exit.as_ref().map(Into::into),
            evicted: record.evicted.as_deref().map(Into::into),
            activity: activity.as_ref().map(Into::into),
            log_path: record.log_path.display().to_string(),
            labels: &record.spec.labels,
            paused: record.paused == Paused::Yes,
            addresses: Vec::new(),
            limits: record.limits.as_ref(),
            disk_usage: None,
        }
    }
}

impl<'a> From<&'a ExecSnapshot> for ExecView<'a> {
    fn from(exec: &'a ExecSnapshot) -> Self {
        Self {
            id: exec.id.as_str(),
            container: exec.container.as_str(),
            phase: exec.phase.word(),
            command: &exec.spec.process.command,
            pid: exec.pid,
            created_at: exec.created_at.to_string(),
            exit: exec.exit.as_ref().map(Into::into),
        }
    }
}

impl<'a> From<&'a Object> for ObjectView<'a> {
    fn from(object: &'a Object) -> Self {
        match object {
            Object::Sandbox { sandbox, containers } => Self::Pod {
                pod: Box::new(sandbox.into()),
                containers: containers.iter().map(Into::into).collect(),
                spec: &sandbox.record.spec,
            },
            Object::Container { container, execs } => Self::Container {
                container: Box::new(container.into()),
                execs: execs.iter().map(Into::into).collect(),
                spec: &container.record.spec,
            },
            Object::Exec(exec) => Self::Exec { exec: exec.into(), spec: &exec.spec },
        }
    }
}

impl<'a> From<&'a ContainerStats> for StatsView<'a> {
    fn from(measured: &'a ContainerStats) -> Self {
        let (error, stats) = match &measured.stats {
            Ok(stats) => (None, stats.clone()),
            Err(error) => (Some(error.to_string()), Stats::default()),
        };
        Self {
            id: measured.container.as_str(),
            name: &measured.name,
            at: error.is_none().then(|| stats.at.to_string()),
            error,
            cpu_usage_ns: stats.cpu_usage_ns,
            cpu_user_ns: stats.cpu_user_ns,
            cpu_system_ns: stats.cpu_system_ns,
            memory_usage_bytes: stats.memory_usage_bytes,
            memory_working_set_bytes: stats.memory_working_set_bytes,
            memory_rss_bytes: stats.memory_rss_bytes,
            memory_limit_bytes: stats.memory_limit_bytes,
            pids: stats.pids,
            pids_limit: stats.pids_limit,
            oom_kills: stats.oom_kills,
            log_bytes_lost: stats.log_bytes_lost,
        }
    }
}

impl<'a> From<&'a Event> for EventView<'a> {
    fn from(event: &'a Event) -> Self {
        let (kind, detail) = kind_and_detail(&event.what);
        Self {
            seq: event.seq.0,
            at: event.at.to_string(),
            pod: event.subject.sandbox.as_ref().map(|id| id.as_str()),
            container: event.subject.container.as_ref().map(|id| id.as_str()),
            exec: event.subject.exec.as_ref().map(|id| id.as_str()),
            kind,
            detail,
            text: event.what.to_string(),
        }
    }
}

/// The name of what happened, and its fields; exits as everywhere else.
fn kind_and_detail(what: &What) -> (String, Value) {
    // A fact is made of texts and numbers, which always have a JSON form.
    let (kind, mut detail) = match serde_json::to_value(what).unwrap_or_default() {
        Value::Object(tagged) => tagged.into_iter().next().unwrap_or_default(),
        Value::String(kind) => (kind, Value::Null),
        _ => Default::default(),
    };
    if let What::ContainerExited { exit } | What::ExecExited { exit } | What::ExitUnclaimed { exit } = what {
        detail["exit"] = serde_json::to_value(ExitView::from(exit)).unwrap_or_default();
    }
    (kind, detail)
}

impl From<&LogRecord> for LogView {
    fn from(record: &LogRecord) -> Self {
        let text = String::from_utf8_lossy(&record.bytes);
        Self {
            at: record.at.to_string(),
            stream: match record.stream {
                OutputStream::Stdout => "stdout",
                OutputStream::Stderr => "stderr",
            },
            bytes: matches!(text, std::borrow::Cow::Owned(_)).then(|| record.bytes.clone()),
            text: text.into_owned(),
            newline: record.ends == LineEnd::Newline,
        }
    }
}

impl<'a> VersionView<'a> {
    /// Our version, and the daemon's if one answers, or why not.
    pub fn new(version: &'a str, daemon: Option<&'a VersionInfo>, daemon_error: Option<&'a str>) -> Self {
        Self { version, daemon: daemon.map(Into::into), daemon_error }
    }
}

impl<'a> From<&'a VersionInfo> for DaemonView<'a> {
    fn from(info: &'a VersionInfo) -> Self {
        Self {
            version: &info.version,
            protocol: info.protocol,
            pid: info.pid,
            root_dir: info.root_dir.display().to_string(),
            state_dir: info.state_dir.display().to_string(),
            started_at: info.started_at.to_string(),
            counters: &info.counters,
        }
    }
}

/// One JSON document, for people to read as well.
pub fn document(value: &impl Serialize) -> String {
    // Views are texts and numbers under text keys, which always have a JSON form.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// One JSON document on a line of its own, of a sequence that goes on.
pub fn line(value: &impl Serialize) -> String {
    // As in `document`.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests;
