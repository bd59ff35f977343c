//! A disk of a test's own: an ext4 in a file, which can be filled, break, turn read-only, hang, and heal.
//!
//! It is mounted where only the thread of the test and what it starts see it, so that it is gone with them. Dropping it takes
//! the mount away, so that the directory below it can be removed; what still has files open there keeps them.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::UnshareFlags;

use crate::peer;

/// What fills a disk lies in this file.
const BALLAST: &str = "ballast";
/// The pieces that a disk is filled with, in bytes: large ones for speed, small ones for the rest.
const PIECES: [u64; 3] = [1 << 20, 1 << 16, 1 << 12];
/// `EXT4_IOC_SHUTDOWN`: every later access fails with EIO.
const SHUTDOWN: u64 = 0x8004_587d;
/// Its argument: the journal is not flushed.
const WITHOUT_FLUSH: u32 = 2;
/// `FIFREEZE`, `FITHAW`: every later write hangs, and goes on.
const FREEZE: u64 = 0xc004_5877;
const THAW: u64 = 0xc004_5878;

/// A disk of a test's own.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
    image: RefCell<PathBuf>,
}

impl Disk {
    /// Makes a disk of so many mebibytes and mounts it at a directory, which is made. None when this machine cannot; then
    /// it was said that the test is skipped.
    pub fn mount(image: &Path, at: &Path, mebibytes: u64) -> Option<Self> {
        let make = peer::find("mkfs.ext4", "e2fsprogs")?;
        peer::find("mount", "mount")?;
        own_mounts();
        let file = File::create(image).expect("a file for the disk");
        file.set_len(mebibytes << 20).expect("a sparse file");
        // Nothing is kept back for root.
        let made = Command::new(make).args(["-q", "-m", "0"]).arg(image).status().expect("it runs");
        assert!(made.success(), "mkfs.ext4: {made}");
        fs::create_dir_all(at).expect("made");
        let disk = Self { at: at.to_owned(), image: RefCell::new(image.to_owned()) };
        if let Err(why) = disk.attach("errors=remount-ro") {
            peer::skipped(&format!("a disk cannot be mounted here: {why}"));
            return None;
        }
        fs::set_permissions(at, fs::Permissions::from_mode(0o700)).expect("it is ours");
        Some(disk)
    }

    /// Takes all room that there is.
    pub fn fill(&self) {
        let mut options = OpenOptions::new();
        let ballast = options.create(true).append(true).open(self.at.join(BALLAST)).expect("opened");
        let mut length = ballast.metadata().expect("there").len();
        for piece in PIECES {
            while fallocate(&ballast, FallocateFlags::empty(), length, piece).is_ok() {
                length += piece;
            }
        }
    }

    /// Gives the room back that [`Self::fill`] has taken.
    pub fn relieve(&self) {
        fs::remove_file(self.at.join(BALLAST)).expect("removed");
    }

    /// The room that is left on it, in bytes.
    pub fn room(&self) -> u64 {
        let numbers = rustix::fs::statvfs(&self.at).expect("mounted");
        numbers.f_bavail * numbers.f_frsize
    }

    /// Does to it what the kernel does when it finds an error in a file system: from now on it is read-only.
    pub fn turn_read_only(&self) {
        self.sync();
        let name = self.device();
        let name = name.rsplit('/').next().expect("a device");
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test wants it").expect("an ext4");
    }

    /// From now on every access fails with EIO.
    pub fn break_down(&self) {
        self.sync();
        self.control(SHUTDOWN, WITHOUT_FLUSH);
    }

    /// From now on every write hangs.
    pub fn freeze(&self) {
        self.control(FREEZE, 0);
    }

    /// What hangs goes on.
    pub fn thaw(&self) {
        self.control(THAW, 0);
    }

    /// What is on the disk, on another one in its place. Files that were opened before stay as broken as they were.
    pub fn repair(&self) {
        unmount(&self.at, UnmountFlags::DETACH).expect("unmounted");
        // The kernel has the old one mounted for as long as somebody has files open there.
        let copy = PathBuf::from(format!("{}.copy", self.image.borrow().display()));
        fs::copy(&*self.image.borrow(), &copy).expect("copied");
        self.image.replace(copy);
        self.attach("errors=remount-ro").expect("mounted");
    }

    /// The same disk, unmounted and mounted again so that it can only be read.
    pub fn mount_read_only(&self) {
        unmount(&self.at, UnmountFlags::empty()).expect("nobody uses it");
        self.attach("ro").expect("mounted");
    }

    fn attach(&self, options: &str) -> Result<(), String> {
        let options = format!("loop,{options}");
        let mut command = Command::new("mount");
        let outcome = command.args(["-o", &options]).args([&*self.image.borrow(), &self.at]).output();
        let outcome = outcome.expect("it runs");
        match outcome.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&outcome.stderr).trim().to_owned()),
        }
    }

    fn sync(&self) {
        let directory = File::open(&self.at).expect("opened");
        rustix::fs::syncfs(directory).expect("synced");
    }

    fn device(&self) -> String {
        let mounts = fs::read_to_string("/proc/thread-self/mounts").expect("readable");
        let at = self.at.to_string_lossy().into_owned();
        let own = mounts.lines().rev().find(|line| line.split(' ').nth(1) == Some(&*at));
        own.and_then(|line| line.split(' ').next()).expect("it is mounted").to_owned()
    }

    fn control(&self, request: u64, argument: u32) {
        let directory = File::open(&self.at).expect("opened");
        // SAFETY: each of these requests reads at most a u32 at this address, which lives long enough.
        let outcome = unsafe {
            libc::ioctl(directory.as_fd().as_raw_fd(), request as libc::Ioctl, &raw const argument)
        };
        assert_eq!(outcome, 0, "ioctl {request:#x}: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Disk {
    /// Whatever hangs on it goes on, and its directory is free again.
    fn drop(&mut self) {
        if let Ok(directory) = File::open(&self.at) {
            // SAFETY: the request has no argument. It fails where nothing is frozen.
            let _ = unsafe { libc::ioctl(directory.as_raw_fd(), THAW as libc::Ioctl, 0) };
        }
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Gives this thread, and what it starts from now on, mounts of its own.
fn own_mounts() {
    // SAFETY: this thread alone gets a mount namespace and a root of its own; no descriptor table or memory is split.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.expect("unshared");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
    // As on most machines: shims have mounts of their own, and see what is mounted after their start.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC).expect("shared");
}
