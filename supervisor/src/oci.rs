//! The OCI runtime spec of a container: what its `config.json` says.
//!
//! Owns: the defaults that a container gets, and the translation of our spec into OCI's. All of it is pure: the
//! same records give the same spec. Never: looks at the file system, nor starts anything.

mod adjust;
pub mod capabilities;
mod devices;
mod mounts;
mod names;
mod namespaces;
mod process;
mod resources;
mod seccomp;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mainstay_launch::{GROUPS_ANNOTATION, GROUPS_STRICT};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::spec::{
    Access, ContainerPid, IdMappings, Privilege, Relabel, Seccomp, Security, SupplementaryGroups,
};
use mainstay_messages::{Error, Result};
use mainstay_task_api::USER_ANNOTATION;
use oci_spec::runtime::{Capabilities, Linux, LinuxSeccomp, Root, Spec};

use crate::host::HostFacts;
use crate::paths::Layer;
use crate::relabel;
use crate::settings::OomScorePolicy;

pub use mounts::DEFAULT_SHM;
pub use names::{NameFile, name_files};
pub use process::{DEFAULT_PATH, exec_process};
pub use resources::{container_resources, pod_resources};

/// The version of the OCI runtime specification that is written.
pub const OCI_VERSION: &str = "1.1.0";
/// The directory of the bundle that the root file system is mounted on.
pub const ROOTFS_DIRECTORY: &str = "rootfs";

/// What the names of annotations that the launcher goes by begin with.
const OWN_ANNOTATIONS: &str = "dev.mainstay.";

/// Paths hidden from a confined container when its spec names none.
pub const MASKED_PATHS: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Paths that a confined container cannot write to when its spec names none.
pub const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The namespaces that a pod's shim holds, as paths, and the pod's shared memory. A kind without a path is the host's, but
/// for the pid namespace: see [`mainstay_messages::spec::PidMode`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNamespaces {
    /// Network.
    pub network: Option<PathBuf>,
    /// System V IPC and POSIX message queues.
    pub ipc: Option<PathBuf>,
    /// Host name.
    pub uts: Option<PathBuf>,
    /// Processes, when they are shared in the pod.
    pub pid: Option<PathBuf>,
    /// The user namespace, which owns the others.
    pub user: Option<PathBuf>,
    /// Which ids in it are which of the host; none when the pod has the host's.
    pub ids: Option<IdMappings>,
    /// What is mounted at `/dev/shm`.
    pub shm: Option<PathBuf>,
}

/// What a spec depends on beside the records.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The pod's namespaces.
    pub pod: &'a PodNamespaces,
    /// What the machine can give.
    pub host: &'a HostFacts,
    /// What to do about an `oom_score_adj` that is too low for this process to set.
    pub oom_score: OomScorePolicy,
    /// The pod's cgroup, as in `/mainstay/<pod>`.
    pub pod_cgroup: &'a str,
    /// The pid namespace of the container whose processes this one sees, if it names one.
    pub other_pid: Option<&'a Path>,
    /// The container's own directories.
    pub layer: &'a Layer,
}

