//! What a header and the extensions before it say of one member.

use std::io::Read;

use tar::Header;

use super::holes::SparseRecords;
use super::{Archive, Extensions, Result, shown};
use crate::tar::{Kind, Member, Time, pax};

impl<R: Read> Archive<R> {
    pub(super) fn member(&mut self, header: &Header, extensions: Extensions) -> Result<Member> {
        let old = header.as_old();
        let mut path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let mut link =
            extensions.link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        let mut uid = self.unsigned(&old.uid, "owner")?;
        let mut gid = self.unsigned(&old.gid, "group")?;
        let mut modified = Time { seconds: self.signed(&old.mtime, "time")?, nanoseconds: 0 };
        let mode = (self.signed(&old.mode, "mode")? & 0o7777) as u32;
        let mut size = None;
        let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut sparse = SparseRecords::default();
        let records = std::mem::take(&mut self.global);
        for pax::Record { key, value } in records.iter().chain(&extensions.records) {
            let bad = || {
                let key = String::from_utf8_lossy(key);
                self.malformed(format!("extended header: {key} has the value {:?}", shown(value)))
            };
            match key.as_slice() {
                // An empty value takes back what a global header said.
                b"path" if !value.is_empty() => path.clone_from(value),
                b"linkpath" if !value.is_empty() => link.clone_from(value),
                b"size" => size = Some(pax::number(value).ok_or_else(bad)?),
                b"uid" => uid = pax::number(value).ok_or_else(bad)?,
                b"gid" => gid = pax::number(value).ok_or_else(bad)?,
                b"mtime" => modified = pax::time(value).ok_or_else(bad)?,
                _ if key.starts_with(b"GNU.sparse.") => sparse.take(&key[11..], value).ok_or_else(bad)?,
                _ => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        xattrs.retain(|(known, _)| known != name);
                        xattrs.push((name.to_vec(), value.clone()));
                    }
                }
            }
        }
        self.global = records;
        let mut kind = self.kind(header)?;
        if kind == Kind::File && path.ends_with(b"/") {
            // Archives from before directories had a type of their own.
            kind = Kind::Directory;
        }
        match (kind, size) {
            (Kind::File, Some(size)) => self.set_size(size),
            (Kind::File, None) => {}
            // Links have their target's length in the header, and no data. Go reads all kinds but files so.
            _ => self.set_size(0),
        }
        let map = if kind == Kind::File { self.sparse_map(header, &mut path, sparse)? } else { None };
        let id = |value: u64, what: &str| {
            u32::try_from(value)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| self.malformed(format!("{what} {value}; ids go from 0 to {}", u32::MAX - 1)))
        };
        let (uid, gid) = (id(uid, "owner")?, id(gid, "group")?);
        let device = match kind {
            Kind::Character | Kind::Block => self.device(header)?,
            _ => (0, 0),
        };
        let size = if kind == Kind::File { self.remaining } else { 0 };
        Ok(Member { path, kind, link, size, sparse: map, mode, uid, gid, modified, device, xattrs })
    }

    fn kind(&self, header: &Header) -> Result<Kind> {
        Ok(match header.entry_type().as_byte() {
            b'0' | b'\0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Character,
            b'4' => Kind::Block,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(self.malformed(format!("type {:?} is not known", char::from(other)))),
        })
    }

    fn device(&self, header: &Header) -> Result<(u32, u32)> {
        let bytes = header.as_bytes();
        let part = |range: std::ops::Range<usize>, what: &str| {
            let value = self.unsigned(&bytes[range], what)?;
            u32::try_from(value).map_err(|_| self.malformed(format!("{what} number {value} of a device")))
        };
        Ok((part(329..337, "major")?, part(337..345, "minor")?))
    }
}
