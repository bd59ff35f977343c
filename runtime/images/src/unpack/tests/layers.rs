//! Layers over layers, looked at through a real overlay. Case 56 of the field reports: deleted files came back, opaque
//! directories were ignored, a whiteout as a hard link broke the pull, a whiteout through a linked directory went astray.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

/// A view of layers, unmounted at its end.
struct View(PathBuf);

impl View {
    fn of(bench: &Bench) -> Self {
        let (at, empty) = (bench.path("view"), bench.path("empty"));
        fs::create_dir_all(&at).expect("made");
        fs::create_dir_all(&empty).expect("made");
        let layers = bench.layers.iter().rev().chain([&empty]);
        let lower: Vec<&str> = layers.map(|path| path.to_str().expect("text")).collect();
        let data = std::ffi::CString::new(format!("lowerdir={}", lower.join(":"))).expect("text");
        mount("overlay", &at, "overlay", MountFlags::RDONLY, data.as_c_str()).expect("mounted");
        Self(at)
    }

    /// Every path with what it is.
    fn list(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut ahead = vec![self.0.clone()];
        while let Some(directory) = ahead.pop() {
            for entry in fs::read_dir(directory).expect("listed") {
                let path = entry.expect("an entry").path();
                let metadata =
                    fs::symlink_metadata(&path).expect("every name that is listed can be looked at");
                let what = if metadata.is_dir() {
                    ahead.push(path.clone());
                    "/".to_owned()
                } else if metadata.is_symlink() {
                    format!("-> {}", fs::read_link(&path).expect("a link").display())
                } else if metadata.file_type().is_char_device() {
                    "device".to_owned()
                } else {
                    read(&path)
                };
                let name = path.strip_prefix(&self.0).expect("inside").to_str().expect("text").to_owned();
                found.insert(name, what);
            }
        }
        found
    }

    fn expect(&self, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned())).collect();
        assert_eq!(self.list(), expected);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("unmounted");
    }
}

