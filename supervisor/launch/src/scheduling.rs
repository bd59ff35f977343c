//! How the kernel treats a process among others: its CPU scheduler, its priority at disks, and where its memory comes from.
//!
//! The values are worked out purely ([`Scheduling::of`]), so that what is wrong is said before anything is made. They are set by
//! the host's root before a user name space is entered, where the right to most of them ends; the program inherits them.

use oci_spec::runtime::{
    IOPriorityClass, LinuxIOPriority, LinuxMemoryPolicy, LinuxSchedulerFlag, LinuxSchedulerPolicy,
    MemoryPolicyFlagType, MemoryPolicyModeType, Process, Scheduler, Spec,
};

use crate::error::{Context, LaunchError, Result, Step, invalid, machine, unsupported};
use crate::syscall::check;

/// The highest memory node that a policy may name, and one more: what the kernel is built for at most.
const MEMORY_NODES_MAX: usize = 1_024;
const WORD_BITS: usize = u64::BITS as usize;

/// What is asked of the kernel; nothing stays as it is with the launcher's caller.
#[derive(Debug, Default)]
pub(crate) struct Scheduling {
    cpu: Option<CpuAttributes>,
    io: Option<libc::c_int>,
    memory: Option<MemoryPolicy>,
}

/// The kernel's `struct sched_attr`, of its first size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct MemoryPolicy {
    mode: libc::c_int,
    nodes: Vec<u64>,
}

impl Scheduling {
    /// Reads what a process, and the container that it is in, ask for.
    pub(crate) fn of(process: &Process, spec: &Spec) -> Result<Scheduling> {
        let memory = spec.linux().as_ref().and_then(|linux| linux.memory_policy().as_ref());
        Ok(Scheduling {
            cpu: process.scheduler().as_ref().map(cpu_attributes).transpose()?,
            io: process.io_priority().as_ref().map(io_priority).transpose()?,
            memory: memory.map(memory_policy).transpose()?,
        })
    }

    /// Sets it for this process.
    pub(crate) fn set(&self) -> Result<()> {
        if let Some(attributes) = &self.cpu {
            // SAFETY: the attributes live through the call, and say how large they are.
            let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) };
            check(set).context(Step::Scheduling, || {
                format!("process.scheduler (policy {}, nice {})", attributes.policy, attributes.nice)
            })?;
        }
        if let Some(priority) = self.io {
            const IOPRIO_WHO_PROCESS: libc::c_int = 1;
            // SAFETY: takes numbers alone.
            let set = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) };
            check(set).context(Step::Scheduling, || "process.ioPriority".to_owned())?;
        }
        self.memory.as_ref().map_or(Ok(()), MemoryPolicy::set)
    }
}

impl MemoryPolicy {
    fn set(&self) -> Result<()> {
        let (mask, bits) = match self.nodes.len() {
            0 => (std::ptr::null(), 0),
            // The kernel counts one bit less than it is told.
            words => (self.nodes.as_ptr(), words * WORD_BITS + 1),
        };
        // SAFETY: the mask has as many bits as the kernel is told, and lives through the call.
        let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, bits) };
        match check(set) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                Err(machine("linux.memoryPolicy", "its kernel knows no memory nodes (CONFIG_NUMA)"))
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(LaunchError::System {
                step: Step::Scheduling,
                subject: "linux.memoryPolicy: a node that this machine, or the container's cgroup, does not have, or \
                          a mode that this kernel does not know"
                    .to_owned(),
                source: error,
            }),
            result => result.context(Step::Scheduling, || "linux.memoryPolicy".to_owned()),
        }
    }
}

