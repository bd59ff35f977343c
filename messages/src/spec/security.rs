//! What a container may do.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Access;

/// The longest name of a profile of AppArmor, and the longest part of an SELinux label, in bytes.
pub const PROFILE_NAME_LENGTH_MAX: usize = 256;

/// What a container may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Confined, or with all that root on the host may do.
    #[serde(default)]
    pub privilege: Privilege,
    /// Capabilities added to the default set, as in `NET_ADMIN`; `ALL` for all.
    #[serde(default)]
    pub capabilities_add: Vec<String>,
    /// Capabilities taken from the default set; `ALL` for all.
    #[serde(default)]
    pub capabilities_drop: Vec<String>,
    /// Capabilities that programs have although their files give them none (the ambient set); the container has them then. `ALL`
    /// for all.
    #[serde(default)]
    pub capabilities_ambient: Vec<String>,
    /// Whether executing a file may give more rights (setuid bits, file capabilities).
    #[serde(default)]
    pub new_privileges: NewPrivileges,
    /// The system call filter.
    #[serde(default)]
    pub seccomp: Seccomp,
    /// The profile of AppArmor.
    #[serde(default)]
    pub apparmor: AppArmor,
    /// The label of SELinux; none is set when not given, and on a machine without SELinux.
    #[serde(default)]
    pub selinux: Option<SelinuxLabel>,
    /// Whether the root file system can be written to.
    #[serde(default)]
    pub root: Access,
    /// Paths hidden from the container; the usual ones of `/proc` and `/sys` when not given.
    #[serde(default)]
    pub masked_paths: Option<Vec<PathBuf>>,
    /// Paths that cannot be written to; the usual ones of `/proc` when not given.
    #[serde(default)]
    pub readonly_paths: Option<Vec<PathBuf>>,
    /// Which supplementary groups a process has beside those that the spec names.
    #[serde(default)]
    pub supplementary_groups: SupplementaryGroups,
}

/// Where supplementary groups come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupplementaryGroups {
    /// From the spec, and from the container's own `/etc/group`.
    #[default]
    Merge,
    /// From the spec alone.
    Strict,
}

/// Confinement of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// Default capabilities, default system call filter, masked paths.
    #[default]
    Confined,
    /// All capabilities, no filter, nothing masked, all devices.
    Privileged,
}

/// Gaining rights by executing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewPrivileges {
    /// As files say.
    #[default]
    Allowed,
    /// Never (`no_new_privs`).
    Forbidden,
}

/// A system call filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seccomp {
    /// The runtime's default profile.
    #[default]
    Default,
    /// None.
    Unconfined,
    /// A profile of the caller's.
    Profile {
        /// JSON as the OCI runtime specification has it (`linux.seccomp`), or as Docker's profile files do; at most
        /// [`super::SECCOMP_PROFILE_LENGTH_MAX`] bytes.
        json: String,
    },
}

/// A profile of AppArmor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppArmor {
    /// The runtime's default profile where the machine has AppArmor and that profile; else none.
    #[default]
    Default,
    /// None.
    Unconfined,
    /// One that is loaded on the machine. A machine without AppArmor, or without that profile, refuses the container.
    Profile {
        /// Its name.
        name: String,
    },
}

/// A label of SELinux, in its four parts. What is empty is the usual of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelinuxLabel {
    /// The SELinux user, as in `system_u`.
    #[serde(default)]
    pub user: String,
    /// The role, as in `system_r`.
    #[serde(default)]
    pub role: String,
    /// The type, as in `container_t`.
    #[serde(default)]
    pub kind: String,
    /// The level, as in `s0:c1,c2`.
    #[serde(default)]
    pub level: String,
}

impl fmt::Display for SelinuxLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.user, self.role, self.kind, self.level)
    }
}
