//! What plugins have changed that is of each process of a container, of its first one and of execs.

use mainstay_messages::adjustment::{Adjustment, IoPriority, MemoryPolicy, Scheduler};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{
    IOPriorityClass, LinuxIOPriority, LinuxIOPriorityBuilder, LinuxMemoryPolicy, LinuxSchedulerFlag,
    LinuxSchedulerPolicy, MemoryPolicyFlagType, MemoryPolicyModeType, Process, Scheduler as OciScheduler,
};

use crate::host::HostFacts;
use crate::oci::process::{oom_score, rlimits};
use crate::settings::OomScorePolicy;

/// Limits, score and priorities.
pub(in crate::oci) fn adjust(
    process: &mut Process,
    adjustment: &Adjustment,
    host: &HostFacts,
    policy: OomScorePolicy,
) -> Result<()> {
    if !adjustment.rlimits.is_empty() {
        let changed = rlimits(&adjustment.rlimits, host)?;
        let mut all = process.rlimits().clone().unwrap_or_default();
        all.retain(|limit| !changed.iter().any(|other| other.typ() == limit.typ()));
        all.extend(changed);
        process.set_rlimits(Some(all));
    }
    if let Some(score) = adjustment.oom_score_adj {
        process.set_oom_score_adj(Some(oom_score(Some(score), host.oom_score_floor, policy)?));
    }
    if let Some(priority) = &adjustment.io_priority {
        process.set_io_priority(Some(io_priority(priority)?));
    }
    if let Some(wanted) = &adjustment.scheduler {
        process.set_scheduler(Some(scheduler(wanted)?));
    }
    Ok(())
}

/// An environment with changes: what is replaced keeps its place, and what is new comes at the end.
pub(in crate::oci) fn environment(own: &[String], changes: &[(String, Option<String>)]) -> Vec<String> {
    let name = |entry: &String| entry.split_once('=').map_or(entry.clone(), |(name, _)| name.to_owned());
    let change = |wanted: &String| changes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let kept = own.iter().filter_map(|entry| {
        let name = name(entry);
        match change(&name) {
            None => Some(entry.clone()),
            Some(value) => value.as_ref().map(|value| format!("{name}={value}")),
        }
    });
    let is_new = |wanted: &String| !own.iter().any(|entry| name(entry) == *wanted);
    let added = changes.iter().filter(|(name, _)| is_new(name));
    let added = added.filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    kept.chain(added).collect()
}

fn unknown(field: &str, value: &str) -> Error {
    Error::invalid(field, format!("{value:?}"), "a name of the OCI runtime specification")
}

fn io_priority(wanted: &IoPriority) -> Result<LinuxIOPriority> {
    let class = match wanted.class.as_str() {
        "IOPRIO_CLASS_RT" => IOPriorityClass::IoprioClassRt,
        "IOPRIO_CLASS_BE" => IOPriorityClass::IoprioClassBe,
        "IOPRIO_CLASS_IDLE" => IOPriorityClass::IoprioClassIdle,
        other => return Err(unknown("linux.io_priority.class", other)),
    };
    let built = LinuxIOPriorityBuilder::default().class(class).priority(i64::from(wanted.priority)).build();
    // Building fails only where a field is missing.
    Ok(built.expect("both fields are given"))
}

fn scheduler(wanted: &Scheduler) -> Result<OciScheduler> {
    let policy = match wanted.policy.as_str() {
        "SCHED_OTHER" => LinuxSchedulerPolicy::SchedOther,
        "SCHED_FIFO" => LinuxSchedulerPolicy::SchedFifo,
        "SCHED_RR" => LinuxSchedulerPolicy::SchedRr,
        "SCHED_BATCH" => LinuxSchedulerPolicy::SchedBatch,
        "SCHED_IDLE" => LinuxSchedulerPolicy::SchedIdle,
        "SCHED_DEADLINE" => LinuxSchedulerPolicy::SchedDeadline,
        other => return Err(unknown("linux.scheduler.policy", other)),
    };
    let flags = wanted.flags.iter().map(|flag| match flag.as_str() {
        "SCHED_FLAG_RESET_ON_FORK" => Ok(LinuxSchedulerFlag::SchedResetOnFork),
        "SCHED_FLAG_RECLAIM" => Ok(LinuxSchedulerFlag::SchedFlagReclaim),
        "SCHED_FLAG_DL_OVERRUN" => Ok(LinuxSchedulerFlag::SchedFlagDLOverrun),
        "SCHED_FLAG_KEEP_POLICY" => Ok(LinuxSchedulerFlag::SchedFlagKeepPolicy),
        "SCHED_FLAG_KEEP_PARAMS" => Ok(LinuxSchedulerFlag::SchedFlagKeepParams),
        other => Err(unknown("linux.scheduler.flags", other)),
    });
    let given = |value: u64| (value != 0).then_some(value);
    let mut scheduler = OciScheduler::default();
    scheduler
        .set_policy(policy)
        .set_nice(Some(wanted.nice))
        .set_priority(Some(wanted.priority))
        .set_flags(Some(flags.collect::<Result<_>>()?))
        .set_runtime(given(wanted.runtime))
        .set_deadline(given(wanted.deadline))
        .set_period(given(wanted.period));
    Ok(scheduler)
}

pub(super) fn memory_policy(wanted: &MemoryPolicy) -> Result<LinuxMemoryPolicy> {
    let mode = MemoryPolicyModeType::try_from(wanted.mode.as_str())
        .map_err(|_| unknown("linux.memory_policy.mode", &wanted.mode))?;
    let flags = wanted.flags.iter().map(|flag| {
        MemoryPolicyFlagType::try_from(flag.as_str()).map_err(|_| unknown("linux.memory_policy.flags", flag))
    });
    let flags = flags.collect::<Result<Vec<_>>>()?;
    let mut policy = LinuxMemoryPolicy::default();
    policy
        .set_mode(mode)
        .set_nodes((!wanted.nodes.is_empty()).then(|| wanted.nodes.clone()))
        .set_flags((!flags.is_empty()).then_some(flags));
    Ok(policy)
}
