//! Where things lie below the root directory of the images, and the few ways in which they come and go.
//!
//! ```text
//! images.db  images.lock     the records
//! blobs/ALGORITHM/HEX        whole blobs
//! partial/ALGORITHM-HEX      blobs that are being fetched, or were
//! unpacking/N/fs             layers that are being unpacked
//! layers/N/fs                layers that are whole; layers/N/layer.json says which
//! empty                      the root of an image without layers
//! trash/                     what is being removed, and files without a name yet; emptied at the start
//! ```
//!
//! Never reads or writes records.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_oci_image::{Algorithm, Digest};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{ImagesError, Result};
use crate::records::LayerId;

/// The largest `layer.json`.
const LAYER_NOTE_BYTES_MAX: u64 = 64 << 10;

/// The directories of the images.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    /// Names in the trash, so that no two are the same.
    discarded: AtomicU64,
}

/// What a layer's directory says of itself. It is written when the layer is whole, and tells what the directory is when
/// the records are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerNote {
    pub(crate) chain: Digest,
    pub(crate) diff_id: Digest,
    pub(crate) blob: Digest,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Disk {
    /// Makes what is missing of the directories.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let disk = Self { root: root.to_owned(), discarded: AtomicU64::new(0) };
        make_private(root)?;
        for name in ["blobs", "blobs/sha256", "blobs/sha512", "partial", "unpacking", "layers", "trash"] {
            make_private(&root.join(name))?;
        }
        // Nobody is at what another process left there.
        for name in names(&root.join("trash"))? {
            remove(&root.join("trash").join(name))?;
        }
        let empty = root.join("empty");
        match DirBuilder::new().mode(0o755).create(&empty) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("making", &empty)(error))
            }
            _ => sync_directory(root),
        }?;
        Ok(disk)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn blobs(&self, algorithm: Algorithm) -> PathBuf {
        self.root.join("blobs").join(algorithm.name())
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs(digest.algorithm()).join(digest.hex())
    }

    pub(crate) fn partials(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.partials().join(format!("{}-{}", digest.algorithm().name(), digest.hex()))
    }

    pub(crate) fn unpackings(&self) -> PathBuf {
        self.root.join("unpacking")
    }

    pub(crate) fn unpacking(&self, id: LayerId) -> PathBuf {
        self.unpackings().join(id.0.to_string())
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, id: LayerId) -> PathBuf {
        self.layers().join(id.0.to_string())
    }

    /// The root of a layer's files.
    pub(crate) fn layer_fs(&self, id: LayerId) -> PathBuf {
        self.layer(id).join("fs")
    }

    pub(crate) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// A new file in the trash: what is not moved out of it is removed sooner or later.
    pub(crate) fn scratch(&self) -> Result<(PathBuf, File)> {
        loop {
            let path = self.trash_name();
            let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            match open {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("making", &path)(error)),
            }
        }
    }

    /// Moves something to the trash; answers where it is now, or none where it was not there.
    pub(crate) fn discard(&self, path: &Path) -> Result<Option<PathBuf>> {
        loop {
            let target = self.trash_name();
            if fs::symlink_metadata(&target).is_ok() {
                continue;
            }
            return match fs::rename(path, &target) {
                Ok(()) => Ok(Some(target)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed("moving to the trash", path)(error)),
            };
        }
    }

    fn trash_name(&self) -> PathBuf {
        self.trash().join(self.discarded.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

/// Removes a file or a whole directory; what is not there is no error.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(failed("removing", path)),
    }
}

/// Moves something to its final place, for good.
pub(crate) fn settle(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(failed("moving into place", to))?;
    sync_directory(to.parent().unwrap_or(Path::new(".")))
}

pub(crate) fn make_private(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("making", path)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("syncing", path))
}

pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed("opening", path)(error.into()))
}

/// The names in a directory of ours.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let list = || -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    list().map_err(failed("listing", path))
}

/// Writes what a layer's directory says of itself. It becomes durable with the layer: the caller syncs both.
pub(crate) fn write_note(directory: &Path, note: &LayerNote) -> Result<()> {
    let path = directory.join("layer.json");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&serde_json::to_vec(note)?)
    };
    write().map_err(failed("writing", &path))
}

/// What a layer's directory says; none where it says nothing that can be understood.
pub(crate) fn read_note(directory: &Path) -> Option<LayerNote> {
    let path = directory.join("layer.json");
    let length = fs::metadata(&path).ok()?.len();
    let bytes = (length <= LAYER_NOTE_BYTES_MAX).then(|| fs::read(&path).ok()).flatten()?;
    serde_json::from_slice(&bytes).ok()
}

/// A failure at a path.
pub(crate) fn failed(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> ImagesError + use<> {
    ImagesError::file(format!("{operation} {}", path.display()))
}
