//! Durable records, and the snapshots that readers see.
//!
//! A record is what the store keeps of an object. A snapshot is a record plus what is going on with it
//! now; it is published after each transition and read without asking the actor (P6).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::adjustment::Adjustment;
use crate::id::{ContainerId, ExecId, Name, SandboxId};
use crate::network::PodNetwork;
use crate::process::{Exit, ProcessIdentity, ProcessUser};
use crate::spec::{CgroupParent, ContainerSpec, ExecSpec, IdMappings, PodPlan, Resources, SandboxSpec};
use crate::time::Timestamp;

/// The phase of a pod sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    /// Its record is written; its shim and namespaces are being made.
    Starting,
    /// It takes containers.
    Ready,
    /// It takes none: its shim died, or its start failed and is being undone.
    NotReady,
    /// Its containers are being stopped.
    Stopping,
    /// Its containers are stopped and its shim is gone.
    Stopped,
    /// It is being removed.
    Removing,
    /// What became of it cannot be found out; it can be removed.
    Unknown,
}

/// The phase of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerPhase {
    /// Its record is written; its task is being made.
    Creating,
    /// Its PID 1 is set up and waits to be told to run.
    Created,
    /// Its PID 1 is being told to run.
    Starting,
    /// Its PID 1 runs.
    Running,
    /// Its PID 1 was asked to stop.
    Stopping,
    /// Its PID 1 ended; the record holds the exit.
    Exited,
    /// It is being removed.
    Removing,
    /// What became of it cannot be found out; it can be removed.
    Unknown,
}

/// The phase of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecPhase {
    /// Its process is being made.
    Starting,
    /// It runs.
    Running,
    /// It ended; the snapshot holds the exit.
    Exited,
}

/// Whether a container's processes are frozen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paused {
    /// They run.
    #[default]
    No,
    /// They stand still.
    Yes,
}

/// A running shim, so that it can be found again and never be mistaken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// Its process.
    pub process: ProcessIdentity,
    /// Its ttrpc socket.
    pub socket: PathBuf,
    /// The version of its protocol.
    pub protocol: u32,
    /// Which ids of its pod are which of the host, in a pod with a user namespace.
    #[serde(default)]
    pub ids: Option<IdMappings>,
}

/// What the store keeps of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its id.
    pub id: SandboxId,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// Its phase.
    pub phase: SandboxPhase,
    /// When its record was first written.
    pub created_at: Timestamp,
    /// Its shim, from the moment it was started.
    pub shim: Option<ShimRecord>,
    /// Why it is not Ready, in one sentence.
    pub reason: Option<String>,
    /// What it has of a network, from the moment it was Ready.
    #[serde(default)]
    pub network: Option<PodNetwork>,
    /// Its limits since they were changed; those of the spec when not given.
    #[serde(default)]
    pub limits: Option<Resources>,
    /// What it is expected to take since that was changed; the spec's when not given.
    #[serde(default)]
    pub plan: Option<PodPlan>,
}

/// What the store keeps of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox that it is in.
    pub sandbox: SandboxId,
    /// What was asked for.
    pub spec: ContainerSpec,
    /// Its phase.
    pub phase: ContainerPhase,
    /// When its record was first written.
    pub created_at: Timestamp,
    /// When its PID 1 was told to run.
    pub started_at: Option<Timestamp>,
    /// Its PID 1, from the moment it was made.
    pub process: Option<ProcessIdentity>,
    /// When it is to be killed, if it was asked to stop: a grace outlives a restart of the runtime.
    #[serde(default)]
    pub stop_by: Option<Timestamp>,
    /// Its terminal fact. Written once, never changed.
    pub exit: Option<Exit>,
    /// Where its output is logged.
    pub log_path: PathBuf,
    /// Whether its processes are frozen, while it runs.
    #[serde(default)]
    pub paused: Paused,
    /// Its limits since they were changed; those of the spec when not given.
    #[serde(default)]
    pub limits: Option<Resources>,
    /// What plugins have changed of it before it was made.
    #[serde(default)]
    pub adjustment: Option<Box<Adjustment>>,
    /// That a plugin wanted it to end: the first time.
    #[serde(default)]
    pub evicted: Option<Box<Eviction>>,
    /// As whom its PID 1 runs, once it was made.
    #[serde(default)]
    pub user: Option<ProcessUser>,
}

/// That a plugin has wanted a container to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Which plugin, with its index: `10-logger`.
    pub plugin: String,
    /// Why, for people; empty when it did not say.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// An operation that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Which operation: `create`, `start`, `stop`, `remove`.
    pub operation: String,
    /// The step that it is at.
    pub step: String,
    /// When it began.
    pub since: Timestamp,
}

/// A sandbox as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSnapshot {
    /// Its record.
    pub record: SandboxRecord,
    /// What is going on with it.
    pub activity: Option<Activity>,
}

/// A container as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSnapshot {
    /// Its record.
    pub record: ContainerRecord,
    /// What is going on with it.
    pub activity: Option<Activity>,
}

