//! The root file system of a container: its layers, kept for it until they are released.

use std::path::PathBuf;
use std::sync::Arc;

use mainstay_oci_image::Digest;

use crate::error::{ImagesError, Result};
use crate::images::{Images, Inner};
use crate::records::{ImageRecord, LayerRow, rows};

/// What the root of a container is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootfsPlan {
    /// The image.
    pub image: Arc<ImageRecord>,
    /// The directories of the layers, the uppermost first, as overlayfs takes them; never empty. They are never written to.
    pub lower: Vec<PathBuf>,
}

impl Images {
    /// The layers of an image for a container, kept for it until [`Images::release`], whatever happens to the image. Asking
    /// again with the same holder adds to what it has.
    pub fn lease(&self, holder: &str, image: &str) -> Result<RootfsPlan> {
        let inner = self.inner();
        let record = inner.catalog().find(image)?;
        // Garbage collection decides under this lock too: what is found is leased before it looks.
        let _tables = inner.activity.tables();
        let layers = inner.records.change("leasing the layers of an image", |transaction| {
            let mut layers = Vec::new();
            for layer in &record.layers {
                let Some(row) = rows::ready_layer(transaction, &layer.chain)? else {
                    return Ok(Err(layer.chain.clone()));
                };
                rows::put_lease(transaction, holder, row.id)?;
                layers.push(row);
            }
            Ok(Ok(layers))
        })?;
        let layers = layers.map_err(|chain| ImagesError::NoLayer { image: record.name.clone(), chain })?;
        plan(inner, record, &layers)
    }

    /// Lets go of what a container kept. What it does not have is no error.
    pub fn release(&self, holder: &str) -> Result<()> {
        self.inner()
            .records
            .change("releasing layers", |transaction| rows::delete_leases(transaction, holder))
    }

    /// Who keeps layers, for an audit.
    pub fn holders(&self) -> Result<Vec<String>> {
        let leases = self.inner().records.read("listing leases", rows::leases)?;
        let mut holders: Vec<String> = leases.into_iter().map(|(holder, _)| holder).collect();
        holders.dedup();
        Ok(holders)
    }
}

fn plan(inner: &Inner, image: Arc<ImageRecord>, layers: &[LayerRow]) -> Result<RootfsPlan> {
    let mut lower = Vec::new();
    for row in layers.iter().rev() {
        let fs = inner.disk.layer_fs(row.id);
        if !fs.is_dir() {
            let chain: Digest = row.chain.clone();
            return Err(ImagesError::NoLayer { image: image.name.clone(), chain });
        }
        lower.push(fs);
    }
    if lower.is_empty() {
        lower.push(inner.disk.empty());
    }
    Ok(RootfsPlan { image, lower })
}
