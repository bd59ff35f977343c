//! Images that are mounted into a container.

/// What a mount option with a layer of an image begins with, the uppermost layer first.
pub const LAYER_OPTION: &str = "lowerdir+=";
/// What the mount option begins with that names the file or directory of an image that is shown.
pub const PART_OPTION: &str = "X-mount.subdir=";
