//! What concerns the process of a container: scheduling, memory policy, and the system call filter.

use mainstay_messages::adjustment::{IoPriority, MemoryPolicy, Scheduler};
use mainstay_messages::spec::SECCOMP_PROFILE_LENGTH_MAX;
use mainstay_nri_api::{
    EnumOrUnknown, IOPrioClass, LinuxIOPriority, LinuxMemoryPolicy, LinuxScheduler, LinuxSchedulerFlag,
    LinuxSchedulerPolicy, LinuxSeccomp, LinuxSyscall, MpolFlag, MpolMode,
};
use serde_json::{Map, Value, json};

use super::{Result, check_list_of_numbers};
use crate::adjust::error::Fault;

/// A value of an enumeration that this runtime knows.
fn known<E: mainstay_nri_api::Enum>(field: &str, value: EnumOrUnknown<E>) -> Result<E> {
    value
        .enum_value()
        .map_err(|number| Fault::invalid(field, number.to_string(), "a value that NRI 0.12 has"))
}

/// None where the plugin asks for none.
pub(super) fn io_priority(priority: &LinuxIOPriority) -> Result<Option<IoPriority>> {
    let class = match known("linux.io_priority.class", priority.class)? {
        IOPrioClass::IOPRIO_CLASS_NONE => return Ok(None),
        IOPrioClass::IOPRIO_CLASS_RT => "IOPRIO_CLASS_RT",
        IOPrioClass::IOPRIO_CLASS_BE => "IOPRIO_CLASS_BE",
        IOPrioClass::IOPRIO_CLASS_IDLE => "IOPRIO_CLASS_IDLE",
    };
    if !(0..=7).contains(&priority.priority) {
        let value = priority.priority.to_string();
        return Err(Fault::invalid("linux.io_priority.priority", value, "a number from 0 to 7"));
    }
    Ok(Some(IoPriority { class: class.to_owned(), priority: priority.priority }))
}

/// None where the plugin asks for none.
pub(super) fn scheduler(scheduler: &LinuxScheduler) -> Result<Option<Scheduler>> {
    use LinuxSchedulerPolicy as Policy;
    let field = |name: &str| format!("linux.scheduler.{name}");
    let policy = match known("linux.scheduler.policy", scheduler.policy)? {
        Policy::SCHED_NONE => return Ok(None),
        Policy::SCHED_OTHER => "SCHED_OTHER",
        Policy::SCHED_FIFO => "SCHED_FIFO",
        Policy::SCHED_RR => "SCHED_RR",
        Policy::SCHED_BATCH => "SCHED_BATCH",
        Policy::SCHED_ISO => {
            return Err(Fault::unsupported(field("policy"), "no kernel has SCHED_ISO"));
        }
        Policy::SCHED_IDLE => "SCHED_IDLE",
        Policy::SCHED_DEADLINE => "SCHED_DEADLINE",
    };
    let flag = |flag: &EnumOrUnknown<LinuxSchedulerFlag>| {
        let name = match known("linux.scheduler.flags", *flag)? {
            LinuxSchedulerFlag::SCHED_FLAG_RESET_ON_FORK => "SCHED_FLAG_RESET_ON_FORK",
            LinuxSchedulerFlag::SCHED_FLAG_RECLAIM => "SCHED_FLAG_RECLAIM",
            LinuxSchedulerFlag::SCHED_FLAG_DL_OVERRUN => "SCHED_FLAG_DL_OVERRUN",
            LinuxSchedulerFlag::SCHED_FLAG_KEEP_POLICY => "SCHED_FLAG_KEEP_POLICY",
            LinuxSchedulerFlag::SCHED_FLAG_KEEP_PARAMS => "SCHED_FLAG_KEEP_PARAMS",
            LinuxSchedulerFlag::SCHED_FLAG_UTIL_CLAMP_MIN | LinuxSchedulerFlag::SCHED_FLAG_UTIL_CLAMP_MAX => {
                let reason = "NRI has no value to go with a utilization clamp";
                return Err(Fault::unsupported(field("flags"), reason));
            }
        };
        Ok(name.to_owned())
    };
    let LinuxScheduler { nice, priority, runtime, deadline, period, .. } = *scheduler;
    if !(-20..=19).contains(&nice) {
        return Err(Fault::invalid(field("nice"), nice.to_string(), "a number from -20 to 19"));
    }
    let is_real_time = matches!(policy, "SCHED_FIFO" | "SCHED_RR");
    if is_real_time != (1..=99).contains(&priority) {
        let expected = "a number from 1 to 99 with SCHED_FIFO and SCHED_RR, and 0 with any other";
        return Err(Fault::invalid(field("priority"), priority.to_string(), expected));
    }
    Ok(Some(Scheduler {
        policy: policy.to_owned(),
        nice,
        priority,
        flags: scheduler.flags.iter().map(flag).collect::<Result<_>>()?,
        runtime,
        deadline,
        period,
    }))
}

