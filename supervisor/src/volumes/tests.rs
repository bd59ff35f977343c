//! Filling on a real file system, of layers made by hand.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::time::{Duration, SystemTime};

use mainstay_messages::image::ImageId;
use mainstay_messages::spec::LayeredRoot;
use mainstay_messages::{ContainerSpec, Timestamp};
use rustix::fs::{CWD, XattrFlags, mknodat, setxattr};

use super::*;
use crate::paths::Layer;

/// An image of two layers, and a container on it.
struct Rig {
    temp: tempfile::TempDir,
    directories: Directories,
    record: ContainerRecord,
    movement: Movement,
}

impl Rig {
    fn new(volumes: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped {}: it takes root", module_path!());
            return None;
        }
        let temp = tempfile::tempdir().expect("a directory");
        let directories = Directories::new(temp.path().join("run"), temp.path().join("lib"));
        directories.prepare().expect("prepared");
        let spec = ContainerSpec::new("app".parse().expect("a name"), ["true"]);
        let (id, pod) = ("box".parse().expect("an id"), "pod".parse().expect("an id"));
        let mut record = ContainerRecord::intent(id, pod, spec, "/log".into(), Timestamp(1));
        let layers: Vec<PathBuf> = ["upper", "lower"].map(|name| temp.path().join(name)).into();
        let volumes = volumes.iter().map(PathBuf::from).collect();
        let root = LayeredRoot { image: ImageId("sha256:1".to_owned()), layers, volumes };
        record.spec.rootfs = Rootfs::Layers(root);
        let rig = Self { temp, directories, record, movement: Movement::default() };
        for layer in ["upper", "lower"] {
            fs::create_dir(rig.temp.path().join(layer)).expect("made");
        }
        let layer = rig.layer();
        for directory in [&layer.directory, &layer.work] {
            DirBuilder::new().mode(0o700).create(directory).expect("made");
        }
        Some(rig)
    }

    fn layer(&self) -> Layer {
        self.directories.layer(&self.record.id)
    }

    fn image(&self, path: &str) -> PathBuf {
        let path = self.temp.path().join(path);
        fs::create_dir_all(path.parent().expect("below the world")).expect("made");
        path
    }

    fn fill(&self) -> Result<()> {
        fill(&self.directories, &self.record, &self.movement)
    }
}

#[test]
fn a_volume_is_what_the_layers_show_together() {
    let Some(rig) = Rig::new(&["/data", "/none/there"]) else { return };
    fs::write(rig.image("lower/data/deep/old"), "old").expect("written");
    fs::write(rig.image("lower/data/hidden"), "hidden").expect("written");
    fs::write(rig.image("upper/data/new"), "new").expect("written");
    mknodat(CWD, rig.image("upper/data/hidden"), FileType::CharacterDevice, Mode::empty(), 0).expect("made");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    for directory in ["upper/data", "lower/data/deep"] {
        let path = rig.image(directory);
        chown(&path, Some(1_000), Some(1_001)).expect("changed");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2750)).expect("set");
        File::open(path).expect("opened").set_modified(old).expect("set");
    }
    // Twice: an attempt that was broken off has left something.
    rig.fill().expect("filled");
    fs::write(rig.layer().volume(0).join("left"), "over").expect("written");
    rig.fill().expect("filled again");

    let volume = rig.layer().volume(0);
    let mut names: Vec<_> =
        fs::read_dir(&volume).expect("there").map(|entry| entry.expect("readable").file_name()).collect();
    names.sort();
    assert_eq!(names, ["deep", "new"]);
    for directory in [volume.clone(), volume.join("deep")] {
        let found = fs::metadata(directory).expect("there");
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1_000, 1_001, 0o2750));
        assert_eq!(found.modified().expect("known"), old);
    }
    assert_eq!(fs::read(volume.join("deep/old")).expect("there"), b"old");
    let empty = fs::metadata(rig.layer().volume(1)).expect("there");
    assert_eq!((empty.uid(), empty.mode() & 0o7777), (0, 0o755));
    assert_eq!(fs::metadata(&rig.layer().volumes).expect("there").mode() & 0o777, 0o700);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!mounts.contains(&rig.temp.path().display().to_string()), "the look has no place");
}

