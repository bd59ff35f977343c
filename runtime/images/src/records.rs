//! What is known of images, blobs, layers and leases: a SQLite file, `images.db`.
//!
//! Every change is durable when its call returns (`synchronous = FULL`): files are removed only after the record of
//! their removal is safe, and recorded only after they are. `schema/v1.sql` is the specification of the file. A damaged
//! file is set aside, never deleted, and a fresh one is filled from the directories, which tell which layers and blobs
//! are whole.
//!
//! Never touches the files of images.

mod image;
mod open;
pub(crate) mod rows;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use image::{ImageLayer, ImageRecord};
pub(crate) use rows::{LayerId, LayerRow, LayerState};

use crate::error::{ImagesError, Result};
use crate::settings::Settings;

/// The records, and the lock that keeps other processes away from them.
pub(crate) struct Records {
    connection: Mutex<Connection>,
    _lock: open::RootLock,
}

/// How the records were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where a damaged file was moved to; the records are empty then.
    pub(crate) set_aside: Option<PathBuf>,
    /// Whether the machine was started anew since they were last used.
    pub(crate) boot: Boot,
}

/// Whether this is the run of the machine in which the records were last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    Same,
    Other,
}

impl Records {
    /// Opens the records of a directory, or makes them.
    pub(crate) fn open(root: &Path, settings: &Settings) -> Result<(Self, Found)> {
        let lock = open::RootLock::acquire(root, settings.tenure)?;
        let (connection, found) = open::open(&root.join("images.db"), settings)?;
        Ok((Self { connection: Mutex::new(connection), _lock: lock }, found))
    }

    /// Does something in one transaction, which is durable afterwards; an error takes all of it back.
    pub(crate) fn change<T>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut connection = self.connection();
        let failed = ImagesError::records(operation);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        transaction
            .and_then(|transaction| {
                let value = change(&transaction)?;
                transaction.commit()?;
                Ok(value)
            })
            .map_err(failed)
    }

    /// Reads something.
    pub(crate) fn read<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        read(&self.connection()).map_err(ImagesError::records(operation))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic broke off was rolled back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
