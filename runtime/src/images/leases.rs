//! Who keeps which image: a runtime, all of its containers together, as long as one of them stands on the image.
//!
//! ```text
//!   create ─► pinned ─► leased (durable) ─► container's record ─► pin let go
//!   collect ─► leases of this runtime that no record and no pin wants, and those of private runtimes whose
//!              directory is gone, are let go ─► what nobody reaches goes
//! ```
//!
//! A lease is written down before the record that needs it (P3). One that a crash has left without a record keeps nothing
//! longer than to the next collection. No lease is written between the look at the pins and the end of those that nobody wants.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_messages::image::ImageId;

use super::store::Keep;

/// The images that containers being made stand on.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Arc<Mutex<HashMap<ImageId, usize>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Pin {
    pins: Pins,
    image: ImageId,
}

/// Whose a lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) keep: Keep,
    pub(super) root_dir: PathBuf,
}

impl Pins {
    pub(super) fn pin(&self, image: ImageId) -> Pin {
        *self.lock().entry(image.clone()).or_default() += 1;
        Pin { pins: self.clone(), image }
    }

    /// What is pinned now.
    pub(super) fn images(&self) -> HashSet<ImageId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ImageId, usize>> {
        // Each change is one step, so a poisoned lock holds sound data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.get_mut(&self.image) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.image);
            }
        }
    }
}

impl Owner {
    /// The holder of the lease of an image.
    pub(super) fn holder(&self, image: &ImageId) -> String {
        let kind = match self.keep {
            Keep::WhileRunning => "runtime",
            Keep::WhileUsed => "command",
        };
        format!("{kind} {image} {}", self.root_dir.display())
    }

    fn parse(holder: &str) -> Option<(Self, ImageId)> {
        let mut words = holder.splitn(3, ' ');
        let keep = match words.next()? {
            "runtime" => Keep::WhileRunning,
            "command" => Keep::WhileUsed,
            _ => return None,
        };
        let (image, root_dir) = (words.next()?, words.next()?);
        Some((Self { keep, root_dir: root_dir.into() }, ImageId(image.to_owned())))
    }

    /// Whether a lease is wanted no more. What is not understood, or another runtime's that may be down, is.
    pub(super) fn is_stale(
        &self,
        holder: &str,
        wanted: &HashSet<ImageId>,
        is_there: impl Fn(&Path) -> bool,
    ) -> bool {
        match Self::parse(holder) {
            Some((owner, image)) if owner == *self => !wanted.contains(&image),
            Some((Self { keep: Keep::WhileUsed, root_dir }, _)) => !is_there(&root_dir),
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn image(name: &str) -> ImageId {
        ImageId(format!("sha256:{name}"))
    }

    #[rstest]
    #[case(Keep::WhileRunning, "/lib/own", "used", false)]
    #[case(Keep::WhileRunning, "/lib/own", "unused", true)]
    #[case(Keep::WhileRunning, "/lib/other", "unused", false)]
    #[case(Keep::WhileUsed, "/lib/there is", "unused", false)]
    #[case(Keep::WhileUsed, "/lib/gone", "used", true)]
    fn a_lease_that_nobody_wants_is_let_go(
        #[case] keep: Keep,
        #[case] root_dir: &str,
        #[case] of: &str,
        #[case] stale: bool,
    ) {
        let us = Owner { keep: Keep::WhileRunning, root_dir: "/lib/own".into() };
        let holder = Owner { keep, root_dir: root_dir.into() }.holder(&image(of));
        let wanted = HashSet::from([image("used")]);
        assert_eq!(us.is_stale(&holder, &wanted, |path| path == Path::new("/lib/there is")), stale);
    }

    /// The layers that were found when records were lost are kept by a holder that this page does not know.
    #[test]
    fn what_is_not_understood_is_kept() {
        let us = Owner { keep: Keep::WhileUsed, root_dir: "/lib/own".into() };
        assert!(!us.is_stale("recovered", &HashSet::new(), |_| false));
    }

    #[test]
    fn an_image_is_pinned_until_the_last_pin_goes() {
        let pins = Pins::default();
        let (one, other) = (pins.pin(image("a")), pins.pin(image("a")));
        drop(one);
        assert!(pins.images().contains(&image("a")));
        drop(other);
        assert!(pins.images().is_empty());
    }
}
