//! What is mounted from the host, looked up on the host as it is now.
//!
//! The shim's mount name space is a copy of the host's from the start of its pod. Where the host's root is no shared mount,
//! what was mounted since is not in the copy: a path leads to the empty directory below the mount. So the child visits the
//! host's name space, before it makes its own, and takes copies of what its root and its mounts are made of.
//!
//! Owns: what is looked up where, and the copies. Never: decides what is wrong with a source; that is said when it is mounted.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Mount;

use super::clone_tree;
use super::image::Image;
use super::options::{Bind, MountOptions, attr};
use crate::error::{Context, Result, Step, invalid, machine};
use crate::namespaces::MountNamespaceVisit;
use crate::rootfs::RootMount;
use crate::syscall::{Depth, mount_map_ids, mount_setattr};
use crate::user_namespace::{UserNamespace, user_namespace};

/// What the root is called in errors.
const ROOT: &str = "root";

/// Where the sources of the root and of bind mounts are looked up.
#[derive(Clone, Copy, Debug)]
pub struct HostMounts<'a> {
    /// The host's mount name space. The caller's own is a copy of an earlier moment: it may not have what was mounted since,
    /// and none of its mounts is a peer of the host's.
    pub namespace: BorrowedFd<'a>,
    /// A directory of the caller's, with mounts that only the caller has: what is below it is not looked up on the host.
    pub own: &'a Path,
}

/// Detached copies of mounts, made in the host's mount name space. What is not there is looked up in the caller's.
#[derive(Debug, Default)]
pub(crate) struct SourceTrees {
    /// By the index of the mount.
    mounts: BTreeMap<usize, OwnedFd>,
    /// The root that is a directory.
    root: Option<OwnedFd>,
    /// The read-only layers of a root that is an overlay, by their index.
    layers: BTreeMap<usize, OwnedFd>,
    /// The layers of images that are mounted, by the index of the mount and their own.
    image_layers: BTreeMap<(usize, usize), OwnedFd>,
    /// The directory that its writable layer and overlayfs's own directory are in: they must be of one mount.
    writable: Option<OwnedFd>,
}

/// What is to be copied, and which field of [`SourceTrees`] it is for.
enum Wanted {
    Mount(usize),
    Root,
    Layer(usize),
    ImageLayer(usize, usize),
    Writable,
}

impl SourceTrees {
    /// Copies the sources; this process is back in its own mount name space afterwards.
    pub(crate) fn of(
        host: Option<HostMounts<'_>>,
        root: &RootMount,
        mounts: &[Mount],
    ) -> Result<SourceTrees> {
        let mut trees = SourceTrees::default();
        let Some(HostMounts { namespace, own }) = host else { return Ok(trees) };
        let of_root = root_sources(root);
        let of_mounts = mounts.iter().enumerate().filter_map(bind_source);
        let all = of_root.into_iter().chain(of_mounts).chain(image_sources(mounts));
        let of_host: Vec<_> =
            all.filter(|(_, path, _)| path.is_absolute() && !path.starts_with(own)).collect();
        if of_host.is_empty() {
            return Ok(trees);
        }
        let visit = MountNamespaceVisit::to(namespace)
            .context(Step::Namespaces, || "visiting the host's mount name space".to_owned())?;
        for (wanted, path, bind) in of_host {
            if let Ok(tree) = clone_tree(path, bind) {
                trees.keep(wanted, tree);
            }
        }
        visit.end().context(Step::Namespaces, || "returning from the host's mount name space".to_owned())?;
        Ok(trees)
    }

