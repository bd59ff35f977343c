//! Capability sets: from the names of the spec to the kernel's, and onto this process.
//!
//! Names are checked when the spec is read (an unknown one does not parse). A capability that the launcher itself lacks
//! cannot be given; it is left out and named in a warning.

use std::collections::HashSet;

use oci_spec::runtime::{Capability, LinuxCapabilities};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

use crate::error::{Context, Result, Step};

/// The sets of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    bounding: CapabilitySet,
    effective: CapabilitySet,
    permitted: CapabilitySet,
    inheritable: CapabilitySet,
    ambient: CapabilitySet,
}

impl Sets {
    /// The sets of the spec, as far as this process can give them. A spec without capabilities gives none.
    pub(crate) fn of(spec: Option<&LinuxCapabilities>, warnings: &mut Vec<String>) -> Result<Sets> {
        let own = capabilities(None)
            .context(Step::Capabilities, || "reading the launcher's own".to_owned())?
            .permitted;
        let none = HashSet::new();
        let mut missing = CapabilitySet::empty();
        let mut take = |wanted: Option<&Option<HashSet<Capability>>>| {
            let wanted = set_of(wanted.and_then(Option::as_ref).unwrap_or(&none));
            missing |= wanted - own;
            wanted & own
        };
        let bounding = take(spec.map(LinuxCapabilities::bounding));
        let permitted = take(spec.map(LinuxCapabilities::permitted));
        let effective = take(spec.map(LinuxCapabilities::effective)) & permitted;
        let inheritable = take(spec.map(LinuxCapabilities::inheritable));
        let ambient = take(spec.map(LinuxCapabilities::ambient)) & permitted & inheritable;
        if !missing.is_empty() {
            warnings.push(format!(
                "process.capabilities: left out, for the runtime itself lacks them: {}",
                names(missing)
            ));
        }
        Ok(Sets { bounding, effective, permitted, inheritable, ambient })
    }

    /// Takes everything that is not in the bounding set away from this process and all that it will execute.
    pub(crate) fn limit_bounding(&self) -> Result<()> {
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if self.bounding.contains(capability) {
                continue;
            }
            match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                // Beyond the last capability that this kernel knows.
                Err(Errno::INVAL) => break,
                Err(error) => {
                    return Err(error)
                        .context(Step::Capabilities, || format!("dropping {}", names(capability)));
                }
            }
        }
        Ok(())
    }

    /// Sets all but the bounding set. `also` stays permitted and effective until [`Sets::finish`].
    pub(crate) fn apply(&self, also: CapabilitySet) -> Result<()> {
        self.set(also)?;
        clear_ambient_capability_set()
            .context(Step::Capabilities, || "clearing the ambient set".to_owned())?;
        for capability in self.ambient.iter() {
            configure_capability_in_ambient_set(capability, true)
                .context(Step::Capabilities, || format!("making {} ambient", names(capability)))?;
        }
        Ok(())
    }

    /// Gives up what was kept beyond the spec.
    pub(crate) fn finish(&self) -> Result<()> {
        self.set(CapabilitySet::empty())
    }

    fn set(&self, also: CapabilitySet) -> Result<()> {
        let sets = CapabilitySets {
            effective: self.effective | also,
            permitted: self.permitted | also,
            inheritable: self.inheritable,
        };
        set_capabilities(None, sets)
            .context(Step::Capabilities, || format!("permitting {}", names(sets.permitted)))
    }
}

/// Drops every capability, for good.
pub(crate) fn drop_all() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn set_of(capabilities: &HashSet<Capability>) -> CapabilitySet {
    capabilities.iter().map(|capability| bit(*capability)).collect()
}

fn names(set: CapabilitySet) -> String {
    let names: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn bit(capability: Capability) -> CapabilitySet {
    match capability {
        Capability::AuditControl => CapabilitySet::AUDIT_CONTROL,
        Capability::AuditRead => CapabilitySet::AUDIT_READ,
        Capability::AuditWrite => CapabilitySet::AUDIT_WRITE,
        Capability::BlockSuspend => CapabilitySet::BLOCK_SUSPEND,
        Capability::Bpf => CapabilitySet::BPF,
        Capability::CheckpointRestore => CapabilitySet::CHECKPOINT_RESTORE,
        Capability::Chown => CapabilitySet::CHOWN,
        Capability::DacOverride => CapabilitySet::DAC_OVERRIDE,
        Capability::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
        Capability::Fowner => CapabilitySet::FOWNER,
        Capability::Fsetid => CapabilitySet::FSETID,
        Capability::IpcLock => CapabilitySet::IPC_LOCK,
        Capability::IpcOwner => CapabilitySet::IPC_OWNER,
        Capability::Kill => CapabilitySet::KILL,
        Capability::Lease => CapabilitySet::LEASE,
        Capability::LinuxImmutable => CapabilitySet::LINUX_IMMUTABLE,
        Capability::MacAdmin => CapabilitySet::MAC_ADMIN,
        Capability::MacOverride => CapabilitySet::MAC_OVERRIDE,
        Capability::Mknod => CapabilitySet::MKNOD,
        Capability::NetAdmin => CapabilitySet::NET_ADMIN,
        Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
        Capability::NetBroadcast => CapabilitySet::NET_BROADCAST,
        Capability::NetRaw => CapabilitySet::NET_RAW,
        Capability::Perfmon => CapabilitySet::PERFMON,
        Capability::Setgid => CapabilitySet::SETGID,
        Capability::Setfcap => CapabilitySet::SETFCAP,
        Capability::Setpcap => CapabilitySet::SETPCAP,
        Capability::Setuid => CapabilitySet::SETUID,
        Capability::SysAdmin => CapabilitySet::SYS_ADMIN,
        Capability::SysBoot => CapabilitySet::SYS_BOOT,
        Capability::SysChroot => CapabilitySet::SYS_CHROOT,
        Capability::SysModule => CapabilitySet::SYS_MODULE,
        Capability::SysNice => CapabilitySet::SYS_NICE,
        Capability::SysPacct => CapabilitySet::SYS_PACCT,
        Capability::SysPtrace => CapabilitySet::SYS_PTRACE,
        Capability::SysRawio => CapabilitySet::SYS_RAWIO,
        Capability::SysResource => CapabilitySet::SYS_RESOURCE,
        Capability::SysTime => CapabilitySet::SYS_TIME,
        Capability::SysTtyConfig => CapabilitySet::SYS_TTY_CONFIG,
        Capability::Syslog => CapabilitySet::SYSLOG,
        Capability::WakeAlarm => CapabilitySet::WAKE_ALARM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        assert_eq!(names(bit(Capability::SysAdmin) | bit(Capability::Chown)), "CAP_CHOWN, CAP_SYS_ADMIN");
        assert_eq!(names(CapabilitySet::empty()), "none");
        assert_eq!(bit(Capability::CheckpointRestore).bits(), 1 << 40);
    }
}
