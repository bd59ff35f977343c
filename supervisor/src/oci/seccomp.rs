//! System call profiles of callers: JSON as the OCI runtime specification has it, or as Docker's profile files do, which
//! choose among their rules by capability, architecture and kernel.

use mainstay_messages::{Error, Result};
use oci_spec::runtime::{
    Capabilities, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSyscall,
};
use serde::Deserialize;

use crate::host::KernelVersion;

/// This architecture, as Docker's profiles call it.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "amd64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "arm64";

/// A profile of either kind. What is not named here says nothing to this runtime: only the machine's own architecture is
/// filtered, and others are refused whatever the profile lists.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    listener_path: Option<String>,
    syscalls: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Option<Vec<String>>,
    /// Of old profiles.
    name: Option<String>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    args: Option<Vec<LinuxSeccompArg>>,
    includes: Option<Condition>,
    excludes: Option<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(default)]
    caps: Vec<String>,
    #[serde(default)]
    arches: Vec<String>,
    min_kernel: Option<String>,
}

/// The filter that a profile means for a container with these capabilities on this kernel.
pub(super) fn of(json: &str, capabilities: &Capabilities, kernel: KernelVersion) -> Result<LinuxSeccomp> {
    let profile: Profile = serde_json::from_str(json).map_err(|error| {
        let expected = "a profile as OCI's linux.seccomp or Docker's, in JSON";
        Error::invalid("seccomp", format!("a profile that cannot be read ({error})"), expected)
    })?;
    if profile.listener_path.is_some_and(|path| !path.is_empty()) {
        return Err(Error::Unsupported {
            setting: "seccomp.listenerPath".to_owned(),
            reason: "the runtime passes no system calls on to a listener".to_owned(),
        });
    }
    let mut rules = Vec::new();
    for (index, rule) in profile.syscalls.into_iter().flatten().enumerate() {
        if rule.applies(index, capabilities, kernel)? {
            rules.push(rule.into_oci());
        }
    }
    let mut filter = LinuxSeccomp::default();
    filter
        .set_default_action(profile.default_action)
        .set_default_errno_ret(profile.default_errno_ret)
        .set_flags(profile.flags)
        .set_syscalls(Some(rules));
    mainstay_launch::check_seccomp(&filter).map_err(|error| {
        Error::invalid(
            "seccomp",
            format!("a profile that cannot be used ({error})"),
            "one that can be compiled",
        )
    })?;
    Ok(filter)
}

impl Rule {
    fn applies(&self, index: usize, capabilities: &Capabilities, kernel: KernelVersion) -> Result<bool> {
        let has = |name: &String| {
            let bare = name.strip_prefix("CAP_").unwrap_or(name);
            capabilities.iter().any(|capability| capability.to_string() == bare)
        };
        let is_here = |arch: &String| arch == ARCHITECTURE;
        let reached = |condition: &Condition| match &condition.min_kernel {
            None => Ok(None),
            Some(text) => KernelVersion::parse(text).map(|least| Some(kernel >= least)).ok_or_else(|| {
                let field = format!("seccomp.syscalls[{index}].minKernel");
                Error::invalid(
                    field,
                    format!("{:?}", text.chars().take(64).collect::<String>()),
                    "as in \"4.8\"",
                )
            }),
        };
        let included = match &self.includes {
            None => true,
            Some(condition) => {
                condition.caps.iter().all(has)
                    && (condition.arches.is_empty() || condition.arches.iter().any(is_here))
                    && reached(condition)? != Some(false)
            }
        };
        let excluded = match &self.excludes {
            None => false,
            Some(condition) => {
                condition.caps.iter().any(has)
                    || condition.arches.iter().any(is_here)
                    || reached(condition)? == Some(true)
            }
        };
        Ok(included && !excluded)
    }

    fn into_oci(self) -> LinuxSyscall {
        let names = self.names.unwrap_or_default().into_iter().chain(self.name).collect();
        let mut rule = LinuxSyscall::default();
        rule.set_names(names)
            .set_action(self.action)
            .set_errno_ret(self.errno_ret)
            .set_args(self.args.filter(|args| !args.is_empty()));
        rule
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::Capability;

    use super::*;

    const KERNEL: KernelVersion = KernelVersion { major: 5, minor: 14 };

    fn names(json: &str, capabilities: &[Capability]) -> Vec<String> {
        let filter = of(json, &capabilities.iter().copied().collect(), KERNEL).expect("a good profile");
        filter.syscalls().iter().flatten().flat_map(|rule| rule.names().clone()).collect()
    }

    #[test]
    fn rules_are_chosen_as_docker_does() {
        let json = r#"{
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
            "syscalls": [
                {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [], "comment": "", "includes": {}, "excludes": {}},
                {"name": "write", "action": "SCMP_ACT_ALLOW", "args": null},
                {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]},
                 "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
                {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
                {"names": ["future"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "99.1"}},
                {"names": ["s390_only"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}}
            ]}"#;
        assert_eq!(names(json, &[]), ["read", "write", "clone", "ptrace"]);
        assert_eq!(names(json, &[Capability::SysAdmin]), ["read", "write", "mount", "ptrace"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("", "seccomp"),
            ("{}", "defaultAction"),
            (r#"{"defaultAction": "SCMP_ACT_BLESS"}"#, "SCMP_ACT_BLESS"),
            (r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#, "SCMP_ACT_NOTIFY"),
            (r#"{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/x"}"#, "seccomp.listenerPath"),
            (
                r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO",
                    "includes": {"minKernel": "new"}}]}"#,
                "seccomp.syscalls[0].minKernel",
            ),
        ];
        for (json, part) in wrong {
            let error = of(json, &Capabilities::new(), KERNEL).expect_err("wrong").to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
