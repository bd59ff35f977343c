//! What GNU tar makes of an archive, we make of it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rustix::fs::{FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat};

use super::*;
use crate::verify::difference;

/// A file of a tree to be archived.
#[derive(Clone, Debug)]
struct Node {
    path: String,
    kind: NodeKind,
    mode: u32,
    owner: (u32, u32),
    time: (i64, i64),
    xattr: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Directory,
    File(Vec<u8>),
    /// A file with holes: pieces at these offsets.
    Sparse(Vec<(u32, Vec<u8>)>),
    Symlink(String),
    /// Another name of the n-th file so far.
    HardLink(usize),
    Fifo,
    Device,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-d]", 2 => "[a-zäß .,:=%\\\\-]{1,20}x", 1 => "[a-z]{120,250}"]
}

fn node() -> impl Strategy<Value = Node> {
    let kind = prop_oneof![
        4 => Just(NodeKind::Directory),
        6 => proptest::collection::vec(any::<u8>(), 0..2000).prop_map(NodeKind::File),
        1 => proptest::collection::vec((0u32..4_000_000, proptest::collection::vec(1u8..255, 1..5000)), 0..40)
            .prop_map(NodeKind::Sparse),
        2 => prop_oneof!["[a-d/.]{1,20}", "/[a-d]{1,10}", "[a-z]{101,200}"].prop_map(NodeKind::Symlink),
        2 => (0usize..20).prop_map(NodeKind::HardLink),
        1 => Just(NodeKind::Fifo),
        1 => Just(NodeKind::Device),
    ];
    let path = proptest::collection::vec(name(), 1..4).prop_map(|names| names.join("/"));
    let attribute = ("(user|trusted)\\.[a-z]{1,10}", proptest::collection::vec(any::<u8>(), 1..100));
    let capability =
        any::<u32>().prop_map(|permitted| ("security.capability".to_owned(), capability(permitted)));
    let xattr = proptest::option::weighted(0.3, prop_oneof![3 => attribute, 1 => capability]);
    (
        path,
        kind,
        0u32..0o10000,
        (0u32..3_000_000, 0u32..70_000),
        (-1_000_000_000i64..5_000_000_000, 0i64..1_000_000_000),
        xattr,
    )
        .prop_map(|(path, kind, mode, owner, time, xattr)| Node { path, kind, mode, owner, time, xattr })
}

/// Capabilities of a program, as the kernel has them (`VFS_CAP_REVISION_2`), effective.
fn capability(permitted: u32) -> Vec<u8> {
    let words = [0x0200_0001, permitted, 0, 0, 0];
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// Makes the tree, as far as its nodes do not contradict one another.
fn make(root: &Path, nodes: &[Node]) {
    let mut files = Vec::new();
    let mut made = Vec::new();
    for node in nodes {
        let path = root.join(&node.path);
        let parent = path.parent().expect("below the root");
        let inside = fs::create_dir_all(parent).is_ok()
            && parent.canonicalize().is_ok_and(|real| real.starts_with(root) && real == parent);
        if !inside || fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        let done = match &node.kind {
            NodeKind::Directory => fs::create_dir(&path).is_ok(),
            NodeKind::File(bytes) => fs::write(&path, bytes).is_ok(),
            NodeKind::Sparse(pieces) => {
                let file = fs::File::create(&path).expect("made");
                pieces
                    .iter()
                    .for_each(|(offset, bytes)| file.write_all_at(bytes, (*offset).into()).expect("written"));
                file.set_len(4_100_000).is_ok()
            }
            NodeKind::Symlink(target) => symlink(target, &path).is_ok(),
            NodeKind::HardLink(index) => {
                files.get(*index).is_some_and(|file| fs::hard_link(file, &path).is_ok())
            }
            NodeKind::Fifo => {
                mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).is_ok()
            }
            NodeKind::Device => {
                let device = rustix::fs::makedev(7, 300);
                mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, Mode::empty(), device).is_ok()
            }
        };
        if !done {
            continue;
        }
        if matches!(node.kind, NodeKind::File(_) | NodeKind::Sparse(_)) {
            files.push(path.clone());
        }
        made.push((path, node));
    }
    for (path, node) in made.iter().rev() {
        lchown(path, Some(node.owner.0), Some(node.owner.1)).expect("owned");
        if !matches!(node.kind, NodeKind::Symlink(_)) {
            fs::set_permissions(path, fs::Permissions::from_mode(node.mode)).expect("permitted");
        }
        if let Some((name, value)) = &node.xattr
            && (matches!(node.kind, NodeKind::File(_))
                || matches!(node.kind, NodeKind::Directory) && !name.starts_with("security."))
        {
            lsetxattr(path, name.as_str(), value, XattrFlags::empty()).expect("attributed");
        }
    }
    for (path, node) in made.iter().rev() {
        let time = Timespec { tv_sec: node.time.0, tv_nsec: node.time.1 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("timed");
    }
}

