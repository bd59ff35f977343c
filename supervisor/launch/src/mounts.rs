//! The mounts of a spec, in its order, inside the container's root.
//!
//! Every mount point is found by descriptor ([`target`]) and mounted on by descriptor, so neither the image nor a container
//! that shares a volume can lead a mount elsewhere. Runs in the child, in its own mount name space, before the root changes.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{CWD, FileType, fstat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};

use crate::error::{Context, Result, Step, invalid, unsupported};
use crate::procfs::is_procfs;
use crate::rootfs::labelled;
use crate::stage::Stage;
use crate::syscall::{Depth, mount_setattr};

pub(crate) mod cgroup;
pub(crate) mod image;
pub(crate) mod options;
pub(crate) mod protect;
pub(crate) mod sources;
pub(crate) mod target;

use cgroup::CgroupView;
use image::{Image, Images};
use options::{AttrChange, Bind, MountOptions, Propagation};
use sources::SourceTrees;
use target::{ContainerRoot, Kind, Links, handle_path};

/// What the mounts of a container refer to.
pub(crate) struct MountContext<'a> {
    pub(crate) root: &'a ContainerRoot,
    pub(crate) bundle: &'a Path,
    pub(crate) cgroup: &'a CgroupView,
    pub(crate) sources: &'a SourceTrees,
    pub(crate) images: &'a Images,
    /// The SELinux label of file systems that are made for the container.
    pub(crate) label: Option<&'a str>,
    /// What was prepared for a container in a user name space.
    pub(crate) stage: Option<&'a Stage>,
}

/// `linux.mountLabel` of a spec.
pub(crate) fn mount_label(spec: &Spec) -> Option<&str> {
    spec.linux().as_ref()?.mount_label().as_deref().filter(|label| !label.is_empty())
}

/// Mounts everything in the order of the spec.
pub(crate) fn mount_all(context: &MountContext<'_>, mounts: &[Mount]) -> Result<()> {
    for (index, mount) in mounts.iter().enumerate() {
        let field = format!("mounts[{index}] ({:?})", mount.destination());
        mount_one(context, index, mount, &field)?;
    }
    Ok(())
}

fn mount_one(context: &MountContext<'_>, index: usize, mount: &Mount, field: &str) -> Result<()> {
    let mut options = MountOptions::parse(&Image::options(mount))
        .map_err(|word| unsupported(field, format!("the mount option {word:?}")))?;
    if options.map_ids.is_some() && mount.uid_mappings().is_none() && context.stage.is_none() {
        return Err(invalid(
            field,
            "its ids cannot be mapped: the container has no user name space of its own",
        ));
    }
    let kind = mount.typ().as_deref().unwrap_or_default();
    if kind == "bind" && options.bind == Bind::No {
        options.bind = Bind::Single;
    }
    if mount.destination().components().all(|component| !matches!(component, std::path::Component::Normal(_)))
    {
        return Err(invalid(field, "the destination is the root itself; name a directory or file below it"));
    }
    if let Some(image) = context.images.get(&index) {
        place(context, image, mount, &options, field)
    } else if options.bind != Bind::No {
        bind(context, index, mount, &options, field)
    } else if kind == "cgroup" || kind == "cgroup2" {
        let target = point(context.root, mount.destination(), Kind::Directory, field)?;
        cgroup::mount(context, mount.destination(), &target, &options, field)
    } else if kind.is_empty() {
        Err(invalid(field, "neither a type nor the option bind or rbind is given"))
    } else {
        file_system(context, index, mount, kind, &options, field)
    }
}

fn bind(
    context: &MountContext<'_>,
    index: usize,
    mount: &Mount,
    options: &MountOptions,
    field: &str,
) -> Result<()> {
    let Some(source) = mount.source() else {
        return Err(invalid(field, "a bind mount needs a source"));
    };
    if !options.data.is_empty() {
        return Err(invalid(field, format!("{:?} is no option of a bind mount", options.data)));
    }
    let source = context.bundle.join(source);
    let of_host = context.sources.mount(index).context(Step::Mounts, || field.to_owned())?;
    let tree = match of_host.map_or_else(|| clone_tree(&source, options.bind), Ok) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(invalid(field, format!("source {source:?} does not exist")));
        }
        result => result.context(Step::Mounts, || format!("{field}: source {source:?}"))?,
    };
    place(context, &tree, mount, options, field)
}

/// Mounts a detached tree with its options.
fn place(
    context: &MountContext<'_>,
    tree: &OwnedFd,
    mount: &Mount,
    options: &MountOptions,
    field: &str,
) -> Result<()> {
    let stat = fstat(tree).context(Step::Mounts, || format!("{field}: its source"))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        _ => Kind::File,
    };
    change(tree.as_fd(), options).context(Step::Mounts, || format!("{field}: its options"))?;
    let target = point(context.root, mount.destination(), kind, field)?;
    attach(tree.as_fd(), &target).context(Step::Mounts, || format!("{field}: mounting it"))
}

