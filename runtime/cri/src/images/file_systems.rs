//! The file systems of images and of what containers write.
//!
//! kubelet takes them for one when they have the same mount point, and then collects images and containers for the room on it together. They are told as one
//! when they are on the same device, by the directory of the images.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use mainstay::{Runtime, Timestamp};
use mainstay_cri_api::{FilesystemIdentifier, FilesystemUsage, ImageFsInfoResponse, UInt64Value};
use mainstay_messages::Error;

use crate::failure::Result;

/// `ImageFsInfo`
pub(super) async fn info(runtime: &Runtime) -> Result<ImageFsInfoResponse> {
    let directory = runtime.image_directory();
    let used = runtime.image_footprint().await?;
    let images = usage(&directory, used.bytes, used.inodes);
    let root = &runtime.config().root_dir;
    let containers = if device(&directory)? == device(root)? { images.clone() } else { whole(root)? };
    Ok(ImageFsInfoResponse { image_filesystems: vec![images], container_filesystems: vec![containers] })
}

/// All that is used of the file system of a directory.
fn whole(directory: &Path) -> Result<FilesystemUsage> {
    let found = rustix::fs::statvfs(directory).map_err(|e| unreadable(directory, e.into()))?;
    let bytes = (found.f_blocks - found.f_bfree.min(found.f_blocks)) * found.f_frsize;
    Ok(usage(directory, bytes, found.f_files - found.f_ffree.min(found.f_files)))
}

fn usage(directory: &Path, bytes: u64, inodes: u64) -> FilesystemUsage {
    FilesystemUsage {
        timestamp: Timestamp::from_system(SystemTime::now()).0.cast_signed(),
        fs_id: Some(FilesystemIdentifier { mountpoint: directory.display().to_string() }),
        used_bytes: Some(UInt64Value { value: bytes }),
        inodes_used: Some(UInt64Value { value: inodes }),
    }
}

fn device(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(|e| unreadable(path, e))?.dev())
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::unavailable(path.display().to_string(), error)
}
