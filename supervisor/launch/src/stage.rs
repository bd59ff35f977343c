//! What the host's root prepares for a container in a user name space, before the container's own root takes over.
//!
//! ```text
//!   host's root:       sources copied and id-mapped → a mount name space for the work → root, proc, device nodes
//!                        ── all of it detached, held by descriptor ──▶
//!   container's root:  name spaces of its own → root attached → other mounts → … (init.rs)
//! ```
//!
//! The container's root could not do any of this: it may not look into the host's private directories, mount the layers of the
//! root, make device nodes, or mount the proc of a process id name space, which is the host's. What is mounted for the work
//! alone goes with its mount name space.
//!
//! Never: touches the container's files, but for the directory that its root is mounted on.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{AtFlags, FileType, Mode, chownat, mknodat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, mount_change,
};
use rustix::process::chdir;
use rustix::thread::UnshareFlags;

use crate::devices::{self, Device};
use crate::error::{Context, Result, Step, invalid};
use crate::mounts::image::{self, Images};
use crate::mounts::mount_label;
use crate::mounts::options::{Bind, MountOptions, attr};
use crate::mounts::sources::SourceTrees;
use crate::mounts::target::{open_entry, open_host_directory};
use crate::mounts::{attach, clone_handle};
use crate::namespaces::unshare;
use crate::rootfs::{self, RootMount};
use crate::syscall::{Depth, mount_setattr};
use crate::user_namespace::IdMap;

/// Detached mounts for a container in a user name space.
pub(crate) struct Stage {
    /// The root.
    root: OwnedFd,
    /// The images that are mounted.
    images: Images,
    /// Of type proc, by the index of the mount.
    procs: BTreeMap<usize, OwnedFd>,
    /// One for each device, in the order of [`devices::wanted`]; none for a FIFO, which everybody may make.
    nodes: Vec<Option<OwnedFd>>,
}

impl Stage {
    /// Prepares everything. This process is in a mount name space of its own afterwards, in the directory that the root is
    /// going to be mounted on: that is how it is found again without the right to go there.
    pub(crate) fn set(
        spec: &Spec,
        bundle: &Path,
        root: &RootMount,
        sources: &SourceTrees,
        ids: IdMap<'_>,
    ) -> Result<Stage> {
        let separate = || -> io::Result<()> {
            unshare(UnshareFlags::NEWNS)?;
            Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
        };
        separate().context(Step::Namespaces, || "a mount name space to prepare the root in".to_owned())?;
        let place = rootfs::make_place(bundle)?;
        chdir(&place).context(Step::RootMount, || format!("entering {place:?}"))?;
        let nodes = make_nodes(&devices::wanted(spec)?, &place, ids)?;
        let mounts = spec.mounts().as_deref().unwrap_or_default();
        let images = image::make(mounts, sources, &place, mount_label(spec))?;
        let root = rootfs::detached_root(root, sources, bundle, &place, mount_label(spec))?;
        // A device node of an image would be its root's own.
        mount_setattr(root.as_fd(), Depth::Recursive, attr::NODEV, 0, 0)
            .context(Step::RootMount, || "refusing device nodes".to_owned())?;
        for image in images.values() {
            mount_setattr(image.as_fd(), Depth::Recursive, attr::NODEV, 0, 0)
                .context(Step::Mounts, || "refusing device nodes".to_owned())?;
        }
        let procs = make_procs(mounts)?;
        Ok(Stage { root, images, procs, nodes })
    }

    /// The root.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        self.root.try_clone()
    }

    /// The images that are mounted.
    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// The proc for a mount of the spec.
    pub(crate) fn proc(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.procs.get(&index).map(AsFd::as_fd)
    }

    /// The node for a device.
    pub(crate) fn node(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.nodes.get(index)?.as_ref().map(AsFd::as_fd)
    }
}

/// This process is in the process id name space that they show.
fn make_procs(mounts: &[Mount]) -> Result<BTreeMap<usize, OwnedFd>> {
    let mut procs = BTreeMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        // What is wrong with an option is said when it is mounted.
        let Ok(options) = MountOptions::parse(mount.options().as_deref().unwrap_or_default()) else {
            continue;
        };
        if mount.typ().as_deref() == Some("proc") && options.bind == Bind::No {
            let field = || format!("mounts[{index}] ({:?}): mounting proc", mount.destination());
            procs.insert(index, make_proc(&options).context(Step::Mounts, field)?);
        }
    }
    Ok(procs)
}

fn make_proc(options: &MountOptions) -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for word in options.data.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some((key, value)) => fsconfig_set_string(context.as_fd(), key, value)?,
            None => fsconfig_set_flag(context.as_fd(), word)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    // The attributes of a mount are in the lower half of the word.
    let attributes = MountAttrFlags::from_bits_retain((options.top.set | options.tree.set) as u32);
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The nodes lie in a file system in memory that nobody sees; only copies of the mount go into the container.
fn make_nodes(wanted: &[Device<'_>], place: &Path, ids: IdMap<'_>) -> Result<Vec<Option<OwnedFd>>> {
    let store = node_store(place).context(Step::Devices, || "a file system for device nodes".to_owned())?;
    let make = |(index, device): (usize, &Device<'_>)| -> Result<Option<OwnedFd>> {
        if device.node.kind == FileType::Fifo {
            return Ok(None);
        }
        let owner = device.node.owner.map(|(uid, gid)| {
            ids.owner(uid, gid).ok_or_else(|| {
                invalid(&device.field, format!("the owner {uid}:{gid} is not mapped in the user namespace"))
            })
        });
        let owner = owner.transpose()?;
        let make = || -> io::Result<OwnedFd> {
            let name = index.to_string();
            let mode = Mode::from_raw_mode(device.node.mode);
            mknodat(&store, &name, device.node.kind, mode, device.node.device)?;
            if let Some((uid, gid)) = owner {
                chownat(&store, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            clone_handle(open_entry(&store, name.as_ref())?.as_fd(), Bind::Single)
        };
        make().map(Some).context(Step::Devices, || device.field.clone())
    };
    wanted.iter().enumerate().map(make).collect()
}

/// It is attached, since before Linux 6.15 only an attached mount can be copied; the root lies on top of it.
fn node_store(place: &Path) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let store = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(store.as_fd(), &open_host_directory(place)?)?;
    Ok(store)
}
