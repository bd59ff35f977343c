//! What can go wrong with images, each as one sentence.

use std::io;
use std::path::PathBuf;

use mainstay_oci_image::{Digest, DocumentError, NoPlatform, ReferenceError};
use thiserror::Error as ThisError;

use crate::settings::Tenure;

/// The result of a call of this crate.
pub type Result<T, E = ImagesError> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, ThisError)]
pub enum ImagesError {
    /// Another process has the directory open.
    #[error("images in {}: {}", .root.display(), holder_text(.holder, *.tenure))]
    Locked {
        /// The directory.
        root: PathBuf,
        /// The process id of the one who has it, as that one wrote it down.
        holder: Option<u32>,
        /// How long that one has it.
        tenure: Tenure,
    },
    /// The records are those of a newer program.
    #[error(
        "images.db: its schema version is {found}, this program knows versions up to {known}; use the newer program"
    )]
    NewerSchema {
        /// Its version.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The records are a database of some other program.
    #[error("{}: it is a database of another program (application id {application_id:#010x}); choose another root", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        application_id: u32,
    },
    /// The records cannot be read or written.
    #[error("images.db: {operation} failed")]
    Records {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
    /// A file or directory of the images cannot be used.
    #[error("{operation} failed")]
    File {
        /// What was tried, with the path.
        operation: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The bytes of a blob are not those that its digest stands for.
    #[error("blob {expected}: the {bytes} bytes that came have the digest {found}; nothing of them was kept")]
    WrongDigest {
        /// The digest it should have.
        expected: Digest,
        /// The digest it has.
        found: Digest,
        /// Its length.
        bytes: u64,
    },
    /// A blob is longer or shorter than its descriptor says.
    #[error("blob {digest}: {found} bytes came where its descriptor says {expected}")]
    WrongSize {
        /// The blob.
        digest: Digest,
        /// The length it should have.
        expected: u64,
        /// The length that it has, or that it reached before it was refused.
        found: u64,
    },
    /// A blob is larger than the settings allow.
    #[error("blob {digest}: {size} bytes; at most {max} are taken (images.blob_bytes_max)")]
    BlobTooLarge {
        /// The blob.
        digest: Digest,
        /// Its length.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// A blob is not there.
    #[error("blob {digest} is not in the store; pull the image again")]
    NoBlob {
        /// The blob.
        digest: Digest,
    },
    /// Whoever fetched a blob, or unpacked a layer, stopped before the end.
    #[error("{what}: whoever was at it stopped before the end")]
    Interrupted {
        /// Which part.
        what: String,
    },
    /// It was cancelled.
    #[error("layer {layer}: unpacking was cancelled")]
    Cancelled {
        /// The blob of the layer.
        layer: Digest,
    },
    /// A layer cannot be decompressed.
    #[error("layer {layer}: its bytes cannot be read or decompressed after {bytes} bytes of content")]
    Stream {
        /// The blob of the layer.
        layer: Digest,
        /// Bytes of content before that.
        bytes: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A layer is no archive.
    #[error("layer {layer}, entry {entry}: {problem}")]
    Archive {
        /// The blob of the layer.
        layer: Digest,
        /// The number of the entry, from 1.
        entry: u64,
        /// What is wrong.
        problem: String,
    },
    /// An entry of a layer cannot be, or must not be, unpacked.
    #[error("layer {layer}, entry {entry} ({path:?}): {problem}")]
    Entry {
        /// The blob of the layer.
        layer: Digest,
        /// The number of the entry, from 1.
        entry: u64,
        /// Its name.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An entry of a layer cannot be written.
    #[error("layer {layer}, entry {entry} ({path:?}): {operation} failed")]
    Write {
        /// The blob of the layer.
        layer: Digest,
        /// The number of the entry, from 1; 0 where it is the layer as a whole.
        entry: u64,
        /// Its name.
        path: String,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A layer has more of something than the settings allow.
    #[error(
        "layer {layer}: more than {max} {what} (images.{setting}); if that is right for this image, raise the setting"
    )]
    Limit {
        /// The blob of the layer.
        layer: Digest,
        /// What there is too much of.
        what: &'static str,
        /// The setting, in the section of the images.
        setting: &'static str,
        /// The limit.
        max: u64,
    },
    /// The content of a layer is not that of its DiffID.
    #[error(
        "layer {layer}: its content has the digest {found} where the image's configuration says {expected}"
    )]
    WrongDiffId {
        /// The blob of the layer.
        layer: Digest,
        /// The DiffID it should have.
        expected: Digest,
        /// The digest it has.
        found: Digest,
    },
    /// The layer below was not unpacked.
    #[error("layer {layer}: the layer below it was not unpacked")]
    NoParent {
        /// The blob of the layer.
        layer: Digest,
    },
    /// A layer of an image is not unpacked.
    #[error("image {image}: its layer {chain} is not unpacked or was found damaged; pull the image again")]
    NoLayer {
        /// The image.
        image: String,
        /// The chain of the layer.
        chain: Digest,
    },
    /// There is no such image.
    #[error("there is no image {image}; pull or import it first")]
    NoImage {
        /// What was asked for.
        image: String,
    },
    /// More than one image fits.
    #[error("{image} is the beginning of {count} images; write more of the digest")]
    AmbiguousImage {
        /// What was asked for.
        image: String,
        /// How many fit.
        count: usize,
    },
    /// A manifest, index or configuration cannot be used.
    #[error("{what} {digest} cannot be used")]
    Document {
        /// Which kind.
        what: &'static str,
        /// Its digest.
        digest: Digest,
        /// Why.
        #[source]
        source: DocumentError,
    },
    /// No image for the platform.
    #[error("the image has nothing for this machine")]
    Platform(#[source] NoPlatform),
    /// A name is none.
    #[error("the name of the image cannot be used")]
    Name(#[source] ReferenceError),
    /// What is imported is no image.
    #[error("import: {problem}")]
    Import {
        /// What is wrong.
        problem: String,
    },
}

impl ImagesError {
    /// A failure of the file system at a path.
    pub(crate) fn file(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::File { operation, source }
    }

    /// A failure of the records.
    pub(crate) fn records(operation: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Records { operation, source }
    }
}

fn holder_text(holder: &Option<u32>, tenure: Tenure) -> String {
    let who = holder.map_or("another process".to_owned(), |pid| format!("the runtime of process {pid}"));
    match tenure {
        Tenure::Kept => format!(
            "{who} has them open as long as it runs; let that one do it, end it, or choose another directory"
        ),
        Tenure::InTurn => format!("{who} is at work on them; try again later, or choose another directory"),
    }
}
