//! Which namespaces a container is in: those of the pod by path, and its own.

use std::path::{Path, PathBuf};

use mainstay_messages::spec::{ContainerPid, IdMapping, PidMode};
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType};

use super::PodNamespaces;

/// The namespaces of a container. A kind that is not in the list is the host's.
pub(super) fn of(
    pid: PidMode,
    own: &ContainerPid,
    pod: &PodNamespaces,
    other_pid: Option<&Path>,
) -> Vec<LinuxNamespace> {
    let joined = [
        (LinuxNamespaceType::Network, &pod.network),
        (LinuxNamespaceType::Ipc, &pod.ipc),
        (LinuxNamespaceType::Uts, &pod.uts),
        (LinuxNamespaceType::User, &pod.user),
    ];
    let mut list =
        vec![namespace(LinuxNamespaceType::Mount, None), namespace(LinuxNamespaceType::Cgroup, None)];
    list.extend(joined.into_iter().filter_map(|(kind, path)| Some(namespace(kind, Some(path.clone()?)))));
    let path = match (own, pid) {
        (ContainerPid::Host, _) | (ContainerPid::Pod, PidMode::Host) => return list,
        (ContainerPid::Container { .. }, _) => other_pid.map(Path::to_owned),
        (ContainerPid::Own, _) | (ContainerPid::Pod, PidMode::Container) => None,
        (ContainerPid::Pod, PidMode::Pod) => pod.pid.clone(),
    };
    list.push(namespace(LinuxNamespaceType::Pid, path));
    list
}

/// Mappings of ids, as the OCI spec has them.
pub(super) fn mappings(mappings: &[IdMapping]) -> Vec<LinuxIdMapping> {
    let mapping = |mapping: &IdMapping| {
        let built = LinuxIdMappingBuilder::default()
            .container_id(mapping.container)
            .host_id(mapping.host)
            .size(mapping.size)
            .build();
        // Building fails only where a field is missing.
        built.expect("all fields are given")
    };
    mappings.iter().map(mapping).collect()
}

/// A namespace that is joined by path, or made.
fn namespace(kind: LinuxNamespaceType, path: Option<PathBuf>) -> LinuxNamespace {
    let mut namespace = LinuxNamespace::default();
    namespace.set_typ(kind).set_path(path);
    namespace
}
