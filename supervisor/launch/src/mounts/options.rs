//! The mount options of an OCI spec, as the kernel takes them.
//!
//! Pure: text in, flags out. Unknown words are file system data, as in mount(8).

use rustix::mount::MountFlags;

use crate::syscall::Depth;

/// Attributes of a mount as `mount_setattr` takes them.
pub(crate) mod attr {
    pub(crate) const RDONLY: u64 = 0x1;
    pub(crate) const NOSUID: u64 = 0x2;
    pub(crate) const NODEV: u64 = 0x4;
    pub(crate) const NOEXEC: u64 = 0x8;
    /// The field of the access time; the values below are alternatives.
    pub(crate) const ATIME: u64 = 0x70;
    pub(crate) const RELATIME: u64 = 0x0;
    pub(crate) const NOATIME: u64 = 0x10;
    pub(crate) const STRICTATIME: u64 = 0x20;
    pub(crate) const NODIRATIME: u64 = 0x80;
    pub(crate) const NOSYMFOLLOW: u64 = 0x20_0000;
}

/// Whether an existing tree is mounted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    /// A file system of its own.
    No,
    /// The mount that the source is in, without the mounts below.
    Single,
    /// With the mounts below.
    Recursive,
}

/// Attributes to set and to clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttrChange {
    pub(crate) set: u64,
    pub(crate) clear: u64,
}

impl AttrChange {
    pub(crate) fn is_empty(self) -> bool {
        self == AttrChange::default()
    }

    fn set(&mut self, bits: u64) {
        self.set |= bits;
        self.clear &= !bits;
    }

    fn clear(&mut self, bits: u64) {
        self.clear |= bits;
        self.set &= !bits;
    }

    fn access_time(&mut self, value: u64) {
        self.set = (self.set & !attr::ATIME) | value;
        self.clear |= attr::ATIME;
    }
}

/// How mounts propagate between peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Propagation {
    /// `MS_SHARED`, `MS_SLAVE`, `MS_PRIVATE` or `MS_UNBINDABLE`.
    pub(crate) kind: u64,
    pub(crate) depth: Depth,
}

impl Propagation {
    /// Reads `shared`, `rslave`, …; `None` when the word is another.
    pub(crate) fn parse(word: &str) -> Option<Propagation> {
        let single = |kind: libc::c_ulong| Propagation { kind, depth: Depth::Top };
        let recursive = |kind: libc::c_ulong| Propagation { kind, depth: Depth::Recursive };
        Some(match word {
            "shared" => single(libc::MS_SHARED),
            "rshared" => recursive(libc::MS_SHARED),
            "slave" => single(libc::MS_SLAVE),
            "rslave" => recursive(libc::MS_SLAVE),
            "private" => single(libc::MS_PRIVATE),
            "rprivate" => recursive(libc::MS_PRIVATE),
            "unbindable" => single(libc::MS_UNBINDABLE),
            "runbindable" => recursive(libc::MS_UNBINDABLE),
            _ => return None,
        })
    }
}

/// The options of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountOptions {
    pub(crate) bind: Bind,
    /// For the mount itself.
    pub(crate) top: AttrChange,
    /// For it and all mounts below (`rro`, `rnosuid`, …).
    pub(crate) tree: AttrChange,
    /// Flags of the file system: `sync`, `dirsync`, `lazytime`, `mand`.
    pub(crate) file_system: MountFlags,
    pub(crate) propagation: Option<Propagation>,
    /// Whether files belong to the container's ids of their owners' numbers, and how far down.
    pub(crate) map_ids: Option<Depth>,
    /// Words for the file system, joined by commas.
    pub(crate) data: String,
}

/// Words that the OCI spec knows and this launcher does not do.
const UNSUPPORTED: [&str; 2] = ["remount", "tmpcopyup"];

