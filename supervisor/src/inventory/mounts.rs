//! Mounts below our directories that the whole machine sees: those of this thread's mount namespace.
//!
//! A shim mounts in a namespace of its own, so there are none as a rule. One that is there all the same must be gone
//! before its directory is removed, or what is mounted there would be emptied.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use mainstay_messages::audit::{Owner, Thing, ThingKind};
use rustix::mount::{UnmountFlags, unmount};

use crate::paths::Directories;

/// The field of mountinfo with the mount point (proc_pid_mountinfo(5)), counted from 0.
const MOUNT_POINT_FIELD: usize = 4;

/// The mounts below the directories of pods, layers and logs. Those directories may be mounts themselves.
pub(super) fn of(directories: &Directories) -> io::Result<Vec<Thing>> {
    let points = mount_points()?;
    let mut things = Vec::new();
    for (top, whose) in [
        (directories.pods(), owner_in_pods as fn(&Path) -> Owner),
        (directories.layers(), owner_in_layers),
        (directories.logs(), owner_in_pods),
    ] {
        let Some(top) = as_mounted(&top)? else { continue };
        for point in &points {
            if let Ok(inner) = point.strip_prefix(&top)
                && inner != Path::new("")
            {
                let (kind, place, owner) = (ThingKind::Mount, point.display().to_string(), whose(inner));
                things.push(Thing { kind, place, process: None, owner, since: None });
            }
        }
    }
    Ok(things)
}

/// Takes away every mount at or below a directory, the innermost first. What is in use goes when it no longer is.
pub(crate) fn detach_below(directory: &Path) -> io::Result<()> {
    let points = mount_points()?;
    // Most directories have none; then their real name need not be found out.
    let Some(name) = directory.file_name() else { return Ok(()) };
    if !points.iter().any(|point| point.components().any(|part| part.as_os_str() == name)) {
        return Ok(());
    }
    let Some(directory) = as_mounted(directory)? else { return Ok(()) };
    // A later line may be mounted on top of an earlier one.
    for point in points.iter().rev().filter(|point| point.starts_with(&directory)) {
        unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    }
    Ok(())
}

/// A directory as mountinfo has it, without links; none when it is not there.
fn as_mounted(directory: &Path) -> io::Result<Option<PathBuf>> {
    match fs::canonicalize(directory) {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// `POD/c/CONTAINER/…`, or `POD/…`.
fn owner_in_pods(inner: &Path) -> Owner {
    let mut parts = inner.iter().map(|part| part.to_str().unwrap_or_default());
    let Some(sandbox) = parts.next().and_then(|part| part.parse().ok()) else { return Owner::default() };
    match (parts.next(), parts.next().and_then(|part| part.parse().ok())) {
        (Some("c"), Some(container)) => Owner::container(&sandbox, &container),
        _ => Owner::pod(&sandbox),
    }
}

/// `CONTAINER/…`
fn owner_in_layers(inner: &Path) -> Owner {
    let container = inner.iter().next().and_then(|part| part.to_str()?.parse().ok());
    container.as_ref().map(Owner::container_alone).unwrap_or_default()
}

fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(parse(&fs::read("/proc/thread-self/mountinfo")?))
}

/// The mount points of mountinfo, in its order.
fn parse(mountinfo: &[u8]) -> Vec<PathBuf> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let field = |line: &[u8]| line.split(|byte| *byte == b' ').nth(MOUNT_POINT_FIELD).map(unescape);
    lines.filter_map(field).collect()
}

/// Blanks, line ends and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        path.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mount_points_with_their_escapes() {
        let text = b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
                     36 21 0:30 / /run/a\\040b\\134c rw,nosuid shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(parse(text), [PathBuf::from("/"), PathBuf::from("/run/a b\\c")]);
    }

    #[test]
    fn knows_whose_a_mount_is() {
        let (pod, container) = ("pod".parse().expect("an id"), "box".parse().expect("an id"));
        assert_eq!(owner_in_pods(Path::new("pod/c/box/rootfs")), Owner::container(&pod, &container));
        assert_eq!(owner_in_pods(Path::new("pod/shm")), Owner::pod(&pod));
        assert_eq!(owner_in_pods(Path::new("lost+found")), Owner::default());
        assert_eq!(owner_in_layers(Path::new("box/upper")), Owner::container_alone(&container));
    }
}