/// Case 57, of volumes: set-id bits, capabilities, attributes, hard links and holes were lost in copies.
#[test]
fn a_copy_has_all_that_root_can_see() {
    let Some(rig) = Rig::new(&["/v"]) else { return };
    let program = rig.image("lower/v/program");
    fs::write(&program, "program").expect("written");
    chown(&program, Some(7), Some(8)).expect("changed");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).expect("set");
    setxattr(&program, "user.colour", b"blue", XattrFlags::empty()).expect("set");
    // CAP_NET_RAW, permitted and effective, as vfs_cap_data of revision 2 has it.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(&program, "security.capability", &capability, XattrFlags::empty()).expect("set");
    fs::hard_link(&program, rig.image("lower/v/again")).expect("linked");
    symlink("/etc/passwd", rig.image("lower/v/link")).expect("linked");
    lchown_link(&rig.image("lower/v/link"));
    mknodat(CWD, rig.image("lower/v/fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("made");
    mknodat(CWD, rig.image("lower/v/null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), 0x103)
        .expect("made");
    let sparse = File::create(rig.image("lower/v/sparse")).expect("made");
    sparse.set_len(1 << 40).expect("a hole");
    sparse.write_at(b"end", (1 << 40) - 3).expect("written");
    sparse.write_at(b"middle", 1 << 30).expect("written");
    rig.fill().expect("filled");

    let volume = rig.layer().volume(0);
    let found = fs::metadata(volume.join("program")).expect("there");
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777, found.nlink()), (7, 8, 0o6755, 2));
    assert_eq!(found.ino(), fs::metadata(volume.join("again")).expect("there").ino());
    for (name, expected) in [("user.colour", &b"blue"[..]), ("security.capability", &capability)] {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(volume.join("program"), name, &mut value).expect("there");
        assert_eq!(&value[..length], expected, "{name}");
    }
    assert_eq!(fs::read_link(volume.join("link")).expect("a link"), Path::new("/etc/passwd"));
    assert_eq!(fs::symlink_metadata(volume.join("link")).expect("there").uid(), 9);
    let fifo = fs::symlink_metadata(volume.join("fifo")).expect("there");
    assert_eq!(fifo.mode(), 0o010_640);
    assert_eq!(fs::symlink_metadata(volume.join("null")).expect("there").rdev(), 0x103);
    let copy = File::open(volume.join("sparse")).expect("there");
    let (mut middle, mut end) = ([0; 6], [0; 3]);
    copy.read_exact_at(&mut middle, 1 << 30).expect("read");
    copy.read_exact_at(&mut end, (1 << 40) - 3).expect("read");
    assert_eq!((&middle, &end), (b"middle", b"end"));
    assert!(copy.metadata().expect("there").blocks() < 1_000, "the hole is one");
}

fn lchown_link(path: &Path) {
    std::os::unix::fs::lchown(path, Some(9), Some(9)).expect("changed");
}

/// CVE-2022-23648 (case 63): a link where the image wants a volume led to the host, whose files were copied into the container.
#[test]
fn a_link_at_a_volume_stays_inside_the_image() {
    let Some(rig) = Rig::new(&["/absolute", "/climbing", "/inside/link"]) else { return };
    let host = rig.temp.path().join("host");
    fs::create_dir(&host).expect("made");
    fs::write(host.join("canary"), "secret").expect("written");
    symlink(&host, rig.image("upper/absolute")).expect("linked");
    let up = format!("{}{}", "../".repeat(20), host.display());
    symlink(up, rig.image("upper/climbing")).expect("linked");
    symlink("../real", rig.image("lower/inside/link")).expect("linked");
    fs::write(rig.image("upper/real/file"), "of the image").expect("written");
    rig.fill().expect("filled");
    for outside in [0, 1] {
        let entries = fs::read_dir(rig.layer().volume(outside)).expect("there");
        assert_eq!(entries.count(), 0, "nothing of the host");
    }
    assert_eq!(fs::read(rig.layer().volume(2).join("file")).expect("there"), b"of the image");
    assert_eq!(fs::read_dir(host).expect("there").count(), 1);
}

/// Case 63: opening a FIFO hangs for ever.
#[test]
fn what_is_no_directory_is_refused_by_its_name() {
    for (make, said) in [("fifo", "no directory"), ("file/below", "a file above"), ("loop", "circles")] {
        let place = format!("/{make}");
        let Some(rig) = Rig::new(&[&place]) else { return };
        mknodat(CWD, rig.image("upper/fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
        fs::write(rig.image("lower/file"), "").expect("written");
        symlink("loop", rig.image("lower/loop")).expect("linked");
        let error = rig.fill().expect_err("no directory").to_string();
        assert!(error.starts_with("volumes: ") && error.contains(&place) && error.contains(said), "{error}");
    }
}

/// Filling had the deadline of small files, whatever there was to copy.
#[test]
fn a_large_file_is_seen_to_move() {
    const PIECES: u64 = 3;
    let Some(rig) = Rig::new(&["/data"]) else { return };
    let file = File::create(rig.image("lower/data/large")).expect("made");
    let piece = vec![7u8; 8 << 20];
    for index in 0..PIECES {
        file.write_all_at(&piece, index * piece.len() as u64).expect("written");
    }
    rig.fill().expect("filled");
    assert!(rig.movement.has_moved(PIECES), "{:?}", rig.movement);
}
