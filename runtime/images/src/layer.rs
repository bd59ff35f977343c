//! Layers: unpacked once for each chain, used by everyone.
//!
//! ```text
//!   claim ─► Ready
//!         ├► Running ──► wait
//!         └► Unpack ─► recorded as 'making' ─► unpacked, note, DiffID, synced ─► rename, fsync ─► recorded as 'ready'
//!                  └► failed, dropped, killed: the directory is removed, by garbage collection at the latest
//! ```
//!
//! Layers are claimed from the lowest up. Each can then be unpacked at once, beside the others: one that leans on those
//! below waits for them when it has to, and all wait for them at their end. So whoever runs fewer threads than there are
//! layers starts the lower ones first.

use std::cell::OnceCell;
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_oci_image::{Digest, Event, Part, Step};

use crate::activity::{End, Work};
use crate::disk::{self, LayerNote, failed};
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::images::Inner;
use crate::observer::Observer;
use crate::records::{ImageLayer, LayerId, rows};
use crate::unpack::{self, Below, Totals};

/// What a caller finds who wants a layer.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
#[derive(Debug)]
pub enum LayerClaim {
    /// It is unpacked. An image needs its blob too, which may be that of another image with the same content.
    Ready,
    /// It is the caller's to unpack.
    Unpack(Unpacking),
    /// Somebody else is unpacking it.
    Running(RunningLayer),
}

/// A layer that somebody else is unpacking.
#[derive(Debug)]
pub struct RunningLayer {
    blob: Digest,
    work: Arc<Work>,
}

/// A layer to unpack. Dropped before [`Unpacking::run`], it is given up.
#[derive(Debug)]
pub struct Unpacking {
    inner: Arc<Inner>,
    layer: ImageLayer,
    id: LayerId,
    work: Arc<Work>,
    below: Vec<Lower>,
    end: End,
}

/// What is believed of a layer before it is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Recorded,
    Nothing,
}

/// A layer below one that is unpacked.
#[derive(Clone, Debug)]
struct Lower {
    chain: Digest,
    /// Where it is being unpacked at this time.
    work: Option<Arc<Work>>,
}

/// The layers below, waited for when they are asked for.
struct Lowers<'a> {
    inner: &'a Inner,
    blob: &'a Digest,
    layers: &'a [Lower],
    roots: OnceCell<Vec<PathBuf>>,
}

impl RunningLayer {
    /// Waits for the end; an error where the other one failed, and then it can be claimed again. Blocks.
    pub fn wait(&self) -> Result<()> {
        self.work.finished(|| format!("layer {}", self.blob))
    }
}

impl Hold {
    /// Claims the layer at `index` of an image's layers, and keeps it from garbage collection as long as this lives. Those
    /// below it must have been claimed before.
    pub fn layer(&self, layers: &[ImageLayer], index: usize) -> Result<LayerClaim> {
        self.claim(layers, index, Trust::Recorded)
    }

    /// Claims a layer to unpack it again, although it is there.
    pub(crate) fn layer_anew(&self, layers: &[ImageLayer], index: usize) -> Result<LayerClaim> {
        self.claim(layers, index, Trust::Nothing)
    }

    fn claim(&self, layers: &[ImageLayer], index: usize, trust: Trust) -> Result<LayerClaim> {
        let inner = self.inner();
        let layer = &layers[index];
        let mut tables = inner.activity.tables();
        self.keep_chain(&mut tables, &layer.chain);
        self.keep_blob(&mut tables, &layer.blob.digest);
        if let Some(work) = tables.layers.get(&layer.chain) {
            let (blob, work) = (layer.blob.digest.clone(), Arc::clone(work));
            return Ok(LayerClaim::Running(RunningLayer { blob, work }));
        }
        if trust == Trust::Recorded && is_ready(inner, &layer.chain)? {
            return Ok(LayerClaim::Ready);
        }
        let mut below = Vec::new();
        for lower in layers[..index].iter().rev() {
            self.keep_chain(&mut tables, &lower.chain);
            below.push(Lower { chain: lower.chain.clone(), work: tables.layers.get(&lower.chain).cloned() });
        }
        let id = inner.records.change("recording the intent to unpack a layer", |transaction| {
            rows::begin_layer(transaction, &layer.chain, &layer.diff_id, &layer.blob.digest)
        })?;
        let work = Arc::new(Work::default());
        tables.layers.insert(layer.chain.clone(), Arc::clone(&work));
        let (inner, layer) = (Arc::clone(inner), layer.clone());
        Ok(LayerClaim::Unpack(Unpacking { inner, layer, id, work, below, end: End::Stopped }))
    }
}

impl Unpacking {
    /// The layer.
    pub fn layer(&self) -> &ImageLayer {
        &self.layer
    }

