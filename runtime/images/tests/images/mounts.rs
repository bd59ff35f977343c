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
    let used = usage(&directory, || true).expect("counted");
    assert_eq!(used.inodes, 4);
    assert!((100_000..1_000_000).contains(&used.bytes), "{used:?}");
    assert!(usage(Path::new("/nonexistent/layer"), || true).is_err());
}

/// A container that puts a link in the place of one of its directories, whenever that is, sends nobody elsewhere.
#[test]
fn usage_does_not_follow_a_link_that_takes_the_place_of_a_directory() {
    let world = World::new();
    let elsewhere = world.path("elsewhere");
    fs::create_dir_all(elsewhere.join("below")).expect("made");
    for number in 0..50 {
        fs::write(elsewhere.join(format!("below/{number}")), "x").expect("written");
    }
    let mut asked_most = 0;
    for moment in 1..=8 {
        let directory = world.path(&format!("layer{moment}"));
        fs::create_dir_all(directory.join("a/below")).expect("made");
        let mut asked = 0;
        let swap = || {
            asked += 1;
            if asked == moment {
                fs::rename(directory.join("a"), world.path(&format!("away{moment}"))).expect("moved");
                std::os::unix::fs::symlink(&elsewhere, directory.join("a")).expect("linked");
            }
            true
        };
        let used = usage(&directory, swap).expect("counted");
        assert!(used.inodes <= 3, "{moment}: {used:?}");
        asked_most = asked_most.max(asked);
    }
    assert_eq!(asked_most, 5, "three directories and two entries: every moment was tried");
}

#[test]
fn usage_gives_up_when_nobody_waits() {
    let world = World::new();
    let directory = world.path("layer");
    fs::create_dir(&directory).expect("made");
    fs::write(directory.join("a"), "x").expect("written");
    let mut asked = 0;
    let error = usage(&directory, || {
        asked += 1;
        asked < 2
    });
    assert_eq!(error.expect_err("it was told so").kind(), std::io::ErrorKind::Interrupted);
}
