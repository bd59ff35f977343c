//! Comparing two directories of unpacked layers, everything that a container could see of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;

use crate::disk::failed;
use crate::error::Result;

/// Bytes that are compared at a time.
const COMPARE_BYTES: usize = 64 << 10;

/// The first difference between a layer and what it should be, in one sentence.
pub(crate) fn difference(layer: &Path, right: &Path) -> Result<Option<String>> {
    let mut ahead = vec![PathBuf::new()];
    while let Some(path) = ahead.pop() {
        let (a, b) = (layer.join(&path), right.join(&path));
        let told = entry_difference(&a, &b).map_err(failed("comparing", &a))?;
        if let Some(how) = told {
            return Ok(Some(format!("{:?} {how}", Path::new("/").join(&path))));
        }
        if fs::symlink_metadata(&b).map_err(failed("comparing", &b))?.is_dir() {
            let (names, wanted) =
                (names(&a).map_err(failed("comparing", &a))?, names(&b).map_err(failed("comparing", &b))?);
            if let Some(name) = names.symmetric_difference(&wanted).next() {
                let what = if names.contains(name) { "should not be there" } else { "is missing" };
                return Ok(Some(format!("{:?} {what}", Path::new("/").join(&path).join(name))));
            }
            ahead.extend(wanted.into_iter().map(|name| path.join(name)));
        }
    }
    Ok(None)
}

fn names(path: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn entry_difference(a: &Path, b: &Path) -> io::Result<Option<String>> {
    let (is, should) = (fs::symlink_metadata(a)?, fs::symlink_metadata(b)?);
    let facts = |m: &Metadata| {
        [
            ("mode", i64::from(m.mode())),
            ("owner", i64::from(m.uid())),
            ("group", i64::from(m.gid())),
            ("device", m.rdev() as i64),
            ("time", m.mtime()),
            ("nanoseconds", m.mtime_nsec()),
        ]
    };
    for ((what, is), (_, should)) in facts(&is).into_iter().zip(facts(&should)) {
        if is != should {
            return Ok(Some(format!("has the {what} {is} where it should be {should}")));
        }
    }
    let is_file = should.is_file();
    if is_file && is.len() != should.len() {
        return Ok(Some(format!("has {} bytes where it should have {}", is.len(), should.len())));
    }
    if is_file && is.nlink() != should.nlink() {
        return Ok(Some(format!("has {} names where it should have {}", is.nlink(), should.nlink())));
    }
    if should.is_symlink() && fs::read_link(a)? != fs::read_link(b)? {
        return Ok(Some("links to something else".to_owned()));
    }
    if xattrs(a)? != xattrs(b)? {
        return Ok(Some("has other extended attributes".to_owned()));
    }
    if is_file && !should.file_type().is_fifo() && !same_bytes(File::open(a)?, File::open(b)?)? {
        return Ok(Some("has other contents".to_owned()));
    }
    Ok(None)
}

fn same_bytes(mut a: File, mut b: File) -> io::Result<bool> {
    let (mut one, mut other) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    loop {
        let count = b.read(&mut other)?;
        if count == 0 {
            return Ok(a.read(&mut one)? == 0);
        }
        match a.read_exact(&mut one[..count]) {
            Ok(()) if one[..count] == other[..count] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            // Damage of the medium shows like this.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 << 10];
    let length = match llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