    /// Unpacks the layer from its compressed bytes, makes it durable and records it. Blocks, also for bytes that are still
    /// on their way, and for the layers below.
    pub fn run(self, source: impl Read + Send + 'static, observer: &Observer) -> Result<()> {
        let totals = self.unpack(source, observer)?;
        self.finish(totals, observer)
    }

    /// Makes what was unpacked the layer of its chain.
    pub(crate) fn finish(mut self, totals: Totals, observer: &Observer) -> Result<()> {
        for lower in &self.below {
            if let Some(work) = &lower.work {
                let failed = || ImagesError::NoParent { layer: self.layer.blob.digest.clone() };
                work.finished(String::new).map_err(|_| failed())?;
            }
        }
        let (from, to) = (self.inner.disk.unpacking(self.id), self.inner.disk.layer(self.id));
        disk::settle(&from, &to)?;
        self.inner.checkpoint("layer-settled");
        self.inner.records.change("recording a layer", |transaction| {
            rows::finish_layer(transaction, self.id, totals.entries, totals.bytes)
        })?;
        self.inner.checkpoint("layer-recorded");
        self.end = End::Complete;
        observer.event(Event::new(Part::Layer(self.layer.blob.digest.clone()), Step::Done));
        Ok(())
    }

    /// Unpacks into the directory of the intent, and leaves it there.
    pub(crate) fn unpack(&self, source: impl Read + Send + 'static, observer: &Observer) -> Result<Totals> {
        let (inner, blob) = (&self.inner, &self.layer.blob.digest);
        let directory = inner.disk.unpacking(self.id);
        disk::remove(&directory)?;
        disk::make_private(&directory)?;
        let fs = directory.join("fs");
        DirBuilder::new().mode(0o755).create(&fs).map_err(failed("making", &fs))?;
        inner.checkpoint("layer-begun");
        let made = |totals: Totals| {
            let note = LayerNote {
                chain: self.layer.chain.clone(),
                diff_id: self.layer.diff_id.clone(),
                blob: blob.clone(),
                entries: totals.entries,
                bytes: totals.bytes,
            };
            disk::write_note(&directory, &note)?;
            inner.checkpoint("layer-noted");
            Ok(())
        };
        let below = Lowers { inner, blob, layers: &self.below, roots: OnceCell::new() };
        let job = unpack::Job {
            layer: blob,
            diff_id: &self.layer.diff_id,
            target: disk::open_directory(&fs)?,
            below: &below,
            limits: &inner.settings.limits,
            overlay: inner.settings.overlay_attributes,
            observer,
            made: &made,
        };
        let totals = unpack::unpack(job, source)?;
        inner.checkpoint("layer-unpacked");
        Ok(totals)
    }

    pub(crate) fn id(&self) -> LayerId {
        self.id
    }

    /// Removes what was unpacked: the layer that was there before is as good.
    pub(crate) fn withdraw(mut self) {
        self.forget();
        self.end = End::Complete;
    }

    /// Removes the directory and the record of the intent.
    fn forget(&self) {
        let _ = disk::remove(&self.inner.disk.unpacking(self.id)).map_err(|error| {
            tracing::warn!(%error, "what was unpacked of a layer is left for garbage collection");
        });
        let forgotten = self
            .inner
            .records
            .change("forgetting a layer", |transaction| rows::delete_layer(transaction, self.id));
        if let Err(error) = forgotten {
            tracing::warn!(%error, "the record of a layer that failed is left for garbage collection");
        }
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        if self.end == End::Stopped {
            self.forget();
        }
        // Gone from the table first: whoever is woken finds either the layer or nobody at it.
        self.inner.activity.tables().layers.remove(&self.layer.chain);
        let end = self.end;
        self.work.change(|state| state.end = Some(end));
    }
}

impl Below for Lowers<'_> {
    fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    fn roots(&self) -> Result<&[PathBuf]> {
        if let Some(roots) = self.roots.get() {
            return Ok(roots);
        }
        let missing = || ImagesError::NoParent { layer: self.blob.clone() };
        let mut roots = Vec::new();
        for lower in self.layers {
            if let Some(work) = &lower.work {
                work.finished(String::new).map_err(|_| missing())?;
            }
            let row = self
                .inner
                .records
                .read("looking up a layer", |connection| rows::ready_layer(connection, &lower.chain))?;
            let row = row.ok_or_else(missing)?;
            roots.push(self.inner.disk.layer_fs(row.id));
        }
        Ok(self.roots.get_or_init(|| roots))
    }
}

/// Whether a chain is unpacked, not in doubt, and its directory there. What does not fit is unpacked anew.
fn is_ready(inner: &Inner, chain: &Digest) -> Result<bool> {
    let row = inner.records.read("looking up a layer", |connection| rows::ready_layer(connection, chain))?;
    Ok(row.is_some_and(|row| !row.doubted && inner.disk.layer_fs(row.id).is_dir()))
}