fn tar(arguments: &[&str]) {
    let output = Command::new("tar").args(arguments).output().expect("tar runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tar {arguments:?}: {text}");
}

fn compare(nodes: &[Node], format: &[&str]) {
    let mut bench = Bench::new();
    let (tree, by_tar, packed) = (bench.path("tree"), bench.path("by-tar"), bench.path("a.tar"));
    fs::create_dir(&tree).expect("made");
    fs::create_dir(&by_tar).expect("made");
    let tree = tree.canonicalize().expect("real");
    make(&tree, nodes);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let (tree, by_tar_text, packed_text) = (text(&tree), text(&by_tar), text(&packed));
    let mut arguments = vec!["--numeric-owner", "-cf", &packed_text, "-C", &tree];
    arguments.extend(format);
    arguments.push(".");
    tar(&arguments);
    tar(&[
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
        "-p",
        "--same-owner",
        "-P",
        "-xf",
        &packed_text,
        "-C",
        &by_tar_text,
    ]);
    let bytes = fs::read(&packed).expect("readable");
    let ours = bench.unpacked(&bytes);
    assert_eq!(difference(&ours, &by_tar).expect("comparable"), None, "{format:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_unpacks_to_what_gnu_tar_makes_of_it(
        nodes in proptest::collection::vec(node(), 0..24),
        format in prop_oneof![
            Just(&["--format=gnu", "--sparse"][..]),
            Just(&["--format=gnu"][..]),
            Just(&["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse"][..]),
            Just(&["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=0.0"][..]),
            Just(&["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--sparse-version=0.1"][..]),
        ],
    ) {
        if is_root() {
            compare(&nodes, format);
        }
    }

    #[test]
    fn damaged_archives_are_refused_and_never_panic(
        nodes in proptest::collection::vec((name(), proptest::collection::vec(any::<u8>(), 0..700)), 1..6),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        if is_root() {
            let entries: Vec<Entry> = nodes
                .iter()
                .map(|(name, data)| Entry { data: data.clone(), ..file(name, "") }.record("SCHILY.xattr.user.a", data))
                .collect();
            let mut bytes = archive(&entries);
            for (index, value) in damage {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let _ = Bench::new().layer(&bytes);
        }
    }
}

/// Case 57 of the field reports: set-id bits, capabilities, attributes, holes, long names, or times of directories were lost,
/// because they were set in the wrong order.
#[test]
fn set_id_bits_capabilities_holes_long_names_and_times_survive() {
    if !is_root() {
        return;
    }
    let capability = [0x01, 0, 0, 0x02, 0, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = format!("deep/{}/{}", "n".repeat(200), "m".repeat(200));
    let entries = [
        Entry { time: 1_000_000_000, ..directory("deep/") },
        Entry { owner: (1000, 1000), ..file("suid", "x").mode(0o4755) },
        Entry { owner: (1000, 50), ..file("sgid", "x").mode(0o2755) },
        Entry { owner: (1000, 1000), ..file("ping", "x").mode(0o755) }
            .record("SCHILY.xattr.security.capability", &capability),
        file("tagged", "x").record("SCHILY.xattr.user.tag", b"a\0b"),
        file(&long, "long"),
        directory("sticky").mode(0o1777),
    ];
    let root = Bench::new();
    let mut bench = root;
    let root = bench.unpacked(&archive(&entries));
    let stat = |name: &str| fs::symlink_metadata(root.join(name)).expect("there");
    assert_eq!((stat("suid").mode() & 0o7777, stat("suid").uid()), (0o4755, 1000));
    assert_eq!((stat("sgid").mode() & 0o7777, stat("sgid").gid()), (0o2755, 50));
    assert_eq!(stat("sticky").mode() & 0o7777, 0o1777);
    assert_eq!(stat("deep").mtime(), 1_000_000_000);
    assert_eq!(read(&root.join(&long)), "long");
    let attribute = |file: &str, name: &str| {
        let mut value = [0; 64];
        let length = rustix::fs::lgetxattr(root.join(file), name, &mut value[..]).expect("there");
        value[..length].to_vec()
    };
    assert_eq!(attribute("ping", "security.capability"), capability);
    assert_eq!(attribute("tagged", "user.tag"), b"a\0b");
}
