//! The numbers of disks that limits are for.
//!
//! Owns: looking them up, and saying which field names no disk. Never: limits anything.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use mainstay_messages::spec::BlockIo;
use mainstay_messages::{Error, Result};

/// The major and minor number of each disk, by the path of its node.
pub type DiskNumbers = BTreeMap<PathBuf, (u32, u32)>;

/// Looks up the disks that have limits.
pub(crate) fn numbers(limits: &BlockIo) -> Result<DiskNumbers> {
    let numbers = limits.devices.iter().enumerate().map(|(index, device)| {
        let refused = |why: String| {
            let field = format!("block_io.devices[{index}].path");
            Error::invalid(field, format!("{:?}", device.path), format!("the node of a disk ({why})"))
        };
        let metadata = fs::metadata(&device.path).map_err(|error| refused(error.to_string()))?;
        if !metadata.file_type().is_block_device() {
            return Err(refused("it is no block device".to_owned()));
        }
        let number = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Ok((device.path.clone(), number))
    });
    numbers.collect()
}