fn file_system(
    context: &MountContext<'_>,
    index: usize,
    mount_spec: &Mount,
    kind: &str,
    options: &MountOptions,
    field: &str,
) -> Result<()> {
    // What programs trust to be the kernel's must not be reached through a link of the image's.
    let kernel_interface = matches!(kind, "proc" | "sysfs");
    let links = if kernel_interface { Links::Refuse } else { Links::Inside };
    let root = context.root;
    let target = match root.directory(mount_spec.destination(), links) {
        Err(error) if kernel_interface && error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(invalid(
                field,
                format!("{kind} is not mounted through a symbolic link of the image"),
            ));
        }
        result => result.context(Step::Mounts, || format!("{field}: its mount point"))?,
    };
    let source = mount_spec.source().clone().unwrap_or_else(|| PathBuf::from(kind));
    let mut data = options.data.clone();
    if let Some(label) = context.label.filter(|_| matches!(kind, "tmpfs" | "devpts")) {
        data.push_str(&labelled(label));
    }
    let data =
        CString::new(data.trim_start_matches(',')).map_err(|_| invalid(field, "an option has a NUL byte"))?;
    let mounted = match context.stage.and_then(|stage| stage.proc(index)) {
        Some(prepared) => attach(prepared, &target),
        None => mount(source, handle_path(&target), kind, options.mount_flags(), data.as_c_str())
            .map_err(io::Error::from),
    };
    mounted.context(Step::Mounts, || format!("{field}: mounting {kind} with {:?}", options.data))?;
    if kind == "proc" || options.propagation.is_some() {
        let mounted =
            root.find(mount_spec.destination(), links).context(Step::Mounts, || field.to_owned())?;
        if kind == "proc" && !is_procfs(&mounted).context(Step::Mounts, || field.to_owned())? {
            return Err(invalid(field, "the mount point changed during the mount: proc is not there"));
        }
        propagate(mounted.as_fd(), options.propagation)
            .context(Step::Mounts, || format!("{field}: propagation"))?;
    }
    Ok(())
}

fn point(root: &ContainerRoot, destination: &Path, kind: Kind, field: &str) -> Result<OwnedFd> {
    root.mount_point(destination, kind).context(Step::Mounts, || {
        let kind = if kind == Kind::Directory { "directory" } else { "file" };
        format!("{field}: the mount point, which must be a {kind}")
    })
}

/// A detached copy of the mount tree at a path of the host.
pub(crate) fn clone_tree(source: &Path, bind: Bind) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if bind == Bind::Recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, source, flags)?)
}

/// A detached copy of the mount tree at a handle.
pub(crate) fn clone_handle(handle: BorrowedFd<'_>, bind: Bind) -> io::Result<OwnedFd> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if bind == Bind::Recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(handle, c"", flags)?)
}

/// Mounts a detached tree exactly on what `target` is a handle of.
pub(crate) fn attach(tree: BorrowedFd<'_>, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", target, c"", flags)?)
}

/// How mounts propagate that name no way: what the host mounts is seen, what is mounted here is not seen on the host.
const FOLLOW_HOST: Propagation = Propagation { kind: libc::MS_SLAVE, depth: Depth::Recursive };

/// Has a copy of a mount of the host follow it, and not be its peer.
pub(crate) fn follow_host(tree: BorrowedFd<'_>) -> io::Result<()> {
    propagate(tree, Some(FOLLOW_HOST))
}

/// Has a copy of a mount of the host neither follow it nor be its peer.
pub(crate) fn leave_host(tree: BorrowedFd<'_>) -> io::Result<()> {
    propagate(tree, Some(Propagation { kind: libc::MS_PRIVATE, depth: Depth::Recursive }))
}

/// Applies attributes and propagation to a detached tree.
pub(crate) fn change(tree: BorrowedFd<'_>, options: &MountOptions) -> io::Result<()> {
    apply(tree, Depth::Recursive, options.tree)?;
    // A plain "rw" leaves a source that is read-only on the host as it is; only the word "ro" decides.
    let top = AttrChange { set: options.top.set, clear: options.top.clear & !options::attr::RDONLY };
    apply(tree, Depth::Top, top)?;
    // A copy of a shared mount of the host is a peer of it, unless it is told to be something else.
    let propagation = options.propagation.unwrap_or(FOLLOW_HOST);
    propagate(tree, Some(propagation))
}

fn apply(tree: BorrowedFd<'_>, depth: Depth, change: AttrChange) -> io::Result<()> {
    if change.is_empty() {
        return Ok(());
    }
    mount_setattr(tree, depth, change.set, change.clear, 0)
}

fn propagate(tree: BorrowedFd<'_>, propagation: Option<Propagation>) -> io::Result<()> {
    match propagation {
        Some(Propagation { kind, depth }) => mount_setattr(tree, depth, 0, 0, kind),
        None => Ok(()),
    }
}
