//! Whether what is mounted at a path can propagate.
//!
//! Owns: reading that from the mount table. Never: mounts anything.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use mainstay_messages::spec::{Mount, MountSource, Propagation};
use mainstay_messages::{Error, Result};
use rustix::fs::{Mode, OFlags, open};

/// Checks that a mount with propagation comes from a mount that has peers. Names the field and the mount that has none.
pub(crate) fn check(index: usize, mount: &Mount) -> Result<()> {
    let (MountSource::Bind { path }, Propagation::Slave | Propagation::Shared) =
        (&mount.source, mount.propagation)
    else {
        return Ok(());
    };
    let table = fs::read_to_string("/proc/self/mountinfo");
    let found = mount_id(path).and_then(|id| Ok(row(&table?, id)));
    let found = found.map_err(|error| Error::unavailable("the mount table", error))?;
    let Some(row) = found else {
        return Err(Error::unavailable("the mount table", format!("it does not have the mount of {path:?}")));
    };
    let enough = row.shared || (row.follows && mount.propagation == Propagation::Slave);
    if enough {
        return Ok(());
    }
    let word = if mount.propagation == Propagation::Slave { "slave" } else { "shared" };
    Err(Error::invalid(
        format!("mounts[{index}].propagation"),
        word,
        format!(
            "private, or a source on a shared mount: {path:?} is on {}, which is not (mount --make-shared {})",
            row.point, row.point
        ),
    ))
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    point: String,
    shared: bool,
    follows: bool,
}

/// The number of the mount that a path is on.
fn mount_id(path: &Path) -> io::Result<u64> {
    let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "fdinfo without mnt_id"))
}

/// A row of the mount table: `ID PARENT DEVICE ROOT POINT OPTIONS [shared:N] [master:N] - …`.
fn row(table: &str, id: u64) -> Option<Row> {
    let line =
        table.lines().find(|line| line.split(' ').next().and_then(|word| word.parse().ok()) == Some(id))?;
    let words: Vec<&str> = line.split(' ').collect();
    let optional = || words.iter().skip(6).take_while(|word| **word != "-");
    Some(Row {
        point: (*words.get(4)?).to_owned(),
        shared: optional().any(|word| word.starts_with("shared:")),
        follows: optional().any(|word| word.starts_with("master:")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_table() {
        let table = "22 27 0:21 / /proc rw - proc proc rw\n\
                     30 27 0:30 / /mnt rw,relatime shared:7 master:3 - tmpfs tmpfs rw,shared:1\n\
                     31 27 0:31 / /srv rw,relatime - tmpfs tmpfs rw\n";
        let found = |id| row(table, id).map(|row| (row.point, row.shared, row.follows));
        assert_eq!(found(30), Some(("/mnt".to_owned(), true, true)));
        assert_eq!(found(31), Some(("/srv".to_owned(), false, false)));
        assert_eq!(found(3), None);
        assert!(mount_id(Path::new("/proc")).is_ok());
    }
}
