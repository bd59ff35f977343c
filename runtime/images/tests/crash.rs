//! Killed at any instant, and cut off from power at any instant, the images are whole or absent.
//!
//! The program starts itself as a child that imports an image, leases it, removes another and collects garbage. The child
//! kills itself at the n-th of its steps towards something durable, for every n there is; the parent opens what is left and
//! looks. For the power cut the images are on an ext4 file system of the test's own, which the child shuts down before it
//! dies, so that nothing is written any more that was not synced. Case 50 of the field reports: after a power cut files of
//! images had 0 bytes, because the record was synced and the files were not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_images::{Images, ImportOptions, Observer, Partials, Settings};
use mainstay_images_testing::peer;
use tempfile::TempDir;

/// Set in the child: the directory of the images.
const ROOT: &str = "IMAGES_CRASH_ROOT";
/// Set in the child: at which step it dies.
const STEP: &str = "IMAGES_CRASH_STEP";
/// Set in the child: whether it takes the file system with it.
const CUT: &str = "IMAGES_CRASH_CUT";
/// `EXT4_IOC_SHUTDOWN`.
const EXT4_IOC_SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: what is not on the disk does not get there.
const NO_LOG_FLUSH: u32 = 2;
/// More steps than there are.
const STEPS_MAX: u64 = 500;
/// The size of the file system, in bytes.
const DISK_BYTES: u64 = 192 << 20;

static PASSED: AtomicU64 = AtomicU64::new(0);

fn main() {
    if let Some(root) = std::env::var_os(ROOT) {
        return child(Path::new(&root));
    }
    if !peer::is_root() {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let archive = directory.path().join("image.tar");
    std::fs::write(&archive, image()).expect("written");
    println!("killed at each of {} steps, whole or absent every time", killed(directory.path(), &archive));
    if let Some(mkfs) = peer::find("mkfs.ext4", "e2fsprogs") {
        own_mounts();
        println!(
            "power cut at each of {} steps, whole or absent every time",
            cut(directory.path(), &archive, &mkfs)
        );
    }
}

fn strike(_step: &'static str) {
    let wanted = std::env::var(STEP).ok().and_then(|step| step.parse().ok());
    if wanted == Some(PASSED.fetch_add(1, Ordering::SeqCst)) {
        die();
    }
}

fn die() -> ! {
    if std::env::var_os(CUT).is_some() {
        let root = std::env::var_os(ROOT).expect("set");
        let mounted = std::fs::File::open(Path::new(&root).parent().expect("mounted")).expect("open");
        // SAFETY: the operation reads a 32-bit number, and a pointer to one is given.
        let shut = unsafe {
            rustix::ioctl::ioctl(&mounted, rustix::ioctl::Setter::<EXT4_IOC_SHUTDOWN, u32>::new(NO_LOG_FLUSH))
        };
        shut.expect("shut down");
    }
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("killed");
    unreachable!("it is dead");
}

fn open(root: &Path) -> Images {
    let settings = Settings { checkpoint: strike, ..Settings::new("a boot") };
    let opened = Images::open(root, settings).expect("what a killed process left can be opened");
    assert_eq!(opened.set_aside, None, "the records are sound");
    opened.images
}

fn import(images: &Images, archive: &Path) {
    let file = std::fs::File::open(archive).expect("there");
    images.import(file, &ImportOptions::default(), &Observer::none()).expect("imported");
}

fn child(root: &Path) {
    let archive = std::env::args_os().nth(1).map(PathBuf::from).expect("an archive");
    let images = open(root);
    import(&images, &archive);
    images.lease("container", "example.org/one").expect("leased");
    images.remove("example.org/two:latest").expect("removed");
    images.collect(Partials::All).expect("collected");
    if std::env::var_os(CUT).is_some() {
        // Everything was acknowledged; the power goes right afterwards.
        std::fs::write(archive.with_extension("done"), "").expect("written");
        die();
    }
}

/// Runs a child that dies at a step; false where it came to its end.
fn run(root: &Path, archive: &Path, step: u64, cut: bool) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.arg(archive).env(ROOT, root).env(STEP, step.to_string());
    if cut {
        command.env(CUT, "1");
    }
    let status = command.status().expect("it ran");
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "the child failed: {status}");
    killed
}

fn killed(directory: &Path, archive: &Path) -> u64 {
    for step in 0..STEPS_MAX {
        let root = directory.join(format!("killed{step}"));
        let died = run(&root, archive, step, false);
        check(&root, archive, !died);
        std::fs::remove_dir_all(&root).expect("removed");
        if !died {
            return step;
        }
    }
    panic!("there are more than {STEPS_MAX} steps");
}

