//! The root of a container as containerd sends it: mounts, in their order, of any type.
//!
//! They are mounted on the bundle's `rootfs` in the shim's own mount namespace, of which the host sees nothing. The container
//! takes a copy of the tree into its own namespace while it is set up, and the shim lets go of it then: what is left vanishes
//! with the container's last process, whatever becomes of the shim.
//!
//! Owns: the mounts until they are let go. Never: follows a link out of the root; mounts what it does not understand.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_launch::{ROOTFS_DIRECTORY, RootMount};
use mainstay_task_api::task::Mount;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};

use super::apart::apart;
use crate::create::TASK_CREATE_MS;
use crate::failure::Failure;
use crate::logger;

/// The most mounts that a root may be made of.
const ROOT_MOUNTS_MAX: usize = 64;

/// A root in the shim's mount namespace, for as long as this value lives.
#[derive(Debug)]
pub(super) struct Root {
    place: PathBuf,
    /// How many mounts may lie there, one on top of the other.
    mounts: usize,
}

impl Drop for Root {
    fn drop(&mut self) {
        for _ in 0..self.mounts {
            match unmount(&self.place, UnmountFlags::DETACH) {
                Ok(()) => {}
                // There are fewer: it has failed half way.
                Err(Errno::INVAL | Errno::NOENT) => return,
                Err(error) => {
                    return logger::warning!("{:?} stays mounted in this shim: {error}", self.place);
                }
            }
        }
    }
}

impl Root {
    /// Mounts what containerd has sent. Without mounts the root is what the spec names.
    pub(super) async fn mount(
        bundle: &Path,
        mounts: &[Mount],
        of_spec: Option<&Path>,
    ) -> Result<(Self, RootMount), Failure> {
        let place = bundle.join(ROOTFS_DIRECTORY);
        if mounts.is_empty() {
            let named = bundle.join(of_spec.unwrap_or(Path::new(ROOTFS_DIRECTORY)));
            return Ok((Self { place, mounts: 0 }, RootMount::Bind(named)));
        }
        if mounts.len() > ROOT_MOUNTS_MAX {
            return Err(Failure::Exhausted { what: "mounts of a root", limit: ROOT_MOUNTS_MAX });
        }
        let plans = mounts.iter().map(Plan::of).collect::<Result<Vec<_>, _>>()?;
        match std::fs::create_dir(&place) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::File { path: place, doing: "made", source });
            }
            _ => {}
        }
        // One that is below another goes with it.
        let here = mounts.iter().filter(|mount| mount.target.is_empty()).count();
        let root = Self { place: place.clone(), mounts: here };
        let all = || mounts.iter().zip(&plans).try_for_each(|(mount, plan)| plan.carry_out(mount, &place));
        match apart(Duration::from_millis(TASK_CREATE_MS), all).await {
            // Below the bundle, wherever that is: on the host there is nothing at this place.
            Ok(()) => Ok((root, RootMount::Bind(ROOTFS_DIRECTORY.into()))),
            Err(error) if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() => {
                Err(Failure::Deadline {
                    what: format!("mounting the root at {place:?}"),
                    after_ms: TASK_CREATE_MS,
                    place: String::new(),
                })
            }
            Err(source) => {
                Err(Failure::File { path: place, doing: "mounted, as the root of the container", source })
            }
        }
    }
}

/// Where a mount goes. What an image can influence is looked up inside the root.
fn target(place: &Path, below: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, place, flags, Mode::empty())?;
    if below.is_empty() {
        return Ok(root);
    }
    let opened = openat2(&root, below, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    opened.map_err(|error| io::Error::other(format!("{below:?} in it: {error}")))
}

fn handle(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// What a mount's options say.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    kind: Kind,
    flags: MountFlags,
    /// Words for the file system.
    data: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FileSystem,
    Bind,
    BindAll,
}

