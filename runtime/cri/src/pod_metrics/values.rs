//! The values of metrics (pure). What is not known is left out.

use mainstay::{
    ContainerRecord, ContainerUsage, CpuTime, FileSystem, GroupUsage, InterfaceUsage, Pressure, Timestamp,
    UNLIMITED,
};
use mainstay_cri_api::{Metric, UInt64Value};

use super::names::{self, Name};
use crate::times;

/// The kernel's own weight, which a container has that nothing was said for.
const CPU_SHARES_DEFAULT: u64 = 1_024;
/// What cAdvisor calls the limit of open files.
const MAX_OPEN_FILES: &str = "max_open_files";
const NS_PER_SECOND: u64 = 1_000_000_000;

/// The values of [`names::LABELS`].
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) container: String,
    pub(super) id: String,
    pub(super) image: String,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) pod: String,
}

/// Metrics of one pod or container.
#[derive(Debug)]
pub(super) struct Sink {
    labels: [String; 6],
    metrics: Vec<Metric>,
}

impl Sink {
    pub(super) fn new(labels: Labels) -> Self {
        let Labels { container, id, image, name, namespace, pod } = labels;
        Self { labels: [container, id, image, name, namespace, pod], metrics: Vec::new() }
    }

    pub(super) fn metrics(self) -> Vec<Metric> {
        self.metrics
    }

    /// What its cgroup uses.
    pub(super) fn group(&mut self, group: Option<&GroupUsage>) {
        let Some(group) = group else { return };
        self.put(names::LAST_SEEN, Some(group.at.seconds()));
        let cpu = &group.cpu;
        self.put_labelled(names::CPU_USAGE_SECONDS, &["total"], seconds(cpu.usage_ns));
        self.put(names::CPU_USER_SECONDS, seconds(cpu.user_ns));
        self.put(names::CPU_SYSTEM_SECONDS, seconds(cpu.system_ns));
        self.put(names::CPU_CFS_PERIODS, cpu.periods);
        self.put(names::CPU_CFS_THROTTLED_PERIODS, cpu.throttled_periods);
        self.put(names::CPU_CFS_THROTTLED_SECONDS, seconds(cpu.throttled_ns));
        self.memory(group);
        self.pressure(cpu.pressure, names::PRESSURE_CPU_WAITING, names::PRESSURE_CPU_STALLED);
        self.pressure(group.memory.pressure, names::PRESSURE_MEMORY_WAITING, names::PRESSURE_MEMORY_STALLED);
        self.pressure(group.io_pressure, names::PRESSURE_IO_WAITING, names::PRESSURE_IO_STALLED);
        self.disks(group);
        for page in &group.hugepages {
            self.put_labelled(names::HUGETLB_USAGE_BYTES, &[&page.page_size], Some(page.bytes));
            self.put_labelled(names::HUGETLB_MAX_USAGE_BYTES, &[&page.page_size], page.max_bytes);
        }
        let holdings = group.processes.and_then(|processes| processes.holdings);
        self.put(names::PROCESSES, group.processes.map(|processes| processes.processes));
        self.put(names::THREADS, group.tasks.or(holdings.map(|holdings| holdings.threads)));
        self.put(names::THREADS_MAX, Some(group.tasks_limit.unwrap_or(0)));
        self.put(names::FILE_DESCRIPTORS, holdings.map(|holdings| holdings.descriptors));
        self.put(names::SOCKETS, holdings.map(|holdings| holdings.sockets));
        self.put(names::OOM_EVENTS, group.oom_kills);
    }

    fn memory(&mut self, group: &GroupUsage) {
        let memory = &group.memory;
        self.put(names::MEMORY_USAGE_BYTES, memory.usage);
        self.put(names::MEMORY_WORKING_SET_BYTES, memory.working_set);
        self.put(names::MEMORY_MAX_USAGE_BYTES, memory.max_usage);
        self.put(names::MEMORY_RSS, memory.rss);
        self.put(names::MEMORY_CACHE, memory.cache);
        self.put(names::MEMORY_MAPPED_FILE, memory.mapped_file);
        self.put(names::MEMORY_KERNEL_USAGE, memory.kernel);
        self.put(names::MEMORY_SWAP, memory.swap);
        self.put(names::MEMORY_FAILCNT, memory.limit_hits);
        // The groups below are counted in both: a container that makes some has no figure of its own alone.
        for scope in ["container", "hierarchy"] {
            self.put_labelled(names::MEMORY_FAILURES, &["pgfault", scope], memory.page_faults);
            self.put_labelled(names::MEMORY_FAILURES, &["pgmajfault", scope], memory.major_page_faults);
        }
    }

    fn pressure(&mut self, pressure: Option<Pressure>, waiting: &'static Name, stalled: &'static Name) {
        self.put(waiting, seconds(pressure.map(|pressure| pressure.some.total_ns)));
        self.put(stalled, seconds(pressure.map(|pressure| pressure.full.total_ns)));
    }

    fn disks(&mut self, group: &GroupUsage) {
        for disk in &group.disks {
            let (major, minor) = (disk.major.to_string(), disk.minor.to_string());
            let device = format!("{major}:{minor}");
            self.put_labelled(names::FS_READS_BYTES, &[&device], Some(disk.read_bytes));
            self.put_labelled(names::FS_WRITES_BYTES, &[&device], Some(disk.write_bytes));
            self.put_labelled(names::FS_READS, &[&device], Some(disk.reads));
            self.put_labelled(names::FS_WRITES, &[&device], Some(disk.writes));
            for (operation, bytes) in [("Read", disk.read_bytes), ("Write", disk.write_bytes)] {
                let labels = [&device, &major, &minor, operation];
                self.put_labelled(names::BLKIO_DEVICE_USAGE, &labels, Some(bytes));
            }
        }
    }