fn view(layers: &[&[Entry]]) -> (Bench, View) {
    let mut bench = Bench::new();
    for layer in layers {
        bench.unpacked(&archive(layer));
    }
    let view = View::of(&bench);
    (bench, view)
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_else() {
    if !is_root() {
        return;
    }
    let base = [
        directory("d"),
        file("d/gone", "1"),
        file("d/kept", "1"),
        directory("whole"),
        file("whole/x", "1"),
        directory("opaque"),
        file("opaque/old", "1"),
        directory("later"),
        file("later/old", "1"),
        file("again", "old"),
        directory("readded"),
        file("readded/old", "1"),
        directory("real"),
        file("real/via-link", "1"),
        symlink("link", "real"),
        file("linked-away", "1"),
        file("target", "shared"),
    ];
    let second = [
        file("d/.wh.gone", ""),
        file(".wh.whole", ""),
        directory("opaque"),
        file("opaque/.wh..wh..opq", ""),
        file("opaque/new", "2"),
        // Opaque after the new files.
        directory("later"),
        file("later/new", "2"),
        file("later/.wh..wh..opq", ""),
        // Deleted and there again, in both orders.
        file(".wh.again", ""),
        file("again", "new"),
        directory("readded"),
        file("readded/new", "2"),
        file(".wh.readded", ""),
        file("link/.wh.via-link", ""),
        // A whiteout that is a hard link.
        hard_link(".wh.linked-away", "d/.wh.gone"),
        hard_link("name", "target"),
        // Whiteouts of nothing, in a directory that is nowhere.
        file(".wh.nothing", ""),
        file("nowhere/.wh.nothing", ""),
        // AUFS's bookkeeping.
        directory(".wh..wh.plnk"),
        file(".wh..wh.plnk/1.2", ""),
        file(".wh..wh.aufs", ""),
    ];
    let (bench, view) = view(&[&base, &second]);
    view.expect(&[
        ("again", "new"),
        ("d", "/"),
        ("d/kept", "1"),
        ("later", "/"),
        ("later/new", "2"),
        ("link", "-> real"),
        ("name", "shared"),
        ("opaque", "/"),
        ("opaque/new", "2"),
        ("readded", "/"),
        ("readded/new", "2"),
        ("real", "/"),
        ("target", "shared"),
    ]);
    let inode = |name: &str| fs::metadata(bench.layers[1].join(name)).expect("there").ino();
    assert_eq!(inode("name"), inode("target"), "a hard link to a file below is one file with it");
}

#[test]
fn a_third_layer_sees_through_whiteouts_and_opaque_directories_of_the_second() {
    if !is_root() {
        return;
    }
    let (_bench, view) = view(&[
        &[
            directory("d").mode(0o700),
            file("d/a", "1"),
            file("f", "1"),
            directory("o").mode(0o711),
            file("o/x", "1"),
        ],
        &[file(".wh.f", ""), file("d/.wh.a", ""), directory("o").mode(0o750), file("o/.wh..wh..opq", "")],
        // Of these, nothing is there any more; a whiteout of it would show as a broken name.
        &[file(".wh.f", ""), file("d/.wh.a", ""), file("o/.wh.x", ""), file("o/y", "3")],
    ]);
    view.expect(&[("d", "/"), ("o", "/"), ("o/y", "3")]);
    let mode = |name: &str| fs::metadata(view.0.join(name)).expect("there").mode() & 0o7777;
    assert_eq!((mode("d"), mode("o")), (0o700, 0o750));
}

#[test]
fn the_root_can_be_emptied_and_filled_again() {
    if !is_root() {
        return;
    }
    let (_bench, view) = view(&[
        &[directory("d"), file("d/x", "1"), file("f", "1"), symlink("s", "f")],
        &[file("f", "2"), file(".wh..wh..opq", ""), directory("d"), file("d/y", "2")],
    ]);
    view.expect(&[("d", "/"), ("d/y", "2"), ("f", "2")]);
}

/// Layers that tools write by hand leave directories out. Those that came out of nowhere had mode 0755 and hid what the image
/// had: `/tmp` was not writable any more, and a merged `/usr` was undone.
#[test]
fn directories_that_a_layer_leaves_out_are_those_below() {
    if !is_root() {
        return;
    }
    let (bench, view) = view(&[
        &[
            Entry { owner: (7, 8), time: 1_234_567_890, ..directory("tmp").mode(0o1777) }
                .record("SCHILY.xattr.user.a", b"b"),
            directory("usr"),
            directory("usr/bin"),
            file("usr/bin/sh", "1"),
            symlink("bin", "usr/bin"),
            symlink("absolute", "/usr/bin"),
        ],
        &[file("tmp/x", "2"), file("bin/tool", "2"), file("absolute/other", "2"), hard_link("sh", "bin/sh")],
    ]);
    view.expect(&[
        ("absolute", "-> /usr/bin"),
        ("bin", "-> usr/bin"),
        ("sh", "1"),
        ("tmp", "/"),
        ("tmp/x", "2"),
        ("usr", "/"),
        ("usr/bin", "/"),
        ("usr/bin/other", "2"),
        ("usr/bin/sh", "1"),
        ("usr/bin/tool", "2"),
    ]);
    let tmp = fs::metadata(view.0.join("tmp")).expect("there");
    assert_eq!((tmp.mode() & 0o7777, tmp.uid(), tmp.gid(), tmp.mtime()), (0o1777, 7, 8, 1_234_567_890));
    let mut value = [0; 8];
    let length = rustix::fs::lgetxattr(bench.layers[1].join("tmp"), "user.a", &mut value[..]).expect("there");
    assert_eq!(&value[..length], b"b");
}

#[test]
fn a_directory_takes_the_place_of_a_link_and_a_file_that_of_a_directory() {
    if !is_root() {
        return;
    }
    let (_bench, view) = view(&[
        &[directory("real"), file("real/x", "1"), symlink("link", "real"), directory("d"), file("d/y", "1")],
        &[directory("link"), file("link/z", "2"), file("d", "2"), file("twice", "1"), file("twice", "2")],
    ]);
    view.expect(&[
        ("d", "2"),
        ("link", "/"),
        ("link/z", "2"),
        ("real", "/"),
        ("real/x", "1"),
        ("twice", "2"),
    ]);
}

#[test]
fn gzip_with_members_and_zstd_with_frames_unpack_as_plain_archives_do() {
    if !is_root() {
        return;
    }
    let bytes = archive(&[file("f", &"content ".repeat(1000))]);
    let (first, second) = bytes.split_at(700);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).expect("compressed");
        encoder.finish().expect("compressed")
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("compressed");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
    for packed in [
        bytes.clone(),
        [gzip(first), gzip(second)].concat(),
        [zstd(first), skippable.clone(), zstd(second)].concat(),
        [skippable, zstd(&bytes)].concat(),
    ] {
        let mut bench = Bench::new();
        let root = bench.unpacked(&packed);
        assert_eq!(read(&root.join("f")).len(), 8000);
    }
    let mut cut = gzip(&bytes);
    cut.truncate(cut.len() - 20);
    let text = Bench::new().layer(&cut).expect_err("cut short").to_string();
    assert!(text.contains("cannot be read or decompressed"), "{text}");
}