    /// Copies from the caller's mount name space what the host has not given, and gives the root, and each mount that asks for
    /// it, to the ids of a user name space: files appear as owned by the container's ids of their owners' numbers. For a
    /// container in a user name space, whose own root may neither look there nor do this.
    pub(crate) fn map(
        &mut self,
        root: &RootMount,
        bundle: &Path,
        mounts: &[Mount],
        user: &UserNamespace<'_>,
    ) -> Result<()> {
        for (wanted, path, bind) in root_sources(root).into_iter().chain(image_sources(mounts)) {
            let tree = self.take(&wanted).map_or_else(|| copy(&bundle.join(path), bind, ROOT), Ok)?;
            // What the container writes is its ids' own already.
            if !matches!(wanted, Wanted::Writable) {
                map_ids(&tree, Depth::Recursive, user.as_fd(), ROOT, path)?;
            }
            self.keep(wanted, tree);
        }
        for (index, mount) in mounts.iter().enumerate() {
            let Some((wanted, path, bind)) = bind_source((index, mount)) else { continue };
            // Such a one is mapped already.
            if has_mappings(mount) {
                continue;
            }
            let field = format!("mounts[{index}] ({:?})", mount.destination());
            let tree = self.take(&wanted).map_or_else(|| copy(&bundle.join(path), bind, &field), Ok)?;
            if let Some(depth) = mapping_of(mount) {
                map_ids(&tree, depth, user.as_fd(), &field, path)?;
            }
            self.keep(wanted, tree);
        }
        Ok(())
    }

    /// Gives binds with mappings of their own to those ids, which the user name spaces in `owners` have, by the index of the
    /// mount.
    pub(crate) fn give(&mut self, bundle: &Path, mounts: &[Mount], owners: &MountOwners) -> Result<()> {
        for (index, mount) in mounts.iter().enumerate() {
            let Some(user) = owners.get(&index) else { continue };
            let Some((wanted, path, bind)) = bind_source((index, mount)) else { continue };
            let field = format!("mounts[{index}] ({:?})", mount.destination());
            let tree = self.take(&wanted).map_or_else(|| copy(&bundle.join(path), bind, &field), Ok)?;
            let depth = mapping_of(mount).unwrap_or(Depth::Top);
            map_ids(&tree, depth, user.as_fd(), &field, path)?;
            self.keep(wanted, tree);
        }
        Ok(())
    }

    fn take(&mut self, wanted: &Wanted) -> Option<OwnedFd> {
        match wanted {
            Wanted::Mount(index) => self.mounts.remove(index),
            Wanted::Layer(index) => self.layers.remove(index),
            Wanted::ImageLayer(mount, index) => self.image_layers.remove(&(*mount, *index)),
            Wanted::Root => self.root.take(),
            Wanted::Writable => self.writable.take(),
        }
    }

    fn keep(&mut self, wanted: Wanted, tree: OwnedFd) {
        match wanted {
            Wanted::Mount(index) => drop(self.mounts.insert(index, tree)),
            Wanted::Layer(index) => drop(self.layers.insert(index, tree)),
            Wanted::ImageLayer(mount, index) => drop(self.image_layers.insert((mount, index), tree)),
            Wanted::Root => self.root = Some(tree),
            Wanted::Writable => self.writable = Some(tree),
        }
    }

    /// That of a bind mount.
    pub(crate) fn mount(&self, index: usize) -> io::Result<Option<OwnedFd>> {
        copied(self.mounts.get(&index))
    }

    /// That of a root that is a directory.
    pub(crate) fn root(&self) -> io::Result<Option<OwnedFd>> {
        copied(self.root.as_ref())
    }

    /// That of a read-only layer.
    pub(crate) fn layer(&self, index: usize) -> io::Result<Option<OwnedFd>> {
        copied(self.layers.get(&index))
    }

    /// That of a layer of an image that is mounted.
    pub(crate) fn image_layer(&self, mount: usize, index: usize) -> io::Result<Option<OwnedFd>> {
        copied(self.image_layers.get(&(mount, index)))
    }

    /// That of the directory of the writable layer.
    pub(crate) fn writable(&self) -> io::Result<Option<OwnedFd>> {
        copied(self.writable.as_ref())
    }
}

