//! What another shim says that a container uses: for containers whose processes are in no cgroup of this machine that the pod has,
//! as in a virtual machine.
//!
//! Owns: reading the two kinds of answer. It is pure. Never: makes up a number that is not there.

use mainstay_messages::Timestamp;
use mainstay_messages::supervisor::Stats;
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{Message, metrics_v1 as v1, metrics_v2 as v2};

const NANOS_PER_MICRO: u64 = 1_000;
/// A limit above this is none: v1 says so with the largest number of whole pages.
const LIMIT_MAX_BYTES: u64 = 1 << 62;

/// Reads an answer; none when it is neither of the two.
pub(super) fn read(any: &Any, at: Timestamp) -> Option<Stats> {
    match any.type_url.rsplit('/').next()? {
        "io.containerd.cgroups.v1.Metrics" => {
            Some(of_v1(&v1::Metrics::parse_from_bytes(&any.value).ok()?, at))
        }
        "io.containerd.cgroups.v2.Metrics" => {
            Some(of_v2(&v2::Metrics::parse_from_bytes(&any.value).ok()?, at))
        }
        _ => None,
    }
}

fn of_v1(metrics: &v1::Metrics, at: Timestamp) -> Stats {
    let cpu = metrics.cpu.as_ref().and_then(|cpu| cpu.usage.as_ref());
    let memory = metrics.memory.as_ref();
    let usage = memory.and_then(|memory| memory.usage.as_ref());
    let inactive = memory.map_or(0, |memory| memory.total_inactive_file);
    Stats {
        at,
        cpu_usage_ns: cpu.map(|cpu| cpu.total),
        cpu_user_ns: cpu.map(|cpu| cpu.user),
        cpu_system_ns: cpu.map(|cpu| cpu.kernel),
        memory_usage_bytes: usage.map(|entry| entry.usage),
        memory_working_set_bytes: usage.map(|entry| entry.usage.saturating_sub(inactive)),
        memory_rss_bytes: memory.map(|memory| memory.total_rss),
        memory_limit_bytes: usage.and_then(|entry| limit(entry.limit)),
        pids: metrics.pids.as_ref().map(|pids| pids.current),
        pids_limit: metrics.pids.as_ref().and_then(|pids| limit(pids.limit)),
        oom_kills: metrics.memory_oom_control.as_ref().map(|oom| oom.oom_kill),
        log_bytes_lost: 0,
    }
}

fn of_v2(metrics: &v2::Metrics, at: Timestamp) -> Stats {
    let cpu = metrics.cpu.as_ref();
    let nanoseconds = |microseconds: u64| microseconds.saturating_mul(NANOS_PER_MICRO);
    let memory = metrics.memory.as_ref();
    Stats {
        at,
        cpu_usage_ns: cpu.map(|cpu| nanoseconds(cpu.usage_usec)),
        cpu_user_ns: cpu.map(|cpu| nanoseconds(cpu.user_usec)),
        cpu_system_ns: cpu.map(|cpu| nanoseconds(cpu.system_usec)),
        memory_usage_bytes: memory.map(|memory| memory.usage),
        memory_working_set_bytes: memory.map(|memory| memory.usage.saturating_sub(memory.inactive_file)),
        memory_rss_bytes: memory.map(|memory| memory.anon),
        memory_limit_bytes: memory.and_then(|memory| limit(memory.usage_limit)),
        pids: metrics.pids.as_ref().map(|pids| pids.current),
        pids_limit: metrics.pids.as_ref().and_then(|pids| limit(pids.limit)),
        oom_kills: metrics.memory_events.as_ref().map(|events| events.oom_kill),
        log_bytes_lost: 0,
    }
}

fn limit(value: u64) -> Option<u64> {
    (1..LIMIT_MAX_BYTES).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use mainstay_task_api::MessageField;

    use super::*;

    fn any(kind: &str, message: &impl Message) -> Any {
        let value = message.write_to_bytes().expect("small");
        Any { type_url: kind.to_owned(), value, ..Default::default() }
    }

    #[test]
    fn both_kinds_are_read_and_what_is_not_there_is_unknown() {
        let memory =
            v2::MemoryStat { usage: 100, inactive_file: 30, usage_limit: u64::MAX, ..Default::default() };
        let cpu = v2::CPUStat { usage_usec: 5, ..Default::default() };
        let metrics = v2::Metrics {
            memory: MessageField::some(memory),
            cpu: MessageField::some(cpu),
            ..Default::default()
        };
        let stats = read(&any("io.containerd.cgroups.v2.Metrics", &metrics), Timestamp(1)).expect("readable");
        assert_eq!((stats.memory_working_set_bytes, stats.memory_limit_bytes), (Some(70), None));
        assert_eq!((stats.cpu_usage_ns, stats.pids, stats.oom_kills), (Some(5_000), None, None));
        let entry = v1::MemoryEntry { usage: 100, limit: 4096, ..Default::default() };
        let memory = v1::MemoryStat {
            usage: MessageField::some(entry),
            total_inactive_file: 200,
            ..Default::default()
        };
        let metrics = v1::Metrics { memory: MessageField::some(memory), ..Default::default() };
        let stats = read(&any("io.containerd.cgroups.v1.Metrics", &metrics), Timestamp(1)).expect("readable");
        assert_eq!((stats.memory_working_set_bytes, stats.memory_limit_bytes), (Some(0), Some(4096)));
        assert_eq!(stats.cpu_usage_ns, None);
        assert_eq!(read(&any("else", &metrics), Timestamp(1)), None);
    }
}
