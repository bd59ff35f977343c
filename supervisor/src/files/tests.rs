//! Layers and logs on a real file system.

use std::os::unix::fs::symlink;

use mainstay_messages::ContainerSpec;
use mainstay_messages::Timestamp;

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
