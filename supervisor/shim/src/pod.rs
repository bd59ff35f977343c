//! What the containers of the pod share: namespaces, held by descriptor, and `/dev/shm`.
//!
//! Owns: making them once, and saying where they are. Never: undoes them one by one; they are the shim's own
//! descriptors and mounts, and vanish with it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use mainstay_cgroups::{Cgroup, CgroupPath, Controllers};
use mainstay_launch::{
    CgroupEntry, PodNamespace, PodNamespaceRequest, PodNamespaces, PodPid, pod_namespaces, user_namespace,
};
use mainstay_task_api::extension as wire;
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Pid;

use crate::backend::Backend;
use crate::door::Door;
use crate::failure::Failure;
use crate::shim::Shim;

/// The size of a pod's `/dev/shm`, in bytes.
const POD_SHM_BYTES: u64 = 64 * 1024 * 1024;
/// Shared memory of the host.
const HOST_SHM: &str = "/dev/shm";
/// The group below the pod's cgroup for its init. A v2 group that hands controllers down holds no processes itself.
const POD_INIT_GROUP: &str = "pod-init";
/// The group below the pod's cgroup for the shims of others that stand behind this one, and what they start that is no container.
pub(crate) const POD_SHIM_GROUP: &str = "pod-shim";
/// The groups below a pod's cgroup that are no container's.
pub const POD_GROUPS: [&str; 2] = [POD_INIT_GROUP, POD_SHIM_GROUP];

/// What the containers of the pod share.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// The first process of a shared process id namespace.
    pub(crate) init: Option<Pid>,
    /// Who makes its containers.
    pub(crate) backend: Backend,
    pub(crate) request: wire::CreatePodRequest,
    namespaces: PodNamespaces,
    user: Option<OwnedFd>,
    shm: Shm,
}

/// What its containers have as `/dev/shm`.
#[derive(Debug)]
enum Shm {
    /// A file system of the pod's own, mounted here.
    Own(PathBuf),
    /// The host's.
    Host,
}

