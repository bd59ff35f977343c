//! The durable store of Mainstay: SQLite behind one writer thread.
//!
//! [`SqliteStore`] implements the actors' port [`Store`]. A commit is encoded on the caller's thread, queued
//! in order, written together with whatever else is queued, and answered when it is durable: it survives the
//! death of this process at any instant from then on. A power cut may cost the last moments (`synchronous =
//! NORMAL`) but never the file. Reads go to a thread and a connection of their own and never wait for the
//! writer.
//!
//! ```text
//!   commit() ─ encode ─► bounded queue ─► writer ─► WAL ◄─ reader ◄─ bounded queue ◄─ load(), events()
//! ```
//!
//! Records and facts are JSON in text columns, so that `sqlite3` and `jq` can read them; the files in
//! `schema` are the specification of the database. This crate never decides anything about pods or containers.
//!
//! | module | owns |
//! |---|---|
//! | `open` | whose file it is, whether it is sound, a fresh one in place of a damaged one |
//! | `aside` | renaming a damaged store |
//! | `lock` | one process at a time |
//! | `schema` | versions and migrations |
//! | `row` | columns and JSON |
//! | `names` | who has or had a name |
//! | `writer` | groups, numbers of the journal |
//! | `trim` | how much of the journal is kept |
//! | `reader` | queries |
//! | `lane` | a thread with a bounded queue |

mod aside;
mod error;
mod lane;
mod lock;
mod names;
mod open;
mod reader;
mod row;
mod schema;
mod trim;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, ready};
use mainstay_actors::ports::{EventPage, EventQuery, Loaded, Store};
use mainstay_messages::event::Bearer;
use mainstay_messages::journal::{Commit, Committed};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerId, Error, Name, Result, SandboxId};
use rusqlite::Transaction;

pub use crate::error::StoreError;
pub use crate::reader::EVENT_PAGE_MAX;
pub use crate::row::BODY_LENGTH_MAX;
pub use crate::trim::{EVENTS_KEPT_MIN, TRIM_STEP_EVENTS};
pub use crate::writer::{COMMIT_GROUP_MAX, Trouble, Written};

use crate::lane::Lane;
use crate::lock::StoreLock;
use crate::open::Database;
use crate::reader::{Read, Reader};
use crate::row::{Record, Rows};
use crate::trim::Keep;
use crate::writer::{DamageSeen, Job, Writer};

/// Commits that may wait for the writer, when nothing else is set.
pub const COMMIT_QUEUE_MAX: usize = 1_024;
/// Reads that may wait for the reader, when nothing else is set.
pub const READ_QUEUE_MAX: usize = 1_024;
/// Events that the journal keeps, when nothing else is set; up to [`TRIM_STEP_EVENTS`] more for a while.
pub const EVENTS_KEPT_MAX: u64 = 1_000_000;
/// Bytes of the database above which the oldest events go, when nothing else is set; up to [`TRIM_STEP_EVENTS`] events more for
/// a while: room for some 400,000 events as they are on average.
pub const BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long a write waits for another program that has the database locked (`sqlite3`, say), when nothing
/// else is set.
pub const BUSY_TIMEOUT_DEFAULT_MS: u64 = 5_000;

/// Settings of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The boot id of this run (`/proc/sys/kernel/random/boot_id`); the next run is told it.
    pub boot_id: String,
    /// Commits that may wait for the writer. When it is full, `commit` answers `ResourceExhausted`.
    pub commit_queue_max: usize,
    /// Reads that may wait for the reader. When it is full, reads answer `ResourceExhausted`.
    pub read_queue_max: usize,
    /// Events that the journal keeps.
    pub events_kept_max: u64,
    /// Bytes of the database, records included, above which the oldest events go. The newest [`EVENTS_KEPT_MIN`] stay.
    pub bytes_max: u64,
    /// How long a write waits for another program that has the database locked, in milliseconds.
    pub busy_timeout_ms: u64,
}

/// A store that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SqliteStore,
    /// Where a damaged predecessor was moved to; then the store is fresh and knows nothing.
    pub set_aside: Option<PathBuf>,
}

/// A store in a SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    previous_boot_id: Option<String>,
    writer: Lane<Job>,
    reader: Lane<Read>,
    written: Arc<Written>,
}

impl Options {
    /// The default settings, in a machine's run of this boot id.
    pub fn new(boot_id: impl Into<String>) -> Self {
        Self {
            boot_id: boot_id.into(),
            commit_queue_max: COMMIT_QUEUE_MAX,
            read_queue_max: READ_QUEUE_MAX,
            events_kept_max: EVENTS_KEPT_MAX,
            bytes_max: BYTES_MAX,
            busy_timeout_ms: BUSY_TIMEOUT_DEFAULT_MS,
        }
    }
}

