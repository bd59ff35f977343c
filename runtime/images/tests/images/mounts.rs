//! Views of images, with more layers than one mount option can name, and what writable layers use.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_images::{Images, RootfsPlan, unmount_view, usage};

use crate::world::{World, archive, image, image_of, is_root, read};

struct View(PathBuf);

impl View {
    fn of(images: &Images, plan: &RootfsPlan, at: PathBuf) -> Self {
        fs::create_dir(&at).expect("made");
        images.mount_view(plan, &at).expect("mounted");
        Self(at)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        unmount_view(&self.0).expect("unmounted");
    }
}

#[test]
fn an_image_of_300_layers_is_unpacked_and_mounted() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let count = 300;
    let archives: Vec<_> =
        (0..count).map(|n| archive(&[(&format!("d/f{n}"), "x"), ("top", &n.to_string())])).collect();
    world.pull("deep", &image_of(&archives));
    let plan = world.images.lease("c", "deep").expect("leased");
    assert_eq!(plan.lower.len(), count);
    let view = View::of(&world.images, &plan, world.path("view"));
    assert_eq!(fs::read_dir(view.0.join("d")).expect("listed").count(), count);
    assert_eq!(read(view.0.join("top")), (count - 1).to_string());
    let error = fs::write(view.0.join("new"), "x").expect_err("read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn an_image_without_layers_has_an_empty_root() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.pull("scratch", &image(&[]));
    let plan = world.images.lease("c", "scratch").expect("leased");
    assert_eq!(plan.lower.len(), 1);
    let directory = world.path("view");
    assert_eq!(fs::read_dir(&plan.lower[0]).expect("listed").count(), 0);
    assert!(!directory.exists());
}

#[test]
fn usage_counts_files_once_and_holes_not() {
    let world = World::new();
    let directory = world.path("layer");
    fs::create_dir(&directory).expect("made");
    fs::write(directory.join("a"), vec![1; 100_000]).expect("written");
    fs::hard_link(directory.join("a"), directory.join("b")).expect("linked");
    fs::File::create(directory.join("hole")).expect("made").set_len(1 << 30).expect("long");
    std::os::unix::fs::symlink("/", directory.join("link")).expect("linked");
    let used = usage(&directory).expect("counted");
    assert_eq!(used.inodes, 4);
    assert!((100_000..1_000_000).contains(&used.bytes), "{used:?}");
    assert!(usage(Path::new("/nonexistent/layer")).is_err());
}
