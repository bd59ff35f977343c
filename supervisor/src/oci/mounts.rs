//! What is mounted into a container: the usual file systems of the kernel, then what its spec asks for.

use std::path::Path;

use mainstay_messages::spec::{Access, ContainerSpec, MountSource, Privilege, Propagation};
use oci_spec::runtime::Mount;

use super::{NameFile, PodNamespaces};

/// Where shared memory is in every container.
pub const DEFAULT_SHM: &str = "/dev/shm";

/// Mounts in the order in which they are made.
pub(super) fn of(spec: &ContainerSpec, pod: &PodNamespaces, names: &[NameFile]) -> Vec<Mount> {
    // What the caller mounts at one of the usual places takes that place.
    let taken = |mount: &Mount| spec.mounts.iter().any(|given| given.target == *mount.destination());
    let mut mounts = usual(spec.security.privilege, pod);
    mounts.retain(|mount| !taken(mount));
    mounts.extend(names.iter().map(name_file));
    mounts.extend(spec.mounts.iter().map(|given| match &given.source {
        MountSource::Bind { path } => bind(path, &given.target, given.access, given.propagation),
        MountSource::Tmpfs { size_bytes } => tmpfs(&given.target, *size_bytes, given.access),
    }));
    mounts
}

fn usual(privilege: Privilege, pod: &PodNamespaces) -> Vec<Mount> {
    let access = match privilege {
        Privilege::Confined => "ro",
        Privilege::Privileged => "rw",
    };
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ];
    if let Some(shm) = &pod.shm {
        let options = ["bind", "rprivate", "nosuid", "noexec", "nodev", "rw"];
        mounts.push(mount(DEFAULT_SHM, "bind", shm, &options));
    }
    mounts
}

/// With the mounts below it; a read-only one is so all the way down.
fn bind(source: &Path, target: &Path, access: Access, propagation: Propagation) -> Mount {
    let propagation = match propagation {
        Propagation::Private => "rprivate",
        Propagation::Slave => "rslave",
        Propagation::Shared => "rshared",
    };
    match access {
        Access::ReadWrite => mount(target, "bind", source, &["rbind", propagation, "rw"]),
        Access::ReadOnly => mount(target, "bind", source, &["rbind", propagation, "ro", "rro"]),
    }
}

/// A file of the bundle, which relative sources are relative to.
fn name_file(file: &NameFile) -> Mount {
    mount(file.target, "bind", file.name, &["bind", "rprivate", "ro", "nosuid", "noexec", "nodev"])
}

fn tmpfs(target: &Path, size_bytes: Option<u64>, access: Access) -> Mount {
    let mut options = vec!["nosuid".to_owned(), "nodev".to_owned(), "mode=1777".to_owned()];
    options.extend(size_bytes.map(|size| format!("size={size}")));
    if access == Access::ReadOnly {
        options.push("ro".to_owned());
    }
    let mut mount = mount(target, "tmpfs", "tmpfs", &[]);
    mount.set_options(Some(options));
    mount
}

fn mount(target: impl AsRef<Path>, kind: &str, source: impl AsRef<Path>, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_destination(target.as_ref().to_owned())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(source.as_ref().to_owned()))
        .set_options(Some(options.iter().map(|option| (*option).to_owned()).collect()));
    mount
}
