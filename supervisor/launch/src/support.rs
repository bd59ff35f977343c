//! What a spec may ask for that this launcher does not do: refused by name, before anything is made.
//!
//! Security modules are the exception for now: a profile that is not applied is a warning, as the machine may have no such
//! module.

use oci_spec::runtime::{Process, Spec};

use crate::error::{Result, unsupported};

/// Refuses parts of the spec that are not implemented.
pub(crate) fn check_spec(spec: &Spec) -> Result<()> {
    if let Some(hooks) = spec.hooks() {
        let in_child =
            hooks.create_container().iter().chain(hooks.start_container()).any(|list| !list.is_empty());
        if in_child {
            return Err(unsupported("hooks", "a createContainer or startContainer hook"));
        }
    }
    let Some(linux) = spec.linux() else {
        return Ok(());
    };
    for (field, is_set) in [
        ("linux.netDevices", linux.net_devices().as_ref().is_some_and(|devices| !devices.is_empty())),
        ("linux.memoryPolicy", linux.memory_policy().is_some()),
        ("linux.intelRdt", linux.intel_rdt().is_some()),
        ("linux.timeOffsets", linux.time_offsets().as_ref().is_some_and(|offsets| !offsets.is_empty())),
    ] {
        if is_set {
            return Err(unsupported(field, "it"));
        }
    }
    Ok(())
}

/// Refuses parts of a process that are not implemented, and warns of profiles that are not applied.
pub(crate) fn check_process(process: &Process, warnings: &mut Vec<String>) -> Result<()> {
    for (field, is_set) in [
        ("process.scheduler", process.scheduler().is_some()),
        ("process.ioPriority", process.io_priority().is_some()),
        ("process.execCPUAffinity", process.exec_cpu_affinity().is_some()),
    ] {
        if is_set {
            return Err(unsupported(field, "it"));
        }
    }
    for (field, profile) in [
        ("process.apparmorProfile", process.apparmor_profile()),
        ("process.selinuxLabel", process.selinux_label()),
    ] {
        if let Some(profile) = profile.as_deref().filter(|profile| !matches!(*profile, "" | "unconfined")) {
            warnings.push(format!("{field}: {profile:?} is not applied by the built-in launcher"));
        }
    }
    Ok(())
}