fn cpu_attributes(scheduler: &Scheduler) -> Result<CpuAttributes> {
    let field = |name: &str| format!("process.scheduler.{name}");
    let policy = match scheduler.policy() {
        LinuxSchedulerPolicy::SchedOther => 0,
        LinuxSchedulerPolicy::SchedFifo => 1,
        LinuxSchedulerPolicy::SchedRr => 2,
        LinuxSchedulerPolicy::SchedBatch => 3,
        LinuxSchedulerPolicy::SchedIso => {
            return Err(unsupported(field("policy"), "SCHED_ISO, which no kernel has"));
        }
        LinuxSchedulerPolicy::SchedIdle => 5,
        LinuxSchedulerPolicy::SchedDeadline => 6,
    };
    let (nice, priority) = (scheduler.nice().unwrap_or(0), scheduler.priority().unwrap_or(0));
    if !(-20..=19).contains(&nice) {
        return Err(invalid(field("nice"), format!("{nice} must be from -20 to 19")));
    }
    let is_real_time = matches!(policy, 1 | 2);
    if is_real_time != (1..=99).contains(&priority) {
        let problem = "must be from 1 to 99 with SCHED_FIFO and SCHED_RR, and 0 with any other";
        return Err(invalid(field("priority"), format!("{priority} {problem}")));
    }
    let (runtime, deadline, period) = (
        scheduler.runtime().unwrap_or(0),
        scheduler.deadline().unwrap_or(0),
        scheduler.period().unwrap_or(0),
    );
    if policy != 6 && (runtime, deadline, period) != (0, 0, 0) {
        return Err(invalid(field("runtime"), "runtime, deadline and period are of SCHED_DEADLINE alone"));
    }
    let mut flags = 0;
    for flag in scheduler.flags().iter().flatten() {
        flags |= match flag {
            LinuxSchedulerFlag::SchedResetOnFork => 0x01,
            LinuxSchedulerFlag::SchedFlagReclaim => 0x02,
            LinuxSchedulerFlag::SchedFlagDLOverrun => 0x04,
            LinuxSchedulerFlag::SchedFlagKeepPolicy => 0x08,
            LinuxSchedulerFlag::SchedFlagKeepParams => 0x10,
            LinuxSchedulerFlag::SchedFlagUtilClampMin | LinuxSchedulerFlag::SchedFlagUtilClampMax => {
                return Err(unsupported(
                    field("flags"),
                    "a utilization clamp, for which the spec has no value,",
                ));
            }
        };
    }
    Ok(CpuAttributes {
        size: size_of::<CpuAttributes>() as u32,
        policy,
        flags,
        nice,
        priority: priority.unsigned_abs(),
        runtime,
        deadline,
        period,
    })
}

fn io_priority(wanted: &LinuxIOPriority) -> Result<libc::c_int> {
    const CLASS_SHIFT: u32 = 13;
    let class = match wanted.class() {
        IOPriorityClass::IoprioClassRt => 1,
        IOPriorityClass::IoprioClassBe => 2,
        IOPriorityClass::IoprioClassIdle => 3,
    };
    match libc::c_int::try_from(wanted.priority()) {
        Ok(priority @ 0..=7) => Ok(class << CLASS_SHIFT | priority),
        _ => {
            Err(invalid("process.ioPriority.priority", format!("{} must be from 0 to 7", wanted.priority())))
        }
    }
}

