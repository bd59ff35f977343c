//! Rows as the rest of the crate sees them.

use std::collections::HashMap;
use std::str::FromStr;

use mainstay_oci_image::Digest;
use rusqlite::types::{FromSqlError, Type};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::records::ImageRecord;

/// The number of a layer; its directory is named so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LayerId(pub(crate) i64);

/// How far a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerState {
    Making,
    Ready,
    Retired,
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerRow {
    pub(crate) id: LayerId,
    pub(crate) chain: Digest,
    pub(crate) diff_id: Digest,
    pub(crate) blob: Digest,
    pub(crate) state: LayerState,
    /// Whether the next pull has to unpack it anew.
    pub(crate) doubted: bool,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// A blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobRow {
    pub(crate) size: u64,
    /// Whether its bytes have to be looked at before they are used for a pull.
    pub(crate) doubted: bool,
}

impl LayerState {
    fn text(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Ready => "ready",
            Self::Retired => "retired",
        }
    }
}

pub(crate) fn images(connection: &Connection) -> rusqlite::Result<Vec<ImageRecord>> {
    let mut query = connection.prepare_cached("SELECT body FROM images ORDER BY name")?;
    query.query_map((), image_of)?.collect()
}

pub(crate) fn image(connection: &Connection, name: &str) -> rusqlite::Result<Option<ImageRecord>> {
    connection
        .prepare_cached("SELECT body FROM images WHERE name = ?1")?
        .query_row([name], image_of)
        .optional()
}

fn image_of(row: &Row<'_>) -> rusqlite::Result<ImageRecord> {
    let body: String = row.get(0)?;
    serde_json::from_str(&body)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

pub(crate) fn put_image(transaction: &Transaction<'_>, image: &ImageRecord) -> rusqlite::Result<()> {
    let body = serde_json::to_string(image)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    transaction
        .prepare_cached(
            "INSERT INTO images (name, manifest, pulled_at, body) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET manifest = ?2, pulled_at = ?3, body = ?4",
        )?
        .execute((&image.name, image.manifest.digest.to_string(), image.pulled_at.0.cast_signed(), body))
        .map(drop)
}

pub(crate) fn delete_image(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM images WHERE name = ?1")?.execute([name]).map(drop)
}

pub(crate) fn blob(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<BlobRow>> {
    connection
        .prepare_cached("SELECT size, doubted FROM blobs WHERE digest = ?1")?
        .query_row([digest.to_string()], |row| Ok(BlobRow { size: unsigned(row, 0)?, doubted: row.get(1)? }))
        .optional()
}

pub(crate) fn blobs(connection: &Connection) -> rusqlite::Result<HashMap<Digest, u64>> {
    let mut query = connection.prepare_cached("SELECT digest, size FROM blobs")?;
    let rows = query.query_map((), |row| Ok((digest(row, 0)?, unsigned(row, 1)?)))?;
    rows.collect()
}

pub(crate) fn put_blob(transaction: &Transaction<'_>, digest: &Digest, size: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO blobs (digest, size) VALUES (?1, ?2)
             ON CONFLICT (digest) DO UPDATE SET size = ?2, doubted = 0",
        )?
        .execute((digest.to_string(), size.cast_signed()))
        .map(drop)
}

pub(crate) fn delete_blob(transaction: &Transaction<'_>, digest: &Digest) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM blobs WHERE digest = ?1")?.execute([digest.to_string()]).map(drop)
}

/// Makes the next pull look at these before it trusts them.
pub(crate) fn doubt(
    transaction: &Transaction<'_>,
    blobs: impl IntoIterator<Item = Digest>,
    chains: impl IntoIterator<Item = Digest>,
) -> rusqlite::Result<()> {
    let mut blob = transaction.prepare_cached("UPDATE blobs SET doubted = 1 WHERE digest = ?1")?;
    for digest in blobs {
        blob.execute([digest.to_string()])?;
    }
    let mut layer =
        transaction.prepare_cached("UPDATE layers SET doubted = 1 WHERE chain = ?1 AND state = 'ready'")?;
    for chain in chains {
        layer.execute([chain.to_string()])?;
    }
    Ok(())
}

const LAYER_COLUMNS: &str = "id, chain, diff_id, blob, state, doubted, entries, bytes";

pub(crate) fn layers(connection: &Connection) -> rusqlite::Result<Vec<LayerRow>> {
    let mut query = connection.prepare_cached(&format!("SELECT {LAYER_COLUMNS} FROM layers ORDER BY id"))?;
    let rows = query.query_map((), layer_row)?;
    rows.collect()
}

/// The layer of a chain that may be used.
pub(crate) fn ready_layer(connection: &Connection, chain: &Digest) -> rusqlite::Result<Option<LayerRow>> {
    connection
        .prepare_cached(&format!("SELECT {LAYER_COLUMNS} FROM layers WHERE chain = ?1 AND state = 'ready'"))?
        .query_row([chain.to_string()], layer_row)
        .optional()
}

/// Records the intent to make a layer.
pub(crate) fn begin_layer(
    transaction: &Transaction<'_>,
    chain: &Digest,
    diff_id: &Digest,
    blob: &Digest,
) -> rusqlite::Result<LayerId> {
    transaction
        .prepare_cached("INSERT INTO layers (chain, diff_id, blob, state) VALUES (?1, ?2, ?3, 'making')")?
        .execute((chain.to_string(), diff_id.to_string(), blob.to_string()))?;
    Ok(LayerId(transaction.last_insert_rowid()))
}

/// Makes a layer the one of its chain. The one before it is kept for those who use it.
pub(crate) fn finish_layer(
    transaction: &Transaction<'_>,
    id: LayerId,
    entries: u64,
    bytes: u64,
) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE layers SET state = 'retired'
         WHERE state = 'ready' AND chain = (SELECT chain FROM layers WHERE id = ?1)",
        [id.0],
    )?;
    transaction
        .execute(
            "UPDATE layers SET state = 'ready', doubted = 0, entries = ?2, bytes = ?3 WHERE id = ?1",
            (id.0, entries.cast_signed(), bytes.cast_signed()),
        )
        .map(drop)
}

