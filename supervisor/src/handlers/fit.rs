//! Whether a runtime can do what a container's spec asks for: by what it says of itself, and else by its version.
//!
//! A runtime leaves out what it does not know without a word, so a container would run with less than was asked for. Such a
//! container is refused by the name of the field, before anything is made.
//!
//! Owns: reading the answer to `features` (`features.md` of the OCI runtime specification), and the check. All of it is pure.

use mainstay_launch::{LAYER_OPTION, PART_OPTION};
use oci_spec::runtime::{LinuxNamespaceType, Spec};
use serde::Deserialize;

use super::version::{Release, Version};

/// What a runtime says that it can do. What is not there is unknown, not absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Features {
    hooks: Option<Vec<String>>,
    mount_options: Option<Vec<String>>,
    linux: Option<LinuxFeatures>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LinuxFeatures {
    namespaces: Option<Vec<String>>,
    seccomp: Option<SeccompFeatures>,
    apparmor: Option<Switch>,
    selinux: Option<Switch>,
    mount_extensions: Option<MountExtensions>,
    net_devices: Option<Switch>,
    memory_policy: Option<MemoryPolicy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeccompFeatures {
    enabled: Option<bool>,
    supported_flags: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Switch {
    enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct MountExtensions {
    idmap: Option<Switch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct MemoryPolicy {
    modes: Option<Vec<String>>,
}

/// A runtime and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Its version.
    pub release: Release,
    /// What it says; empty for one that has no such command.
    pub features: Features,
}

/// What a container asks for that its runtime does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The field of the OCI spec.
    pub field: String,
    /// Why it is refused.
    pub reason: String,
}

impl Features {
    /// Reads the answer to `features`.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

impl Abilities {
    /// Since which versions of runc and crun something is there; for other programs it counts as there.
    fn since(&self, runc: Version, crun: Version) -> bool {
        match self.release.name.as_str() {
            "runc" => self.release.version >= runc,
            "crun" => self.release.version >= crun,
            _ => true,
        }
    }

    /// What it cannot do of this spec, the first thing.
    pub fn lack(&self, spec: &Spec) -> Option<Lack> {
        let who = format!("{} {}", self.release.name, self.release.text);
        let lacks =
            |field: String| Lack { field, reason: format!("{who} does not know it, and would leave it out") };
        self.mounts(spec, &who).or_else(|| self.fields(spec).map(|field| lacks(field.to_owned())))
    }

    fn mounts(&self, spec: &Spec, who: &str) -> Option<Lack> {
        let linux = self.features.linux.as_ref();
        let idmap = linux.and_then(|linux| linux.mount_extensions.as_ref()?.idmap.as_ref()?.enabled);
        let idmap = idmap.unwrap_or_else(|| self.since(Version::new(1, 2, 0), Version::new(1, 9, 0)));
        let known = |option: &str| match &self.features.mount_options {
            Some(known) => known.iter().any(|each| each == option),
            None => self.since(Version::new(1, 1, 0), Version::new(1, 4, 0)),
        };
        for (index, mount) in spec.mounts().iter().flatten().enumerate() {
            let field = || format!("mounts[{index}] ({:?})", mount.destination());
            let options = || mount.options().iter().flatten().map(String::as_str);
            let maps =
                mount.uid_mappings().is_some() || options().any(|each| matches!(each, "idmap" | "ridmap"));
            if maps && !idmap {
                let reason = format!("it is to be id-mapped, which {who} does not do");
                return Some(Lack { field: field(), reason });
            }
            if options().any(|each| each.starts_with(LAYER_OPTION) || each.starts_with(PART_OPTION)) {
                let reason = "images are mounted by Mainstay's own launcher alone".to_owned();
                return Some(Lack { field: field(), reason });
            }
            if let Some(option) = options().find(|each| RECURSIVE.contains(each) && !known(each)) {
                let reason = format!("{who} does not know the option {option:?}");
                return Some(Lack { field: field(), reason });
            }
        }
        None
    }

    fn fields(&self, spec: &Spec) -> Option<&'static str> {
        const NEVER: Version = Version::new(u32::MAX, 0, 0);
        let (v, linux, process) = (Version::new, spec.linux().as_ref(), spec.process().as_ref());
        let said = self.features.linux.clone().unwrap_or_default();
        let switch = |said: &Option<Switch>| said.as_ref().and_then(|said| said.enabled);
        let namespace = |kind| {
            let listed = linux.and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten();
            listed.into_iter().any(|namespace| namespace.typ() == kind)
        };
        let knows_time = match &said.namespaces {
            Some(known) => known.iter().any(|kind| kind == "time"),
            None => self.since(v(1, 2, 0), v(1, 8, 4)),
        };
        let offsets =
            linux.is_some_and(|linux| linux.time_offsets().as_ref().is_some_and(|all| !all.is_empty()));
        let flags = linux.and_then(|linux| linux.seccomp().as_ref()?.flags().as_ref());
        let known_flags = said.seccomp.as_ref().and_then(|seccomp| seccomp.supported_flags.clone());
        let flags_are_known =
            flags.into_iter().flatten().all(|flag| match (&known_flags, serde_json::to_value(flag)) {
                (Some(known), Ok(serde_json::Value::String(flag))) => known.contains(&flag),
                (None, _) => self.since(v(1, 2, 0), v(1, 0, 0)),
                _ => false,
            });
        let net_devices =
            linux.is_some_and(|linux| linux.net_devices().as_ref().is_some_and(|all| !all.is_empty()));
        let wanted = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
        let checks = [
            ("domainname", wanted(spec.domainname()), self.since(v(1, 2, 0), v(1, 7, 0))),
            (
                "process.scheduler",
                process.is_some_and(|p| p.scheduler().is_some()),
                self.since(v(1, 2, 0), v(1, 8, 5)),
            ),
            (
                "process.ioPriority",
                process.is_some_and(|p| p.io_priority().is_some()),
                self.since(v(1, 2, 0), v(1, 8, 6)),
            ),
            (
                "process.apparmorProfile",
                process.is_some_and(|p| wanted(p.apparmor_profile())),
                switch(&said.apparmor) != Some(false),
            ),
            (
                "process.selinuxLabel",
                process.is_some_and(|p| wanted(p.selinux_label())),
                switch(&said.selinux) != Some(false),
            ),
            ("linux.namespaces (time)", namespace(LinuxNamespaceType::Time), knows_time),
            ("linux.timeOffsets", offsets, knows_time),
            (
                "linux.personality",
                linux.is_some_and(|linux| linux.personality().is_some()),
                self.since(v(1, 2, 0), v(0, 11, 0)),
            ),
            ("linux.netDevices", net_devices, switch(&said.net_devices) == Some(true)),
            (
                "linux.memoryPolicy",
                linux.is_some_and(|linux| linux.memory_policy().is_some()),
                said.memory_policy.as_ref().is_some_and(|policy| policy.modes.is_some()),
            ),
            (
                "linux.seccomp",
                linux.is_some_and(|linux| linux.seccomp().is_some()),
                said.seccomp.as_ref().and_then(|seccomp| seccomp.enabled) != Some(false),
            ),
            ("linux.seccomp.flags", flags.is_some_and(|flags| !flags.is_empty()), flags_are_known),
            (
                "linux.intelRdt",
                linux.is_some_and(|linux| linux.intel_rdt().is_some()),
                self.since(NEVER, NEVER),
            ),
        ];
        let lacking = checks.into_iter().find(|(_, is_wanted, is_known)| *is_wanted && !*is_known);
        lacking.map(|(field, ..)| field).or_else(|| self.hooks(spec))
    }

    fn hooks(&self, spec: &Spec) -> Option<&'static str> {
        let known = self.features.hooks.as_ref()?;
        let points = [
            ("hooks.prestart", mainstay_launch::HookPoint::Prestart),
            ("hooks.createRuntime", mainstay_launch::HookPoint::CreateRuntime),
            ("hooks.createContainer", mainstay_launch::HookPoint::CreateContainer),
            ("hooks.startContainer", mainstay_launch::HookPoint::StartContainer),
            ("hooks.poststart", mainstay_launch::HookPoint::Poststart),
            ("hooks.poststop", mainstay_launch::HookPoint::Poststop),
        ];
        let lacking = points
            .into_iter()
            .find(|(_, point)| !point.of(spec).is_empty() && !known.iter().any(|each| each == point.name()));
        lacking.map(|(field, _)| field)
    }
}

/// Mount options that older runtimes pass on to the file system, which refuses them, or takes them for something else.
const RECURSIVE: [&str; 12] = [
    "rro",
    "rrw",
    "rnosuid",
    "rsuid",
    "rnodev",
    "rdev",
    "rnoexec",
    "rexec",
    "rnoatime",
    "ratime",
    "rnosymfollow",
    "rsymfollow",
];

#[cfg(test)]
mod tests;
