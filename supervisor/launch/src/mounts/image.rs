//! Images that are mounted into a container, whole or in part: overlays of their layers that can only be read.
//!
//! An overlay takes layers of this mount name space alone, and only an attached mount can be copied before Linux 6.15. So they are made
//! where the root is mounted later, which then lies on top of them; what goes into the container are copies.
//!
//! Owns: which mounts are images, and making them. Never: mounts one in the container.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::clone_handle;
use super::options::Bind;
use super::protect::empty_directory;
use super::sources::SourceTrees;
use super::target::{handle_path, open_host_directory};
use crate::error::{Context, Result, Step, invalid};
use crate::rootfs::{attach_below, labelled};

/// What a mount option with a layer of an image begins with, the uppermost layer first.
pub const LAYER_OPTION: &str = "lowerdir+=";
/// What the mount option begins with that names the file or directory of an image that is shown.
pub const PART_OPTION: &str = "X-mount.subdir=";
/// What the kernel takes as mount options: one page with its final NUL.
const MOUNT_DATA_MAX_BYTES: usize = 4095;

/// Detached images, by the index of the mount.
pub(crate) type Images = BTreeMap<usize, OwnedFd>;

/// An image to mount.
pub(crate) struct Image<'a> {
    /// Its layers, the uppermost first.
    pub(crate) layers: Vec<&'a Path>,
    /// The file or directory of it that is shown.
    part: Option<&'a Path>,
}

impl<'a> Image<'a> {
    /// That of a mount, if it is of one.
    pub(crate) fn of(mount: &'a Mount) -> Option<Self> {
        let words = mount.options().as_deref().unwrap_or_default();
        let of_words = |prefix: &'static str| {
            words.iter().filter_map(move |word| word.strip_prefix(prefix)).map(Path::new)
        };
        let layers: Vec<&Path> = of_words(LAYER_OPTION).collect();
        let is_image = mount.typ().as_deref() == Some("overlay") && !layers.is_empty();
        is_image.then(|| Self { layers, part: of_words(PART_OPTION).next_back() })
    }

    /// The options that say how it is mounted, and not what.
    pub(crate) fn options(mount: &Mount) -> Vec<&str> {
        let words = mount.options().as_deref().unwrap_or_default().iter().map(String::as_str);
        words.filter(|word| !word.starts_with(LAYER_OPTION) && !word.starts_with(PART_OPTION)).collect()
    }
}

/// Where images are made.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    /// The SELinux label of their files.
    label: Option<&'a str>,
}

/// Makes all images of the spec, at a place where nothing is seen of them.
pub(crate) fn make(
    mounts: &[Mount],
    sources: &SourceTrees,
    place: &Path,
    label: Option<&str>,
) -> Result<Images> {
    let mut images = Images::new();
    for (index, mount) in mounts.iter().enumerate() {
        if let Some(image) = Image::of(mount) {
            let field = format!("mounts[{index}] ({:?})", mount.destination());
            images.insert(index, make_one(index, &image, sources, Place { path: place, label }, &field)?);
        }
    }
    Ok(images)
}

fn make_one(
    index: usize,
    image: &Image<'_>,
    sources: &SourceTrees,
    place: Place<'_>,
    field: &str,
) -> Result<OwnedFd> {
    let layer = |(number, path): (usize, &&Path)| {
        let opened = match sources.image_layer(index, number) {
            Ok(Some(tree)) => attach_below(tree, place.path),
            Ok(None) => open_host_directory(path),
            Err(error) => Err(error),
        };
        opened.context(Step::Mounts, || format!("{field}: layer {path:?}"))
    };
    let mut layers = image.layers.iter().enumerate().map(layer).collect::<Result<Vec<_>>>()?;
    // An overlay without a writable layer wants two at least.
    let nothing = empty_directory().and_then(|tree| attach_below(tree, place.path));
    layers.push(nothing.context(Step::Mounts, || format!("{field}: an empty layer"))?);
    let whole = overlay(&layers, place, field)?;
    let shown = match image.part {
        None => whole,
        Some(part) => find(&whole, part, field)?,
    };
    clone_handle(shown.as_fd(), Bind::Single).context(Step::Mounts, || format!("{field}: copying it"))
}

fn overlay(layers: &[OwnedFd], place: Place<'_>, field: &str) -> Result<OwnedFd> {
    let Place { path: place, label } = place;
    let paths: Vec<String> = layers.iter().map(handle_path).collect();
    let data = format!("lowerdir={}{}", paths.join(":"), label.map(labelled).unwrap_or_default());
    if data.len() > MOUNT_DATA_MAX_BYTES {
        return Err(invalid(
            field,
            format!("{} layers are more than one overlay mount can name", layers.len()),
        ));
    }
    let data = CString::new(data).map_err(|_| invalid("linux.mountLabel", "it has a NUL byte"))?;
    mount("overlay", place, "overlay", MountFlags::RDONLY, data.as_c_str())
        .context(Step::Mounts, || format!("{field}: an overlay of {} layers", layers.len()))?;
    open_host_directory(place).context(Step::Mounts, || format!("{field}: {place:?}"))
}

/// A file or directory of an image, whose links lead nowhere but into the image.
fn find(image: &OwnedFd, part: &Path, field: &str) -> Result<OwnedFd> {
    let inside: PathBuf = part.strip_prefix("/").unwrap_or(part).into();
    if inside.as_os_str().is_empty() {
        return image.try_clone().context(Step::Mounts, || field.to_owned());
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(image, &inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(found) => Ok(found),
        Err(Errno::NOENT | Errno::NOTDIR) => {
            Err(invalid(field, format!("the image has nothing at {part:?}")))
        }
        Err(error) => {
            Err(io::Error::from(error)).context(Step::Mounts, || format!("{field}: {part:?} of the image"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, words: &[&str]) -> Mount {
        let mut mount = Mount::default();
        mount
            .set_typ(Some(kind.to_owned()))
            .set_options(Some(words.iter().map(|word| (*word).to_owned()).collect()));
        mount
    }

    #[test]
    fn an_image_is_an_overlay_with_layers() {
        let given =
            mount("overlay", &["ro", "lowerdir+=/b:c", "nodev", "lowerdir+=/a,b", "X-mount.subdir=x/y"]);
        let image = Image::of(&given).expect("an image");
        assert_eq!(image.layers, [Path::new("/b:c"), Path::new("/a,b")]);
        assert_eq!(image.part, Some(Path::new("x/y")));
        assert_eq!(Image::options(&given), ["ro", "nodev"]);
        assert!(Image::of(&mount("overlay", &["lowerdir=/a", "upperdir=/b"])).is_none());
        assert!(Image::of(&mount("bind", &["lowerdir+=/a"])).is_none());
    }
}
