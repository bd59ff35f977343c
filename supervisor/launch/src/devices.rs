//! Device nodes and links in the container's `/dev`.
//!
//! Every node is checked by descriptor after it was made: type and number must be what was asked for, whatever the image or
//! another container put there. When the spec binds the host's `/dev`, nothing is made.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Mount, Spec};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chownat, fstat, makedev, mknodat, symlinkat};
use rustix::io::Errno;

use crate::error::{Context, Result, Step, invalid};
use crate::mounts::options::Bind;
use crate::mounts::target::{ContainerRoot, Kind, Links, open_entry, remove_entry};
use crate::mounts::{attach, clone_handle, clone_tree};
use crate::stage::Stage;

/// The devices that every container has (OCI runtime spec, config-linux, "Default Devices"): name, major, minor.
const DEFAULT_DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// Permissions of a device that names none.
const DEVICE_MODE_DEFAULT: u32 = 0o666;
/// The links that every container has (OCI runtime spec, runtime-linux, "Dev symbolic links").
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
/// Only on kernels that have it.
const CORE_LINK: (&str, &str) = ("/proc/kcore", "core");

/// A node as it must be.
pub(crate) struct Node {
    pub(crate) kind: FileType,
    pub(crate) device: u64,
    pub(crate) mode: u32,
    /// Ids of the container; the host's root where none is given.
    pub(crate) owner: Option<(u32, u32)>,
}

/// A device that a container gets.
pub(crate) struct Device<'a> {
    /// What it is called in errors.
    pub(crate) field: String,
    directory: &'a Path,
    name: &'a OsStr,
    pub(crate) node: Node,
}

/// All devices of a container, in the order in which they are made.
pub(crate) fn wanted(spec: &Spec) -> Result<Vec<Device<'_>>> {
    if brings_dev(spec) {
        return Ok(Vec::new());
    }
    let usual = DEFAULT_DEVICES.iter().map(|(name, major, minor)| {
        Ok(Device {
            field: format!("/dev/{name}"),
            directory: Path::new("/dev"),
            name: OsStr::new(name),
            node: Node {
                kind: FileType::CharacterDevice,
                device: makedev(*major, *minor),
                mode: DEVICE_MODE_DEFAULT,
                owner: Some((0, 0)),
            },
        })
    });
    let listed = spec.linux().as_ref().and_then(|linux| linux.devices().as_deref()).unwrap_or_default();
    usual.chain(listed.iter().enumerate().map(|(index, device)| read_listed(index, device))).collect()
}

/// Fills `/dev`, and makes the devices of the spec. In a user name space they are those that were prepared.
pub(crate) fn make_devices(root: &ContainerRoot, spec: &Spec, stage: Option<&Stage>) -> Result<()> {
    if brings_dev(spec) {
        return Ok(());
    }
    for (index, device) in wanted(spec)?.iter().enumerate() {
        let make = || {
            let directory = root.mount_point(device.directory, Kind::Directory)?;
            match stage.and_then(|stage| stage.node(index)) {
                Some(prepared) => bind_node(&directory, device.name, prepared, &device.node),
                None => make_node(&directory, device.name, &device.node),
            }
        };
        make().context(Step::Devices, || device.field.clone())?;
    }
    let dev = root
        .directory(Path::new("/dev"), Links::Inside)
        .context(Step::Devices, || "/dev of the container".to_owned())?;
    for (target, name) in LINKS {
        link(&dev, target, name).context(Step::Devices, || format!("/dev/{name}"))?;
    }
    if Path::new(CORE_LINK.0).exists() {
        link(&dev, CORE_LINK.0, CORE_LINK.1).context(Step::Devices, || "/dev/core".to_owned())?;
    }
    Ok(())
}

