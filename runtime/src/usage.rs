//! What pods and containers use, as monitoring asks for it: of many at once, without a shim or an actor in between.
//!
//! Owns: the rate of CPU time since it was measured before (`rate`), and what containers have on the disk, counted in the
//! background (`disk`). Never: counts files while somebody waits, or measures what nobody asks for.

mod disk;
mod rate;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mainstay_messages::record::{ContainerPhase, ContainerSnapshot, SandboxPhase};
use mainstay_messages::usage::{
    ContainerUsage, Depth, GroupUsage, MeasureUsage, PodToMeasure, PodUsage, Scope,
};
use mainstay_messages::{ContainerId, Error, Result, SandboxId};

use crate::closing::closed;
use crate::runtime::Runtime;
pub use disk::{DISK_INTERVAL_DEFAULT_MS, WANTED_MS};
pub(crate) use disk::{DiskBook, count_forever};
use rate::CpuClock;
pub use rate::RATE_WINDOW_MIN_MS;

/// Earlier values beyond those of all that there is, before those of what is gone are forgotten.
const FORGOTTEN_MAX: usize = 256;

/// What is kept between two measurements.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    clocks: Mutex<HashMap<String, CpuClock>>,
    pub(crate) disks: DiskBook,
}

/// The file system that the layers of containers are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The directory of the layers.
    pub path: PathBuf,
    /// Its size, in bytes.
    pub bytes: u64,
    /// How many files it can have; 0 where there is no such number.
    pub inodes: u64,
    /// How many more.
    pub inodes_free: u64,
}

impl Runtime {
    /// What containers use, those that have no cgroup (any more) left out.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`], or [`Error::Unavailable`] when cgroups cannot be read.
    pub async fn containers_usage(
        &self,
        containers: &[ContainerId],
        depth: Depth,
    ) -> Result<Vec<ContainerUsage>> {
        let mut pods: BTreeMap<SandboxId, PodToMeasure> = BTreeMap::new();
        for snapshot in containers.iter().filter_map(|id| self.container(id).ok()) {
            let id = snapshot.record.sandbox.clone();
            let pod = pods.entry(id.clone()).or_insert_with(|| PodToMeasure {
                id,
                scope: Scope::ContainersAlone,
                containers: Vec::new(),
            });
            if has_processes(&snapshot) {
                pod.containers.push((snapshot.record.id.clone(), snapshot.record.process.clone()));
            }
        }
        let found = self.measure(pods.into_values().collect(), depth).await?;
        Ok(found.into_iter().flat_map(|pod| pod.containers).collect())
    }

    /// What pods use, with their containers. Of one that has no cgroup (any more) there is nothing, and one that is unknown is
    /// left out.
    ///
    /// # Errors
    /// As [`Self::containers_usage`].
    pub async fn sandboxes_usage(&self, sandboxes: &[SandboxId], depth: Depth) -> Result<Vec<PodUsage>> {
        let subject = |id: &SandboxId| {
            let phase = self.sandbox(id).ok()?.record.phase;
            let containers = self.containers_of(id);
            let living = containers.iter().filter(|container| has_processes(container));
            Some(PodToMeasure {
                id: id.clone(),
                scope: match phase {
                    SandboxPhase::Stopped | SandboxPhase::Removing => Scope::ContainersAlone,
                    _ => Scope::Whole,
                },
                containers: living.map(|c| (c.record.id.clone(), c.record.process.clone())).collect(),
            })
        };
        self.measure(sandboxes.iter().filter_map(subject).collect(), depth).await
    }

    /// The file system that the layers of containers are on.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn layers_file_system(&self) -> Result<FileSystem> {
        let path = self.system().directories.layers();
        let found = rustix::fs::statvfs(&path)
            .map_err(|error| Error::unavailable(path.display().to_string(), error))?;
        Ok(FileSystem {
            path,
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }

    async fn measure(&self, pods: Vec<PodToMeasure>, depth: Depth) -> Result<Vec<PodUsage>> {
        let system = self.system();
        let message = MeasureUsage { pods, depth };
        let answer = self.closed().or(system.supervisor.send(message)).await?;
        let mut found = answer.map_err(|_| closed())??;
        for pod in &mut found {
            if let Some(group) = &mut pod.group {
                system.samples.rate(pod.id.as_str(), group);
            }
            for container in &mut pod.containers {
                system.samples.rate(container.id.as_str(), &mut container.group);
                let created_at = self.container(&container.id).ok().map(|c| c.record.created_at);
                container.disk = system.samples.disks.of(&container.id, created_at, container.group.at);
            }
        }
        system.samples.disks.want();
        self.forget();
        Ok(found)
    }

    /// Forgets earlier values of what is gone.
    fn forget(&self) {
        let mut clocks = self.system().samples.clocks();
        if clocks.len() <= FORGOTTEN_MAX {
            return;
        }
        let (pods, containers) = (self.sandboxes(), self.containers());
        if clocks.len() > pods.len() + containers.len() + FORGOTTEN_MAX {
            clocks.retain(|id, _| {
                pods.iter().any(|pod| pod.record.id.as_str() == id)
                    || containers.iter().any(|container| container.record.id.as_str() == id)
            });
        }
    }
}

impl Samples {
    /// Tells how much CPU time it used in a second.
    fn rate(&self, id: &str, group: &mut GroupUsage) {
        let Some(usage_ns) = group.cpu.usage_ns else { return };
        let mut clocks = self.clocks();
        let clock = rate::advance(clocks.get(id).copied(), group.at, usage_ns);
        group.cpu.nano_cores = clock.nano_cores;
        clocks.insert(id.to_owned(), clock);
    }

    fn clocks(&self) -> std::sync::MutexGuard<'_, HashMap<String, CpuClock>> {
        // Each change of the map is one call, so that a poisoned lock holds a sound map.
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it has a cgroup with something in it.
fn has_processes(container: &ContainerSnapshot) -> bool {
    matches!(
        container.record.phase,
        ContainerPhase::Created
            | ContainerPhase::Starting
            | ContainerPhase::Running
            | ContainerPhase::Stopping
    )
}