fn memory_policy(policy: &LinuxMemoryPolicy) -> Result<MemoryPolicy> {
    let mode = match policy.mode() {
        MemoryPolicyModeType::MpolDefault => 0,
        MemoryPolicyModeType::MpolPreferred => 1,
        MemoryPolicyModeType::MpolBind => 2,
        MemoryPolicyModeType::MpolInterleave => 3,
        MemoryPolicyModeType::MpolLocal => 4,
        MemoryPolicyModeType::MpolPreferredMany => 5,
        MemoryPolicyModeType::MpolWeightedInterleave => 6,
    };
    let flags = policy.flags().iter().flatten().fold(0, |flags, flag| {
        flags
            | match flag {
                MemoryPolicyFlagType::MpolFStaticNodes => 1 << 15,
                MemoryPolicyFlagType::MpolFRelativeNodes => 1 << 14,
                MemoryPolicyFlagType::MpolFNumaBalancing => 1 << 13,
            }
    });
    let nodes = policy.nodes().as_deref().unwrap_or_default();
    let mask = node_mask(nodes).ok_or_else(|| {
        let problem = format!("{nodes:?} must be a list of nodes below {MEMORY_NODES_MAX}, as in \"0-2,4\"");
        invalid("linux.memoryPolicy.nodes", problem)
    })?;
    let takes_none = matches!(mode, 0 | 4);
    if takes_none != mask.is_empty() && mode != 1 {
        let problem = "the modes MPOL_DEFAULT and MPOL_LOCAL take none, and the others need at least one";
        return Err(invalid("linux.memoryPolicy.nodes", problem));
    }
    Ok(MemoryPolicy { mode: mode | flags, nodes: mask })
}

/// A list of nodes as bits.
fn node_mask(list: &str) -> Option<Vec<u64>> {
    let mut mask = Vec::new();
    for part in list.split(',').map(str::trim).filter(|_| !list.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MEMORY_NODES_MAX {
            return None;
        }
        mask.resize(mask.len().max(last / WORD_BITS + 1), 0);
        for node in first..=last {
            mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
        }
    }
    Some(mask)
}

/// The priority of a process at disks, as the kernel counts it; for tests.
#[cfg(test)]
fn own_io_priority() -> std::io::Result<libc::c_long> {
    // SAFETY: takes numbers alone.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) };
    check(found).map(|()| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: for<'a> serde::Deserialize<'a>>(json: &str) -> T {
        serde_json::from_str(json).expect("good JSON")
    }

    #[test]
    fn lists_of_nodes_are_read() {
        assert_eq!(node_mask(""), Some(vec![]));
        assert_eq!(node_mask("0"), Some(vec![1]));
        assert_eq!(node_mask("0-2,4"), Some(vec![0b1_0111]));
        assert_eq!(node_mask("64, 1"), Some(vec![2, 1]));
        for wrong in ["a", "2-1", "1024", "0-", "-1", "0,,1", "0-99999999999999999999"] {
            assert_eq!(node_mask(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cpu = |json: &str| cpu_attributes(&parsed(json)).map(drop).unwrap_err().to_string();
        assert!(cpu(r#"{"policy": "SCHED_OTHER", "nice": 20}"#).contains("process.scheduler.nice"));
        assert!(cpu(r#"{"policy": "SCHED_FIFO"}"#).contains("process.scheduler.priority"));
        assert!(cpu(r#"{"policy": "SCHED_OTHER", "priority": 4}"#).contains("process.scheduler.priority"));
        assert!(cpu(r#"{"policy": "SCHED_ISO"}"#).contains("SCHED_ISO"));
        assert!(cpu(r#"{"policy": "SCHED_BATCH", "runtime": 4}"#).contains("SCHED_DEADLINE"));
        let memory = |json: &str| memory_policy(&parsed(json)).map(drop).unwrap_err().to_string();
        assert!(memory(r#"{"mode": "MPOL_BIND"}"#).contains("at least one"));
        assert!(memory(r#"{"mode": "MPOL_LOCAL", "nodes": "0"}"#).contains("take none"));
        assert!(memory(r#"{"mode": "MPOL_BIND", "nodes": "x"}"#).contains("linux.memoryPolicy.nodes"));
        let io = io_priority(&parsed(r#"{"class": "IOPRIO_CLASS_BE", "priority": 8}"#)).unwrap_err();
        assert!(io.to_string().contains("0 to 7"), "{io}");
        assert_eq!(
            io_priority(&parsed(r#"{"class": "IOPRIO_CLASS_BE", "priority": 6}"#)).unwrap(),
            2 << 13 | 6
        );
        assert!(own_io_priority().is_ok());
    }
}
