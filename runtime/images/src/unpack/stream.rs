//! The bytes of a layer, decompressed: how is told by their beginning, as in the field media types are often wrong.
//!
//! Counts what goes in and what comes out, and refuses bombs.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use flate2::bufread::MultiGzDecoder;

use crate::settings::Limits;

/// Bytes that are read at a time.
const READ_BYTES: usize = 128 << 10;
/// How far back zstd may look, as a power of two: 128 MiB, its own default limit.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Bytes of content before the ratio counts: small archives of zeros are no bombs.
const RATIO_FREE_BYTES: u64 = 64 << 20;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The content of a layer.
pub(crate) struct Stream<R: Read> {
    content: Content<BufReader<Counted<R>>>,
    limits: Limits,
    counts: Counts,
}

/// Which limit a layer went beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) what: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) max: u64,
}

/// What is known of a stream while others have it.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Known>);

#[derive(Default)]
struct Known {
    compressed: AtomicU64,
    content: AtomicU64,
    breach: OnceLock<Breach>,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each layer, and it is read through")]
enum Content<R: BufRead> {
    Plain(R),
    Gzip(MultiGzDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

struct Counted<R> {
    source: R,
    known: Arc<Known>,
}

impl<R: Read> Stream<R> {
    pub(crate) fn new(source: R, limits: &Limits) -> io::Result<Self> {
        let counts = Counts::default();
        let source = Counted { source, known: Arc::clone(&counts.0) };
        let mut source = BufReader::with_capacity(READ_BYTES, source);
        let beginning = source.fill_buf()?;
        let content = if beginning.starts_with(&GZIP_MAGIC) {
            Content::Gzip(MultiGzDecoder::new(source))
        } else if beginning.starts_with(&ZSTD_MAGIC) || is_skippable_frame(beginning) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Content::Zstd(decoder)
        } else {
            Content::Plain(source)
        };
        Ok(Self { content, limits: limits.clone(), counts })
    }

    /// The counts, for whoever gives the stream away.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.clone()
    }

    fn check(&self) -> io::Result<()> {
        let known = &*self.counts.0;
        let (compressed, content) =
            (known.compressed.load(Ordering::Relaxed), known.content.load(Ordering::Relaxed));
        let Limits { layer_bytes_max, ratio_max, .. } = self.limits;
        let breach = if content > layer_bytes_max {
            Breach { what: "bytes of content", setting: "layer_bytes_max", max: layer_bytes_max }
        } else if content > RATIO_FREE_BYTES && content / compressed.max(1) > ratio_max {
            Breach { what: "bytes from one compressed byte", setting: "ratio_max", max: ratio_max }
        } else {
            return Ok(());
        };
        let _ = known.breach.set(breach);
        Err(io::Error::other("a limit was reached"))
    }
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.content {
            Content::Plain(source) => source.read(buffer),
            Content::Gzip(source) => source.read(buffer),
            Content::Zstd(source) => source.read(buffer),
        }?;
        self.counts.0.content.fetch_add(count as u64, Ordering::Relaxed);
        self.check()?;
        Ok(count)
    }
}

impl Counts {
    /// The limit that was reached, if one was.
    pub(crate) fn breach(&self) -> Option<Breach> {
        self.0.breach.get().copied()
    }

    /// Bytes of content so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.content.load(Ordering::Relaxed)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.known.compressed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn is_skippable_frame(bytes: &[u8]) -> bool {
    bytes.len() >= 4 && bytes[0] & 0xf0 == 0x50 && bytes[1..4] == [0x2a, 0x4d, 0x18]
}