pub(super) fn memory_policy(policy: &LinuxMemoryPolicy) -> Result<MemoryPolicy> {
    let mode = match known("linux.memory_policy.mode", policy.mode)? {
        MpolMode::MPOL_DEFAULT => "MPOL_DEFAULT",
        MpolMode::MPOL_PREFERRED => "MPOL_PREFERRED",
        MpolMode::MPOL_BIND => "MPOL_BIND",
        MpolMode::MPOL_INTERLEAVE => "MPOL_INTERLEAVE",
        MpolMode::MPOL_LOCAL => "MPOL_LOCAL",
        MpolMode::MPOL_PREFERRED_MANY => "MPOL_PREFERRED_MANY",
        MpolMode::MPOL_WEIGHTED_INTERLEAVE => "MPOL_WEIGHTED_INTERLEAVE",
    };
    let flag = |flag: &EnumOrUnknown<MpolFlag>| {
        let name = match known("linux.memory_policy.flags", *flag)? {
            MpolFlag::MPOL_F_STATIC_NODES => "MPOL_F_STATIC_NODES",
            MpolFlag::MPOL_F_RELATIVE_NODES => "MPOL_F_RELATIVE_NODES",
            MpolFlag::MPOL_F_NUMA_BALANCING => "MPOL_F_NUMA_BALANCING",
        };
        Ok(name.to_owned())
    };
    check_list_of_numbers("linux.memory_policy.nodes", &policy.nodes)?;
    Ok(MemoryPolicy {
        mode: mode.to_owned(),
        nodes: policy.nodes.clone(),
        flags: policy.flags.iter().map(flag).collect::<Result<_>>()?,
    })
}

/// The filter as JSON of OCI's `linux.seccomp`; whether it is one is found out where the container is made.
pub(super) fn seccomp(policy: &LinuxSeccomp) -> Result<String> {
    if !policy.listener_path.is_empty() {
        let reason = "the runtime passes no system calls on to a listener";
        return Err(Fault::unsupported("linux.seccomp_policy.listener_path", reason));
    }
    let mut profile = Map::new();
    profile.insert("defaultAction".to_owned(), json!(policy.default_action));
    if let Some(errno) = policy.default_errno.as_ref() {
        profile.insert("defaultErrnoRet".to_owned(), json!(errno.value));
    }
    if !policy.architectures.is_empty() {
        profile.insert("architectures".to_owned(), json!(policy.architectures));
    }
    if !policy.flags.is_empty() {
        profile.insert("flags".to_owned(), json!(policy.flags));
    }
    profile.insert("syscalls".to_owned(), policy.syscalls.iter().map(syscall).collect());
    let text = Value::Object(profile).to_string();
    if text.len() > SECCOMP_PROFILE_LENGTH_MAX {
        let expected = format!("at most {SECCOMP_PROFILE_LENGTH_MAX} bytes");
        return Err(Fault::invalid(
            "linux.seccomp_policy",
            format!("{} bytes as JSON", text.len()),
            expected,
        ));
    }
    Ok(text)
}

fn syscall(rule: &LinuxSyscall) -> Value {
    let mut entry = Map::new();
    entry.insert("names".to_owned(), json!(rule.names));
    entry.insert("action".to_owned(), json!(rule.action));
    if let Some(errno) = rule.errno_ret.as_ref() {
        entry.insert("errnoRet".to_owned(), json!(errno.value));
    }
    let args = rule.args.iter().map(|argument| {
        json!({ "index": argument.index, "value": argument.value, "valueTwo": argument.value_two, "op": argument.op })
    });
    entry.insert("args".to_owned(), args.collect());
    Value::Object(entry)
}
