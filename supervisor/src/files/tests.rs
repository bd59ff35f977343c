//! Layers and logs on a real file system.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;

use mainstay_messages::ContainerSpec;
use mainstay_messages::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::mount_bind;

use super::*;

fn directories(temp: &tempfile::TempDir) -> Directories {
    let directories = Directories::new(temp.path().join("run"), temp.path().join("lib"));
    directories.prepare().expect("prepared");
    directories
}

fn record(directories: &Directories) -> ContainerRecord {
    let sandbox: SandboxId = "pod".parse().expect("a good id");
    let id: ContainerId = "box".parse().expect("a good id");
    create_private(&directories.pod(&sandbox)).expect("made");
    create_private(&directories.bundles(&sandbox)).expect("made");
    let log = directories.container_log(&sandbox, &id);
    let spec = ContainerSpec::new("web".parse().expect("a good name"), ["true"]);
    ContainerRecord::intent(id, sandbox, spec, log, Timestamp(1))
}

/// The upper directory of an overlay gives `/` of the container its mode. Made private like the rest of a layer,
/// it locked every user but root out of their own container.
#[test]
fn the_root_of_a_layer_is_as_open_as_what_it_covers() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let directories = directories(&temp);
    let lower = temp.path().join("lower");
    DirBuilder::new().mode(0o755).create(&lower).expect("made");
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o1751)).expect("set");
    let mut record = record(&directories);
    record.spec.rootfs = Rootfs::CopyOnWrite { path: lower.clone() };
    let root = make_layer(&directories, &record, None).expect("made");
    let Root::Overlay { lower: found, layer } = root else { panic!("{root:?}") };
    assert_eq!(found, [lower]);
    assert_eq!(fs::metadata(layer.upper).expect("there").permissions().mode() & 0o7777, 0o1751);
    assert_eq!(fs::metadata(layer.directory).expect("there").permissions().mode() & 0o7777, 0o700);
}

/// A layer holds what a container made: links, too. Removing it must not reach what they name.
#[test]
fn removing_a_container_follows_no_link() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let directories = directories(&temp);
    let record = record(&directories);
    make_bundle(&directories, &record, &Spec::default(), &[]).expect("made");
    make_layer(&directories, &record, None).expect("made");
    let canary = temp.path().join("canary");
    fs::create_dir(&canary).expect("made");
    fs::write(canary.join("file"), "precious").expect("written");
    let layer = directories.layer(&record.id);
    symlink(&canary, layer.upper.join("link")).expect("linked");
    symlink(&canary, directories.bundle(&record.sandbox, &record.id).join("rootfs")).expect("linked");
    fs::create_dir_all(directories.pod_logs(&record.sandbox)).expect("made");
    for rotated in ["box.log", "box.log.1"] {
        fs::write(directories.pod_logs(&record.sandbox).join(rotated), "").expect("written");
    }
    for _ in 0..2 {
        for directory in
            [directories.bundle(&record.sandbox, &record.id), directories.layer(&record.id).directory]
        {
            remove_tree(&directory).expect("removed, and again");
        }
        remove_logs(&directories, &record.sandbox, &record.id).expect("removed, and again");
    }
    assert!(!layer.directory.exists());
    assert!(!directories.bundle(&record.sandbox, &record.id).exists());
    assert!(!directories.pod_logs(&record.sandbox).exists());
    assert_eq!(fs::read(canary.join("file")).expect("untouched"), b"precious");
}

/// A container can make a tree deeper than this process may open files. With a descriptor for each directory on the way down such a
/// container could never be removed: every attempt ended with "too many open files".
#[test]
fn no_tree_is_too_deep_to_be_removed() {
    const DEPTH: usize = 25_000;
    // In memory: on a disk that is told of every block that is given back, this takes a minute.
    let temp = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let tree = temp.path().join("tree");
    fs::create_dir(&tree).expect("made");
    let mut inner = open_directory(CWD, &tree);
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&inner, "d", Mode::RWXU).expect("made");
        inner = open_directory(&inner, Path::new("d"));
    }
    drop(inner);
    // The name that the first part of it would be moved to.
    fs::create_dir_all(tree.join(".deep-1/full")).expect("made");
    remove_tree(&tree).expect("removed");
    assert!(!tree.exists());
}

/// A removal that came upon something which another one had removed in that moment said that all was gone.
#[test]
fn a_tree_is_gone_when_one_of_several_removals_says_so() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let tree = temp.path().join("tree");
    for (directory, file) in (0..64).flat_map(|directory| (0..8).map(move |file| (directory, file))) {
        let inner = tree.join(format!("{directory}/a/{file}"));
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("file"), "").expect("written");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                remove_tree(&tree).expect("removed");
                assert!(!tree.exists());
            });
        }
    });
}

fn open_directory(above: impl AsFd, path: &Path) -> OwnedFd {
    openat(above, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opened")
}

/// What is mounted below a directory goes from there, and stays where it is from.
#[test]
fn what_is_mounted_is_not_emptied() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped what_is_mounted_is_not_emptied: it needs root");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (tree, canary) = (temp.path().join("tree"), temp.path().join("canary"));
    fs::create_dir_all(tree.join("a/b")).expect("made");
    fs::write(tree.join("a/file"), "").expect("written");
    fs::create_dir(&canary).expect("made");
    fs::write(canary.join("file"), "precious").expect("written");
    for (source, target) in [("", "a/b"), ("file", "a/file")] {
        mount_bind(canary.join(source), tree.join(target)).expect("mounted");
    }
    remove_tree(&tree).expect("removed");
    assert!(!tree.exists());
    assert_eq!(fs::read(canary.join("file")).expect("untouched"), b"precious");
}

#[test]
fn names_what_is_not_there() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let mut record = record(&directories(&temp));
    record.spec.rootfs = Rootfs::Directory { path: "/nonexistent/root".into() };
    let error = check_sources(&record).expect_err("no root").to_string();
    assert!(error.contains("rootfs") && error.contains("/nonexistent/root"), "{error}");
    record.spec.rootfs = Rootfs::Host;
    record.spec.mounts = vec![mainstay_messages::spec::Mount::new(
        MountSource::Bind { path: "/nonexistent/data".into() },
        "/data",
    )];
    let error = check_sources(&record).expect_err("no source").to_string();
    assert!(error.contains("mounts[0].source") && error.contains("/nonexistent/data"), "{error}");
}

#[test]
fn knows_exit_records_by_their_names() {
    let container: ContainerId = "box".parse().expect("a good id");
    let exec =
        |file| recorded_process(&container, file).map(|process| process.exec.map(|exec| exec.to_string()));
    assert_eq!(exec("exit"), Some(None));
    assert_eq!(exec("exec-probe.exit"), Some(Some("probe".to_owned())));
    for other in ["config.json", "exec-.exit", "exec-a/b.exit", "exit.new", "exec-probe"] {
        assert_eq!(exec(other), None, "{other}");
    }
}
