//! What is to be done when the images are opened after something was lost: the boot that they were last used in, or their
//! records.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::disk;
use crate::error::Result;
use crate::images::Inner;
use crate::records::{LayerId, LayerRow, LayerState, rows};

/// Who holds the layers that were found when the records were lost: containers may run on them.
pub(crate) const RECOVERED_HOLDER: &str = "recovered";

impl Inner {
    /// The machine was started anew: nothing runs on layers that were recovered, and bytes that were never synced are not
    /// to be trusted.
    pub(crate) fn after_boot(&self) -> Result<()> {
        self.records.change("releasing recovered layers", |transaction| {
            rows::delete_leases(transaction, RECOVERED_HOLDER)
        })?;
        for name in disk::names(&self.disk.partials())? {
            disk::remove(&self.disk.partials().join(name))?;
        }
        Ok(())
    }

    /// Fills fresh records from the directories. Every layer is kept until the next boot, as containers may run on it.
    pub(crate) fn recover(&self) -> Result<()> {
        let mut layers = Vec::new();
        for name in disk::names(&self.disk.layers())? {
            let directory = self.disk.layers().join(&name);
            if let (Ok(id), Some(note)) = (name.parse(), disk::read_note(&directory)) {
                layers.push(LayerRow {
                    id: LayerId(id),
                    chain: note.chain,
                    diff_id: note.diff_id,
                    blob: note.blob,
                    // The newest of a chain is taken first below.
                    state: LayerState::Ready,
                    doubted: false,
                    entries: note.entries,
                    bytes: note.bytes,
                });
            }
        }
        layers.sort_by_key(|layer| Reverse(layer.id));
        self.records.change("recovering layers", |transaction| {
            let mut chains = HashSet::new();
            for mut layer in layers {
                if !chains.insert(layer.chain.clone()) {
                    layer.state = LayerState::Retired;
                }
                rows::restore_layer(transaction, &layer)?;
                rows::put_lease(transaction, RECOVERED_HOLDER, layer.id)?;
            }
            Ok(())
        })
    }
}
