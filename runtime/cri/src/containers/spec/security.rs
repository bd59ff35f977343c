//! What a container may do, and as whom.

use std::path::{Path, PathBuf};

use mainstay::{
    Access, AppArmor, NewPrivileges, Privilege, Seccomp, Security, SelinuxLabel, SupplementaryGroups,
};
use mainstay_cri_api::security_profile::ProfileType;
use mainstay_cri_api::{
    ContainerConfig, Int64Value, LinuxContainerSecurityContext, SeLinuxOption, SecurityProfile,
    SupplementalGroupsPolicy,
};

use super::known;
use crate::failure::{Failure, Result};

/// What the names of the fields begin with.
const FIELD: &str = "config.linux.security_context";
/// What the old text for a profile of the node begins with.
const LOCALHOST: &str = "localhost/";

/// The security of a container. None is given by clients that know nothing of it; such a container is as the core has them.
pub(super) fn security(
    given: Option<&LinuxContainerSecurityContext>,
    profile_of: impl Fn(&Path) -> std::result::Result<String, String>,
) -> Result<Security> {
    let Some(given) = given else {
        return Ok(Security { seccomp: Seccomp::Unconfined, ..Security::default() });
    };
    let capabilities = given.capabilities.clone().unwrap_or_default();
    let paths = |paths: &[String]| Some(paths.iter().map(PathBuf::from).collect());
    let common = Security {
        apparmor: apparmor(given)?,
        root: if given.readonly_rootfs { Access::ReadOnly } else { Access::ReadWrite },
        new_privileges: if given.no_new_privs { NewPrivileges::Forbidden } else { NewPrivileges::Allowed },
        supplementary_groups: match known::<SupplementalGroupsPolicy>(
            &format!("{FIELD}.supplemental_groups_policy"),
            given.supplemental_groups_policy,
        )? {
            SupplementalGroupsPolicy::Merge => SupplementaryGroups::Merge,
            SupplementalGroupsPolicy::Strict => SupplementaryGroups::Strict,
        },
        ..Security::default()
    };
    if given.privileged {
        // As the interface has it, capabilities, filters and labels say nothing of it.
        return Ok(Security { privilege: Privilege::Privileged, seccomp: Seccomp::Unconfined, ..common });
    }
    Ok(Security {
        capabilities_add: capabilities.add_capabilities,
        capabilities_drop: capabilities.drop_capabilities,
        capabilities_ambient: capabilities.add_ambient_capabilities,
        seccomp: seccomp(given, profile_of)?,
        selinux: given.selinux_options.as_ref().map(selinux),
        masked_paths: paths(&given.masked_paths),
        readonly_paths: paths(&given.readonly_paths),
        ..common
    })
}

/// As whom PID 1 runs; the image says it where the caller does not.
pub(super) fn user(given: &LinuxContainerSecurityContext) -> Result<Option<String>> {
    let name = given.run_as_username.as_str();
    let user = match (&given.run_as_user, name.is_empty()) {
        (Some(user), true) => Some(id("run_as_user", user)?.to_string()),
        (None, false) if name.contains(':') => {
            let expected = "the name of a user; its group is run_as_group";
            return Err(Failure::invalid(format!("{FIELD}.run_as_username"), format!("{name:?}"), expected));
        }
        (None, false) => Some(name.to_owned()),
        (None, true) => None,
        (Some(user), false) => {
            let value = format!("{name:?}, beside run_as_user {}", user.value);
            return Err(Failure::invalid(
                format!("{FIELD}.run_as_username"),
                value,
                "a user by its id or its name",
            ));
        }
    };
    match (user, &given.run_as_group) {
        (user, None) => Ok(user),
        (Some(user), Some(group)) => Ok(Some(format!("{user}:{}", id("run_as_group", group)?))),
        (None, Some(group)) => {
            let expected = "a user beside it: run_as_user or run_as_username";
            Err(Failure::invalid(format!("{FIELD}.run_as_group"), group.value.to_string(), expected))
        }
    }
}

/// Supplementary groups beside those of the image.
pub(super) fn groups(given: &LinuxContainerSecurityContext) -> Result<Vec<u32>> {
    let group = |group: &i64| id("supplemental_groups", &Int64Value { value: *group });
    given.supplemental_groups.iter().map(group).collect()
}

