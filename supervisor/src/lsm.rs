//! Security modules of the kernel: which of them the machine has, and what a container has of them.
//!
//! Owns: asking, and the profile and label of a container. Never: loads a profile, or confines anything; the launcher does that.
//!
//! | asked for | without the module | with it |
//! |---|---|---|
//! | AppArmor: default | nothing | [`DEFAULT_PROFILE`] where it is loaded, and the container is not privileged |
//! | AppArmor: a profile | refused | it, which must be loaded |
//! | SELinux: a label | nothing | it, unless the container is privileged |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mainstay_messages::spec::{AppArmor, Privilege, Security, SelinuxLabel};
use mainstay_messages::{Error, Result};

/// The profile of AppArmor that confined containers have where an administrator has loaded one of this name.
pub const DEFAULT_PROFILE: &str = "mainstay-default";
/// Says `Y` where AppArmor is there and on.
const APPARMOR_ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
/// The profiles that are loaded, as `NAME (MODE)`, one in a line.
const APPARMOR_PROFILES: &str = "/sys/kernel/security/apparmor/profiles";
/// Is there where SELinux is on.
const SELINUX_ENFORCE: &str = "/sys/fs/selinux/enforce";
/// The parts of a label that a container has where its spec does not say.
const SELINUX_USUAL: [&str; 4] = ["system_u", "system_r", "container_t", "s0"];

/// AppArmor on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppArmorFacts {
    /// It has none, or it is off.
    #[default]
    Absent,
    /// It is on.
    Enabled {
        /// The names of the profiles that are loaded; not given when they cannot be read.
        profiles: Option<BTreeSet<String>>,
    },
}

/// SELinux on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelinuxFacts {
    /// It has none, or it is off.
    #[default]
    Absent,
    /// It is on.
    Enabled,
}

impl AppArmorFacts {
    /// Asks the kernel.
    pub(crate) fn detect() -> Self {
        match fs::read_to_string(APPARMOR_ENABLED) {
            Ok(text) if text.starts_with('Y') => Self::Enabled {
                profiles: fs::read_to_string(APPARMOR_PROFILES).ok().map(|text| names(&text)),
            },
            Ok(_) | Err(_) => Self::Absent,
        }
    }

    /// The profile of a container.
    pub(crate) fn profile(&self, security: &Security) -> Result<Option<String>> {
        let loaded = |name: &str| match self {
            Self::Absent => false,
            // The launcher finds it out.
            Self::Enabled { profiles: None } => true,
            Self::Enabled { profiles: Some(profiles) } => profiles.contains(name),
        };
        match &security.apparmor {
            AppArmor::Unconfined => Ok(None),
            AppArmor::Default => {
                let known = matches!(self, Self::Enabled { profiles: Some(_) }) && loaded(DEFAULT_PROFILE);
                let confined = security.privilege == Privilege::Confined;
                Ok((known && confined).then(|| DEFAULT_PROFILE.to_owned()))
            }
            AppArmor::Profile { name } if *self == Self::Absent => Err(Error::Unsupported {
                setting: "apparmor".to_owned(),
                reason: format!("this machine has no AppArmor, which the profile {name:?} is for"),
            }),
            AppArmor::Profile { name } if !loaded(name) => {
                let expected = "a profile that is loaded (apparmor_parser -r FILE)";
                Err(Error::invalid("apparmor", format!("{name:?}"), expected))
            }
            AppArmor::Profile { name } => Ok(Some(name.clone())),
        }
    }
}

impl SelinuxFacts {
    /// Asks the kernel.
    pub(crate) fn detect() -> Self {
        if Path::new(SELINUX_ENFORCE).exists() { Self::Enabled } else { Self::Absent }
    }

    /// The label of a container's processes.
    pub(crate) fn label(self, security: &Security) -> Option<SelinuxLabel> {
        let label = security.selinux.as_ref()?;
        let applies = self == Self::Enabled && security.privilege == Privilege::Confined;
        applies.then(|| complete(label))
    }
}

fn complete(label: &SelinuxLabel) -> SelinuxLabel {
    let [user, role, kind, level] = SELINUX_USUAL;
    let or = |given: &str, usual: &str| if given.is_empty() { usual.to_owned() } else { given.to_owned() };
    SelinuxLabel {
        user: or(&label.user, user),
        role: or(&label.role, role),
        kind: or(&label.kind, kind),
        level: or(&label.level, level),
    }
}

/// The names in the kernel's list, which may have spaces in them.
fn names(list: &str) -> BTreeSet<String> {
    list.lines().filter_map(|line| Some(line.rsplit_once(" (")?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(apparmor: AppArmor, privilege: Privilege) -> Security {
        Security { apparmor, privilege, ..Security::default() }
    }

    #[test]
    fn the_profile_is_the_one_that_is_loaded() {
        let loaded = names("mainstay-default (enforce)\nmy profile (complain)\n");
        let enabled = AppArmorFacts::Enabled { profiles: Some(loaded) };
        let named = |name: &str| AppArmor::Profile { name: name.to_owned() };
        let of = |facts: &AppArmorFacts, apparmor, privilege| {
            facts.profile(&with(apparmor, privilege)).map_err(|error| error.to_string())
        };
        let default = of(&enabled, AppArmor::Default, Privilege::Confined);
        assert_eq!(default, Ok(Some("mainstay-default".to_owned())));
        assert_eq!(of(&enabled, AppArmor::Default, Privilege::Privileged), Ok(None));
        assert_eq!(of(&enabled, AppArmor::Unconfined, Privilege::Confined), Ok(None));
        let spaced = of(&enabled, named("my profile"), Privilege::Privileged);
        assert_eq!(spaced, Ok(Some("my profile".to_owned())));
        let error = of(&enabled, named("none"), Privilege::Confined).expect_err("not loaded");
        assert!(error.starts_with("apparmor: \"none\""), "{error}");
        assert_eq!(of(&AppArmorFacts::Absent, AppArmor::Default, Privilege::Confined), Ok(None));
        let error = of(&AppArmorFacts::Absent, named("none"), Privilege::Confined).expect_err("no module");
        assert!(error.contains("no AppArmor"), "{error}");
    }

    #[test]
    fn a_label_is_completed_and_left_out_where_it_says_nothing() {
        let label = SelinuxLabel { level: "s0:c1,c2".to_owned(), ..SelinuxLabel::default() };
        let mut security = Security { selinux: Some(label), ..Security::default() };
        let found = SelinuxFacts::Enabled.label(&security).map(|label| label.to_string());
        assert_eq!(found.as_deref(), Some("system_u:system_r:container_t:s0:c1,c2"));
        assert_eq!(SelinuxFacts::Absent.label(&security), None);
        security.privilege = Privilege::Privileged;
        assert_eq!(SelinuxFacts::Enabled.label(&security), None);
    }
}
