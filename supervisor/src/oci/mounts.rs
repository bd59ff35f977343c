//! What is mounted into a container: the usual file systems of the kernel, then what its spec asks for.

use std::path::Path;

use mainstay_launch::{LAYER_OPTION, PART_OPTION};
use mainstay_messages::spec::{
    self, Access, ContainerSpec, LayeredMount, MountSource, Owners, Privilege, Propagation, Restriction,
    Submounts,
};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::Mount;

use super::{NameFile, PodNamespaces, Surroundings, namespaces};

/// The option of a bind whose files are the container's ids' own, with the mounts below it.
const MAP_IDS: &str = "ridmap";
/// The group of terminals, as the host counts it.
const TERMINAL_GROUP: u32 = 5;
/// Where shared memory is in every container.
pub const DEFAULT_SHM: &str = "/dev/shm";

/// Mounts in the order in which they are made.
pub(super) fn of(spec: &ContainerSpec, around: Surroundings<'_>, names: &[NameFile]) -> Vec<Mount> {
    let pod = around.pod;
    // What the caller mounts at one of the usual places takes that place.
    let taken = |mount: &Mount| spec.mounts.iter().any(|given| given.target == *mount.destination());
    let mut mounts = usual(spec.security.privilege, pod);
    mounts.retain(|mount| !taken(mount));
    let volumes = spec.rootfs.volumes().iter().enumerate();
    mounts.extend(volumes.map(|(index, place)| volume(&around.layer.volume(index), place, pod)));
    mounts.extend(names.iter().map(name_file));
    mounts.extend(spec.mounts.iter().map(|given| match &given.source {
        MountSource::Bind { path } => {
            let mapped = pod.ids.is_some() && given.owners == Owners::Mapped;
            bind(path, given, mapped.then_some(MAP_IDS))
        }
        MountSource::Tmpfs { size_bytes } => tmpfs(given, *size_bytes),
        MountSource::Layers(layered) => image(layered, given),
        // The runtime has found its layers before it asks for the container.
        MountSource::Image(_) => tmpfs(given, None),
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
        terminals(pod),
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

/// Terminals belong to their group, where the container has that.
fn terminals(pod: &PodNamespaces) -> Mount {
    let mut options = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    if pod.ids.as_ref().is_none_or(|ids| ids.to_host(0, TERMINAL_GROUP).is_some()) {
        options.push("gid=5");
    }
    mount("/dev/pts", "devpts", "devpts", &options)
}

/// A volume of the image: its files have the ids of the image, which are the container's own.
fn volume(source: &Path, place: &Path, pod: &PodNamespaces) -> Mount {
    let given = spec::Mount::bind(source, place, Access::ReadWrite);
    bind(source, &given, pod.ids.is_some().then_some(MAP_IDS))
}

/// A file or directory of the host.
fn bind(source: &Path, given: &spec::Mount, also: Option<&str>) -> Mount {
    let mut options = vec![match given.submounts {
        Submounts::Alike | Submounts::AsOnHost => "rbind",
        Submounts::Absent => "bind",
    }];
    options.push(match given.propagation {
        Propagation::Private => "rprivate",
        Propagation::Slave => "rslave",
        Propagation::Shared => "rshared",
    });
    options.push(match given.access {
        Access::ReadWrite => "rw",
        Access::ReadOnly => "ro",
    });
    options.extend(given.restrictions.iter().map(|restriction| word(*restriction)));
    if given.submounts == Submounts::Alike {
        if given.access == Access::ReadOnly {
            options.push("rro");
        }
        options.extend(given.restrictions.iter().map(|restriction| word_for_all(*restriction)));
    }
    options.extend(also);
    let mut mount = mount(&given.target, "bind", source, &options);
    if let Owners::Given(ids) = &given.owners {
        mount
            .set_uid_mappings(Some(namespaces::mappings(&ids.uids)))
            .set_gid_mappings(Some(namespaces::mappings(&ids.gids)));
    }
    mount
}

/// An image, as an overlay of its layers: each is an option of its own, as overlayfs names it, and the part that is shown is
/// named as mount(8) does.
fn image(layered: &LayeredMount, given: &spec::Mount) -> Mount {
    let mut options = vec!["ro".to_owned(), "nodev".to_owned()];
    options.extend(given.restrictions.iter().map(|restriction| word(*restriction).to_owned()));
    options.extend(layered.layers.iter().map(|layer| format!("{LAYER_OPTION}{}", layer.display())));
    let part = layered.sub_path.as_ref();
    options.extend(part.map(|part| format!("{PART_OPTION}{}", part.display())));
    let mut mount = mount(&given.target, "overlay", "overlay", &[]);
    mount.set_options(Some(options));
    mount
}

fn word(restriction: Restriction) -> &'static str {
    match restriction {
        Restriction::NoExec => "noexec",
        Restriction::NoSuid => "nosuid",
        Restriction::NoDev => "nodev",
        Restriction::NoSymfollow => "nosymfollow",
        Restriction::NoAtime => "noatime",
    }
}

/// The same for the mounts below as well.
fn word_for_all(restriction: Restriction) -> &'static str {
    match restriction {
        Restriction::NoExec => "rnoexec",
        Restriction::NoSuid => "rnosuid",
        Restriction::NoDev => "rnodev",
        Restriction::NoSymfollow => "rnosymfollow",
        Restriction::NoAtime => "rnoatime",
    }
}

/// What a container mounts on a shared mount comes to be on the host. The root of a user namespace is to have no such say.
pub(super) fn check_propagation(mounts: &[spec::Mount]) -> Result<()> {
    match mounts.iter().position(|mount| mount.propagation == Propagation::Shared) {
        None => Ok(()),
        Some(index) => Err(Error::invalid(
            format!("mounts[{index}].propagation"),
            "shared",
            "private or slave, in a pod with a user namespace",
        )),
    }
}

/// A file of the bundle, which relative sources are relative to.
fn name_file(file: &NameFile) -> Mount {
    mount(file.target, "bind", file.name, &["bind", "rprivate", "ro", "nosuid", "noexec", "nodev"])
}

fn tmpfs(given: &spec::Mount, size_bytes: Option<u64>) -> Mount {
    let mut options = vec!["nosuid".to_owned(), "nodev".to_owned(), "mode=1777".to_owned()];
    options.extend(size_bytes.map(|size| format!("size={size}")));
    if given.access == Access::ReadOnly {
        options.push("ro".to_owned());
    }
    options.extend(given.restrictions.iter().map(|restriction| word(*restriction).to_owned()));
    let mut mount = mount(&given.target, "tmpfs", "tmpfs", &[]);
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
