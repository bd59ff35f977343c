//! Carries out a [`Plan`].
//!
//! Owns: the order in which the kernel takes dependent values, and turning its refusals into errors that name the field,
//! the value and the file. Never: decides what is valid.

use oci_spec::runtime::LinuxResources;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;

use super::Cgroup;
use crate::devices::{self, ExceptionList, Rules};
use crate::error::{CgroupError, Warning};
use crate::hierarchy::{Node, Version, keyed_number};
use crate::layout::HierarchyId;
use crate::limits::{Limit, UsageCheck};
use crate::plan::{Absent, Plan, Setting, Step};
use crate::v1;

/// How often the processes of a running group are moved into a hierarchy that it joins late. Once is enough unless they
/// fork at that moment.
const JOIN_ROUNDS_MAX: usize = 8;

pub(super) fn apply(group: &Cgroup, resources: &LinuxResources) -> Result<Vec<Warning>, CgroupError> {
    let plan = Plan::new(group.layout(), resources)?;
    if !group.exists()? {
        return Err(CgroupError::NotFound { path: group.path().clone() });
    }
    let mut warnings = plan.warnings;
    let joined = group.provide(plan.needs)?;
    for step in &plan.steps {
        carry_out(group, step, &mut warnings)?;
    }
    move_in(group, &joined)?;
    Ok(warnings)
}

fn carry_out(group: &Cgroup, step: &Step, warnings: &mut Vec<Warning>) -> Result<(), CgroupError> {
    match step {
        Step::Write(setting) => write(group, setting, warnings),
        Step::Interdependent(settings) => write_in_some_order(group, settings, warnings),
        Step::FirstPresent(settings) => write_first_present(group, settings, warnings),
        Step::MemoryLimitV1(setting) => write_memory_limit_v1(group, setting, warnings),
        Step::MemoryMaxV2 { setting, limit, check } => {
            check_usage_v2(group.node(setting.hierarchy), setting, *limit, *check)?;
            write(group, setting, warnings)
        }
        Step::CpuPeriodV2(setting) => write_period_v2(group, setting),
        Step::DevicesV1 { hierarchy, list } => write_devices_v1(group.node(*hierarchy), list),
        Step::DevicesV2 { hierarchy, rules } => attach_devices_v2(group, *hierarchy, rules),
    }
}