/// Lays the terminal over `/dev/console`.
pub(crate) fn make_console(root: &ContainerRoot, terminal: &OwnedFd) -> Result<()> {
    let make = || -> io::Result<()> {
        let dev = root.directory(Path::new("/dev"), Links::Inside)?;
        let name = OsStr::new("console");
        match mknodat(&dev, name, FileType::RegularFile, Mode::from_raw_mode(0o600), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let console = open_entry(&dev, name)?;
        if FileType::from_raw_mode(fstat(&console)?.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        attach(clone_handle(terminal.as_fd(), Bind::Single)?.as_fd(), &console)
    };
    make().context(Step::Terminal, || "/dev/console".to_owned())
}

/// Whether the spec binds the host's `/dev`.
fn brings_dev(spec: &Spec) -> bool {
    spec.mounts().as_ref().is_some_and(|mounts| mounts.iter().any(binds_dev))
}

fn binds_dev(mount: &Mount) -> bool {
    let is_bind = mount.typ().as_deref() == Some("bind")
        || mount
            .options()
            .as_ref()
            .is_some_and(|words| words.iter().any(|word| word == "bind" || word == "rbind"));
    is_bind && mount.destination().components().eq([Component::RootDir, Component::Normal(OsStr::new("dev"))])
}

fn read_listed(index: usize, device: &LinuxDevice) -> Result<Device<'_>> {
    let path = device.path();
    let field = format!("linux.devices[{index}] ({path:?})");
    let kind = match device.typ() {
        LinuxDeviceType::C | LinuxDeviceType::U => FileType::CharacterDevice,
        LinuxDeviceType::B => FileType::BlockDevice,
        LinuxDeviceType::P => FileType::Fifo,
        LinuxDeviceType::A => return Err(invalid(field, "the type must be c, u, b or p")),
    };
    let number = |value: i64| u32::try_from(value).ok();
    let device_number = match (kind, number(device.major()), number(device.minor())) {
        (FileType::Fifo, _, _) => 0,
        (_, Some(major), Some(minor)) => makedev(major, minor),
        _ => {
            return Err(invalid(field, format!("{}:{} is no device number", device.major(), device.minor())));
        }
    };
    let (Some(name), Some(directory)) = (path.file_name(), path.parent()) else {
        return Err(invalid(field, "the path must name a file below the root"));
    };
    let node = Node {
        kind,
        device: device_number,
        mode: device.file_mode().unwrap_or(DEVICE_MODE_DEFAULT) & 0o7777,
        owner: match (device.uid(), device.gid()) {
            (None, None) => None,
            (uid, gid) => Some((uid.unwrap_or(0), gid.unwrap_or(0))),
        },
    };
    Ok(Device { field, directory, name, node })
}

/// Shows a node that was prepared outside, whatever the image has in its place.
fn bind_node(directory: &OwnedFd, name: &OsStr, prepared: BorrowedFd<'_>, node: &Node) -> io::Result<()> {
    let make = || mknodat(directory, name, FileType::RegularFile, Mode::from_raw_mode(node.mode), 0);
    match make() {
        Ok(()) => {}
        // One of the usual devices is listed, too.
        Err(Errno::EXIST) if is_node(&open_entry(directory, name)?, node)? => return Ok(()),
        Err(Errno::EXIST) => {
            remove_entry(directory, name)?;
            make()?;
        }
        Err(error) => return Err(error.into()),
    }
    attach(prepared, &open_entry(directory, name)?)?;
    verify(&open_entry(directory, name)?, node)
}

fn make_node(directory: &OwnedFd, name: &OsStr, node: &Node) -> io::Result<()> {
    let make = || mknodat(directory, name, node.kind, Mode::from_raw_mode(node.mode), node.device);
    match make() {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            if is_node(&open_entry(directory, name)?, node)? {
                return Ok(());
            }
            // Something of the image's is in the way of a device that was promised.
            remove_entry(directory, name)?;
            make()?;
        }
        // Not allowed in a user name space: show the host's.
        Err(Errno::PERM) => return bind_host_device(directory, name, node),
        Err(error) => return Err(error.into()),
    }
    if let Some((uid, gid)) = node.owner.filter(|owner| *owner != (0, 0)) {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    verify(&open_entry(directory, name)?, node)
}

fn bind_host_device(directory: &OwnedFd, name: &OsStr, node: &Node) -> io::Result<()> {
    let tree = clone_tree(&Path::new("/dev").join(name), Bind::Single)?;
    verify(&tree, node)?;
    mknodat(directory, name, FileType::RegularFile, Mode::from_raw_mode(node.mode), 0)?;
    attach(tree.as_fd(), &open_entry(directory, name)?)
}

fn is_node(handle: &OwnedFd, node: &Node) -> io::Result<bool> {
    let stat = fstat(handle)?;
    let is_device = node.kind != FileType::Fifo;
    Ok(FileType::from_raw_mode(stat.st_mode) == node.kind && (!is_device || stat.st_rdev == node.device))
}

fn verify(handle: &OwnedFd, node: &Node) -> io::Result<()> {
    if is_node(handle, node)? {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "something else is there than the device that was made",
        ))
    }
}

fn link(dev: &OwnedFd, target: &str, name: &str) -> io::Result<()> {
    match symlinkat(target, dev, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
