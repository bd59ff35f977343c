//! The container's root: mounted at `<bundle>/rootfs` in the child's own mount name space, and made `/` at the end.
//!
//! Nothing that is mounted here is visible on the host: the whole name space receives the host's mounts and sends none.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{Mode, mkdir};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{chdir, fchdir, pivot_root};

use crate::error::{Context, Result, Step, invalid};
use crate::mounts::image::{self, Images};
use crate::mounts::options::{Bind, Propagation, attr};
use crate::mounts::sources::SourceTrees;
use crate::mounts::target::{ContainerRoot, handle_path, open_entry, open_host_directory};
use crate::mounts::{attach, clone_handle, clone_tree, follow_host, leave_host};
use crate::syscall::{Depth, mount_setattr};

/// What the kernel takes as mount options: one page with its final NUL.
const MOUNT_DATA_MAX_BYTES: usize = 4095;

/// The directory of the bundle that the root is mounted on.
pub const ROOTFS_DIRECTORY: &str = "rootfs";

/// What the container's root is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootMount {
    /// An overlay of read-only layers and a writable one.
    Overlay {
        /// The layers, the uppermost first.
        lower: Vec<PathBuf>,
        /// The writable layer.
        upper: PathBuf,
        /// A directory on the same file system as `upper` for overlayfs's own use.
        work: PathBuf,
    },
    /// A directory of the host (or, relative, of the bundle), with the mounts below it.
    Bind(PathBuf),
}

/// Cuts this mount name space off from the host's, and mounts the root, over the images that are to be mounted in it.
pub(crate) fn mount_root(
    root: &RootMount,
    sources: &SourceTrees,
    bundle: &Path,
    mounts: &[Mount],
    label: Option<&str>,
    propagation: Option<&str>,
) -> Result<(ContainerRoot, Images)> {
    cut_off(propagation)?;
    let images = image::make(mounts, sources, &make_place(bundle)?, label)?;
    Ok((mount_root_here(root, sources, bundle, label)?, images))
}

/// Mounts the root in this mount name space.
pub(crate) fn mount_root_here(
    root: &RootMount,
    sources: &SourceTrees,
    bundle: &Path,
    label: Option<&str>,
) -> Result<ContainerRoot> {
    let place = make_place(bundle)?;
    let fd = match root {
        RootMount::Overlay { lower, upper, work } => overlay(lower, upper, work, sources, &place, label)?,
        RootMount::Bind(source) => bind(&bundle.join(source), sources, &place)?,
    };
    Ok(ContainerRoot::new(fd))
}

/// Cuts this mount name space off from the host's, and mounts the root that was prepared outside: on the directory that this
/// process is in.
pub(crate) fn mount_prepared_root(tree: OwnedFd, propagation: Option<&str>) -> Result<ContainerRoot> {
    cut_off(propagation)?;
    let mount = || attach(tree.as_fd(), &open_host_directory(Path::new("."))?);
    mount().context(Step::RootMount, || "mounting it".to_owned())?;
    Ok(ContainerRoot::new(tree))
}

/// The root as a detached mount, for a mount name space that is still to be made. `place` is used for the work.
pub(crate) fn detached_root(
    root: &RootMount,
    sources: &SourceTrees,
    bundle: &Path,
    place: &Path,
    label: Option<&str>,
) -> Result<OwnedFd> {
    match root {
        RootMount::Overlay { lower, upper, work } => {
            let mounted = overlay(lower, upper, work, sources, place, label)?;
            clone_handle(mounted.as_fd(), Bind::Single).context(Step::RootMount, || "copying it".to_owned())
        }
        RootMount::Bind(source) => host_tree(&bundle.join(source), sources),
    }
}

/// Makes the directory of the bundle that the root is mounted on.
pub(crate) fn make_place(bundle: &Path) -> Result<PathBuf> {
    let place = bundle.join(ROOTFS_DIRECTORY);
    match mkdir(&place, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(place),
        Err(error) => Err(error).context(Step::RootMount, || format!("making {place:?}")),
    }
}

fn cut_off(propagation: Option<&str>) -> Result<()> {
    let initial = match propagation {
        Some("private" | "rprivate") => MountPropagationFlags::PRIVATE,
        _ => MountPropagationFlags::DOWNSTREAM,
    };
    mount_change("/", initial | MountPropagationFlags::REC)
        .context(Step::RootMount, || "cutting the mount name space off".to_owned())
}

fn bind(source: &Path, sources: &SourceTrees, place: &Path) -> Result<OwnedFd> {
    let tree = host_tree(source, sources)?;
    let target = open_host_directory(place).context(Step::RootMount, || format!("{place:?}"))?;
    attach(tree.as_fd(), &target).context(Step::RootMount, || format!("binding {source:?}"))?;
    Ok(tree)
}

/// A directory of the host as a detached mount that follows the host.
fn host_tree(source: &Path, sources: &SourceTrees) -> Result<OwnedFd> {
    let of_host = sources.root().context(Step::RootMount, || format!("{source:?}"))?;
    let tree = match of_host.map_or_else(|| clone_tree(source, Bind::Recursive), Ok) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(invalid("root.path", format!("{source:?} does not exist")));
        }
        result => result.context(Step::RootMount, || format!("{source:?}"))?,
    };
    follow_host(tree.as_fd()).context(Step::RootMount, || format!("{source:?}"))?;
    Ok(tree)
}

