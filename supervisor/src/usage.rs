//! What pods and containers use, for many of them at once.
//!
//! Owns: which files of the kernel are read for which answer, and that what is gone meanwhile, or cannot be read, is left out: one broken
//! group stays one. Never: asks a shim,
//! is called on an actor's thread (all of it blocks), or keeps earlier values.

mod interfaces;
mod processes;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use mainstay_cgroups::{Cgroup, CgroupError, Details};
use mainstay_messages::usage::{
    ContainerUsage, CpuUsage, Depth, DiskIo, GroupUsage, HugepageUse, InterfaceUsage, MemoryUsage,
    PodToMeasure, PodUsage, Pressure, ProcessCounts, Scope, Stall,
};
use mainstay_messages::{Result, SandboxId};

use crate::cgroup::error;
use crate::machine::{Machine, now};

/// Time to measure all pods of a node, in milliseconds.
pub const MEASURE_MS: u64 = 20_000;

/// A pod, and its network namespace where it has one of its own.
pub(crate) type Subject = (PodToMeasure, Option<Arc<File>>);

/// Measures pods one after the other.
pub(crate) fn measure(machine: &Machine, pods: Vec<Subject>, depth: Depth) -> Result<Vec<PodUsage>> {
    let whole = pods.iter().filter(|(pod, _)| pod.scope == Scope::Whole);
    let namespaces = whole.filter_map(|(pod, namespace)| Some((pod.id.clone(), namespace.clone()?)));
    let mut interfaces = interfaces::of_all(namespaces.collect());
    Ok(pods.into_iter().map(|(pod, _)| measure_pod(machine, pod, &mut interfaces, depth)).collect())
}

fn measure_pod(
    machine: &Machine,
    pod: PodToMeasure,
    interfaces: &mut BTreeMap<SandboxId, Vec<InterfaceUsage>>,
    depth: Depth,
) -> PodUsage {
    let group = match pod.scope {
        Scope::Whole => measured(machine.pod_group(&pod.id), depth, Members::Counted),
        Scope::ContainersAlone => None,
    };
    let mut containers = Vec::with_capacity(pod.containers.len());
    for (id, process) in pod.containers {
        let members = match depth {
            Depth::Basic => Members::Unknown,
            Depth::Full => Members::Counted,
        };
        let Some(group) = measured(machine.container_group(&pod.id, &id), depth, members) else {
            continue;
        };
        let limited = process.filter(|_| depth == Depth::Full);
        let open_files_limit = limited.and_then(|process| processes::open_files_limit(&process));
        containers.push(ContainerUsage { id, group, open_files_limit, disk: None });
    }
    let interfaces = interfaces.remove(&pod.id).unwrap_or_default();
    PodUsage { id: pod.id, group, interfaces, containers }
}

/// Nothing for a group that is not there, or cannot be read.
fn measured(group: Result<Cgroup>, depth: Depth, members: Members) -> Option<GroupUsage> {
    let usage = group.and_then(|group| match group_usage(&group, depth, members) {
        Err(CgroupError::NotFound { .. }) => Ok(None),
        usage => usage.map(Some).map_err(error),
    });
    usage.unwrap_or_else(|error| {
        tracing::warn!(%error, "a group was not measured");
        None
    })
}

/// Whether the processes of a group are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    Counted,
    Unknown,
}

fn group_usage(
    group: &Cgroup,
    depth: Depth,
    members: Members,
) -> std::result::Result<GroupUsage, CgroupError> {
    let stats = group.stats()?;
    let details = group.details()?;
    let processes = match members {
        Members::Unknown => None,
        Members::Counted => {
            let members = group.members()?;
            let holdings = (depth == Depth::Full).then(|| processes::holdings(&members)).flatten();
            Some(ProcessCounts { processes: members.len() as u64, holdings })
        }
    };
    let Details { cpu_pressure, memory_pressure, io_pressure, disks, hugepages, .. } = &details;
    Ok(GroupUsage {
        at: now(),
        cpu: CpuUsage {
            usage_ns: stats.cpu_usage_ns,
            user_ns: stats.cpu_user_ns,
            system_ns: stats.cpu_system_ns,
            nano_cores: None,
            periods: stats.cpu_periods,
            throttled_periods: stats.cpu_throttled_periods,
            throttled_ns: stats.cpu_throttled_ns,
            pressure: cpu_pressure.map(pressure),
        },
        memory: MemoryUsage {
            usage: stats.memory_usage,
            working_set: stats.memory_working_set,
            rss: stats.memory_rss,
            limit: stats.memory_limit,
            max_usage: stats.memory_max_usage,
            page_faults: stats.memory_page_faults,
            major_page_faults: stats.memory_major_page_faults,
            swap: stats.memory_swap,
            swap_limit: details.swap_limit,
            cache: details.memory_cache,
            mapped_file: details.memory_mapped_file,
            kernel: details.memory_kernel,
            limit_hits: details.memory_limit_hits,
            pressure: memory_pressure.map(pressure),
        },
        io_pressure: io_pressure.map(pressure),
        disks: disks.iter().map(disk).collect(),
        hugepages: hugepages.iter().map(hugepage).collect(),
        processes,
        tasks: stats.pids_current,
        tasks_limit: stats.pids_limit,
        oom_kills: stats.oom_kills,
    })
}

fn pressure(found: mainstay_cgroups::Pressure) -> Pressure {
    let stall = |found: mainstay_cgroups::Stall| Stall {
        total_ns: found.total_ns,
        avg10: found.avg10,
        avg60: found.avg60,
        avg300: found.avg300,
    };
    Pressure { some: stall(found.some), full: stall(found.full) }
}

fn disk(found: &mainstay_cgroups::DiskIo) -> DiskIo {
    DiskIo {
        major: found.major,
        minor: found.minor,
        read_bytes: found.read_bytes,
        write_bytes: found.write_bytes,
        reads: found.reads,
        writes: found.writes,
    }
}

fn hugepage(found: &mainstay_cgroups::HugepageUse) -> HugepageUse {
    HugepageUse { page_size: found.page_size.clone(), bytes: found.bytes, max_bytes: found.max_bytes }
}