/// The spec of a container. Errors name the field of our spec that cannot be honoured.
pub fn container_spec(
    record: &ContainerRecord,
    sandbox: &SandboxRecord,
    around: Surroundings<'_>,
) -> Result<Spec> {
    let spec = &record.spec;
    let ids = around.pod.ids.as_ref();
    if ids.is_some() {
        mounts::check_propagation(&spec.mounts)?;
        if spec.pid == ContainerPid::Host {
            let expected = "the pod's or one of its own, in a pod with a user namespace";
            return Err(Error::invalid("pid", "host", expected));
        }
    }
    let capabilities = capabilities::of(&spec.security, &around.host.capabilities)?;
    let mut root = Root::default();
    root.set_path(ROOTFS_DIRECTORY.into()).set_readonly(Some(spec.security.root == Access::ReadOnly));

    let label = around.host.selinux.label(&spec.security);
    let files = label.and_then(|label| relabel::label_of(&label, Relabel::Private));

    let mut linux = Linux::default();
    linux
        .set_mount_label(files.map(|label| label.to_string()))
        .set_namespaces(Some(namespaces::of(sandbox.spec.pid, &spec.pid, around.pod, around.other_pid)))
        .set_uid_mappings(ids.map(|ids| namespaces::mappings(&ids.uids)))
        .set_gid_mappings(ids.map(|ids| namespaces::mappings(&ids.gids)))
        .set_resources(Some(container_resources(spec, ids, around.host)))
        .set_cgroups_path(Some(Path::new(around.pod_cgroup).join(record.id.as_str())))
        .set_masked_paths(Some(paths(&spec.security, &spec.security.masked_paths, &MASKED_PATHS)))
        .set_readonly_paths(Some(paths(&spec.security, &spec.security.readonly_paths, &READONLY_PATHS)))
        .set_seccomp(filter(record, &capabilities, around.host)?)
        .set_devices(devices::nodes(spec, ids, around.host));

    let mut oci = Spec::default();
    oci.set_version(OCI_VERSION.to_owned())
        .set_root(Some(root))
        .set_hostname(around.pod.uts.as_ref().map(|_| sandbox.spec.hostname().to_owned()))
        .set_process(Some(process::container_process(spec, capabilities, around)?))
        .set_mounts(Some(mounts::of(spec, around, &name_files(record, sandbox, around.host))))
        .set_annotations(Some(annotations(record)))
        .set_linux(Some(linux));
    if let Some(adjustment) = &record.adjustment {
        adjust::apply(&mut oci, adjustment, around)?;
    } else {
        around.host.cdi.iter().for_each(|edits| edits.apply(&mut oci));
    }
    Ok(oci)
}

/// Nothing of a privileged container is hidden unless its spec says so.
fn paths(security: &Security, given: &Option<Vec<PathBuf>>, default: &[&str]) -> Vec<String> {
    match (given, security.privilege) {
        (Some(paths), _) => paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        (None, Privilege::Confined) => default.iter().map(|path| (*path).to_owned()).collect(),
        (None, Privilege::Privileged) => Vec::new(),
    }
}

/// A profile of the caller's counts for a privileged container, too, and one of a plugin's before it.
fn filter(
    record: &ContainerRecord,
    capabilities: &Capabilities,
    host: &HostFacts,
) -> Result<Option<LinuxSeccomp>> {
    let adjusted = record.adjustment.as_ref().and_then(|adjustment| adjustment.seccomp.as_ref());
    if let Some(json) = adjusted {
        return seccomp::of(json, capabilities, host.kernel).map(Some);
    }
    let security = &record.spec.security;
    match (&security.seccomp, security.privilege) {
        (Seccomp::Profile { json }, _) => seccomp::of(json, capabilities, host.kernel).map(Some),
        (Seccomp::Default, Privilege::Confined) => Ok(Some(mainstay_launch::default_seccomp(capabilities))),
        (Seccomp::Unconfined, _) | (Seccomp::Default, Privilege::Privileged) => Ok(None),
    }
}

/// The container's, for hooks and for whoever reads the bundle, and what the launcher goes by. Nobody else has a say in that.
fn annotations(record: &ContainerRecord) -> HashMap<String, String> {
    let spec = &record.spec;
    let given = record.runtime_annotations().into_iter().filter(|(key, _)| !key.starts_with(OWN_ANNOTATIONS));
    let user = spec.process.user.as_ref().map(|user| (USER_ANNOTATION.to_owned(), user.clone()));
    let groups = match spec.security.supplementary_groups {
        SupplementaryGroups::Merge => None,
        SupplementaryGroups::Strict => Some((GROUPS_ANNOTATION.to_owned(), GROUPS_STRICT.to_owned())),
    };
    given.chain(user).chain(groups).collect()
}

#[cfg(test)]
mod tests;