/// Processes that were there before the group had a part in a hierarchy. A child that is forked while we list is caught by
/// the next round.
fn move_in(group: &Cgroup, joined: &[HierarchyId]) -> Result<(), CgroupError> {
    if joined.is_empty() {
        return Ok(());
    }
    let mut moved = std::collections::HashSet::new();
    for _ in 0..JOIN_ROUNDS_MAX {
        let new: Vec<_> = group.pids()?.difference(&moved).copied().collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            for id in joined {
                match group.join(*id, pid) {
                    Ok(_) | Err(CgroupError::Io { source: Errno::SRCH, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            moved.insert(pid);
        }
    }
    Ok(())
}

fn try_write(node: Node<'_>, setting: &Setting) -> Result<(), Errno> {
    node.write_each(&setting.file, setting.value.lines())
}

fn write(group: &Cgroup, setting: &Setting, warnings: &mut Vec<Warning>) -> Result<(), CgroupError> {
    let node = group.node(setting.hierarchy);
    try_write(node, setting).or_else(|errno| refusal(node, setting, errno, warnings))
}

/// Writes what the kernel takes, and tries again with what it called invalid, as long as each round gets further.
fn write_in_some_order(
    group: &Cgroup,
    settings: &[Setting],
    warnings: &mut Vec<Warning>,
) -> Result<(), CgroupError> {
    let mut waiting: Vec<&Setting> = settings.iter().collect();
    loop {
        let before = waiting.len();
        let mut refused = Vec::new();
        for setting in waiting {
            let node = group.node(setting.hierarchy);
            match try_write(node, setting) {
                Ok(()) => {}
                Err(Errno::INVAL) => refused.push(setting),
                Err(errno) => refusal(node, setting, errno, warnings)?,
            }
        }
        match refused.first() {
            None => return Ok(()),
            Some(first) if refused.len() == before => {
                return refusal(group.node(first.hierarchy), first, Errno::INVAL, warnings);
            }
            Some(_) => waiting = refused,
        }
    }
}

fn write_first_present(
    group: &Cgroup,
    settings: &[Setting],
    warnings: &mut Vec<Warning>,
) -> Result<(), CgroupError> {
    let Some((last, others)) = settings.split_last() else { return Ok(()) };
    for setting in others {
        let node = group.node(setting.hierarchy);
        match try_write(node, setting) {
            Err(Errno::NOENT) => {}
            Ok(()) => return Ok(()),
            Err(errno) => return refusal(node, setting, errno, warnings),
        }
    }
    write(group, last, warnings)
}

/// EINVAL says that a limit of memory and swap is in force and lower: it is raised first, so that as much swap as before
/// stays allowed.
fn write_memory_limit_v1(
    group: &Cgroup,
    setting: &Setting,
    warnings: &mut Vec<Warning>,
) -> Result<(), CgroupError> {
    let node = group.node(setting.hierarchy);
    match try_write(node, setting) {
        Err(Errno::INVAL) => {}
        Ok(()) => return Ok(()),
        Err(errno) => return refusal(node, setting, errno, warnings),
    }
    let read = |file| node.read_number(file).map_err(|errno| CgroupError::io("read", node.file(file), errno));
    let (memory, both) = (read(v1::LIMIT_FILE)?, read(v1::MEMORY_AND_SWAP_FILE)?);
    let raised = match setting.value.parse::<u64>() {
        Ok(limit) => limit.saturating_add(both.unwrap_or(0).saturating_sub(memory.unwrap_or(0))).to_string(),
        Err(_) => setting.value.clone(),
    };
    let swap = Setting::new(
        setting.field.clone(),
        setting.hierarchy,
        v1::MEMORY_AND_SWAP_FILE,
        raised,
        setting.expected,
    );
    write(group, &swap, warnings)?;
    write(group, setting, warnings)
}

/// The kernel takes any `memory.max` and kills until it fits, so an update that would kill is refused here.
fn check_usage_v2(
    node: Node<'_>,
    setting: &Setting,
    limit: Limit,
    check: UsageCheck,
) -> Result<(), CgroupError> {
    let Limit::To(limit) = limit else { return Ok(()) };
    let io = |file: &str, errno| CgroupError::io("read", node.file(file), errno);
    let used = node.read_number("memory.current").map_err(|errno| io("memory.current", errno))?.unwrap_or(0);
    if used <= limit {
        return Ok(());
    }
    let usage = match check {
        UsageCheck::Strict => used,
        UsageCheck::Reclaimable => {
            let stat = node.read("memory.stat").map_err(|errno| io("memory.stat", errno))?;
            let reclaimable = ["inactive_file", "active_file", "slab_reclaimable"];
            let reclaimable: u64 = reclaimable.iter().filter_map(|key| keyed_number(&stat, key)).sum();
            used.saturating_sub(reclaimable)
        }
    };
    if usage <= limit {
        return Ok(());
    }
    Err(CgroupError::MemoryBelowUsage { field: setting.field.clone(), limit, usage })
}

fn write_period_v2(group: &Cgroup, setting: &Setting) -> Result<(), CgroupError> {
    let node = group.node(setting.hierarchy);
    let file = setting.file.as_ref();
    let current = node.read(file).map_err(|errno| CgroupError::io("read", node.file(file), errno))?;
    let quota = current.split_whitespace().next().unwrap_or("max");
    let value = format!("{quota} {}", setting.value);
    node.write(file, &value).or_else(|errno| refusal(node, setting, errno, &mut Vec::new()))
}

fn write_devices_v1(node: Node<'_>, list: &ExceptionList) -> Result<(), CgroupError> {
    let (all, except) = list.files();
    let refused = |file: &'static str, value: String| {
        move |source| CgroupError::Refused {
            field: "linux.resources.devices".into(),
            value,
            file: node.file(file),
            expected: "rules within those of the group above",
            source,
        }
    };
    match node.write(all, "a") {
        Ok(()) => {}
        // "Allow all" for a group that has no part in the hierarchy, and so allows all.
        Err(Errno::NOENT) if list.exceptions.is_empty() => return Ok(()),
        Err(errno) => return Err(refused(all, "a".to_owned())(errno)),
    }
    if list.exceptions.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = list.lines().collect();
    node.write_each(except, lines.iter().map(String::as_str)).map_err(refused(except, lines.join(", ")))
}

fn attach_devices_v2(group: &Cgroup, hierarchy: HierarchyId, rules: &Rules) -> Result<(), CgroupError> {
    let node = group.node(hierarchy);
    let dir = node.open(OFlags::RDONLY).map_err(|errno| CgroupError::io("open", node.dir(), errno))?;
    let program = rules.restricts().then(|| rules.program());
    devices::attach_program(dir.as_fd(), &node.dir(), program.as_deref())
}

/// What the kernel's answer means for this setting.
fn refusal(
    node: Node<'_>,
    setting: &Setting,
    errno: Errno,
    warnings: &mut Vec<Warning>,
) -> Result<(), CgroupError> {
    let (field, value, file) = (setting.field.clone(), setting.value.clone(), node.file(&setting.file));
    let expected = setting.expected;
    match (errno, setting.absent) {
        (Errno::NOENT, Absent::Skip) => Ok(()),
        (Errno::NOENT, Absent::Warn(reason)) => {
            warnings.push(Warning { field, value, reason });
            Ok(())
        }
        (Errno::NOENT, Absent::Refuse) => Err(CgroupError::FileMissing { field, value, file, expected }),
        (Errno::BUSY, _)
            if node.hierarchy.version == Version::V1 && setting.file.ends_with("limit_in_bytes") =>
        {
            let limit = value.parse().unwrap_or(0);
            let usage = node.read_number(v1::USAGE_FILE).ok().flatten().unwrap_or(0);
            Err(CgroupError::MemoryBelowUsage { field, limit, usage })
        }
        (source, _) => Err(CgroupError::Refused { field, value, file, expected, source }),
    }
}
