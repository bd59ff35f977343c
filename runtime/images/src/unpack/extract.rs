//! Making the entries of a layer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, linkat, makedev, mknodat, openat, readlinkat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::Result;
use crate::settings::{Limits, OverlayAttributes};
use crate::tar::{Archive, Kind, Member};
use crate::unpack::below::Found;
use crate::unpack::metadata::{Metadata, Node};
use crate::unpack::path::{components, join};
use crate::unpack::tree::{Directory, Tree};
use crate::unpack::whiteout::{self, Whiteout};
use crate::unpack::{Fault, Job, Reports};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;

pub(crate) struct Extractor<'a> {
    tree: Tree<'a>,
    limits: &'a Limits,
    overlay: OverlayAttributes,
    whiteouts: Vec<Whiteout>,
    /// Bytes of the lengths of all files, holes included.
    length: u64,
    buffer: Vec<u8>,
}

impl<'a> Extractor<'a> {
    pub(crate) fn new(job: Job<'a>) -> Result<Self> {
        let Job { target, below, limits, overlay, .. } = job;
        let tree = Tree::new(target, below, overlay, limits);
        Ok(Self { tree, limits, overlay, whiteouts: Vec::new(), length: 0, buffer: vec![0; COPY_BYTES] })
    }

    /// Makes one entry; answers the bytes that were written.
    pub(crate) fn entry<R: Read>(
        &mut self,
        member: &Member,
        archive: &mut Archive<R>,
        reports: &mut Reports<'_>,
    ) -> Result<u64, Fault> {
        let names = components(&member.path, self.limits)?;
        let metadata = Metadata::of_member(member);
        self.tree.time = member.modified;
        let Some((name, parents)) = names.split_last() else {
            if member.kind != Kind::Directory {
                return Err(Fault::Refused("the root of a layer must be a directory".to_owned()));
            }
            let root = self.tree.root();
            return self.tree.describe(&root, &metadata).map(|()| 0);
        };
        if whiteout::is_bookkeeping(&names) {
            return Ok(0);
        }
        if let Some(whiteout) = Whiteout::parse(parents, name)? {
            self.whiteouts.push(whiteout);
            return Ok(0);
        }
        let place = self.tree.directory(parents)?;
        match member.kind {
            Kind::Directory => self.tree.make(&place, name, &metadata).map(|()| 0),
            Kind::File => self.file(&place, name, member, &metadata, archive, reports),
            Kind::Symlink => self.symlink(&place, name, &member.link, &metadata).map(|()| 0),
            Kind::HardLink => self.hard_link(&place, name, &member.link),
            Kind::Character | Kind::Block | Kind::Fifo => {
                let kind = match member.kind {
                    Kind::Character => FileType::CharacterDevice,
                    Kind::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                let device = makedev(member.device.0, member.device.1);
                self.node(&place, name, kind, device, &metadata).map(|()| 0)
            }
        }
    }

    /// Makes the whiteouts, and gives the directories their times.
    pub(crate) fn finish(mut self, reports: &mut Reports<'_>) -> Result<(), (Vec<u8>, Fault)> {
        for whiteout in std::mem::take(&mut self.whiteouts) {
            let made = whiteout.make(&mut self.tree, self.overlay);
            made.map_err(|fault| (whiteout.path(), fault))?;
            reports.moved(0);
        }
        self.tree.finish()
    }

    fn file<R: Read>(
        &mut self,
        place: &Rc<Directory>,
        name: &[u8],
        member: &Member,
        metadata: &Metadata,
        archive: &mut Archive<R>,
        reports: &mut Reports<'_>,
    ) -> Result<u64, Fault> {
        self.count(member.length())?;
        let file = self.create(place, name)?;
        let pieces: &[(u64, u64)] = match &member.sparse {
            Some(map) => &map.pieces,
            None => &[(0, member.size)],
        };
        for (offset, length) in pieces {
            let (mut at, end) = (*offset, offset + length);
            while at < end {
                let wanted = self.buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let count = archive.read(&mut self.buffer[..wanted])?;
                if count == 0 {
                    return Err(Fault::Refused("its data ends too early".to_owned()));
                }
                file.write_all_at(&self.buffer[..count], at)
                    .map_err(|error| Fault::Write("writing the file", error))?;
                at += count as u64;
                reports.moved(count as u64);
                if reports.is_cancelled() {
                    // The caller looks at it again, and says so.
                    return Ok(0);
                }
            }
        }
        if member.sparse.is_some() {
            file.set_len(member.length()).map_err(|error| Fault::Write("setting the length", error))?;
        }
        metadata.give_to(file.as_fd())?;
        metadata.modified.give_to(&file)?;
        Ok(member.size)
    }

    /// Makes a new file, in the place of what may be there.
    fn create(&mut self, place: &Directory, name: &[u8]) -> Result<File, Fault> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || openat(&place.fd, name, flags, Mode::from_raw_mode(0o600));
        let fd = match create() {
            Err(Errno::EXIST) => {
                self.clear(place, name)?;
                create()
            }
            result => result,
        };
        fd.map(File::from).map_err(Fault::write("making the file"))
    }