/// An id is never taken for another that it would be in fewer bits.
fn id(field: &str, id: &Int64Value) -> Result<u32> {
    u32::try_from(id.value).ok().filter(|id| *id != u32::MAX).ok_or_else(|| {
        Failure::invalid(format!("{FIELD}.{field}"), id.value.to_string(), "an id from 0 to 4294967294")
    })
}

/// The file of the node that [`security`] asks for, if it will.
#[allow(deprecated, reason = "older clients give a text in place of a profile")]
pub(super) fn seccomp_file(config: &ContainerConfig) -> Option<PathBuf> {
    let given = config.linux.as_ref()?.security_context.as_ref().filter(|given| !given.privileged)?;
    match profile(FIELD, given.seccomp.as_ref(), &given.seccomp_profile_path) {
        Ok(Some(Profile::Localhost(file))) => Some(file.into()),
        // What is wrong with it, the spec says.
        _ => None,
    }
}

#[allow(deprecated, reason = "older clients give a text in place of a profile")]
fn seccomp(
    given: &LinuxContainerSecurityContext,
    profile_of: impl Fn(&Path) -> std::result::Result<String, String>,
) -> Result<Seccomp> {
    let field = format!("{FIELD}.seccomp");
    match profile(&field, given.seccomp.as_ref(), &given.seccomp_profile_path)? {
        None | Some(Profile::Unconfined) => Ok(Seccomp::Unconfined),
        Some(Profile::RuntimeDefault) => Ok(Seccomp::Default),
        Some(Profile::Localhost(file)) => {
            let json = profile_of(Path::new(&file)).map_err(|why| {
                let expected = format!("the path of a profile on the node ({why})");
                Failure::invalid(format!("{field}.localhost_ref"), format!("{file:?}"), expected)
            })?;
            Ok(Seccomp::Profile { json })
        }
    }
}

#[allow(deprecated, reason = "older clients give a text in place of a profile")]
fn apparmor(given: &LinuxContainerSecurityContext) -> Result<AppArmor> {
    let field = format!("{FIELD}.apparmor");
    Ok(match profile(&field, given.apparmor.as_ref(), &given.apparmor_profile)? {
        None | Some(Profile::RuntimeDefault) => AppArmor::Default,
        Some(Profile::Unconfined) => AppArmor::Unconfined,
        Some(Profile::Localhost(name)) => {
            AppArmor::Profile { name: name.strip_prefix(LOCALHOST).unwrap_or(&name).to_owned() }
        }
    })
}

enum Profile {
    RuntimeDefault,
    Unconfined,
    Localhost(String),
}

/// A profile, or the text that older clients give in its place.
fn profile(field: &str, given: Option<&SecurityProfile>, text: &str) -> Result<Option<Profile>> {
    let Some(given) = given else {
        return match text {
            "" => Ok(None),
            "runtime/default" | "docker/default" => Ok(Some(Profile::RuntimeDefault)),
            "unconfined" => Ok(Some(Profile::Unconfined)),
            text => match text.strip_prefix(LOCALHOST).filter(|name| !name.is_empty()) {
                Some(name) => Ok(Some(Profile::Localhost(name.to_owned()))),
                None => {
                    let expected = "runtime/default, unconfined or localhost/PROFILE";
                    Err(Failure::invalid(format!("{field}_profile"), format!("{text:?}"), expected))
                }
            },
        };
    };
    match known::<ProfileType>(&format!("{field}.profile_type"), given.profile_type)? {
        ProfileType::RuntimeDefault => Ok(Some(Profile::RuntimeDefault)),
        ProfileType::Unconfined => Ok(Some(Profile::Unconfined)),
        ProfileType::Localhost if given.localhost_ref.is_empty() => {
            Err(Failure::invalid(format!("{field}.localhost_ref"), "\"\"", "a profile of the node"))
        }
        ProfileType::Localhost => Ok(Some(Profile::Localhost(given.localhost_ref.clone()))),
    }
}

fn selinux(given: &SeLinuxOption) -> SelinuxLabel {
    SelinuxLabel {
        user: given.user.clone(),
        role: given.role.clone(),
        kind: given.r#type.clone(),
        level: given.level.clone(),
    }
}
