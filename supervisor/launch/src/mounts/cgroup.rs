//! The mount of type `cgroup`: the container's own groups, bound from the host's hierarchies.
//!
//! On a machine with v2 alone the container's group is mounted at the destination. With v1 (or both) the destination is a
//! small tmpfs with one directory per hierarchy that the container has a group of its own in, and `unified` for v2. So a
//! container never sees the groups of others, with or without a cgroup name space. Nothing is mounted for hierarchies
//! that the caller did not put the container into.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, mkdirat, openat, statx, symlinkat,
};

use super::options::{Bind, MountOptions, attr};
use super::target::{Links, handle_path};
use super::{MountContext, attach, change, clone_tree};
use crate::error::{Context, Result, Step};
use crate::syscall::{Depth, mount_setattr};

/// Where v2 is mounted in a tree that has v1 hierarchies too.
const UNIFIED: &str = "unified";
/// Options of the tmpfs that holds the hierarchies.
const HOLDER_OPTIONS: &std::ffi::CStr = c"mode=755,size=64k";

/// The directories of the container's groups on the host.
#[derive(Debug, Default)]
pub(crate) struct CgroupView {
    pub(crate) v2: Option<PathBuf>,
    pub(crate) v1: Vec<PathBuf>,
}

/// Mounts the container's groups at the destination.
pub(crate) fn mount(
    context: &MountContext<'_>,
    destination: &Path,
    target: &OwnedFd,
    options: &MountOptions,
    field: &str,
) -> Result<()> {
    let what = |path: &Path| format!("{field}: the group {path:?}");
    if let (Some(group), []) = (&context.cgroup.v2, context.cgroup.v1.as_slice()) {
        return bind(group, target, options).context(Step::Mounts, || what(group));
    }
    let holder = hold(context, destination, target, options)
        .context(Step::Mounts, || format!("{field}: its tmpfs"))?;
    let named = context.cgroup.v1.iter().filter_map(|group| Some((hierarchy_name(group)?, group)));
    let unified = context.cgroup.v2.iter().map(|group| (OsString::from(UNIFIED), group));
    for (name, group) in named.chain(unified) {
        hierarchy(&holder, &name, group, options).context(Step::Mounts, || what(group))?;
    }
    if options.top.set & attr::RDONLY != 0 {
        mount_setattr(holder.as_fd(), Depth::Top, attr::RDONLY, 0, 0)
            .context(Step::Mounts, || field.to_owned())?;
    }
    Ok(())
}

fn hold(
    context: &MountContext<'_>,
    destination: &Path,
    target: &OwnedFd,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    let flags = options.mount_flags() - rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount("cgroup", handle_path(target), "tmpfs", flags, HOLDER_OPTIONS)?;
    context.root.directory(destination, Links::Inside)
}

fn hierarchy(holder: &OwnedFd, name: &OsStr, group: &Path, options: &MountOptions) -> io::Result<()> {
    mkdirat(holder, name, Mode::from_raw_mode(0o755))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let point = openat(holder, name, flags, Mode::empty())?;
    bind(group, &point, options)?;
    // Controllers that share a hierarchy ("cpu,cpuacct") are looked for under each of their names.
    for controller in name.as_bytes().split(|byte| *byte == b',') {
        let controller = OsStr::from_bytes(controller);
        if controller != name {
            symlinkat(name, holder, controller)?;
        }
    }
    Ok(())
}

fn bind(group: &Path, target: &OwnedFd, options: &MountOptions) -> io::Result<()> {
    let tree = clone_tree(group, Bind::Single)?;
    change(tree.as_fd(), options)?;
    attach(tree.as_fd(), target)
}

/// The name of the directory that the hierarchy of a group is mounted on.
fn hierarchy_name(group: &Path) -> Option<OsString> {
    let mounted_on = group.ancestors().find(|path| is_mount_root(path))?;
    Some(mounted_on.file_name()?.to_owned())
}

fn is_mount_root(path: &Path) -> bool {
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
