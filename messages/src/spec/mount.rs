//! What is mounted into a container, and how.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::IdMappings;
use crate::image::{ImageId, ImageName};

/// A mount in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path in the container.
    pub target: PathBuf,
    /// What is mounted.
    pub source: MountSource,
    /// Whether the container may write to it. What an image has can only be read.
    #[serde(default)]
    pub access: Access,
    /// What becomes of the mounts below a file or directory of the host.
    #[serde(default)]
    pub submounts: Submounts,
    /// Whether mounts made later are seen on the other side.
    #[serde(default)]
    pub propagation: Propagation,
    /// Who owns the files of a bind, in a pod with a user namespace.
    #[serde(default)]
    pub owners: Owners,
    /// What its files are not good for.
    #[serde(default)]
    pub restrictions: BTreeSet<Restriction>,
    /// What is done where the host has nothing at the path of a bind.
    #[serde(default)]
    pub missing: MissingSource,
    /// Whether the files of a bind get the container's SELinux label.
    #[serde(default)]
    pub relabel: Relabel,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A file or directory of the host.
    Bind {
        /// Absolute path on the host; links are followed.
        path: PathBuf,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Its limit; half of the machine's memory when not given.
        size_bytes: Option<u64>,
    },
    /// What an image has, or a part of it, to be read.
    Image(ImageMount),
    /// What the runtime makes of [`MountSource::Image`]. Never in a request.
    Layers(LayeredMount),
}

/// An image that is mounted into a container, as a caller asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageMount {
    /// The image: a name, or the id of one that is here.
    pub image: ImageName,
    /// The file or directory of the image that is mounted, from its root; all of the image when not given.
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
}

/// An image that is mounted into a container, as the runtime writes it down: it is kept as long as the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayeredMount {
    /// The image.
    pub image: ImageId,
    /// Its unpacked layers, the uppermost first.
    pub layers: Vec<PathBuf>,
    /// The file or directory of the image that is mounted, from its root; all of the image when not given.
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading and writing.
    #[default]
    ReadWrite,
    /// Reading.
    ReadOnly,
}

/// The mounts below a file or directory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Submounts {
    /// They are in the container, and where the mount can only be read, so can they.
    #[default]
    Alike,
    /// They are in the container with the access that they have on the host, also where the mount can only be read.
    AsOnHost,
    /// They are not in the container, which sees what they are mounted on.
    Absent,
}

/// How mounts propagate between the host and a container, below a file or directory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Propagation {
    /// Neither sees what the other mounts.
    #[default]
    Private,
    /// The container sees what the host mounts; the source must be on a shared mount, or one that follows one.
    Slave,
    /// Both see what the other mounts; the source must be on a shared mount. What a container mounts there stays on the
    /// host when the container ends.
    Shared,
}

/// Who owns the files of the host in a container whose ids are others than the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owners {
    /// The container's ids of the same numbers: what is root's on the host is root's in the container, and what root writes in
    /// the container is root's on the host. By an id-mapped mount, which the file system must be able to do.
    #[default]
    Mapped,
    /// The ids that own them on the host, which is nobody where they are not the container's.
    Host,
    /// The ids that these mappings give: a file that the host's disk has as owned by a `container` id appears as owned by the
    /// `host` id. By an id-mapped mount, also in a pod without a user namespace.
    Given(IdMappings),
}

/// What the files of a mount are not good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restriction {
    /// Programs are not executed.
    NoExec,
    /// Programs gain no rights by their setuid and setgid bits and capabilities.
    NoSuid,
    /// Device nodes are not opened.
    NoDev,
    /// Links are not followed.
    NoSymfollow,
    /// Reading leaves no time.
    NoAtime,
}

/// What is done where the host has nothing at the path of a bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingSource {
    /// The container is refused.
    #[default]
    Refused,
    /// A directory is made, with those above it, of root's and with mode 0755. It stays when the container goes.
    DirectoryMade,
}

/// Whether files of the host get a container's SELinux label. Nothing is done on a machine without SELinux, and for a
/// container without a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relabel {
    /// They keep their own.
    #[default]
    Never,
    /// All containers may use them.
    Shared,
    /// Containers with this container's level may use them.
    Private,
}

impl Mount {
    /// Something at a place of the container, as is usual.
    pub fn new(source: MountSource, target: impl Into<PathBuf>) -> Self {
        Self {
            target: target.into(),
            source,
            access: Access::default(),
            submounts: Submounts::default(),
            propagation: Propagation::default(),
            owners: Owners::default(),
            restrictions: BTreeSet::new(),
            missing: MissingSource::default(),
            relabel: Relabel::default(),
        }
    }

    /// A file or directory of the host, with the mounts below it.
    pub fn bind(source: impl Into<PathBuf>, target: impl Into<PathBuf>, access: Access) -> Self {
        Self { access, ..Self::new(MountSource::Bind { path: source.into() }, target) }
    }

    /// An empty file system in memory.
    pub fn tmpfs(target: impl Into<PathBuf>, size_bytes: Option<u64>) -> Self {
        Self::new(MountSource::Tmpfs { size_bytes }, target)
    }

    /// An image, or the part of it at a path from its root.
    pub fn image(image: ImageName, sub_path: Option<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self::new(MountSource::Image(ImageMount { image, sub_path }), target)
    }

    /// The image that it shows, once the runtime has found it.
    pub fn stands_on(&self) -> Option<&ImageId> {
        match &self.source {
            MountSource::Layers(layered) => Some(&layered.image),
            MountSource::Bind { .. } | MountSource::Tmpfs { .. } | MountSource::Image(_) => None,
        }
    }
}
