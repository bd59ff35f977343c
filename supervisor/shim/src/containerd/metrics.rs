//! What a container uses, as containerd and its clients read it.
//!
//! Owns: the translation, into the messages of the generation of cgroups that counts memory here. Never: reads a file.

use mainstay_cgroups::{Details, DiskIo, Layout, Mode, Stats};
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{
    METRICS_V1_TYPE_URL, METRICS_V2_TYPE_URL, Message, MessageField, metrics_v1 as v1, metrics_v2 as v2,
};

const NS_PER_US: u64 = 1_000;

/// The answer to a request for what a container uses.
pub(super) fn any(layout: &Layout, stats: &Stats, details: &Details) -> Any {
    let (type_url, value) = match layout.mode() {
        Mode::V2 => (METRICS_V2_TYPE_URL, of_v2(stats, details).write_to_bytes()),
        Mode::V1 | Mode::Hybrid => (METRICS_V1_TYPE_URL, of_v1(stats, details).write_to_bytes()),
    };
    // Numbers and short texts of this process: they are always written.
    Any { type_url: type_url.to_owned(), value: value.unwrap_or_default(), ..Any::default() }
}

/// What the kernel gives back first: the difference between usage and working set.
fn inactive_file(stats: &Stats) -> u64 {
    number(stats.memory_usage).saturating_sub(number(stats.memory_working_set))
}

fn number(value: Option<u64>) -> u64 {
    value.unwrap_or(0)
}

