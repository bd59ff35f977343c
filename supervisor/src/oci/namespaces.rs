//! Which namespaces a container is in: those of the pod by path, and its own.

use std::path::{Path, PathBuf};

use mainstay_messages::spec::PidMode;
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType};

use super::PodNamespaces;

/// The namespaces of a container. A kind that is not in the list is the host's.
pub(super) fn of(pid: PidMode, pod: &PodNamespaces, other_pid: Option<&Path>) -> Vec<LinuxNamespace> {
    let joined = [
        (LinuxNamespaceType::Network, &pod.network),
        (LinuxNamespaceType::Ipc, &pod.ipc),
        (LinuxNamespaceType::Uts, &pod.uts),
    ];
    let mut list =
        vec![namespace(LinuxNamespaceType::Mount, None), namespace(LinuxNamespaceType::Cgroup, None)];
    list.extend(joined.into_iter().filter_map(|(kind, path)| Some(namespace(kind, Some(path.clone()?)))));
    match (other_pid, pid) {
        (Some(path), _) => list.push(namespace(LinuxNamespaceType::Pid, Some(path.to_owned()))),
        (None, PidMode::Container) => list.push(namespace(LinuxNamespaceType::Pid, None)),
        (None, PidMode::Pod) => list.push(namespace(LinuxNamespaceType::Pid, pod.pid.clone())),
        (None, PidMode::Host) => {}
    }
    list
}

/// A namespace that is joined by path, or made.
fn namespace(kind: LinuxNamespaceType, path: Option<PathBuf>) -> LinuxNamespace {
    let mut namespace = LinuxNamespace::default();
    namespace.set_typ(kind).set_path(path);
    namespace
}
