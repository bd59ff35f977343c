//! The stages of a pull, each alone, on one thread, with what the kernel has of the image in memory: no pull can be faster
//! than the slowest of them, however well they overlap.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Mode, OFlags, Timespec, Timestamps, Uid, fchmod, fchown, futimens};
use sha2::{Digest, Sha256};

use super::registry::Registry;
use crate::bench::memory;

/// Bytes that are read and written at a time.
const READ_BYTES: usize = 256 << 10;

/// What one stage took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// From its beginning to its end.
    pub time: Duration,
    /// Time of the processors, which says more on a machine that others use too.
    pub cpu: Duration,
}

/// What each stage took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    /// The blobs over the network.
    pub receive: Taken,
    /// The digests of the blobs, and those of the archives where they are others.
    pub hash: Taken,
    /// The archives out of the blobs.
    pub inflate: Taken,
    /// The blobs as files, and the files of the archives.
    pub write: Taken,
    /// One sync of all that was written.
    pub sync: Taken,
}

/// Takes the time of each stage, in a new directory that is removed again.
pub fn measure(registry: &Registry, directory: &Path) -> io::Result<Stages> {
    let layers = &registry.made().layers;
    let mut buffer = vec![0; READ_BYTES];
    let receive = timed(|| {
        layers.iter().try_for_each(|layer| drain(registry.fetch(&layer.digest)?, &mut buffer, |_| Ok(())))
    })?;
    let hash = timed(|| {
        layers.iter().try_for_each(|layer| {
            let mut digests = vec![&layer.digest, &layer.diff_id];
            digests.dedup();
            digests.into_iter().try_for_each(|digest| {
                let mut hasher = Sha256::new();
                drain(registry.open(digest)?, &mut buffer, |bytes| {
                    hasher.update(bytes);
                    Ok(())
                })?;
                std::hint::black_box(hasher.finalize());
                Ok(())
            })
        })
    })?;
    let inflate = timed(|| {
        layers.iter().try_for_each(|layer| {
            let blob = BufReader::with_capacity(READ_BYTES, registry.open(&layer.digest)?);
            drain(decoder(blob)?, &mut buffer, |_| Ok(()))
        })
    })?;
    DirBuilder::new().mode(0o700).create(directory)?;
    rustix::fs::sync();
    let write = timed(|| {
        layers.iter().enumerate().try_for_each(|(index, layer)| {
            let place = directory.join(index.to_string());
            fs::create_dir(&place)?;
            let mut blob = File::create(place.join("blob"))?;
            drain(registry.open(&layer.digest)?, &mut buffer, |bytes| blob.write_all(bytes))?;
            unpack(registry.open(&layer.diff_id)?, &place, &mut buffer)
        })
    });
    let written = File::open(directory)?;
    let sync = timed(|| Ok(rustix::fs::syncfs(&written)?));
    fs::remove_dir_all(directory)?;
    Ok(Stages { receive, hash, inflate, write: write?, sync: sync? })
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Taken> {
    let (begun, cpu) = (Instant::now(), memory::cpu_time());
    work()?;
    Ok(Taken { time: begun.elapsed(), cpu: memory::cpu_time() - cpu })
}

fn drain(
    mut source: impl Read,
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        match source.read(buffer)? {
            0 => return Ok(()),
            count => take(&buffer[..count])?,
        }
    }
}

fn decoder(mut blob: BufReader<File>) -> io::Result<Box<dyn Read>> {
    use std::io::BufRead;
    Ok(match blob.fill_buf()? {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::GzDecoder::new(blob)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(blob)?),
        _ => Box::new(blob),
    })
}

/// Makes the files of an archive of ours, with owner, mode and time.
fn unpack(archive: File, place: &Path, buffer: &mut [u8]) -> io::Result<()> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(READ_BYTES, archive));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = place.join(entry.path()?);
        if entry.header().entry_type().is_dir() {
            fs::create_dir_all(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            continue;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?);
        drain(&mut entry, buffer, |bytes| file.write_all(bytes))?;
        fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
        fchmod(&file, Mode::from_raw_mode(0o644))?;
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    }
    Ok(())
}