fn of_v1(stats: &Stats, details: &Details) -> v1::Metrics {
    let cache = number(details.memory_cache);
    let rss = number(stats.memory_rss);
    let mapped_file = number(details.memory_mapped_file);
    let faults = number(stats.memory_page_faults);
    let major_faults = number(stats.memory_major_page_faults);
    let usage = v1::MemoryEntry {
        limit: stats.memory_limit.unwrap_or(u64::MAX),
        usage: number(stats.memory_usage),
        max: number(stats.memory_max_usage),
        failcnt: number(details.memory_limit_hits),
        ..Default::default()
    };
    let swap = v1::MemoryEntry {
        limit: number(details.swap_limit),
        usage: number(stats.memory_swap),
        ..Default::default()
    };
    let kernel = v1::MemoryEntry { usage: number(details.memory_kernel), ..Default::default() };
    let memory = v1::MemoryStat {
        cache,
        rss,
        mapped_file,
        pg_fault: faults,
        pg_maj_fault: major_faults,
        inactive_file: inactive_file(stats),
        total_cache: cache,
        total_rss: rss,
        total_mapped_file: mapped_file,
        total_pg_fault: faults,
        total_pg_maj_fault: major_faults,
        total_inactive_file: inactive_file(stats),
        usage: MessageField::some(usage),
        swap: MessageField::some(swap),
        kernel: MessageField::some(kernel),
        ..Default::default()
    };
    let usage = v1::CPUUsage {
        total: number(stats.cpu_usage_ns),
        kernel: number(stats.cpu_system_ns),
        user: number(stats.cpu_user_ns),
        ..Default::default()
    };
    let throttling = v1::Throttle {
        periods: number(stats.cpu_periods),
        throttled_periods: number(stats.cpu_throttled_periods),
        throttled_time: number(stats.cpu_throttled_ns),
        ..Default::default()
    };
    v1::Metrics {
        hugetlb: details
            .hugepages
            .iter()
            .map(|pages| v1::HugetlbStat {
                usage: pages.bytes,
                max: number(pages.max_bytes),
                pagesize: pages.page_size.clone(),
                ..Default::default()
            })
            .collect(),
        pids: MessageField::some(v1::PidsStat {
            current: number(stats.pids_current),
            limit: number(stats.pids_limit),
            ..Default::default()
        }),
        cpu: MessageField::some(v1::CPUStat {
            usage: MessageField::some(usage),
            throttling: MessageField::some(throttling),
            ..Default::default()
        }),
        memory: MessageField::some(memory),
        blkio: MessageField::some(v1::BlkIOStat {
            io_service_bytes_recursive: disks(details, |disk| [disk.read_bytes, disk.write_bytes]),
            io_serviced_recursive: disks(details, |disk| [disk.reads, disk.writes]),
            ..Default::default()
        }),
        memory_oom_control: MessageField::some(v1::MemoryOomControl {
            oom_kill: number(stats.oom_kills),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Two entries for each disk: what was read, and what was written.
fn disks(details: &Details, counts: impl Fn(&DiskIo) -> [u64; 2]) -> Vec<v1::BlkIOEntry> {
    let of_disk = |disk: &DiskIo| {
        let (major, minor) = (u64::from(disk.major), u64::from(disk.minor));
        ["Read", "Write"].into_iter().zip(counts(disk)).map(move |(op, value)| v1::BlkIOEntry {
            op: op.to_owned(),
            major,
            minor,
            value,
            ..Default::default()
        })
    };
    details.disks.iter().flat_map(of_disk).collect()
}

fn of_v2(stats: &Stats, details: &Details) -> v2::Metrics {
    let memory = v2::MemoryStat {
        anon: number(stats.memory_rss),
        file: number(details.memory_cache),
        file_mapped: number(details.memory_mapped_file),
        inactive_file: inactive_file(stats),
        pgfault: number(stats.memory_page_faults),
        pgmajfault: number(stats.memory_major_page_faults),
        usage: number(stats.memory_usage),
        usage_limit: stats.memory_limit.unwrap_or(u64::MAX),
        swap_usage: number(stats.memory_swap),
        swap_limit: details.swap_limit.unwrap_or(u64::MAX),
        max_usage: number(stats.memory_max_usage),
        ..Default::default()
    };
    let cpu = v2::CPUStat {
        usage_usec: number(stats.cpu_usage_ns) / NS_PER_US,
        user_usec: number(stats.cpu_user_ns) / NS_PER_US,
        system_usec: number(stats.cpu_system_ns) / NS_PER_US,
        nr_periods: number(stats.cpu_periods),
        nr_throttled: number(stats.cpu_throttled_periods),
        throttled_usec: number(stats.cpu_throttled_ns) / NS_PER_US,
        ..Default::default()
    };
    let disk = |disk: &DiskIo| v2::IOEntry {
        major: u64::from(disk.major),
        minor: u64::from(disk.minor),
        rbytes: disk.read_bytes,
        wbytes: disk.write_bytes,
        rios: disk.reads,
        wios: disk.writes,
        ..Default::default()
    };
    v2::Metrics {
        pids: MessageField::some(v2::PidsStat {
            current: number(stats.pids_current),
            limit: number(stats.pids_limit),
            ..Default::default()
        }),
        cpu: MessageField::some(cpu),
        memory: MessageField::some(memory),
        io: MessageField::some(v2::IOStat {
            usage: details.disks.iter().map(disk).collect(),
            ..Default::default()
        }),
        hugetlb: details
            .hugepages
            .iter()
            .map(|pages| v2::HugeTlbStat {
                current: pages.bytes,
                max: number(pages.max_bytes),
                pagesize: pages.page_size.clone(),
                ..Default::default()
            })
            .collect(),
        memory_events: MessageField::some(v2::MemoryEvents {
            max: number(details.memory_limit_hits),
            oom_kill: number(stats.oom_kills),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubelet takes for the working set what it computes of these two.
    #[test]
    fn usage_less_inactive_files_is_the_working_set() {
        let stats = Stats { memory_usage: Some(1_000), memory_working_set: Some(700), ..Stats::default() };
        let memory = of_v1(&stats, &Details::default()).memory.unwrap_or_default();
        assert_eq!(memory.usage.usage - memory.total_inactive_file, 700);
        let memory = of_v2(&stats, &Details::default()).memory.unwrap_or_default();
        assert_eq!(memory.usage - memory.inactive_file, 700);
    }
}
