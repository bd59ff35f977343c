//! What the targets share: layers out of a fuzzer's bytes, and a place where to unpack them.
//!
//! Names are made of few parts, so that entries meet one another, and among them are those that lead out of the directory: the
//! place has a neighbour, which must be the same after each layer as before.

use std::fs;
use std::path::{Path, PathBuf};

use arbitrary::Arbitrary;
use mainstay_images::Limits;

/// Where layers are unpacked. In memory, as each of them is synced.
const PLACE: &str = "/dev/shm/mainstay-fuzz";
/// The most entries of a layer.
const ENTRIES_MAX: usize = 24;

/// An entry of a layer.
#[derive(Debug, Arbitrary)]
pub struct Entry {
    path: Vec<Part>,
    kind: Kind,
    link: Vec<Part>,
    data: Vec<u8>,
    mode: u16,
    owner: (u8, u8),
    record: Option<(Key, Vec<u8>)>,
}

/// A part of a path.
#[derive(Debug, Arbitrary)]
enum Part {
    A,
    B,
    C,
    Up,
    Here,
    Empty,
    /// The neighbour, from the root of the machine.
    Outside,
    Hidden,
    Opaque,
    HiddenNothing,
    Bookkeeping,
    Raw(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    Character,
    Sparse,
    LongName,
    Global,
    Other(u8),
}

/// A key of an extended header.
#[derive(Debug, Arbitrary)]
enum Key {
    Path,
    LinkPath,
    Size,
    Xattr,
    Capability,
    Acl,
    Opaque,
    SparseMap,
    SparseName,
    SparseMajor,
    SparseSize,
    Raw(Vec<u8>),
}

/// A layer: an archive.
pub fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries.iter().take(ENTRIES_MAX) {
        if let Some((key, value)) = &entry.record {
            let record = record(&key.text(), value);
            member(&mut archive, b'x', b"header", b"", &record, 0o644, (0, 0));
        }
        let kind = entry.kind.byte();
        let data: &[u8] = if matches!(kind, b'0' | b'S' | b'L' | b'g') { &entry.data } else { b"" };
        let (path, link) = (text(&entry.path), text(&entry.link));
        member(&mut archive, kind, &path, &link, data, entry.mode, entry.owner);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Corrects the checksums of what would be the headers of an archive, so that what is behind them is reached.
pub fn with_checksums(mut archive: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(header) = archive.get_mut(at..at + 512) {
        let digits = header[124..136].iter().skip_while(|byte| **byte == b' ');
        let size = digits
            .take_while(|byte| matches!(byte, b'0'..=b'7'))
            .try_fold(0usize, |size, byte| size.checked_mul(8)?.checked_add(usize::from(byte - b'0')));
        seal(header);
        let blocks = size.unwrap_or_default().div_ceil(512);
        at = at.saturating_add(512).saturating_add(blocks.saturating_mul(512));
    }
    archive
}

/// Unpacks a layer over those below, and checks that nothing beside its directory was touched. Answers whether it was taken.
pub fn unpack(archive: Vec<u8>, below: &[Vec<u8>]) -> bool {
    let place = Path::new(PLACE);
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place.join("outside/a")).expect("a directory");
    fs::write(place.join("outside/b"), "b").expect("a file");
    let before = look(&place.join("outside"));
    let limits =
        Limits { layer_bytes_max: 1 << 20, layer_entries_max: 64, depth_max: 16, ..Limits::default() };
    let mut roots: Vec<PathBuf> = Vec::new();
    let mut taken = false;
    let layers = below.iter().cloned().chain([archive]);
    for (number, layer) in layers.enumerate() {
        let target = place.join(format!("layer-{number}"));
        fs::create_dir(&target).expect("a directory");
        let result = mainstay_images::fuzzing::unpack(layer, &target, roots.clone(), &limits);
        taken = result.is_ok();
        if !taken {
            break;
        }
        roots.insert(0, target);
    }
    assert_eq!(look(&place.join("outside")), before, "something outside was touched");
    let strangers = fs::read_dir(place).expect("a directory").flatten().map(|entry| entry.file_name());
    for name in strangers {
        let name = name.to_string_lossy().into_owned();
        assert!(name == "outside" || name.starts_with("layer-"), "{name} came into being outside");
    }
    taken
}

/// All that can be seen of a small tree.
fn look(root: &Path) -> Vec<(PathBuf, String)> {
    use std::os::unix::fs::MetadataExt;
    let mut seen = Vec::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        if metadata.is_dir() {
            ahead.extend(fs::read_dir(&path).expect("a directory").flatten().map(|entry| entry.path()));
        }
        let content = fs::read(&path).unwrap_or_default();
        let (mode, links, owner) = (metadata.mode(), metadata.nlink(), (metadata.uid(), metadata.gid()));
        let times = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
        seen.push((path, format!("{mode:o} {links} {owner:?} {times:?} {content:?}")));
    }
    seen.sort();
    seen
}

