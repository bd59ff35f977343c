//! Case 58 of the field reports (CVE-2021-32760, CVE-2025-47290): a layer that reaches out of its directory. Beside every
//! layer lies a canary, and nothing may ever happen to it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as link_file};

use rstest::rstest;

use super::*;

/// A bench with a canary, and its state.
struct Canary {
    bench: Bench,
    before: (u64, u32, u64, i64),
}

impl Canary {
    fn new() -> Self {
        let bench = Bench::new();
        let canary = bench.path("canary");
        fs::create_dir(&canary).expect("made");
        fs::write(canary.join("file"), "sings").expect("written");
        fs::set_permissions(canary.join("file"), fs::Permissions::from_mode(0o640)).expect("permitted");
        let before = Self::state(&bench);
        Self { bench, before }
    }

    fn state(bench: &Bench) -> (u64, u32, u64, i64) {
        let file = fs::metadata(bench.path("canary/file")).expect("there");
        let directory = fs::metadata(bench.path("canary")).expect("there");
        (file.size(), file.mode(), file.nlink(), directory.mtime_nsec())
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(read(&self.bench.path("canary/file")), "sings");
            assert_eq!(Self::state(&self.bench), self.before, "the canary was touched");
        }
    }
}

#[rstest]
#[case(&[file("../canary/file", "x")], "\"..\"")]
#[case(&[file("a/../../canary/file", "x")], "\"..\"")]
#[case(&[symlink("../canary/link", "x")], "\"..\"")]
#[case(&[directory("..")], "\"..\"")]
#[case(&[hard_link("h", "../canary/file")], "\"..\"")]
#[case(&[symlink("l", "../canary"), hard_link("h", "l/file"), file("h", "x")], "not in the image")]
#[case(&[symlink("l", "../canary/file"), hard_link("h", "l/.."), file("h", "x")], "\"..\"")]
#[case(&[file("d/.wh...", "")], "whiteout must name")]
#[case(&[file("d/.wh..", "")], "whiteout must name")]
#[case(&[file("d/.wh.", "")], "whiteout must name")]
#[case(&[file(".wh.x/y", "")], "inside of a whiteout")]
#[case(&[file("", "x")], "must be a directory")]
#[case(&[file(".", "x")], "must be a directory")]
#[case(&[symlink("./", "/")], "must be a directory")]
#[case(&[symlink("l", "")], "without a target")]
#[case(&[hard_link("h", "/")], "root of the layer")]
#[case(&[directory("d"), hard_link("h", "d")], "directory")]
#[case(&[hard_link("h", "nothing")], "not in the image")]
#[case(&[file("f", "x"), file("f/g", "x")], "no directory")]
#[case(&[symlink("a", "b"), symlink("b", "a"), file("a/x", "x")], "symbolic links")]
#[case(&[Entry { owner: (4_294_967_295, 0), ..file("f", "x") }], "ids go from 0")]
#[case(&[Entry { owner: (0, 4_294_967_296), ..file("f", "x") }], "ids go from 0")]
#[case(&[file("f", "x").record("GNU.sparse.map", b"0,1,0,1").record("GNU.sparse.size", b"9")], "contradicts itself")]
#[case(&[file("f", "x").record("GNU.sparse.map", b"0,1").record("GNU.sparse.size", b"0")], "contradicts itself")]
#[case(&[file("f", "x").record("size", b"-1")], "extended header: size")]
#[case(&[file("f", "x").record("mtime", b"soon")], "extended header: mtime")]
#[case(&[Entry::new(tar::EntryType::new(b'M'), "f")], "type 'M'")]
fn refused(#[case] entries: &[Entry], #[case] expected: &str) {
    if !is_root() {
        return;
    }
    let mut canary = Canary::new();
    let text = canary.bench.refused(entries);
    assert!(text.contains(expected), "{text}");
}

#[rstest]
#[case(&[file("/canary/file", "x")], "canary/file")]
#[case(&[symlink("l", "../canary"), file("l/file", "x")], "canary/file")]
#[case(&[symlink("l", "/../../../canary"), file("l/file", "x")], "canary/file")]
#[case(&[symlink("l", "../../canary/file"), file("l", "x")], "l")]
#[case(&[symlink("d", "../canary"), directory("d"), file("d/file", "x")], "d/file")]
#[case(&[directory("d"), symlink("d/e", ".."), file("d/e/../canary/file".replace("../", "").as_str(), "x")], "canary/file")]
#[case(&[symlink("a", "b/../../../canary"), directory("b"), file("a/file", "x")], "canary/file")]
#[case(&[file("d/f", "y"), symlink("d", "../canary"), file("d/file", "x")], "canary/file")]
fn stays_inside(#[case] entries: &[Entry], #[case] lands: &str) {
    if !is_root() {
        return;
    }
    let mut canary = Canary::new();
    let root = canary.bench.unpacked(&archive(entries));
    assert_eq!(read(&root.join(lands)), "x");
}

#[test]
fn links_and_modes_of_links_reach_nothing_outside() {
    if !is_root() {
        return;
    }
    let mut canary = Canary::new();
    let outside = canary.bench.path("canary/file");
    let outside = outside.to_str().expect("text");
    // A link, a hard link to the link, and a set-id mode and an owner for what the name leads to.
    let entries = [
        symlink("l", outside),
        hard_link("h", "l"),
        Entry { owner: (1234, 1234), ..symlink("h2", outside) }.mode(0o4777),
        Entry { owner: (1234, 1234), ..hard_link("h3", "h2") }.mode(0o4777),
    ];
    let root = canary.bench.unpacked(&archive(&entries));
    assert_eq!(fs::read_link(root.join("h")).expect("a link"), std::path::Path::new(outside));
}