impl Plan {
    fn of(mount: &Mount) -> Result<Self, Failure> {
        let kind = if mount.type_ == "bind" { Kind::Bind } else { Kind::FileSystem };
        let mut plan = Self { kind, flags: MountFlags::empty(), data: Vec::new() };
        for option in &mount.options {
            match option.as_str() {
                "bind" => plan.kind = Kind::Bind,
                "rbind" => plan.kind = Kind::BindAll,
                "ro" => plan.flags |= MountFlags::RDONLY,
                "nosuid" => plan.flags |= MountFlags::NOSUID,
                "nodev" => plan.flags |= MountFlags::NODEV,
                "noexec" => plan.flags |= MountFlags::NOEXEC,
                "noatime" => plan.flags |= MountFlags::NOATIME,
                "nodiratime" => plan.flags |= MountFlags::NODIRATIME,
                "relatime" => plan.flags |= MountFlags::RELATIME,
                "strictatime" => plan.flags |= MountFlags::STRICTATIME,
                "sync" => plan.flags |= MountFlags::SYNCHRONOUS,
                "dirsync" => plan.flags |= MountFlags::DIRSYNC,
                // What is so anyway, and what is meant for programs and not for the kernel.
                "" | "rw" | "suid" | "dev" | "exec" | "atime" | "async" | "defaults" => {}
                word if word.starts_with("x-") || word.starts_with("X-") => {}
                word if word == "loop" || word.starts_with("uidmap=") || word.starts_with("gidmap=") => {
                    return Err(Failure::Invalid {
                        field: "rootfs",
                        value: format!("option {word:?} of a mount of type {:?}", mount.type_),
                        expected: "mounts without loop devices and id mappings",
                    });
                }
                word => plan.data.push(word.to_owned()),
            }
        }
        Ok(plan)
    }

    fn carry_out(&self, given: &Mount, root: &Path) -> io::Result<()> {
        let below = target(root, &given.target)?;
        self.mount(given, &handle(&below))?;
        if self.kind != Kind::FileSystem && !self.flags.is_empty() {
            // What is on top by now.
            let mounted = target(root, &given.target)?;
            mount_remount(handle(&mounted), MountFlags::BIND | self.flags, c"")?;
        }
        Ok(())
    }

    fn mount(&self, given: &Mount, place: &Path) -> io::Result<()> {
        match self.kind {
            Kind::Bind => mount_bind(given.source.as_str(), place)?,
            Kind::BindAll => mount_bind_recursive(given.source.as_str(), place)?,
            Kind::FileSystem => {
                let mut layers = Layers::default();
                let words = self.data.iter().map(|word| layers.shorten(&given.type_, word));
                let words = words.collect::<io::Result<Vec<_>>>()?;
                let data = CString::new(words.join(","))?;
                mount(given.source.as_str(), place, given.type_.as_str(), self.flags, data.as_c_str())?;
            }
        }
        Ok(())
    }
}

/// Layers of an overlay as descriptors. The kernel takes one page of options, which the paths of some thirty layers fill.
#[derive(Default)]
struct Layers(Vec<OwnedFd>);

impl Layers {
    fn shorten(&mut self, kind: &str, word: &str) -> io::Result<String> {
        match word.split_once('=') {
            Some((name @ ("lowerdir" | "upperdir" | "workdir"), paths)) if kind == "overlay" => {
                let handles = paths.split(':').map(|path| self.open(path)).collect::<io::Result<Vec<_>>>()?;
                Ok(format!("{name}={}", handles.join(":")))
            }
            _ => Ok(word.to_owned()),
        }
    }

    fn open(&mut self, path: &str) -> io::Result<String> {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|error| io::Error::new(error.kind(), format!("layer {path:?}: {error}")))?;
        let handle = handle(&fd).display().to_string();
        self.0.push(fd);
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount_of(kind: &str, options: &[&str]) -> Mount {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Mount { type_: kind.to_owned(), source: "source".to_owned(), options, ..Mount::default() }
    }

    #[test]
    fn options_are_flags_or_words_for_the_file_system() {
        let plan =
            Plan::of(&mount_of("overlay", &["index=off", "ro", "lowerdir=/a:/b", "x-note"])).expect("good");
        assert_eq!((plan.kind, plan.flags), (Kind::FileSystem, MountFlags::RDONLY));
        assert_eq!(plan.data, ["index=off", "lowerdir=/a:/b"]);
        assert_eq!(Plan::of(&mount_of("bind", &["rbind", "rw"])).expect("good").kind, Kind::BindAll);
        assert_eq!(Plan::of(&mount_of("bind", &[])).expect("good").kind, Kind::Bind);
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        for option in ["loop", "uidmap=0:100000:65536"] {
            let failure = Plan::of(&mount_of("ext4", &[option])).expect_err("not offered");
            assert!(failure.sentence().contains(option), "{}", failure.sentence());
        }
    }
}