impl Part {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::A => b"a".to_vec(),
            Self::B => b"b".to_vec(),
            Self::C => b"c".to_vec(),
            Self::Up => b"..".to_vec(),
            Self::Here => b".".to_vec(),
            Self::Empty => Vec::new(),
            Self::Outside => format!("{PLACE}/outside").into_bytes(),
            Self::Hidden => b".wh.a".to_vec(),
            Self::Opaque => b".wh..wh..opq".to_vec(),
            Self::HiddenNothing => b".wh.".to_vec(),
            Self::Bookkeeping => b".wh..wh.plnk".to_vec(),
            Self::Raw(bytes) => bytes.clone(),
        }
    }
}

impl Kind {
    fn byte(&self) -> u8 {
        match self {
            Self::File => b'0',
            Self::Directory => b'5',
            Self::Symlink => b'2',
            Self::HardLink => b'1',
            Self::Fifo => b'6',
            Self::Character => b'3',
            Self::Sparse => b'S',
            Self::LongName => b'L',
            Self::Global => b'g',
            Self::Other(byte) => *byte,
        }
    }
}

impl Key {
    fn text(&self) -> Vec<u8> {
        let known: &[u8] = match self {
            Self::Path => b"path",
            Self::LinkPath => b"linkpath",
            Self::Size => b"size",
            Self::Xattr => b"SCHILY.xattr.user.a",
            Self::Capability => b"SCHILY.xattr.security.capability",
            Self::Acl => b"SCHILY.xattr.system.posix_acl_default",
            Self::Opaque => b"SCHILY.xattr.trusted.overlay.opaque",
            Self::SparseMap => b"GNU.sparse.map",
            Self::SparseName => b"GNU.sparse.name",
            Self::SparseMajor => b"GNU.sparse.major",
            Self::SparseSize => b"GNU.sparse.realsize",
            Self::Raw(bytes) => bytes,
        };
        known.to_vec()
    }
}

fn text(parts: &[Part]) -> Vec<u8> {
    parts.iter().take(8).map(Part::bytes).collect::<Vec<_>>().join(&b'/')
}

fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    while length != body + length.to_string().len() {
        length = body + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn member(
    archive: &mut Vec<u8>,
    kind: u8,
    path: &[u8],
    link: &[u8],
    data: &[u8],
    mode: u16,
    owner: (u8, u8),
) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode.into());
    header.set_uid(owner.0.into());
    header.set_gid(owner.1.into());
    header.set_mtime(1);
    header.set_size(data.len() as u64);
    let bytes = header.as_mut_bytes();
    bytes[156] = kind;
    bytes[..path.len().min(100)].copy_from_slice(&path[..path.len().min(100)]);
    bytes[157..157 + link.len().min(100)].copy_from_slice(&link[..link.len().min(100)]);
    if kind == b'S' {
        // One piece at the beginning, and the whole length.
        let piece = format!("{:011o}\0{:011o}\0", 0, data.len());
        bytes[386..410].copy_from_slice(piece.as_bytes());
        bytes[483..495].copy_from_slice(format!("{:011o}\0", 4096).as_bytes());
    }
    seal(bytes);
    archive.extend_from_slice(bytes);
    archive.extend_from_slice(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
