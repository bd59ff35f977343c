//! How much the engine does at the same time.

use std::time::Duration;

use mainstay_actors::image::liveness::PULL_PROGRESS_TIMEOUT_DEFAULT_MS;

/// Blobs that are fetched at the same time, over all pulls, when nothing else is set.
pub const DOWNLOADS_MAX_DEFAULT: usize = 3;
/// Layers that are unpacked at the same time, over all pulls, when nothing else is set.
pub const UNPACKS_MAX_DEFAULT: usize = 2;
/// Questions what a name means that are asked at the same time.
pub const QUESTIONS_MAX: usize = 256;
/// Threads that work on connections.
pub const WORKERS: usize = 2;
/// Threads for what blocks: writing, hashing, unpacking, records.
pub const BLOCKING_THREADS_MAX: usize = 128;
/// Bytes of one blob that wait to be written. A registry that is faster than the disk waits.
pub const BYTES_AHEAD_MAX: usize = 2 << 20;
/// Pieces of one blob that wait to be written, however small they are.
pub const PIECES_AHEAD_MAX: usize = 256;

/// Settings of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Blobs that are fetched at the same time, over all pulls: [`DOWNLOADS_MAX_DEFAULT`]; at least 1.
    pub downloads_max: usize,
    /// Layers that are unpacked at the same time, over all pulls: [`UNPACKS_MAX_DEFAULT`]; at least 1.
    pub unpacks_max: usize,
    /// The longest silence of a pull, which the time-outs of single requests have to stay below.
    pub progress_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            downloads_max: DOWNLOADS_MAX_DEFAULT,
            unpacks_max: UNPACKS_MAX_DEFAULT,
            progress_timeout: Duration::from_millis(PULL_PROGRESS_TIMEOUT_DEFAULT_MS),
        }
    }
}