/// Makes the pod, or says again where everything is. Another request for the same pod is refused.
pub(crate) async fn create(
    shim: &Rc<Shim>,
    door: Door,
    request: wire::CreatePodRequest,
) -> Result<wire::CreatePodResponse, Failure> {
    let _making = shim.making_pod.lock().await;
    if let Some(pod) = &*shim.pod.borrow() {
        // Whoever has found the shim again does not know any more what the configuration said then.
        let backend = pod.request.backend.clone();
        if pod.request == (wire::CreatePodRequest { backend, ..request.clone() }) {
            return Ok(pod.answer());
        }
        return Err(Failure::Invalid {
            field: "pod",
            value: format!("{:?}", request.hostname),
            expected: "the same request as the one that the pod was made by",
        });
    }
    let cgroup = cgroup_path(shim, &request)?;
    let user = user_namespace_of(&request)?;
    let shm = match request.ipc.enum_value_or_default() {
        wire::IpcMode::IPC_POD => {
            Shm::Own(mount_shm(shim.arguments.directory.join("shm"), root_of(&request))?)
        }
        wire::IpcMode::IPC_HOST => Shm::Host,
    };
    let namespaces = make_namespaces(shim, &cgroup, &request, user.as_ref()).inspect_err(|_| {
        // In use by nobody yet; the next attempt mounts it again.
        if let Shm::Own(path) = &shm {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    })?;
    let init = namespaces.init.as_ref().map(|init| init.pid);
    let mut pod = Pod { cgroup, init, backend: Backend::Own, request, namespaces, user, shm };
    match Backend::begin(shim, door, &pod).await {
        Ok(backend) => pod.backend = backend,
        Err(failure) => {
            pod.unmount_shm();
            return Err(failure);
        }
    }
    let answer = pod.answer();
    *shim.pod.borrow_mut() = Some(pod);
    Ok(answer)
}

fn cgroup_path(shim: &Shim, request: &wire::CreatePodRequest) -> Result<CgroupPath, Failure> {
    if request.cgroup.is_empty() {
        return Ok(shim.arguments.cgroup.clone());
    }
    CgroupPath::parse(&request.cgroup).map_err(|_| Failure::Invalid {
        field: "cgroup",
        value: format!("{:?}", request.cgroup),
        expected: "an absolute path of names of letters, digits and \"_-.:@+\", without \"..\"",
    })
}

/// The user namespace, when the request has mappings for one.
fn user_namespace_of(request: &wire::CreatePodRequest) -> Result<Option<OwnedFd>, Failure> {
    if request.uids.is_empty() && request.gids.is_empty() {
        return Ok(None);
    }
    Ok(Some(user_namespace(&mappings(&request.uids), &mappings(&request.gids))?))
}

fn mappings(mappings: &[wire::IdMapping]) -> Vec<LinuxIdMapping> {
    let mapping = |mapping: &wire::IdMapping| {
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

/// The host's ids of the pod's root.
fn root_of(request: &wire::CreatePodRequest) -> (u32, u32) {
    let root = |mappings: &[wire::IdMapping]| {
        mappings.iter().find(|mapping| mapping.container == 0).map_or(0, |mapping| mapping.host)
    };
    (root(&request.uids), root(&request.gids))
}

fn make_namespaces(
    shim: &Shim,
    cgroup: &CgroupPath,
    request: &wire::CreatePodRequest,
    user: Option<&OwnedFd>,
) -> Result<PodNamespaces, Failure> {
    let pid = match request.pid.enum_value_or_default() {
        wire::PidMode::PID_POD => PodPid::Shared,
        wire::PidMode::PID_CONTAINER | wire::PidMode::PID_HOST => PodPid::PerContainer,
    };
    let (network, uts) = match request.network.enum_value_or_default() {
        wire::NetworkMode::NETWORK_PRIVATE => (PodNamespace::New, PodNamespace::New),
        // The host's name goes with the host's network.
        wire::NetworkMode::NETWORK_HOST => (PodNamespace::Host, PodNamespace::Host),
    };
    let ipc = match request.ipc.enum_value_or_default() {
        wire::IpcMode::IPC_POD => PodNamespace::New,
        wire::IpcMode::IPC_HOST => PodNamespace::Host,
    };
    let named = !request.hostname.is_empty() && uts == PodNamespace::New;
    let init_group = match pid {
        PodPid::PerContainer => None,
        PodPid::Shared => Some(init_group(shim, cgroup)?),
    };
    let v2_dir = init_group.as_ref().map(Cgroup::v2_dir).transpose()?.flatten();
    let v1_procs = init_group.as_ref().map(Cgroup::v1_procs).transpose()?.unwrap_or_default();
    let made = pod_namespaces(&PodNamespaceRequest {
        network,
        ipc,
        uts,
        hostname: named.then_some(request.hostname.as_str()),
        pid,
        user: user.map(AsFd::as_fd),
        sysctl: &request.sysctls,
        cgroup: CgroupEntry { v2_dir: v2_dir.as_ref().map(AsFd::as_fd), v1_procs: &v1_procs },
    })?;
    Ok(made)
}

fn init_group(shim: &Shim, cgroup: &CgroupPath) -> Result<Cgroup, Failure> {
    let path = cgroup.child(POD_INIT_GROUP).map_err(|_| Failure::Invalid {
        field: "cgroup",
        value: format!("{cgroup:?}"),
        expected: "a path that is not nested so deep",
    })?;
    Ok(Cgroup::create(&shim.layout, &path, Controllers::NONE)?)
}

fn mount_shm(path: PathBuf, (uid, gid): (u32, u32)) -> Result<PathBuf, Failure> {
    let failed = |doing| {
        let path = path.clone();
        move |error: rustix::io::Errno| Failure::File { path, doing, source: error.into() }
    };
    match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(failed("made")(error)),
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = std::ffi::CString::new(format!("size={POD_SHM_BYTES},mode=1777,uid={uid},gid={gid}"));
    // Numbers and fixed text hold no NUL.
    let options = options.expect("no NUL in mount options");
    mount("shm", &path, "tmpfs", flags, options.as_c_str()).map_err(failed("mounted"))?;
    Ok(path)
}

impl Pod {
    /// Where its network namespace is.
    pub(crate) fn network_path(&self) -> Option<String> {
        let network = self.namespaces.network.as_ref()?;
        Some(format!("/proc/{}/fd/{}", std::process::id(), network.as_raw_fd()))
    }

    /// Lets go of its `/dev/shm`, so that the directory below it can be removed. Containers that have it keep it.
    pub(crate) fn unmount_shm(&self) {
        let Shm::Own(path) = &self.shm else { return };
        if let Err(error) = unmount(path, UnmountFlags::DETACH) {
            crate::logger::warning!("{path:?} stays mounted: {error}");
        }
    }

    fn answer(&self) -> wire::CreatePodResponse {
        let held = [
            ("network", &self.namespaces.network),
            ("ipc", &self.namespaces.ipc),
            ("uts", &self.namespaces.uts),
            ("pid", &self.namespaces.pid),
            ("user", &self.user),
        ];
        let shim = std::process::id();
        let place = |fd: &OwnedFd| format!("/proc/{shim}/fd/{}", fd.as_raw_fd());
        let namespaces = held.into_iter().filter_map(|(kind, fd)| {
            let path = place(fd.as_ref()?);
            Some(wire::Namespace { kind: kind.to_owned(), path, ..Default::default() })
        });
        wire::CreatePodResponse {
            namespaces: namespaces.collect(),
            shm_path: match &self.shm {
                Shm::Own(path) => path.to_string_lossy().into_owned(),
                Shm::Host => HOST_SHM.to_owned(),
            },
            ..Default::default()
        }
    }
}
