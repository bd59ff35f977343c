//! What a spec may ask for that this launcher does not do: refused by name, before anything is made.

use oci_spec::runtime::{Process, Spec};

use crate::error::{Result, unsupported};
use crate::hooks::check_hooks;
use crate::net_devices::check_net_devices;

/// Refuses parts of the spec that are not implemented.
pub(crate) fn check_spec(spec: &Spec) -> Result<()> {
    check_hooks(spec)?;
    check_net_devices(spec)?;
    let Some(linux) = spec.linux() else {
        return Ok(());
    };
    for (field, is_set) in [
        ("linux.intelRdt", linux.intel_rdt().is_some()),
        ("linux.timeOffsets", linux.time_offsets().as_ref().is_some_and(|offsets| !offsets.is_empty())),
    ] {
        if is_set {
            return Err(unsupported(field, "it"));
        }
    }
    Ok(())
}

/// Refuses parts of a process that are not implemented.
pub(crate) fn check_process(process: &Process) -> Result<()> {
    if process.exec_cpu_affinity().is_some() {
        return Err(unsupported("process.execCPUAffinity", "it"));
    }
    Ok(())
}
