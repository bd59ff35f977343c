//! Merging limits, of a container that is being created and of one that runs.

use mainstay_nri_api::{Field, LinuxResources, MessageField};

use super::error::AdjustError;
use super::owners::Claims;

/// Merges one plugin's limits into each of `targets`.
pub(super) fn merge(
    claims: &mut Claims<'_>,
    change: &LinuxResources,
    targets: &mut [&mut LinuxResources],
) -> Result<(), AdjustError> {
    macro_rules! take {
        ($part:ident: $($name:ident => $field:ident),+ $(,)?) => { $(
            if let Some(value) = change.$part.as_ref().and_then(|part| part.$name.as_ref()) {
                claims.claim(Field::$field, None)?;
                for target in targets.iter_mut() {
                    target.$part.mut_or_insert_default().$name = MessageField::some(value.clone());
                }
            }
        )+ };
    }
    take!(memory:
        limit => MemLimit,
        reservation => MemReservation,
        swap => MemSwapLimit,
        kernel => MemKernelLimit,
        kernel_tcp => MemTCPLimit,
        swappiness => MemSwappiness,
        disable_oom_killer => MemDisableOomKiller,
        use_hierarchy => MemUseHierarchy,
    );
    take!(cpu:
        shares => CPUShares,
        quota => CPUQuota,
        period => CPUPeriod,
        realtime_runtime => CPURealtimeRuntime,
        realtime_period => CPURealtimePeriod,
    );
    macro_rules! take_list {
        ($name:ident => $field:ident) => {
            if let Some(list) = change.cpu.as_ref().map(|cpu| &cpu.$name).filter(|list| !list.is_empty()) {
                claims.claim(Field::$field, None)?;
                for target in targets.iter_mut() {
                    target.cpu.mut_or_insert_default().$name.clone_from(list);
                }
            }
        };
    }
    take_list!(cpus => CPUSetCPUs);
    take_list!(mems => CPUSetMems);
    merge_rest(claims, change, targets)
}

fn merge_rest(
    claims: &mut Claims<'_>,
    change: &LinuxResources,
    targets: &mut [&mut LinuxResources],
) -> Result<(), AdjustError> {
    for limit in &change.hugepage_limits {
        claims.claim(Field::HugepageLimits, Some(&limit.page_size))?;
        for target in targets.iter_mut() {
            target.hugepage_limits.retain(|other| other.page_size != limit.page_size);
            target.hugepage_limits.push(limit.clone());
        }
    }
    let mut unified: Vec<_> = change.unified.iter().collect();
    unified.sort();
    for (file, value) in unified {
        claims.claim(Field::CgroupsUnified, Some(file))?;
        for target in targets.iter_mut() {
            target.unified.insert(file.clone(), value.clone());
        }
    }
    macro_rules! take {
        ($name:ident => $field:ident) => {
            if let Some(value) = change.$name.as_ref() {
                claims.claim(Field::$field, None)?;
                for target in targets.iter_mut() {
                    target.$name = MessageField::some(value.clone());
                }
            }
        };
    }
    take!(blockio_class => BlockioClass);
    take!(rdt_class => RdtClass);
    take!(pids => PidsLimit);
    for target in targets.iter_mut() {
        target.devices.extend(change.devices.iter().cloned());
    }
    Ok(())
}