    /// What a pod's interface has moved.
    pub(super) fn interface(&mut self, interface: &InterfaceUsage) {
        let InterfaceUsage { name, received, sent, .. } = interface;
        for (metric, value) in [
            (names::NETWORK_RECEIVE_BYTES, received.bytes),
            (names::NETWORK_RECEIVE_PACKETS, received.packets),
            (names::NETWORK_RECEIVE_ERRORS, received.errors),
            (names::NETWORK_RECEIVE_DROPPED, received.dropped),
            (names::NETWORK_TRANSMIT_BYTES, sent.bytes),
            (names::NETWORK_TRANSMIT_PACKETS, sent.packets),
            (names::NETWORK_TRANSMIT_ERRORS, sent.errors),
            (names::NETWORK_TRANSMIT_DROPPED, sent.dropped),
        ] {
            self.put_labelled(metric, &[name], Some(value));
        }
    }

    /// What only a container has: limits, files, a start.
    pub(super) fn container(
        &mut self,
        record: &ContainerRecord,
        usage: &ContainerUsage,
        layers: Option<&FileSystem>,
    ) {
        let limits = record.limits();
        let bounded = |limit: Option<u64>| limit.filter(|limit| *limit != UNLIMITED);
        self.put(names::START_TIME_SECONDS, Some(record.started_at.unwrap_or(record.created_at).seconds()));
        let CpuTime { quota_us, period_us } = limits.cpu_time.unwrap_or(CpuTime::UNLIMITED);
        self.put(names::SPEC_CPU_PERIOD, Some(period_us));
        self.put(names::SPEC_CPU_QUOTA, bounded(Some(quota_us)));
        self.put(names::SPEC_CPU_SHARES, Some(limits.cpu_shares.unwrap_or(CPU_SHARES_DEFAULT)));
        for (metric, limit) in [
            (names::SPEC_MEMORY_LIMIT_BYTES, limits.memory_bytes),
            (names::SPEC_MEMORY_RESERVATION_BYTES, limits.memory_reservation_bytes),
            (names::SPEC_MEMORY_SWAP_BYTES, limits.memory_swap_bytes),
        ] {
            self.put(metric, Some(bounded(limit).unwrap_or(0)));
        }
        self.put_labelled(names::ULIMITS_SOFT, &[MAX_OPEN_FILES], usage.open_files_limit);
        if let Some(layers) = layers {
            self.put(names::FS_LIMIT_BYTES, Some(layers.bytes));
            self.put(names::FS_INODES_TOTAL, Some(layers.inodes));
            self.put(names::FS_INODES_FREE, Some(layers.inodes_free));
        }
        if let Some(disk) = usage.disk {
            self.put_at(names::FS_USAGE_BYTES, &[], disk.usage.bytes, Some(disk.at));
        }
    }

    fn put(&mut self, name: &'static Name, value: Option<u64>) {
        self.put_labelled(name, &[], value);
    }

    fn put_labelled(&mut self, name: &'static Name, labels: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.put_at(name, labels, value, None);
        }
    }

    /// One that was measured before says when.
    fn put_at(&mut self, name: &'static Name, labels: &[&str], value: u64, at: Option<Timestamp>) {
        debug_assert_eq!(labels.len(), name.labels.len(), "{}", name.name);
        let labels = labels.iter().map(|label| (*label).to_owned());
        self.metrics.push(Metric {
            name: name.name.to_owned(),
            timestamp: times::nanos_or_none(at),
            metric_type: name.kind.into(),
            label_values: self.labels.iter().cloned().chain(labels).collect(),
            value: Some(UInt64Value { value }),
        });
    }
}

/// Whole seconds: the interface has no others.
fn seconds(ns: Option<u64>) -> Option<u64> {
    ns.map(|ns| ns / NS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use mainstay::{DiskIo, HugepageUse, Stall};

    use super::*;

    fn value(metrics: &[Metric], name: &str) -> Option<u64> {
        metrics.iter().find(|metric| metric.name == name)?.value.as_ref().map(|value| value.value)
    }

    #[test]
    fn every_value_has_the_labels_of_its_name_and_the_unknown_is_left_out() {
        let stall = Stall { total_ns: 2_500_000_000, ..Stall::default() };
        let mut group = GroupUsage { at: Timestamp(7_000_000_000), ..GroupUsage::default() };
        group.cpu.usage_ns = Some(3_999_999_999);
        group.cpu.pressure = Some(Pressure { some: stall, full: Stall::default() });
        group.disks = vec![DiskIo { major: 8, minor: 1, read_bytes: 5, ..DiskIo::default() }];
        group.hugepages = vec![HugepageUse { page_size: "2MB".into(), bytes: 9, max_bytes: None }];
        let mut sink = Sink::new(Labels { pod: "p".into(), ..Labels::default() });
        sink.group(Some(&group));
        sink.interface(&InterfaceUsage { name: "eth0".into(), ..InterfaceUsage::default() });
        let metrics = sink.metrics();
        for metric in &metrics {
            let name = names::NAMES.iter().find(|name| name.name == metric.name).expect("a known name");
            assert_eq!(metric.label_values.len(), names::LABELS.len() + name.labels.len(), "{}", name.name);
            assert_eq!(metric.label_values[5], "p");
        }
        assert_eq!(value(&metrics, "container_cpu_usage_seconds_total"), Some(3));
        assert_eq!(value(&metrics, "container_pressure_cpu_waiting_seconds_total"), Some(2));
        assert_eq!(value(&metrics, "container_hugetlb_usage_bytes"), Some(9));
        assert_eq!(value(&metrics, "container_memory_rss"), None);
        assert_eq!(value(&metrics, "container_threads_max"), Some(0), "any number");
    }
}
