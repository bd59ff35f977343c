//! What containers have on the disk beside what they are made of.

use std::path::PathBuf;
use std::time::Duration;

use mainstay_images::usage;
use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::{ContainerId, Error, Result};

use crate::runtime::Runtime;

/// Time to count the files of a container, in milliseconds. Ten million of them take less.
pub const DISK_USAGE_MS: u64 = 60_000;

impl Runtime {
    /// Counts what a container has on the disk: what it changed of its root, and the volumes of its image. One whose root is
    /// a directory used as it is has nothing of its own. The files are looked at one by one.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Unavailable`] for a directory that cannot be read; [`Error::DeadlineExceeded`] when it
    /// takes more than [`DISK_USAGE_MS`].
    pub async fn disk_usage(&self, container: &ContainerId) -> Result<DiskUsage> {
        self.container(container)?;
        let layer = self.system().directories.layer(container);
        let work = tokio::task::spawn_blocking(move || count([layer.upper, layer.volumes]));
        let what = format!("the counting of files of container {container}");
        let late = |_| Error::DeadlineExceeded { what: what.clone(), after_ms: DISK_USAGE_MS };
        let counted = tokio::time::timeout(Duration::from_millis(DISK_USAGE_MS), work).await.map_err(late)?;
        counted.map_err(|_| Error::internal(what, "it panicked"))?
    }
}

fn count(directories: [PathBuf; 2]) -> Result<DiskUsage> {
    let mut total = DiskUsage::default();
    for directory in directories {
        match usage(&directory) {
            Ok(found) => {
                total.bytes += found.bytes;
                total.inodes += found.inodes;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::unavailable(directory.display().to_string(), error)),
        }
    }
    Ok(total)
}