fn overlay(
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    sources: &SourceTrees,
    place: &Path,
    label: Option<&str>,
) -> Result<OwnedFd> {
    // Layers are given as handles: short whatever their paths are, free of the separators ':' and ',', and the mount
    // table that the container can read tells nothing about the host.
    let layer = |(index, path): (usize, &PathBuf)| {
        let opened = match sources.layer(index) {
            Ok(Some(tree)) => attach_below(tree, place),
            Ok(None) => open_host_directory(path),
            Err(error) => Err(error),
        };
        opened.context(Step::RootMount, || format!("layer {path:?}"))
    };
    let layers = lower.iter().enumerate().map(layer).collect::<Result<Vec<_>>>()?;
    if layers.is_empty() {
        return Err(invalid("root", "an overlay needs at least one lower layer"));
    }
    let writable = || format!("layer {upper:?} with {work:?}");
    let (upper_fd, work_fd) =
        open_writable(upper, work, sources, place).context(Step::RootMount, writable)?;
    let lower_paths = layers.iter().map(handle_path).collect::<Vec<_>>().join(":");
    let data = format!(
        "lowerdir={lower_paths},upperdir={},workdir={}{}",
        handle_path(&upper_fd),
        handle_path(&work_fd),
        label.map(labelled).unwrap_or_default()
    );
    if data.len() > MOUNT_DATA_MAX_BYTES {
        return Err(invalid(
            "root",
            format!("{} layers are more than one overlay mount can name", layers.len()),
        ));
    }
    let data = CString::new(data).map_err(|_| invalid("linux.mountLabel", "it has a NUL byte"))?;
    mount("overlay", place, "overlay", MountFlags::empty(), data.as_c_str())
        .context(Step::RootMount, || {
            format!("overlay of {} layers, upper {upper:?}, work {work:?}", layers.len())
        })?;
    open_host_directory(place).context(Step::RootMount, || format!("{place:?}"))
}

/// The mount option that gives all files of a file system one SELinux label.
pub(crate) fn labelled(label: &str) -> String {
    // A level has commas in it.
    format!(",context=\"{label}\"")
}

/// The writable layer and overlayfs's own directory.
fn open_writable(
    upper: &Path,
    work: &Path,
    sources: &SourceTrees,
    place: &Path,
) -> io::Result<(OwnedFd, OwnedFd)> {
    match (sources.writable()?, upper.file_name(), work.file_name()) {
        (Some(tree), Some(upper), Some(work)) => {
            let above = attach_below(tree, place)?;
            Ok((open_entry(&above, upper)?, open_entry(&above, work)?))
        }
        _ => Ok((open_host_directory(upper)?, open_host_directory(work)?)),
    }
}

/// Mounts what the root is made of where the root is mounted later: overlayfs takes layers of this mount name space alone. The
/// root lies on top of them, and they go with the host's root when this process lets go of that.
pub(crate) fn attach_below(tree: OwnedFd, place: &Path) -> io::Result<OwnedFd> {
    leave_host(tree.as_fd())?;
    attach(tree.as_fd(), &open_host_directory(place)?)?;
    Ok(tree)
}

/// Makes the root mount read-only; what is mounted below it stays as it is.
pub(crate) fn make_root_read_only(root: &ContainerRoot) -> Result<()> {
    mount_setattr(root.as_fd(), Depth::Top, attr::RDONLY, 0, 0)
        .context(Step::RootMount, || "making the root read-only".to_owned())
}

/// Makes the root the root of this mount name space, and lets go of the host's.
pub(crate) fn enter(root: ContainerRoot) -> Result<()> {
    let enter = || -> rustix::io::Result<()> {
        fchdir(&root)?;
        pivot_root(".", ".")?;
        // The host's root now lies on top of the container's, at the same place.
        unmount(".", UnmountFlags::DETACH)?;
        chdir("/")
    };
    enter().context(Step::PivotRoot, || "changing the root".to_owned())
}

/// Applies `linux.rootfsPropagation` to the root once it is the root.
pub(crate) fn set_propagation(spec: &Spec) -> Result<()> {
    let Some(word) = spec.linux().as_ref().and_then(|linux| linux.rootfs_propagation().as_deref()) else {
        return Ok(());
    };
    if word.is_empty() {
        return Ok(());
    }
    let field = "linux.rootfsPropagation";
    let Some(Propagation { kind, depth }) = Propagation::parse(word) else {
        return Err(invalid(field, format!("{word:?} must be shared, slave, private or unbindable")));
    };
    let flags = MountPropagationFlags::from_bits_retain(kind as u32);
    let recursive =
        if depth == Depth::Recursive { MountPropagationFlags::REC } else { MountPropagationFlags::empty() };
    mount_change("/", flags | recursive).context(Step::PivotRoot, || format!("{field} {word:?}"))
}
