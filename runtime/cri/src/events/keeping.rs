//! How far clients have come, kept beside the daemon, so that they go on there with the next one: `cri-readers.json` in the state
//! directory.
//!
//! ```json
//! { "version": 1, "readers": [ { "user": 0, "program": "/usr/bin/kubelet", "position": 4711, "ended": ["POD"] } ] }
//! ```
//!
//! Owns: the file. It is written [`EVENTS_KEPT_MS`] after a client has come further, and when the endpoint ends: what a daemon that was
//! killed had not written yet is told again, and nothing is left out. One that cannot be read is nobody's place: its clients get what
//! has happened since the daemon began, as new ones do.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mainstay::{SandboxId, Seq};
use serde::{Deserialize, Serialize};

use crate::limits::{EVENTS_KEPT_BYTES_MAX, EVENTS_KEPT_MS};
use crate::node::Node;

/// The name of the file.
const FILE: &str = "cri-readers.json";
/// What is written, and the only one that is read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    readers: Vec<Reader>,
}

/// How far a client has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reader {
    pub(super) user: Option<u32>,
    pub(super) program: PathBuf,
    pub(super) position: Seq,
    /// Pods of which it was told that they have ended.
    pub(super) ended: Vec<SandboxId>,
}

/// The readers of the daemon before, those apart that have come further than the journal goes: it is another one.
pub(super) fn read(state_dir: &Path, last: Seq) -> Vec<Reader> {
    match load(&state_dir.join(FILE)) {
        Ok(readers) => readers.into_iter().filter(|reader| reader.position <= last).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            tracing::warn!(%error, file = FILE, "how far readers of events had come is not known");
            Vec::new()
        }
    }
}

fn load(path: &Path) -> io::Result<Vec<Reader>> {
    let mut text = Vec::new();
    File::open(path)?.take(EVENTS_KEPT_BYTES_MAX + 1).read_to_end(&mut text)?;
    let kept: Kept = serde_json::from_slice(&text)?;
    if text.len() as u64 > EVENTS_KEPT_BYTES_MAX || kept.version != VERSION {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long, or of another version"));
    }
    Ok(kept.readers)
}

/// Writes the file anew; who looks meanwhile finds the old one.
fn write(state_dir: &Path, readers: Vec<Reader>) -> io::Result<()> {
    let text = serde_json::to_vec(&Kept { version: VERSION, readers })?;
    let mut file = tempfile::NamedTempFile::new_in(state_dir)?;
    file.write_all(&text)?;
    file.persist(state_dir.join(FILE))?;
    Ok(())
}

/// Writes the file whenever a client has come further, for as long as there is the node.
pub(crate) async fn keep(node: Weak<Node>) {
    loop {
        let Some(changed) = node.upgrade().map(|node| node.events.changed()) else { return };
        changed.notified().await;
        tokio::time::sleep(Duration::from_millis(EVENTS_KEPT_MS)).await;
        let Some(node) = node.upgrade() else { return };
        keep_now(&node).await;
    }
}

/// Writes the file.
pub(crate) async fn keep_now(node: &Arc<Node>) {
    let (state_dir, readers) = (node.runtime.config().state_dir.clone(), node.events.readers());
    let written = tokio::task::spawn_blocking(move || write(&state_dir, readers)).await;
    if let Err(error) = written.map_err(io::Error::other).and_then(|written| written) {
        tracing::warn!(%error, file = FILE, "how far readers of events have come cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(position: u64) -> Reader {
        Reader {
            user: Some(0),
            program: "/usr/bin/kubelet".into(),
            position: Seq(position),
            ended: vec![SandboxId::from_random([7; 16])],
        }
    }

    #[test]
    fn what_was_written_is_read_but_for_what_another_journal_said() {
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(read(place.path(), Seq(10)), Vec::new(), "there is none yet");
        write(place.path(), vec![reader(10), reader(11)]).expect("written");
        assert_eq!(read(place.path(), Seq(10)), [reader(10)]);
    }

    #[test]
    fn a_file_that_is_none_of_ours_is_nobodys_place() {
        let place = tempfile::tempdir().expect("a directory");
        for text in ["", "{}", "{\"version\":2,\"readers\":[]}"] {
            std::fs::write(place.path().join(FILE), text).expect("written");
            assert_eq!(read(place.path(), Seq(10)), Vec::new(), "{text}");
        }
    }
}