/// What is left is whole, what is not whole can be collected, and the next try succeeds.
fn check(root: &Path, archive: &Path, finished: bool) {
    let images = open(root);
    let listed = images.list();
    assert!(listed.len() == 1 || !finished, "what was acknowledged is there: {listed:?}");
    assert_eq!(images.verify(None, &Observer::none()).expect("looked at").damage, []);
    for image in listed.iter() {
        images.lease("other", &image.name).expect("whole");
    }
    images.release("other").expect("released");
    images.collect(Partials::All).expect("collected");
    let count = |name: &str| std::fs::read_dir(root.join(name)).expect("listed").count();
    let chains: std::collections::HashSet<_> =
        listed.iter().flat_map(|image| image.layers.iter().map(|layer| layer.chain.clone())).collect();
    assert_eq!(count("layers"), chains.len(), "no layer is left that nothing needs");
    assert_eq!((count("unpacking"), count("partial"), count("trash")), (0, 0, 0));
    import(&images, archive);
    assert_eq!(images.list().len(), 2);
    assert_eq!(images.verify(None, &Observer::none()).expect("looked at").damage, []);
}

/// Goes into a mount name space of this process's own. One that somebody copies meanwhile would keep the file system mounted,
/// and what is mounted again were the one that was shut down.
fn own_mounts() {
    // SAFETY: no other thread runs, and no descriptor or path of before is used with another meaning.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("unshared");
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).expect("private");
}

/// An ext4 file system in a file, unmounted at its end.
struct Disk {
    file: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn make(directory: &Path, mkfs: &Path) -> Self {
        let disk = Self { file: directory.join("disk"), at: directory.join("mounted") };
        std::fs::create_dir_all(&disk.at).expect("made");
        let file = std::fs::File::create(&disk.file).expect("made");
        file.set_len(DISK_BYTES).expect("long");
        tool(Command::new(mkfs).args(["-q", "-F", "-m", "0"]).arg(&disk.file));
        disk.mount();
        disk
    }

    fn mount(&self) {
        tool(Command::new("mount").args(["-o", "loop"]).args([&self.file, &self.at]));
    }

    fn unmount(&self) {
        tool(Command::new("umount").arg(&self.at));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-q").arg(&self.at).status();
    }
}

fn tool(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn cut(directory: &Path, archive: &Path, mkfs: &Path) -> u64 {
    let disk = Disk::make(directory, mkfs);
    let root = disk.at.join("images");
    for step in 0..STEPS_MAX {
        assert!(run(&root, archive, step, true), "the power goes at some point");
        disk.unmount();
        disk.mount();
        let finished = archive.with_extension("done").exists();
        check(&root, archive, finished);
        std::fs::remove_dir_all(&root).expect("removed");
        if finished {
            return step;
        }
    }
    panic!("there are more than {STEPS_MAX} steps");
}

/// A Docker archive of two images that share a layer.
fn image() -> Vec<u8> {
    let layer = |name: &str, contents: &str| {
        let mut builder = tar::Builder::new(Vec::new());
        for n in 0..20 {
            add(&mut builder, &format!("{name}/{n}"), format!("{contents}{n}").repeat(500).as_bytes());
        }
        builder.into_inner().expect("written")
    };
    let (base, one, two) = (layer("base", "b"), layer("one", "1"), layer("two", "2"));
    let digest = |bytes: &[u8]| mainstay_oci_image::Digest::of(bytes);
    let mut builder = tar::Builder::new(Vec::new());
    add(&mut builder, "base.tar", &base);
    let mut manifest = Vec::new();
    for (name, own) in [("one", &one), ("two", &two)] {
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": [digest(&base), digest(own)] },
        });
        add(&mut builder, &format!("{name}.tar"), own);
        add(&mut builder, &format!("{name}.json"), config.to_string().as_bytes());
        manifest.push(serde_json::json!({
            "Config": format!("{name}.json"), "RepoTags": [format!("example.org/{name}:latest")],
            "Layers": ["base.tar", format!("{name}.tar")],
        }));
    }
    add(&mut builder, "manifest.json", serde_json::Value::from(manifest).to_string().as_bytes());
    builder.into_inner().expect("written")
}

fn add(builder: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    builder.append_data(&mut header, name, bytes).expect("written");
}