/// An exec as readers see it. Execs live as long as their container's actor; their exits are in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSnapshot {
    /// Its id.
    pub id: ExecId,
    /// The container that it is in.
    pub container: ContainerId,
    /// What was asked for.
    pub spec: ExecSpec,
    /// Its phase.
    pub phase: ExecPhase,
    /// Its process id in the daemon's pid namespace.
    pub pid: Option<u32>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Its terminal fact.
    pub exit: Option<Exit>,
}

impl SandboxRecord {
    /// The record that is written before anything is made (P3).
    pub fn intent(id: SandboxId, spec: SandboxSpec, created_at: Timestamp) -> Self {
        Self {
            id,
            spec,
            phase: SandboxPhase::Starting,
            created_at,
            shim: None,
            reason: None,
            network: None,
            limits: None,
            plan: None,
        }
    }

    /// Whether it never was ready, as far as this record says. One that is found so after a restart is undone, and its name
    /// may be another's by then.
    pub fn is_half_made(&self) -> bool {
        self.shim.is_none() && matches!(self.phase, SandboxPhase::Starting | SandboxPhase::NotReady)
    }

    /// The path of its cgroup, in a runtime whose own above the pods' is `usual_parent`.
    pub fn cgroup(&self, usual_parent: &str) -> String {
        let parent = self.spec.cgroup_parent.as_ref().map_or(usual_parent, CgroupParent::as_str);
        format!("{}/{}", parent.trim_end_matches('/'), self.id)
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.spec.name
    }

    /// Its limits now.
    pub fn limits(&self) -> &Resources {
        self.limits.as_ref().unwrap_or(&self.spec.resources)
    }

    /// What it is expected to take now.
    pub fn plan(&self) -> &PodPlan {
        self.plan.as_ref().unwrap_or(&self.spec.plan)
    }
}

impl ContainerRecord {
    /// Its limits now.
    pub fn limits(&self) -> &Resources {
        self.limits.as_ref().unwrap_or(&self.spec.resources)
    }

    /// Whether it never had a process, as far as this record says. One that is found so after a restart is undone unless its
    /// shim knows it, and its name may be another's by then.
    pub fn is_half_made(&self) -> bool {
        self.process.is_none() && self.started_at.is_none() && self.exit.is_none()
    }

    /// The same container with what plugins have changed of it, and with the limits that it has then. Once is enough: limits
    /// may have been changed since.
    #[must_use]
    pub fn adjusted(mut self, adjustment: Adjustment) -> Self {
        let is_known = self.adjustment.as_deref() == Some(&adjustment);
        if !adjustment.is_empty() && !is_known {
            let limits = adjustment.resources.limits_of(self.limits());
            self.limits = (limits != self.spec.resources).then_some(limits);
            self.adjustment = Some(Box::new(adjustment));
        }
        self
    }

    /// Its annotations, with the changes of plugins.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.with_changes(&self.spec.annotations)
    }

    /// The annotations that the OCI runtime gets, as plugins have changed them.
    pub fn runtime_annotations(&self) -> BTreeMap<String, String> {
        self.with_changes(self.spec.runtime_annotations.as_ref().unwrap_or(&self.spec.annotations))
    }

    fn with_changes(&self, annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        match &self.adjustment {
            Some(adjustment) => adjustment.annotations_of(annotations),
            None => annotations.clone(),
        }
    }

    /// The record that is written before anything is made (P3).
    pub fn intent(
        id: ContainerId,
        sandbox: SandboxId,
        spec: ContainerSpec,
        log_path: PathBuf,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            sandbox,
            spec,
            phase: ContainerPhase::Creating,
            created_at,
            started_at: None,
            process: None,
            stop_by: None,
            exit: None,
            log_path,
            paused: Paused::No,
            limits: None,
            adjustment: None,
            evicted: None,
            user: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.spec.name
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        evicted(f, &self.plugin, &self.reason)
    }
}

/// Who wanted a container to end, and why, in words.
pub(crate) fn evicted(f: &mut fmt::Formatter<'_>, plugin: &str, reason: &str) -> fmt::Result {
    write!(f, "evicted by plugin {plugin}")?;
    if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
}

macro_rules! phase_words {
    ($name:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $name {
            /// All phases, in the usual order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The phase as one lower-case word.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

phase_words!(SandboxPhase {
    Starting => "starting",
    Ready => "ready",
    NotReady => "not ready",
    Stopping => "stopping",
    Stopped => "stopped",
    Removing => "removing",
    Unknown => "unknown",
});

phase_words!(ContainerPhase {
    Creating => "creating",
    Created => "created",
    Starting => "starting",
    Running => "running",
    Stopping => "stopping",
    Exited => "exited",
    Removing => "removing",
    Unknown => "unknown",
});

phase_words!(ExecPhase {
    Starting => "starting",
    Running => "running",
    Exited => "exited",
});
