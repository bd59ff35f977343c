//! Garbage collection: what nothing reaches goes.
//!
//! Reached is what an image needs, what a container leases, and what a running operation holds. Records go first, in one
//! transaction, then files: whatever instant the process dies at, what is left is either recorded or found by the next
//! collection, because it also looks for files that no record names.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mainstay_oci_image::{Algorithm, Digest};

use crate::activity::Tables;
use crate::disk;
use crate::error::Result;
use crate::images::{Images, Inner};
use crate::records::{LayerId, LayerState, rows};

/// What becomes of unfinished downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partials {
    /// Those that were left longer ago than the setting `partial_kept` go.
    Aged,
    /// All that nobody is at go.
    All,
}

/// What was collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs.
    pub blobs: u64,
    /// Layers.
    pub layers: u64,
    /// Unfinished downloads.
    pub partials: u64,
    /// Bytes of blobs and unfinished downloads, and of the contents of layers.
    pub bytes: u64,
}

impl Images {
    /// Removes what nothing needs. Safe beside everything else; blocks until the files are gone.
    pub fn collect(&self, partials: Partials) -> Result<Collected> {
        let inner = self.inner();
        let (collected, doomed) = {
            let tables = inner.activity.tables();
            choose(inner, &tables, partials)?
        };
        inner.checkpoint("gc-chosen");
        let mut failure = None;
        for path in doomed {
            // One that cannot be removed holds up none of the others.
            failure = disk::remove(&path).err().or(failure);
        }
        failure.map_or(Ok(collected), Err)
    }
}

/// Takes the records of what goes away, and moves files whose names may be needed again out of the way. Answers what is to be
/// removed.
fn choose(inner: &Inner, tables: &Tables, partials: Partials) -> Result<(Collected, Vec<PathBuf>)> {
    let mut collected = Collected::default();
    let mut doomed = Vec::new();
    let (blobs, layers) = inner.records.change("collecting garbage", |transaction| {
        let (mut needed_blobs, mut needed_chains) = (HashSet::new(), HashSet::new());
        for image in rows::images(transaction)? {
            needed_blobs.extend(image.blobs().cloned());
            needed_chains.extend(image.layers.into_iter().map(|layer| layer.chain));
        }
        let leased: HashSet<LayerId> =
            rows::leases(transaction)?.into_iter().map(|(_, layer)| layer).collect();
        let mut blobs = HashSet::new();
        for (digest, size) in rows::blobs(transaction)? {
            if needed_blobs.contains(&digest) || tables.needs_blob(&digest) {
                blobs.insert(digest);
            } else {
                rows::delete_blob(transaction, &digest)?;
                collected.blobs += 1;
                collected.bytes += size;
            }
        }
        let mut layers = HashSet::new();
        for layer in rows::layers(transaction)? {
            let needed = match layer.state {
                LayerState::Making => tables.layers.contains_key(&layer.chain),
                LayerState::Ready => needed_chains.contains(&layer.chain) || tables.needs_chain(&layer.chain),
                // A layer over it may be looking at it.
                LayerState::Retired => tables.needs_chain(&layer.chain),
            };
            if needed || leased.contains(&layer.id) {
                layers.insert(layer.id);
            } else {
                rows::delete_layer(transaction, layer.id)?;
                collected.layers += 1;
                collected.bytes += layer.bytes;
            }
        }
        Ok((blobs, layers))
    })?;
    inner.checkpoint("gc-recorded");
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let directory = inner.disk.blobs(algorithm);
        for name in disk::names(&directory)? {
            let digest = format!("{}:{name}", algorithm.name()).parse::<Digest>().ok();
            if digest.is_none_or(|digest| !blobs.contains(&digest) && !tables.needs_blob(&digest)) {
                // A pull that begins now may want this name again.
                doomed.extend(inner.disk.discard(&directory.join(name))?);
            }
        }
    }
    for directory in [inner.disk.layers(), inner.disk.unpackings()] {
        for name in disk::names(&directory)? {
            if name.parse().ok().is_none_or(|id| !layers.contains(&LayerId(id))) {
                doomed.push(directory.join(name));
            }
        }
    }
    collect_partials(inner, tables, partials, &mut collected, &mut doomed)?;
    Ok((collected, doomed))
}

fn collect_partials(
    inner: &Inner,
    tables: &Tables,
    partials: Partials,
    collected: &mut Collected,
    doomed: &mut Vec<PathBuf>,
) -> Result<()> {
    let directory = inner.disk.partials();
    for name in disk::names(&directory)? {
        let path = directory.join(&name);
        let digest = name.replacen('-', ":", 1).parse::<Digest>().ok();
        let at_work = digest.is_some_and(|digest| tables.needs_blob(&digest));
        if at_work || (partials == Partials::Aged && !is_older(&path, inner.settings.partial_kept)) {
            continue;
        }
        collected.partials += 1;
        collected.bytes += fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
        doomed.extend(inner.disk.discard(&path)?);
    }
    Ok(())
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    // A time in the future says that the clock was set back, and nothing about the age.
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|passed| passed > age))
}
