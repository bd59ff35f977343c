//! The images of a node: kept, unpacked, checked, collected, brought in and out.
//!
//! [`Images`] is the handle. Whoever pulls begins a [`Hold`] and asks it for each part; every part is claimed, so that each
//! blob is fetched once and each layer unpacked once however many ask:
//!
//! ```text
//! hold ─► blob(manifest), blob(config) ─► layers() ─► for each layer: blob() ─► Write ─► bytes ─► commit
//!                                                                      └ read_blob() ─► layer() ─► Unpack ─► run
//!      ─► record() ─► listed
//! ```
//!
//! Nothing is listed that is not whole: a blob has its name only when it was verified and synced (P7), a layer when its
//! content had the right DiffID and its file system was synced, an image when its record is durable. Killed at any instant,
//! what is half done is nameless and goes with the next garbage collection (P3, P5). Everything in an image is a stranger's
//! (P12): see [`Limits`].
//!
//! All calls but [`Images::list`], [`Images::find`] and [`Images::catalog`] block. This crate never speaks to a network, and never mounts for a
//! container: it says which directories its root is made of.
//!
//! | module | owns |
//! |---|---|
//! | `images`, `catalog` | the handle, the list of images |
//! | `content` | blobs |
//! | `layer` | unpacking a layer once |
//! | `unpack` | what unpacking does |
//! | `tar` | reading archives |
//! | `rootfs` | the layers of a container, and who keeps them |
//! | `mount` | read-only views of images, usage of writable layers |
//! | `import`, `export` | layouts and archives |
//! | `gc`, `verify` | collecting garbage, finding damage |
//! | `sync` | waiting for the disk, and telling that it moves |
//! | `recovery` | after the machine was started anew, or the records were lost |
//! | `records`, `disk`, `activity`, `hold` | what is known, where it lies, what goes on, what is kept |

mod activity;
mod catalog;
mod content;
mod disk;
mod error;
mod export;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gc;
mod hold;
mod images;
mod import;
mod layer;
mod mount;
mod observer;
mod records;
mod recovery;
mod rootfs;
mod settings;
mod sync;
mod tar;
mod unpack;
mod verify;

pub use crate::catalog::{Catalog, DIGEST_PREFIX_LENGTH_MIN, Details};
pub use crate::content::{BlobClaim, BlobReader, BlobWriter, RunningBlob};
pub use crate::error::{ImagesError, Result};
pub use crate::gc::{Collected, Partials};
pub use crate::hold::Hold;
pub use crate::images::{Documents, Images, Inspected, NewImage, Opened};
pub use crate::import::{IMPORTED_IMAGES_MAX, IMPORTED_MEMBERS_MAX, ImportOptions};
pub use crate::layer::{LayerClaim, RunningLayer, Unpacking};
pub use crate::mount::{Usage, unmount_view, usage};
pub use crate::observer::Observer;
pub use crate::records::{ImageLayer, ImageRecord};
pub use crate::rootfs::RootfsPlan;
pub use crate::settings::*;
pub use crate::tar::EXTENSION_BYTES_MAX;
pub use crate::verify::{Damage, Damaged, Remedy, Verified};
