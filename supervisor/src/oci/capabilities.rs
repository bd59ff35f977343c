//! Which capabilities a container has.
//!
//! Owns: the default set, and how additions and removals change it. Never: gives what the host has not.

use mainstay_messages::spec::{Privilege, Security};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities};

/// All capabilities, each at the place of its number (linux/capability.h).
const BY_NUMBER: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// What a confined container has when its spec says nothing: enough for usual servers and package managers, and the
/// set that images expect because the other runtimes give it.
pub const DEFAULT: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// An entry of the two lists.
enum Named {
    All,
    One(Capability),
}

/// The set in a mask as `/proc/PID/status` shows it. Bits that this program knows no name for are left out.
pub fn from_mask(mask: u64) -> Capabilities {
    BY_NUMBER
        .iter()
        .enumerate()
        .filter(|(number, _)| mask >> number & 1 == 1)
        .map(|(_, name)| *name)
        .collect()
}

/// The set of a container, all of which the host has.
///
/// `ALL` among the additions begins with everything the host has, and among the removals with nothing; otherwise
/// it begins with [`DEFAULT`]. Then the removals are taken from it, and what is added by name is in it in any case. A
/// capability that is asked for by name and that the host lacks is an error.
pub fn of(security: &Security, host: &Capabilities) -> Result<Capabilities> {
    let mut add = named("capabilities_add", &security.capabilities_add)?;
    add.extend(ambient_names(security)?.into_iter().filter(|name| matches!(name, Named::One(_))));
    let drop = named("capabilities_drop", &security.capabilities_drop)?;
    let all = |list: &[Named]| list.iter().any(|entry| matches!(entry, Named::All));
    let mut set: Capabilities = if security.privilege == Privilege::Privileged || all(&add) {
        host.clone()
    } else if all(&drop) {
        Capabilities::new()
    } else {
        DEFAULT.into_iter().filter(|capability| host.contains(capability)).collect()
    };
    for entry in &drop {
        if let Named::One(capability) = entry {
            set.remove(capability);
        }
    }
    for (index, entry) in add.iter().enumerate() {
        let Named::One(capability) = entry else { continue };
        if !host.contains(capability) {
            return Err(Error::Unsupported {
                setting: format!("capabilities_add[{index}]"),
                reason: format!("the runtime itself does not have CAP_{capability}"),
            });
        }
        set.insert(*capability);
    }
    Ok(set)
}

/// Which of a container's capabilities its programs have although their files give them none.
pub(super) fn ambient(security: &Security, set: &Capabilities) -> Result<Capabilities> {
    let names = ambient_names(security)?;
    if names.iter().any(|name| matches!(name, Named::All)) {
        return Ok(set.clone());
    }
    let single = |name: Named| match name {
        Named::One(capability) => Some(capability),
        Named::All => None,
    };
    Ok(names.into_iter().filter_map(single).collect())
}

fn ambient_names(security: &Security) -> Result<Vec<Named>> {
    named("capabilities_ambient", &security.capabilities_ambient)
}

/// The sets of a process. Nothing is inheritable or ambient unless it is asked for: a program of a user other than root begins
/// with none (CVE-2022-24769).
pub(super) fn sets(set: Capabilities, ambient: Capabilities) -> LinuxCapabilities {
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(set.clone()))
        .set_permitted(Some(set.clone()))
        .set_effective(Some(set))
        .set_inheritable(Some(ambient.clone()))
        .set_ambient(Some(ambient));
    sets
}

fn named(field: &str, names: &[String]) -> Result<Vec<Named>> {
    let entries = names.iter().enumerate().map(|(index, name)| {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        match BY_NUMBER.iter().find(|known| known.to_string() == bare) {
            Some(capability) => Ok(Named::One(*capability)),
            None if bare == "ALL" => Ok(Named::All),
            None => Err(Error::invalid(
                format!("{field}[{index}]"),
                format!("{:?}", name.chars().take(64).collect::<String>()),
                "ALL or a name of capabilities(7), as in NET_ADMIN",
            )),
        }
    });
    entries.collect()
}
