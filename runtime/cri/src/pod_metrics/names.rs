//! The names of all metrics.

use mainstay_cri_api::MetricType::{self, Counter, Gauge};

/// The labels that all metrics have, in the order of their values.
pub(super) const LABELS: &[&str] = &["container", "id", "image", "name", "namespace", "pod"];

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    /// Its labels beside [`LABELS`].
    pub(super) labels: &'static [&'static str],
}

macro_rules! names {
    ($($id:ident: $name:literal, $kind:ident, $labels:expr, $help:literal;)+) => {
        $(pub(super) const $id: &Name = &Name { name: $name, help: $help, kind: $kind, labels: &$labels };)+
        /// All of them.
        pub(super) const NAMES: &[&Name] = &[$($id),+];
    };
}

names! {
    BLKIO_DEVICE_USAGE: "container_blkio_device_usage_total", Counter, ["device", "major", "minor", "operation"], "Bytes read from and written to a block device";
    CPU_CFS_PERIODS: "container_cpu_cfs_periods_total", Counter, [], "Periods of the CPU quota that have passed";
    CPU_CFS_THROTTLED_PERIODS: "container_cpu_cfs_throttled_periods_total", Counter, [], "Periods of the CPU quota in which it was held back";
    CPU_CFS_THROTTLED_SECONDS: "container_cpu_cfs_throttled_seconds_total", Counter, [], "How long the CPU quota has held it back";
    CPU_SYSTEM_SECONDS: "container_cpu_system_seconds_total", Counter, [], "CPU time in the kernel";
    CPU_USAGE_SECONDS: "container_cpu_usage_seconds_total", Counter, ["cpu"], "CPU time";
    CPU_USER_SECONDS: "container_cpu_user_seconds_total", Counter, [], "CPU time in user mode";
    FILE_DESCRIPTORS: "container_file_descriptors", Gauge, [], "Files that its processes have open";
    FS_INODES_FREE: "container_fs_inodes_free", Gauge, [], "Files that its file system has room for";
    FS_INODES_TOTAL: "container_fs_inodes_total", Gauge, [], "Files that its file system can have";
    FS_LIMIT_BYTES: "container_fs_limit_bytes", Gauge, [], "Size of its file system";
    FS_READS_BYTES: "container_fs_reads_bytes_total", Counter, ["device"], "Bytes read from a block device";
    FS_READS: "container_fs_reads_total", Counter, ["device"], "Reads from a block device";
    FS_USAGE_BYTES: "container_fs_usage_bytes", Gauge, [], "Bytes that it has on the disk, as they were last counted";
    FS_WRITES_BYTES: "container_fs_writes_bytes_total", Counter, ["device"], "Bytes written to a block device";
    FS_WRITES: "container_fs_writes_total", Counter, ["device"], "Writes to a block device";
    HUGETLB_MAX_USAGE_BYTES: "container_hugetlb_max_usage_bytes", Gauge, ["pagesize"], "The most bytes in huge pages that it ever had";
    HUGETLB_USAGE_BYTES: "container_hugetlb_usage_bytes", Gauge, ["pagesize"], "Bytes in huge pages";
    LAST_SEEN: "container_last_seen", Gauge, [], "When it was measured, in seconds since 1970";
    MEMORY_CACHE: "container_memory_cache", Gauge, [], "Bytes of page cache";
    MEMORY_FAILCNT: "container_memory_failcnt", Counter, [], "How often it has come to its memory limit";
    MEMORY_FAILURES: "container_memory_failures_total", Counter, ["failure_type", "scope"], "Page faults";
    MEMORY_KERNEL_USAGE: "container_memory_kernel_usage", Gauge, [], "Bytes of memory of the kernel";
    MEMORY_MAPPED_FILE: "container_memory_mapped_file", Gauge, [], "Bytes of mapped files";
    MEMORY_MAX_USAGE_BYTES: "container_memory_max_usage_bytes", Gauge, [], "The most bytes of memory that it ever used";
    MEMORY_RSS: "container_memory_rss", Gauge, [], "Bytes of anonymous memory";
    MEMORY_SWAP: "container_memory_swap", Gauge, [], "Bytes of swap";
    MEMORY_USAGE_BYTES: "container_memory_usage_bytes", Gauge, [], "Bytes of memory, page cache included";
    MEMORY_WORKING_SET_BYTES: "container_memory_working_set_bytes", Gauge, [], "Bytes of memory without page cache that was not used lately";
    NETWORK_RECEIVE_BYTES: "container_network_receive_bytes_total", Counter, ["interface"], "Bytes received";
    NETWORK_RECEIVE_ERRORS: "container_network_receive_errors_total", Counter, ["interface"], "Damaged packets received";
    NETWORK_RECEIVE_DROPPED: "container_network_receive_packets_dropped_total", Counter, ["interface"], "Packets thrown away while they were received";
    NETWORK_RECEIVE_PACKETS: "container_network_receive_packets_total", Counter, ["interface"], "Packets received";
    NETWORK_TRANSMIT_BYTES: "container_network_transmit_bytes_total", Counter, ["interface"], "Bytes sent";
    NETWORK_TRANSMIT_ERRORS: "container_network_transmit_errors_total", Counter, ["interface"], "Packets that could not be sent";
    NETWORK_TRANSMIT_DROPPED: "container_network_transmit_packets_dropped_total", Counter, ["interface"], "Packets thrown away while they were sent";
    NETWORK_TRANSMIT_PACKETS: "container_network_transmit_packets_total", Counter, ["interface"], "Packets sent";
    OOM_EVENTS: "container_oom_events_total", Counter, [], "Processes that the kernel has killed for want of memory";
    PRESSURE_CPU_STALLED: "container_pressure_cpu_stalled_seconds_total", Counter, [], "How long all of its tasks have waited for CPU time";
    PRESSURE_CPU_WAITING: "container_pressure_cpu_waiting_seconds_total", Counter, [], "How long tasks of it have waited for CPU time";
    PRESSURE_IO_STALLED: "container_pressure_io_stalled_seconds_total", Counter, [], "How long all of its tasks have waited for disks";
    PRESSURE_IO_WAITING: "container_pressure_io_waiting_seconds_total", Counter, [], "How long tasks of it have waited for disks";
    PRESSURE_MEMORY_STALLED: "container_pressure_memory_stalled_seconds_total", Counter, [], "How long all of its tasks have waited for memory";
    PRESSURE_MEMORY_WAITING: "container_pressure_memory_waiting_seconds_total", Counter, [], "How long tasks of it have waited for memory";
    PROCESSES: "container_processes", Gauge, [], "Processes";
    SOCKETS: "container_sockets", Gauge, [], "Sockets that its processes have open";
    SPEC_CPU_PERIOD: "container_spec_cpu_period", Gauge, [], "Period of its CPU quota, in microseconds";
    SPEC_CPU_QUOTA: "container_spec_cpu_quota", Gauge, [], "Its CPU quota, in microseconds of a period";
    SPEC_CPU_SHARES: "container_spec_cpu_shares", Gauge, [], "Its weight when CPU time is short";
    SPEC_MEMORY_LIMIT_BYTES: "container_spec_memory_limit_bytes", Gauge, [], "Its memory limit in bytes; 0 for none";
    SPEC_MEMORY_RESERVATION_BYTES: "container_spec_memory_reservation_limit_bytes", Gauge, [], "Memory that is left to it when memory is short, in bytes; 0 for none";
    SPEC_MEMORY_SWAP_BYTES: "container_spec_memory_swap_limit_bytes", Gauge, [], "Its limit of memory and swap together, in bytes; 0 for none";
    START_TIME_SECONDS: "container_start_time_seconds", Gauge, [], "When it was started, in seconds since 1970";
    THREADS: "container_threads", Gauge, [], "Threads";
    THREADS_MAX: "container_threads_max", Gauge, [], "The most threads that it may have; 0 for any number";
    ULIMITS_SOFT: "container_ulimits_soft", Gauge, ["ulimit"], "Resource limits of its first process";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_has_a_name_of_its_own_and_is_explained() {
        let names: BTreeSet<_> = NAMES.iter().map(|name| name.name).collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(NAMES.iter().all(|name| name.name.starts_with("container_") && !name.help.is_empty()));
        // As Prometheus wants it, but for one name that cAdvisor has given.
        let others: Vec<_> = NAMES
            .iter()
            .filter(|name| name.name.ends_with("_total") && name.kind != Counter)
            .map(|name| name.name)
            .collect();
        assert_eq!(others, ["container_fs_inodes_total"]);
    }
}
