//! What containers have on the disk beside what they are made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_images::usage;
use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::{ContainerId, Error, Result};
use tokio::sync::Semaphore;

use crate::runtime::Runtime;
use crate::system::System;

/// Time to count the files of a container, in milliseconds, the wait for its turn among it. Ten million of them take less.
pub const DISK_USAGE_MS: u64 = 60_000;

/// The most containers whose files are counted at once; others wait for their turn. The threads of all else are the same ones.
const COUNTS_MAX: usize = 4;

/// Turns of counting, of all runtimes of this process: they share its threads.
static TURNS: Semaphore = Semaphore::const_new(COUNTS_MAX);

/// Tells the count to end when whoever wants it has left, or has waited for too long.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Runtime {
    /// Counts what a container has on the disk: what it changed of its root, and the volumes of its image. One whose root is
    /// a directory used as it is has nothing of its own. The files are looked at one by one.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Unavailable`] for a directory that cannot be read; [`Error::DeadlineExceeded`] when it
    /// takes more than [`DISK_USAGE_MS`].
    pub async fn disk_usage(&self, container: &ContainerId) -> Result<DiskUsage> {
        self.container(container)?;
        self.system().disk_usage(container).await
    }
}

impl System {
    /// See [`Runtime::disk_usage`]; a container without files has none.
    pub(crate) async fn disk_usage(&self, container: &ContainerId) -> Result<DiskUsage> {
        let layer = self.directories.layer(container);
        let wanted = Wanted(Arc::new(AtomicBool::new(true)));
        let still_wanted = Arc::clone(&wanted.0);
        let work = async {
            let turn = TURNS.acquire().await;
            // It keeps its turn until it has really ended, which is later than its caller may leave.
            let work = move || {
                let counted = count([layer.upper, layer.volumes], &still_wanted);
                drop(turn);
                counted
            };
            tokio::task::spawn_blocking(work).await
        };
        let what = format!("the counting of files of container {container}");
        let late = |_| Error::DeadlineExceeded { what: what.clone(), after_ms: DISK_USAGE_MS };
        let counted = tokio::time::timeout(Duration::from_millis(DISK_USAGE_MS), work).await.map_err(late)?;
        counted.map_err(|_| Error::internal(what, "it panicked"))?
    }
}

fn count(directories: [PathBuf; 2], wanted: &AtomicBool) -> Result<DiskUsage> {
    let mut total = DiskUsage::default();
    for directory in directories {
        match usage(&directory, || wanted.load(Ordering::Relaxed)) {
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