#[test]
fn a_link_of_one_layer_leads_the_next_nowhere_outside() {
    if !is_root() {
        return;
    }
    let mut canary = Canary::new();
    canary.bench.unpacked(&archive(&[symlink("l", "../canary"), symlink("abs", "/../canary")]));
    let second = archive(&[file("l/file", "x"), file("abs/other", "y"), file("l/.wh.gone", "")]);
    let root = canary.bench.unpacked(&second);
    assert_eq!(read(&root.join("canary/file")), "x");
    assert_eq!(read(&root.join("canary/other")), "y");
    assert!(fs::symlink_metadata(root.join("l")).is_err(), "the link below stays the link");
}

#[test]
fn directories_that_another_process_swaps_for_links_lead_nowhere_outside() {
    if !is_root() {
        return;
    }
    let mut canary = Canary::new();
    let outside = canary.bench.path("canary");
    let layer = canary.bench.path("layer0");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let stop = std::sync::Arc::clone(&stop);
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::rename(layer.join("d"), layer.join("e"));
                let _ = link_file(&outside, layer.join("d"));
                let _ = fs::remove_file(layer.join("d"));
            }
        }
    });
    let entries: Vec<Entry> = (0..3000)
        .flat_map(|n| {
            [file(&format!("d/file{n}"), "x"), symlink("other/x", "y"), file("d/file", "overwritten")]
        })
        .collect();
    // Whether it succeeds depends on who was faster.
    let _ = canary.bench.layer(&archive(&entries));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().expect("swapped");
}

#[test]
fn bombs_are_refused_before_they_fill_the_disk() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new();
    bench.limits = Limits {
        layer_bytes_max: 8 << 20,
        layer_entries_max: 10,
        path_bytes_max: 1000,
        depth_max: 20,
        ..Limits::default()
    };
    let refused = |entries: &[Entry], setting: &str| {
        let mut fresh = Bench {
            directory: TempDir::new().expect("made"),
            limits: bench.limits.clone(),
            layers: Vec::new(),
        };
        let text = fresh.refused(entries);
        assert!(text.contains(setting), "{text}");
    };
    let many: Vec<Entry> = (0..11).map(|n| file(&format!("f{n}"), "")).collect();
    refused(&many, "layer_entries_max");
    refused(&[file(&"d/".repeat(30), "")], "depth_max");
    refused(&[file(&format!("{}f", "d/".repeat(800)), "")], "path_bytes_max");
    let hole = file("f", "").record("GNU.sparse.size", b"1000000000000000").record("GNU.sparse.map", b"");
    refused(&[hole], "layer_bytes_max");
    // A link that makes every path longer, over and over.
    let deep: Vec<Entry> = vec![symlink("a", &"b/".repeat(15)), file(&format!("a/{}", "c/".repeat(15)), "")];
    let _ = bench.layer(&archive(&deep));

    let zeros = archive(&[Entry { data: vec![0; 9 << 20], ..file("f", "") }]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&zeros).expect("compressed");
    let text = bench.layer(&encoder.finish().expect("compressed")).expect_err("too large").to_string();
    assert!(text.contains("layer_bytes_max"), "{text}");

    bench.limits = Limits { ratio_max: 100, ..Limits::default() };
    let zeros = vec![0; 80 << 20];
    let bomb =
        zstd::encode_all(&archive(&[Entry { data: zeros, ..file("f", "") }])[..], 3).expect("compressed");
    let text = bench.layer(&bomb).expect_err("a bomb").to_string();
    assert!(text.contains("ratio_max"), "{text}");

    let header = Entry { data: vec![b'x'; 2 << 20], ..Entry::new(tar::EntryType::XHeader, "x") };
    let mut bytes = Vec::new();
    member(&mut bytes, &header);
    let text = bench.layer(&bytes).expect_err("too long").to_string();
    assert!(text.contains("at most 1048576"), "{text}");
}

#[test]
fn attributes_of_overlayfs_and_of_security_modules_are_not_the_images() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new();
    let entry = directory("d")
        .record("SCHILY.xattr.trusted.overlay.opaque", b"y")
        .record("SCHILY.xattr.trusted.overlay.redirect", b"/etc")
        .record("SCHILY.xattr.user.overlay.opaque", b"y")
        .record("SCHILY.xattr.security.selinux", b"system_u:object_r:etc_t:s0")
        .record("SCHILY.xattr.user.kept", b"1");
    let root = bench.unpacked(&archive(&[entry]));
    let mut list = [0; 1024];
    let length = rustix::fs::llistxattr(root.join("d"), &mut list[..]).expect("listed");
    assert_eq!(&list[..length], b"user.kept\0");
}

#[test]
fn a_wrong_diff_id_is_told_with_both_digests() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let bytes = archive(&[file("f", "x")]);
    let (blob, wrong, below) = (Digest::of(b"blob"), Digest::of(b"other"), Ready(Vec::new()));
    let job = Job {
        layer: &blob,
        diff_id: &wrong,
        target: open_directory(bench.directory.path()).expect("open"),
        below: &below,
        limits: &bench.limits,
        overlay: OverlayAttributes::Trusted,
        observer: &Observer::none(),
        made: &|_| Ok(()),
    };
    let found = Digest::of(&bytes).to_string();
    let text = unpack(job, io::Cursor::new(bytes)).expect_err("wrong").to_string();
    assert!(text.contains(&wrong.to_string()) && text.contains(&found), "{text}");
}