fn copy(path: &Path, bind: Bind, field: &str) -> Result<OwnedFd> {
    match clone_tree(path, bind) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(invalid(field, format!("source {path:?} does not exist")))
        }
        result => result.context(Step::Mounts, || format!("{field}: source {path:?}")),
    }
}

/// User name spaces with the ids of mounts that have mappings of their own, by the index of the mount.
pub(crate) type MountOwners = BTreeMap<usize, OwnedFd>;

/// Makes a user name space for each mount with mappings of its own.
pub(crate) fn mount_owners(mounts: &[Mount]) -> Result<MountOwners> {
    let mut owners = MountOwners::new();
    for (index, mount) in mounts.iter().enumerate() {
        match (mount.uid_mappings(), mount.gid_mappings()) {
            (None, None) => {}
            (Some(uids), Some(gids)) => drop(owners.insert(index, user_namespace(uids, gids)?)),
            _ => {
                let field = format!("mounts[{index}] ({:?})", mount.destination());
                return Err(invalid(&field, "uidMappings and gidMappings come together, or not at all"));
            }
        }
    }
    Ok(owners)
}

fn has_mappings(mount: &Mount) -> bool {
    mount.uid_mappings().is_some() || mount.gid_mappings().is_some()
}

/// Whether a mount asks for other owners, and how far down.
fn mapping_of(mount: &Mount) -> Option<Depth> {
    let options = MountOptions::parse(mount.options().as_deref().unwrap_or_default());
    options.ok().and_then(|options| options.map_ids)
}

fn map_ids(tree: &OwnedFd, depth: Depth, user: BorrowedFd<'_>, field: &str, path: &Path) -> Result<()> {
    // A device node on the host's disk would be the container's root's own.
    let map = || {
        mount_map_ids(tree.as_fd(), depth, user)?;
        mount_setattr(tree.as_fd(), depth, attr::NODEV, 0, 0)
    };
    match map() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM | libc::ENOSYS)) => {
            let hint = if field == ROOT { "" } else { "; with noidmap its files keep the host's owners" };
            let reason = format!(
                "{path:?} cannot be id-mapped: its file system, or one that is mounted below it, does not take that on this kernel ({error}){hint}"
            );
            Err(machine(field, reason))
        }
        result => result.context(Step::Mounts, || format!("{field}: id-mapping {path:?}")),
    }
}

fn copied(tree: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
    tree.map(OwnedFd::try_clone).transpose()
}

fn root_sources(root: &RootMount) -> Vec<(Wanted, &Path, Bind)> {
    match root {
        RootMount::Bind(path) => vec![(Wanted::Root, path.as_path(), Bind::Recursive)],
        RootMount::Overlay { lower, upper, work } => {
            let layers = lower.iter().enumerate();
            let layers = layers.map(|(index, path)| (Wanted::Layer(index), path.as_path(), Bind::Single));
            // Apart, they may be of different mounts of one file system, which their copies would not tell.
            let above = upper.parent().filter(|above| work.parent() == Some(above));
            layers.chain(above.map(|above| (Wanted::Writable, above, Bind::Single))).collect()
        }
    }
}

fn image_sources(mounts: &[Mount]) -> impl Iterator<Item = (Wanted, &Path, Bind)> {
    let images = mounts.iter().enumerate().filter_map(|(mount, given)| Some((mount, Image::of(given)?)));
    images.flat_map(|(mount, image)| {
        let layers = image.layers.into_iter().enumerate();
        layers.map(move |(index, path)| (Wanted::ImageLayer(mount, index), path, Bind::Single))
    })
}

fn bind_source((index, mount): (usize, &Mount)) -> Option<(Wanted, &Path, Bind)> {
    let options = MountOptions::parse(mount.options().as_deref().unwrap_or_default()).ok()?;
    let source = mount.source().as_deref()?;
    (options.bind != Bind::No).then_some((Wanted::Mount(index), source, options.bind))
}
