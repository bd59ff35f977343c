//! Profiles of system calls that are files of the node.
//!
//! Owns: reading one, in time. The path is whoever's made the pod: what is there may be a FIFO, a device, or on a file system that does
//! not answer. Never: waits for it on a thread that serves others.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_messages::spec::SECCOMP_PROFILE_LENGTH_MAX;
use rustix::fs::{Mode, OFlags};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time to read one, in milliseconds.
pub(super) const PROFILE_READ_MS: u64 = 10_000;
/// The most that are read at once. One on a file system that does not answer keeps its place, and its thread, until that does.
pub(super) const PROFILE_READS_MAX: usize = 16;

static READS: Semaphore = Semaphore::const_new(PROFILE_READS_MAX);

/// The text of a profile, or what is wrong with its path.
pub(super) async fn read(path: PathBuf) -> Result<String, String> {
    let reading = async {
        // The semaphore is never closed.
        let place = READS.acquire().await.map_err(|error| error.to_string())?;
        let reading = spawn_blocking(move || {
            let _place = place;
            read_file(&path)
        });
        reading.await.unwrap_or_else(|error| Err(error.to_string()))
    };
    let limit = Duration::from_millis(PROFILE_READ_MS);
    timeout(limit, reading)
        .await
        .unwrap_or_else(|_| Err(format!("it could not be read within {PROFILE_READ_MS} ms")))
}

fn read_file(path: &Path) -> Result<String, String> {
    if !path.is_absolute() {
        return Err("it is not absolute".to_owned());
    }
    // O_NONBLOCK keeps a FIFO from blocking the open.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?);
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut json = String::new();
    let most = SECCOMP_PROFILE_LENGTH_MAX as u64 + 1;
    // One that is too large is refused by what is left of it.
    file.take(most).read_to_string(&mut json).map_err(|error| error.to_string())?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The profile was opened on a thread of the server, where a FIFO without a writer held it for ever.
    #[tokio::test]
    async fn what_is_no_file_is_refused_at_once() {
        let fifo = std::env::temp_dir().join(format!("mainstay-profile-{}", std::process::id()));
        let user = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, user).expect("a FIFO");
        let read_fifo = read(fifo.clone()).await;
        std::fs::remove_file(&fifo).expect("removed");
        assert_eq!(read_fifo, Err("it is no regular file".to_owned()));
        assert_eq!(read("/dev/null".into()).await, Err("it is no regular file".to_owned()));
        assert_eq!(read("profile".into()).await, Err("it is not absolute".to_owned()));
        assert!(read("/none/profile".into()).await.is_err());
    }
}