/// Puts a layer back that was found on the disk, with its old number.
pub(crate) fn restore_layer(transaction: &Transaction<'_>, row: &LayerRow) -> rusqlite::Result<()> {
    transaction
        .execute(
            "INSERT OR IGNORE INTO layers (id, chain, diff_id, blob, state, doubted, entries, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                row.id.0,
                row.chain.to_string(),
                row.diff_id.to_string(),
                row.blob.to_string(),
                row.state.text(),
                row.doubted,
                row.entries.cast_signed(),
                row.bytes.cast_signed(),
            ),
        )
        .map(drop)
}

pub(crate) fn delete_layer(transaction: &Transaction<'_>, id: LayerId) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM layers WHERE id = ?1", [id.0]).map(drop)
}

pub(crate) fn put_lease(transaction: &Transaction<'_>, holder: &str, layer: LayerId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR IGNORE INTO leases (holder, layer) VALUES (?1, ?2)")?
        .execute((holder, layer.0))
        .map(drop)
}

pub(crate) fn delete_leases(transaction: &Transaction<'_>, holder: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM leases WHERE holder = ?1", [holder]).map(drop)
}

pub(crate) fn leases(connection: &Connection) -> rusqlite::Result<Vec<(String, LayerId)>> {
    let mut query = connection.prepare_cached("SELECT holder, layer FROM leases ORDER BY holder, layer")?;
    let rows = query.query_map((), |row| Ok((row.get(0)?, LayerId(row.get(1)?))))?;
    rows.collect()
}

fn layer_row(row: &Row<'_>) -> rusqlite::Result<LayerRow> {
    let state: String = row.get(4)?;
    let state = match state.as_str() {
        "making" => LayerState::Making,
        "ready" => LayerState::Ready,
        _ => LayerState::Retired,
    };
    Ok(LayerRow {
        id: LayerId(row.get(0)?),
        chain: digest(row, 1)?,
        diff_id: digest(row, 2)?,
        blob: digest(row, 3)?,
        state,
        doubted: row.get(5)?,
        entries: unsigned(row, 6)?,
        bytes: unsigned(row, 7)?,
    })
}

fn digest(row: &Row<'_>, index: usize) -> rusqlite::Result<Digest> {
    let text: String = row.get(index)?;
    Digest::from_str(&text).map_err(|error| {
        let error = FromSqlError::Other(Box::new(error));
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(i64::cast_unsigned)
}