impl SqliteStore {
    /// Opens the store at `path`, or makes it; its directory must exist. Beside `path` there will be
    /// `path-wal` and `path-shm` (SQLite's), `path.lock`, and `path.damaged-TIME` for one that had to be set
    /// aside.
    ///
    /// Blocks: for milliseconds, or for seconds when the whole file has to be checked after the machine went
    /// down.
    ///
    /// # Errors
    /// Where another process has it open, it is not ours, a newer program wrote it, or it cannot be reached.
    /// A damaged file is no error: it is set aside.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Opened, StoreError> {
        let path = path.as_ref();
        let busy_timeout = Duration::from_millis(options.busy_timeout_ms);
        let lock = StoreLock::acquire(path)?;
        let Database { connection, last_seq, previous_boot_id, set_aside } =
            open::open(path, &options.boot_id, busy_timeout)?;
        let damage = DamageSeen::default();
        let written = Arc::new(Written::default());
        let reader = Reader::new(open::open_reader(path, busy_timeout)?, damage.clone());
        let writer = Writer::new(
            connection,
            lock,
            last_seq,
            options.boot_id,
            Keep { events_max: options.events_kept_max, bytes_max: options.bytes_max },
            damage,
            Arc::clone(&written),
        )
        .map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let thread_error =
            |thread| move |source| StoreError::Thread { path: path.to_owned(), thread, source };
        let writer = Lane::start("writer", options.commit_queue_max, move |jobs| writer.run(&jobs))
            .map_err(thread_error("writer"))?;
        let reader = Lane::start("reader", options.read_queue_max, move |reads| reader.run(&reads))
            .map_err(thread_error("reader"))?;
        let path = path.to_owned();
        Ok(Opened { store: Self { path, previous_boot_id, writer, reader, written }, set_aside })
    }

    /// Writes what is queued, closes the file and gives the lock back. Blocks until that is done; afterwards
    /// every call answers `Unavailable`. Dropping the store does the same.
    pub fn close(&self) {
        // The writer's connection goes last: it folds the log into the database.
        self.reader.close();
        self.writer.close();
    }

    /// What has been written since it was opened.
    pub fn written(&self) -> &Written {
        &self.written
    }

    /// Commits that wait for the writer, and how many may.
    pub fn commit_queue(&self) -> (usize, usize) {
        self.writer.queue()
    }

    fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (answer, answered) = oneshot::channel();
        let read: Read = Box::new(move |reader| {
            // Whoever asked may have gone.
            let _ = answer.send(reader.read(query));
        });
        answer_of(self.reader.offer(read), answered)
    }

    fn load_one<R: Record>(&self, id: &str) -> BoxFuture<'static, Result<Option<R>>> {
        let id = id.to_owned();
        self.read(move |transaction| reader::load_one(transaction, &id))
            .map(|read| read.and_then(|record| record))
            .boxed()
    }
}

impl Store for SqliteStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Committed>> {
        let (answer, answered) = oneshot::channel();
        // Queued here and now, not when the future is polled: the order of calls is the order of commits.
        let queued = Rows::encode(commit).and_then(|rows| self.writer.offer(Job { rows, answer }));
        answer_of(queued, answered)
    }

    fn load(&self) -> BoxFuture<'static, Result<Loaded>> {
        let boot_id = self.previous_boot_id.clone();
        self.read(|transaction| reader::load(transaction, boot_id))
    }

    fn load_container(&self, id: &ContainerId) -> BoxFuture<'static, Result<Option<ContainerRecord>>> {
        self.load_one(id.as_str())
    }

    fn load_sandbox(&self, id: &SandboxId) -> BoxFuture<'static, Result<Option<SandboxRecord>>> {
        self.load_one(id.as_str())
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'static, Result<EventPage>> {
        self.read(move |transaction| reader::page(transaction, &query))
    }

    fn bearers(&self, name: &Name) -> BoxFuture<'static, Result<Vec<Bearer>>> {
        let name = name.clone();
        self.read(move |transaction| names::bearers(transaction, &name))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What a thread answers, or why it was not asked.
fn answer_of<T: Send + 'static>(
    queued: Result<()>,
    answered: oneshot::Receiver<Result<T>>,
) -> BoxFuture<'static, Result<T>> {
    match queued {
        Err(error) => ready(Err(error)).boxed(),
        Ok(()) => answered
            .map(|answer| answer.unwrap_or_else(|_| Err(Error::unavailable("store", "its thread died"))))
            .boxed(),
    }
}
