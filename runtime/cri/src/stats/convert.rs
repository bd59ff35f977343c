//! What is measured, as messages (pure).
//!
//! What the machine does not tell is left out, never 0: kubelet takes 0 for a fact.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::{
    ContainerSnapshot, ContainerUsage, DiskSample, GroupUsage, InterfaceUsage, PodUsage, Pressure,
    SandboxSnapshot, Stall,
};
use mainstay_cri_api as cri;
use mainstay_cri_api::UInt64Value;

use crate::times::nanos;
use crate::{containers, pods};

/// A container, with what it uses where it has processes.
pub(crate) fn container(
    container: &ContainerSnapshot,
    usage: Option<ContainerUsage>,
    layers: Option<&str>,
) -> cri::ContainerStats {
    let attributes = Some(container_attributes(container));
    let Some(ContainerUsage { group, disk, .. }) = usage else {
        return cri::ContainerStats { attributes, ..Default::default() };
    };
    cri::ContainerStats {
        attributes,
        cpu: Some(cpu(&group)),
        memory: Some(memory(&group)),
        writable_layer: disk.zip(layers).map(|(disk, layers)| file_system(&disk, layers)),
        swap: group.memory.swap.map(|used| swap(&group, used)),
        io: group.io_pressure.map(|pressure| io(&group, pressure)),
    }
}

/// A pod with its containers.
pub(crate) fn pod(
    pod: &SandboxSnapshot,
    usage: Option<PodUsage>,
    snapshots: &[Arc<ContainerSnapshot>],
    layers: Option<&str>,
) -> cri::PodSandboxStats {
    let attributes = Some(pod_attributes(pod));
    let Some(PodUsage { group, interfaces, containers: used, .. }) = usage else {
        return cri::PodSandboxStats { attributes, ..Default::default() };
    };
    let mut used: HashMap<_, ContainerUsage> =
        used.into_iter().map(|usage| (usage.id.clone(), usage)).collect();
    let measured = snapshots.iter().filter_map(|snapshot| {
        let usage = used.remove(&snapshot.record.id)?;
        Some(container(snapshot, Some(usage), layers))
    });
    let linux = cri::LinuxPodSandboxStats {
        containers: measured.collect(),
        cpu: group.as_ref().map(cpu),
        memory: group.as_ref().map(memory),
        network: network(pod, &interfaces),
        process: group.as_ref().and_then(processes),
        io: group.as_ref().and_then(|group| Some(io(group, group.io_pressure?))),
    };
    cri::PodSandboxStats { attributes, linux: Some(linux), windows: None }
}

fn container_attributes(container: &ContainerSnapshot) -> cri::ContainerAttributes {
    let record = &container.record;
    cri::ContainerAttributes {
        id: record.id.to_string(),
        metadata: Some(containers::show::metadata(record)),
        labels: record.spec.labels.clone().into_iter().collect(),
        annotations: record.spec.annotations.clone().into_iter().collect(),
    }
}

fn pod_attributes(pod: &SandboxSnapshot) -> cri::PodSandboxAttributes {
    let record = &pod.record;
    cri::PodSandboxAttributes {
        id: record.id.to_string(),
        metadata: Some(pods::show::metadata(record)),
        labels: record.spec.labels.clone().into_iter().collect(),
        annotations: record.spec.annotations.clone().into_iter().collect(),
    }
}

fn cpu(group: &GroupUsage) -> cri::CpuUsage {
    cri::CpuUsage {
        timestamp: nanos(group.at),
        usage_core_nano_seconds: number(group.cpu.usage_ns),
        usage_nano_cores: number(group.cpu.nano_cores),
        psi: group.cpu.pressure.map(psi),
    }
}

fn memory(group: &GroupUsage) -> cri::MemoryUsage {
    let memory = &group.memory;
    let available = memory.limit.zip(memory.working_set).map(|(limit, used)| limit.saturating_sub(used));
    cri::MemoryUsage {
        timestamp: nanos(group.at),
        working_set_bytes: number(memory.working_set),
        available_bytes: number(available),
        usage_bytes: number(memory.usage),
        rss_bytes: number(memory.rss),
        page_faults: number(memory.page_faults),
        major_page_faults: number(memory.major_page_faults),
        psi: memory.pressure.map(psi),
    }
}

fn swap(group: &GroupUsage, used: u64) -> cri::SwapUsage {
    cri::SwapUsage {
        timestamp: nanos(group.at),
        swap_available_bytes: number(group.memory.swap_limit.map(|limit| limit.saturating_sub(used))),
        swap_usage_bytes: number(Some(used)),
    }
}

fn io(group: &GroupUsage, pressure: Pressure) -> cri::IoUsage {
    cri::IoUsage { timestamp: nanos(group.at), psi: Some(psi(pressure)) }
}

fn processes(group: &GroupUsage) -> Option<cri::ProcessUsage> {
    let counts = group.processes?;
    Some(cri::ProcessUsage { timestamp: nanos(group.at), process_count: number(Some(counts.processes)) })
}

/// The interface that the pod's network has made is the one that counts; the first where that is not known.
fn network(pod: &SandboxSnapshot, interfaces: &[InterfaceUsage]) -> Option<cri::NetworkUsage> {
    let link = pod.record.network.as_ref().map(|network| network.link.as_str());
    let own = interfaces.iter().position(|interface| Some(interface.name.as_str()) == link);
    let place = own.or((!interfaces.is_empty()).then_some(0))?;
    let others = interfaces.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, other)| other);
    Some(cri::NetworkUsage {
        timestamp: nanos(interfaces[place].at),
        default_interface: Some(interface(&interfaces[place])),
        interfaces: others.map(interface).collect(),
    })
}

fn interface(usage: &InterfaceUsage) -> cri::NetworkInterfaceUsage {
    cri::NetworkInterfaceUsage {
        name: usage.name.clone(),
        rx_bytes: number(Some(usage.received.bytes)),
        rx_errors: number(Some(usage.received.errors)),
        tx_bytes: number(Some(usage.sent.bytes)),
        tx_errors: number(Some(usage.sent.errors)),
    }
}

fn file_system(disk: &DiskSample, layers: &str) -> cri::FilesystemUsage {
    cri::FilesystemUsage {
        timestamp: nanos(disk.at),
        fs_id: Some(cri::FilesystemIdentifier { mountpoint: layers.to_owned() }),
        used_bytes: number(Some(disk.usage.bytes)),
        inodes_used: number(Some(disk.usage.inodes)),
    }
}

fn psi(pressure: Pressure) -> cri::PsiStats {
    let data = |stall: Stall| cri::PsiData {
        total: stall.total_ns,
        avg10: f64::from(stall.avg10) / 100.0,
        avg60: f64::from(stall.avg60) / 100.0,
        avg300: f64::from(stall.avg300) / 100.0,
    };
    cri::PsiStats { full: Some(data(pressure.full)), some: Some(data(pressure.some)) }
}

fn number(value: Option<u64>) -> Option<UInt64Value> {
    value.map(|value| UInt64Value { value })
}
