//! Waiting until a disk has taken what was written, and telling meanwhile that it moves (P8).
//!
//! ```text
//!   told ─► sync ···································► done
//!     └ the disk has written more than a moment ago? ─► told again
//! ```
//!
//! A sync of a large layer takes as long as the disk does, and says nothing itself. So it is the kernel's figures that are
//! watched: a disk that takes sectors lives, and one that takes none is silent, whoever waits for it.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::fs::{fstat, major, minor};

/// Time between two looks at the figures of the disk, in milliseconds.
const SYNC_LOOK_MS: u64 = 250;
/// Where the sectors written are among the figures of a block device (Documentation/block/stat.rst of Linux).
const SECTORS_WRITTEN: usize = 6;
/// The figure of the whole machine, for file systems that lie on no single device.
const PAGES_WRITTEN: &str = "nr_written ";

/// Where it can be seen that a file system writes.
struct Figures(Option<PathBuf>);

/// Makes a file, or its whole file system, durable by `sync`, and calls `tell` at the beginning and whenever the disk has
/// moved since. Blocks.
pub(crate) fn telling<T>(
    file: BorrowedFd<'_>,
    tell: &(dyn Fn() + Sync),
    sync: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let figures = Figures::of(file);
    watched(Duration::from_millis(SYNC_LOOK_MS), || figures.written(), tell, sync)
}

fn watched<T>(
    pause: Duration,
    written: impl Fn() -> Option<u64> + Send,
    tell: &(dyn Fn() + Sync),
    sync: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    tell();
    thread::scope(|scope| {
        let (over, watch) = mpsc::channel::<()>();
        let watcher = thread::Builder::new().name("images-sync".to_owned()).spawn_scoped(scope, move || {
            let mut last = written();
            while watch.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let now = written();
                if now != last {
                    tell();
                }
                last = now;
            }
        });
        if let Err(error) = watcher {
            tracing::warn!(%error, "a disk is not watched while it takes what was written");
        }
        let synced = sync();
        drop(over);
        synced
    })
}

impl Figures {
    fn of(file: BorrowedFd<'_>) -> Self {
        let device = fstat(file).ok().map(|stat| {
            let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))
        });
        Self(device.filter(|path| path.exists()))
    }

    /// What was written so far, in units of whatever is watched.
    fn written(&self) -> Option<u64> {
        match &self.0 {
            Some(device) => {
                fs::read_to_string(device).ok()?.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()
            }
            None => {
                let all = fs::read_to_string("/proc/vmstat").ok()?;
                all.lines().find_map(|line| line.strip_prefix(PAGES_WRITTEN))?.parse().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// How long a test waits for what has to come, in seconds.
    const WAIT_S: u64 = 30;

    /// A sync of a large layer was one event and then silence: a slow disk and a large layer were a pull that was given up.
    #[test]
    fn a_disk_that_moves_is_told_of_until_the_sync_ends() {
        let sectors = AtomicU64::new(0);
        let (teller, told) = mpsc::channel();
        let written = || Some(sectors.fetch_add(1, Ordering::Relaxed));
        let done = watched(Duration::from_millis(1), written, &|| _ = teller.send(()), || {
            for _ in 0..5 {
                told.recv_timeout(Duration::from_secs(WAIT_S)).map_err(io::Error::other)?;
            }
            Ok("synced")
        });
        assert_eq!(done.expect("told five times"), "synced");
    }

    /// A disk that hangs must not look alive because somebody waits for it.
    #[test]
    fn a_disk_that_stands_still_is_silent() {
        let (looked, looks) = mpsc::channel();
        let told = AtomicU64::new(0);
        let written = move || {
            looked.send(()).ok();
            Some(7)
        };
        let count = || _ = told.fetch_add(1, Ordering::Relaxed);
        let done = watched(Duration::from_millis(1), written, &count, || {
            for _ in 0..5 {
                looks.recv_timeout(Duration::from_secs(WAIT_S)).map_err(io::Error::other)?;
            }
            Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(done.expect_err("as the sync says").kind(), io::ErrorKind::StorageFull);
        assert_eq!(told.into_inner(), 1, "at the beginning");
    }

    #[test]
    fn every_file_system_has_figures() {
        for directory in ["/", "/dev/shm", "/proc"] {
            let file = fs::File::open(directory).expect("there");
            assert!(Figures::of(file.as_fd()).written().is_some(), "{directory}");
        }
    }
}