    fn symlink(
        &mut self,
        place: &Directory,
        name: &[u8],
        target: &[u8],
        metadata: &Metadata,
    ) -> Result<(), Fault> {
        let problem = match target {
            b"" => Some("a symbolic link without a target"),
            _ if target.contains(&0) => Some("the target of a symbolic link must not have a zero byte in it"),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Fault::Refused(problem.to_owned()));
        }
        self.replacing(place, name, || symlinkat(target, &place.fd, name))
            .map_err(Fault::write("making the symbolic link"))?;
        self.tree.forget();
        metadata.give_to_entry(place.fd.as_fd(), name, Node::Link)
    }

    fn node(
        &mut self,
        place: &Directory,
        name: &[u8],
        kind: FileType,
        device: u64,
        metadata: &Metadata,
    ) -> Result<(), Fault> {
        let mode = Mode::from_raw_mode(0o600);
        self.replacing(place, name, || mknodat(&place.fd, name, kind, mode, device))
            .map_err(Fault::write("making the device or FIFO"))?;
        metadata.give_to_entry(place.fd.as_fd(), name, Node::Special)
    }

    fn hard_link(&mut self, place: &Rc<Directory>, name: &[u8], target: &[u8]) -> Result<u64, Fault> {
        let names = components(target, self.limits)?;
        let Some((target_name, parents)) = names.split_last() else {
            return Err(Fault::Refused("a hard link to the root of the layer".to_owned()));
        };
        let shown = String::from_utf8_lossy(target).into_owned();
        let absent = || Fault::Refused(format!("a hard link to {shown:?}, which is not in the image"));
        let from = self.tree.existing(parents)?.ok_or_else(absent)?;
        if from.path == place.path && target_name == &name {
            return Ok(0);
        }
        let mut copied = 0;
        match statat(&from.fd, *target_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(Fault::Refused(format!("a hard link to the directory {shown:?}")));
            }
            Ok(_) => {}
            Err(Errno::NOENT) => {
                let path = join(&from.path, target_name);
                let found = self.tree.below(&path)?.ok_or_else(absent)?;
                copied = self.copy_up(&found, &from, target_name)?;
            }
            Err(error) => return Err(Fault::Write("looking at the target of the hard link", error.into())),
        }
        self.replacing(place, name, || linkat(&from.fd, *target_name, &place.fd, name, AtFlags::empty()))
            .map_err(Fault::write("making the hard link"))?;
        Ok(copied)
    }

    /// Copies a file of a layer below into this one, so that it can be linked to.
    fn copy_up(&mut self, found: &Found, place: &Directory, name: &[u8]) -> Result<u64, Fault> {
        let write = Fault::write("copying a file of a layer below");
        match found.kind() {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let mut source =
                    File::from(openat(&found.directory, name, flags, Mode::empty()).map_err(&write)?);
                let metadata = Metadata::of_file(source.as_fd(), &found.stat).map_err(&write)?;
                self.count(found.stat.st_size as u64)?;
                let mut copy = self.create(place, name)?;
                let failed = |error: io::Error| Fault::Write("copying a file of a layer below", error);
                let bytes = io::copy(&mut source, &mut copy).map_err(failed)?;
                copy.flush().map_err(failed)?;
                metadata.give_to(copy.as_fd())?;
                metadata.modified.give_to(&copy)?;
                Ok(bytes)
            }
            FileType::Symlink => {
                let target = readlinkat(&found.directory, name, Vec::new()).map_err(&write)?;
                self.symlink(place, name, target.as_bytes(), &Metadata::of_stat(&found.stat)).map(|()| 0)
            }
            FileType::Directory => {
                Err(Fault::Refused("a hard link to a directory of a layer below".to_owned()))
            }
            kind => {
                let metadata = Metadata::of_stat(&found.stat);
                self.node(place, name, kind, found.stat.st_rdev, &metadata).map(|()| 0)
            }
        }
    }

    /// Makes an entry with `make`, in the place of what may be there.
    fn replacing(
        &mut self,
        place: &Directory,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        match make() {
            Err(Errno::EXIST) => match self.clear(place, name) {
                Ok(()) => make(),
                Err(_) => Err(Errno::EXIST),
            },
            result => result,
        }
    }

    /// Removes what an entry of this layer made before, and everything below it.
    fn clear(&mut self, place: &Directory, name: &[u8]) -> Result<(), Fault> {
        self.tree.forget();
        match unlinkat(&place.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {
                let mut path = format!("/proc/self/fd/{}/", place.fd.as_raw_fd()).into_bytes();
                path.extend_from_slice(name);
                std::fs::remove_dir_all(std::ffi::OsStr::from_bytes(&path))
                    .map_err(|error| Fault::Write("removing a directory that is replaced", error))
            }
            Err(error) => Err(Fault::Write("removing what is replaced", error.into())),
        }
    }

    fn count(&mut self, length: u64) -> Result<(), Fault> {
        self.length = self.length.saturating_add(length);
        let max = self.limits.layer_bytes_max;
        if self.length > max {
            return Err(Fault::Limit { what: "bytes of content", setting: "layer_bytes_max", max });
        }
        Ok(())
    }
}