impl MountOptions {
    /// Reads the options; the error is the word that is not supported.
    pub(crate) fn parse<S: AsRef<str>>(words: &[S]) -> Result<MountOptions, &'static str> {
        let mut options = MountOptions {
            bind: Bind::No,
            top: AttrChange::default(),
            tree: AttrChange::default(),
            file_system: MountFlags::empty(),
            propagation: None,
            map_ids: None,
            data: String::new(),
        };
        for word in words {
            let word = word.as_ref();
            if let Some(known) = UNSUPPORTED.iter().find(|unsupported| **unsupported == word) {
                return Err(known);
            }
            options.take(word);
        }
        Ok(options)
    }

    fn take(&mut self, word: &str) {
        match word {
            "" | "defaults" => {}
            "bind" => self.bind = Bind::Single,
            "rbind" => self.bind = Bind::Recursive,
            "idmap" => self.map_ids = Some(Depth::Top),
            "ridmap" => self.map_ids = Some(Depth::Recursive),
            "sync" => self.file_system |= MountFlags::SYNCHRONOUS,
            "async" => self.file_system -= MountFlags::SYNCHRONOUS,
            "dirsync" => self.file_system |= MountFlags::DIRSYNC,
            "lazytime" => self.file_system |= MountFlags::LAZYTIME,
            "nolazytime" => self.file_system -= MountFlags::LAZYTIME,
            "mand" => self.file_system |= MountFlags::PERMIT_MANDATORY_FILE_LOCKING,
            "nomand" => self.file_system -= MountFlags::PERMIT_MANDATORY_FILE_LOCKING,
            "silent" => self.file_system |= MountFlags::SILENT,
            "loud" => self.file_system -= MountFlags::SILENT,
            // "iversion" and "noiversion" are superblock flags that no current file system takes from mount(2).
            "iversion" | "noiversion" | "acl" | "noacl" => {}
            _ => {
                if let Some(propagation) = Propagation::parse(word) {
                    self.propagation = Some(propagation);
                } else if !attribute(&mut self.top, word)
                    && !word.strip_prefix('r').is_some_and(|word| attribute(&mut self.tree, word))
                {
                    if !self.data.is_empty() {
                        self.data.push(',');
                    }
                    self.data.push_str(word);
                }
            }
        }
    }

    /// The flags of mount(2) for a file system of its own.
    pub(crate) fn mount_flags(&self) -> MountFlags {
        let set = self.top.set | self.tree.set;
        let mut flags = self.file_system;
        for (bit, flag) in [
            (attr::RDONLY, MountFlags::RDONLY),
            (attr::NOSUID, MountFlags::NOSUID),
            (attr::NODEV, MountFlags::NODEV),
            (attr::NOEXEC, MountFlags::NOEXEC),
            (attr::NOATIME, MountFlags::NOATIME),
            (attr::STRICTATIME, MountFlags::STRICTATIME),
            (attr::NODIRATIME, MountFlags::NODIRATIME),
            (attr::NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        ] {
            if set & bit != 0 {
                flags |= flag;
            }
        }
        flags
    }
}

/// Applies a word that names an attribute; false when it names none.
fn attribute(change: &mut AttrChange, word: &str) -> bool {
    match word {
        "ro" => change.set(attr::RDONLY),
        "rw" => change.clear(attr::RDONLY),
        "nosuid" => change.set(attr::NOSUID),
        "suid" => change.clear(attr::NOSUID),
        "nodev" => change.set(attr::NODEV),
        "dev" => change.clear(attr::NODEV),
        "noexec" => change.set(attr::NOEXEC),
        "exec" => change.clear(attr::NOEXEC),
        "nodiratime" => change.set(attr::NODIRATIME),
        "diratime" => change.clear(attr::NODIRATIME),
        "nosymfollow" => change.set(attr::NOSYMFOLLOW),
        "symfollow" => change.clear(attr::NOSYMFOLLOW),
        "relatime" | "norelatime" | "atime" | "nostrictatime" => change.access_time(attr::RELATIME),
        "noatime" => change.access_time(attr::NOATIME),
        "strictatime" => change.access_time(attr::STRICTATIME),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> MountOptions {
        MountOptions::parse(words).unwrap()
    }

    #[test]
    fn the_usual_tmpfs_of_dev() {
        let options = parse(&["nosuid", "strictatime", "mode=755", "size=65536k"]);
        assert_eq!(options.bind, Bind::No);
        assert_eq!(options.mount_flags(), MountFlags::NOSUID | MountFlags::STRICTATIME);
        assert_eq!(options.data, "mode=755,size=65536k");
    }

    #[test]
    fn a_later_word_wins_over_an_earlier_one() {
        assert_eq!(parse(&["ro", "rw"]).top, AttrChange { set: 0, clear: attr::RDONLY });
        assert_eq!(parse(&["rw", "ro"]).top, AttrChange { set: attr::RDONLY, clear: 0 });
        assert_eq!(parse(&["noatime", "relatime"]).top, AttrChange { set: 0, clear: attr::ATIME });
        assert_eq!(parse(&["sync", "async"]).file_system, MountFlags::empty());
    }

    #[test]
    fn binds_with_propagation() {
        let options = parse(&["rbind", "rprivate", "ro"]);
        assert_eq!(options.bind, Bind::Recursive);
        assert_eq!(
            options.propagation,
            Some(Propagation { kind: libc::MS_PRIVATE, depth: Depth::Recursive })
        );
        assert_eq!(options.top.set, attr::RDONLY);
        assert!(options.tree.is_empty());
        assert_eq!(options.data, "");
    }

    #[test]
    fn recursive_attributes_are_kept_apart_from_those_of_the_top_mount() {
        let options = parse(&["rbind", "rro", "rnosuid", "nodev"]);
        assert_eq!(options.tree, AttrChange { set: attr::RDONLY | attr::NOSUID, clear: 0 });
        assert_eq!(options.top, AttrChange { set: attr::NODEV, clear: 0 });
        // Words that merely begin like them are data.
        assert_eq!(parse(&["rootcontext=x"]).data, "rootcontext=x");
    }

    #[test]
    fn words_that_would_change_the_meaning_are_refused_not_dropped() {
        for word in UNSUPPORTED {
            assert_eq!(MountOptions::parse(&["rw", word]), Err(word));
        }
    }
}
