//! The settings of the images, and their defaults.

use std::time::Duration;

/// The largest blob that is taken, in bytes, when nothing else is set.
pub const BLOB_BYTES_MAX: u64 = 64 << 30;
/// The most bytes that the contents of one layer may have when unpacked, when nothing else is set.
pub const LAYER_BYTES_MAX: u64 = 128 << 30;
/// The most entries that one layer may have, when nothing else is set.
pub const LAYER_ENTRIES_MAX: u64 = 8_000_000;
/// The longest path of an entry, in bytes, when nothing else is set; what the kernel takes in one call.
pub const PATH_BYTES_MAX: u64 = 4095;
/// The most directories above one another, when nothing else is set.
pub const DEPTH_MAX: u64 = 512;
/// How many bytes one compressed byte may become, when nothing else is set. gzip reaches 1,032.
pub const RATIO_MAX: u64 = 4096;
/// How long an unfinished download is kept for the next try, when nothing else is set, in hours.
pub const PARTIAL_KEPT_DEFAULT_H: u64 = 24;
/// How long a write waits for another program that has the records locked, in milliseconds.
pub const BUSY_TIMEOUT_DEFAULT_MS: u64 = 5_000;

/// What a layer may be. What is beyond is refused before it fills the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one blob.
    pub blob_bytes_max: u64,
    /// Bytes of the contents of one layer, holes of files included.
    pub layer_bytes_max: u64,
    /// Entries of one layer.
    pub layer_entries_max: u64,
    /// Bytes of one path.
    pub path_bytes_max: u64,
    /// Directories above one another.
    pub depth_max: u64,
    /// Bytes that one compressed byte becomes, taken over the layer so far, after its first 64 MiB.
    pub ratio_max: u64,
}

/// Which extended attributes tell overlayfs that a directory hides those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlayAttributes {
    /// `trusted.overlay.…`: for mounts that root makes.
    #[default]
    Trusted,
    /// `user.overlay.…`: for mounts with the option `userxattr`, as a user namespace needs.
    User,
}

/// How long a process has the images open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenure {
    /// As long as it runs: nobody else can have them until it ends.
    #[default]
    Kept,
    /// As long as it is at work on them: others take their turn.
    InTurn,
}

/// Settings of the images of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The boot id of this run (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// How long this process has them open; others who want them are told.
    pub tenure: Tenure,
    /// What a layer may be.
    pub limits: Limits,
    /// How directories are marked that hide those below.
    pub overlay_attributes: OverlayAttributes,
    /// How long an unfinished download is kept for the next try.
    pub partial_kept: Duration,
    /// How long a write waits for another program that has the records locked.
    pub busy_timeout: Duration,
    /// Called at each step on the way to a durable change, with its name, for tests that strike there. Does nothing when
    /// nothing else is set.
    pub checkpoint: fn(&'static str),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            blob_bytes_max: BLOB_BYTES_MAX,
            layer_bytes_max: LAYER_BYTES_MAX,
            layer_entries_max: LAYER_ENTRIES_MAX,
            path_bytes_max: PATH_BYTES_MAX,
            depth_max: DEPTH_MAX,
            ratio_max: RATIO_MAX,
        }
    }
}

impl Settings {
    /// The default settings, in a machine's run of this boot id.
    pub fn new(boot_id: impl Into<String>) -> Self {
        Self {
            boot_id: boot_id.into(),
            tenure: Tenure::default(),
            limits: Limits::default(),
            overlay_attributes: OverlayAttributes::default(),
            partial_kept: Duration::from_secs(PARTIAL_KEPT_DEFAULT_H * 3600),
            busy_timeout: Duration::from_millis(BUSY_TIMEOUT_DEFAULT_MS),
            checkpoint: |_| {},
        }
    }
}

impl OverlayAttributes {
    /// The attribute that makes a directory opaque, with the value `y`.
    pub(crate) fn opaque(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.opaque",
            Self::User => "user.overlay.opaque",
        }
    }
}
