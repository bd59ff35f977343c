//! Whether a pull is alive (P8): every event of any part says that it is, with bytes or without; only silence for the
//! whole time-out says that it is not. Pure: the time is given, and only its going forward counts.
//!
//! ```text
//!            event: the time-out begins anew
//!              ┌───┐
//!              │   ▼
//!  begin ───► Alive ── nothing for the whole time-out ──────────────► Stalled, said once
//!                 └── a window with fewer bytes than the floor ─────► (a floor is set only on request)
//! ```

use std::collections::BTreeMap;
use std::fmt;

use mainstay_messages::image::{PullActivity, PullProgress};

/// The longest silence of a pull, in milliseconds, when the setting `pull_progress_timeout_ms` says nothing else.
pub const PULL_PROGRESS_TIMEOUT_DEFAULT_MS: u64 = 300_000;
/// What an error says of a pull in which nothing has happened.
const NOTHING: &str = "nothing at all";

/// How long a pull is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest silence, in milliseconds; 0 is for ever.
    pub silence_ms: u64,
    /// The least that has to come, where trickles are not borne.
    pub floor: Option<Floor>,
}

/// The least that has to come: so many bytes in each window. Bytes that are fetched, verified and unpacked count
/// alike. A window in which a part waits for room, or is synced, begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The bytes.
    pub bytes: u64,
    /// The window, in milliseconds.
    pub window_ms: u64,
}

/// The judge of one pull, or of one question to a registry.
///
/// Invariants:
/// 1. It says that the pull is stalled at most once.
/// 2. Its deadline is never before the last event.
#[derive(Clone, Debug)]
pub struct Liveness {
    patience: Patience,
    /// What is known of each part, and of the last event.
    parts: BTreeMap<Part, Figures>,
    last: Option<Last>,
    heard_ms: u64,
    window: Window,
    verdict: Verdict,
}

/// Why a pull is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The part of the last event: `manifest`, or the digest of a blob; none when there was no event.
    pub part: Option<String>,
    /// Bytes of it that are here.
    pub bytes: u64,
    /// Bytes of it that there should be, where that is known.
    pub of: Option<u64>,
    /// The last event, in words.
    pub last: String,
    /// How long ago it was, in milliseconds.
    pub age_ms: u64,
    /// Which limit was passed.
    pub limit: Limit,
}

/// A limit of a [`Patience`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The longest silence, in milliseconds.
    Silence(u64),
    /// The floor, and the bytes that came instead.
    Floor(Floor, u64),
}

/// A part, and what is done with it: a layer is fetched and unpacked at the same time, and each has its figures.
type Part = (String, Unpacks);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unpacks {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    bytes: u64,
    of: Option<u64>,
}

#[derive(Clone, Debug)]
struct Last {
    part: Option<String>,
    event: String,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since_ms: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    Given,
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence_ms: PULL_PROGRESS_TIMEOUT_DEFAULT_MS, floor: None }
    }
}

impl Liveness {
    /// A judge that begins now.
    pub fn new(patience: Patience, now_ms: u64) -> Self {
        Self {
            patience,
            parts: BTreeMap::new(),
            last: None,
            heard_ms: now_ms,
            window: Window { since_ms: now_ms, bytes: 0 },
            verdict: Verdict::Open,
        }
    }

    /// Something happened.
    pub fn heard(&mut self, progress: &PullProgress, now_ms: u64) {
        self.heard_ms = self.heard_ms.max(now_ms);
        self.last = Some(match progress {
            PullProgress::Resolved { .. } => Last { part: None, event: "resolved".into() },
            PullProgress::Retry { part, reason, .. } => {
                Last { part: Some(part.clone()), event: format!("a retry, since {reason}") }
            }
            PullProgress::Part { part, activity, bytes, of } => {
                self.count(part, *activity, Figures { bytes: *bytes, of: *of });
                Last { part: Some(part.clone()), event: word(*activity).into() }
            }
        });
    }

    /// When it has to be asked, at the latest; none when it bears everything, or has said all.
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.verdict == Verdict::Given {
            return None;
        }
        let window = self.patience.floor.map(|floor| self.window.since_ms.saturating_add(floor.window_ms));
        self.silent_at().into_iter().chain(window).min()
    }

    /// Whether it is to be given up now.
    pub fn check(&mut self, now_ms: u64) -> Option<Stalled> {
        if self.verdict == Verdict::Given {
            return None;
        }
        let limit = if self.silent_at().is_some_and(|at| now_ms >= at) {
            Some(Limit::Silence(self.patience.silence_ms))
        } else {
            self.below_the_floor(now_ms)
        };
        let stalled = self.stalled(limit?, now_ms);
        self.verdict = Verdict::Given;
        Some(stalled)
    }

    fn silent_at(&self) -> Option<u64> {
        let silence_ms = Some(self.patience.silence_ms).filter(|limit| *limit > 0)?;
        Some(self.heard_ms.saturating_add(silence_ms))
    }

    fn count(&mut self, part: &str, activity: PullActivity, figures: Figures) {
        let unpacks = if activity == PullActivity::Unpacking { Unpacks::Yes } else { Unpacks::No };
        let known = self.parts.entry((part.to_owned(), unpacks)).or_default();
        // Fewer than before: it began anew.
        self.window.bytes = self.window.bytes.saturating_add(figures.bytes.saturating_sub(known.bytes));
        *known = Figures { bytes: figures.bytes, of: figures.of.or(known.of) };
        if matches!(activity, PullActivity::Waiting | PullActivity::Syncing) {
            self.window = Window { since_ms: self.heard_ms, bytes: 0 };
        }
    }

    fn below_the_floor(&mut self, now_ms: u64) -> Option<Limit> {
        let floor = self.patience.floor?;
        if now_ms < self.window.since_ms.saturating_add(floor.window_ms) {
            return None;
        }
        let came = std::mem::replace(&mut self.window, Window { since_ms: now_ms, bytes: 0 }).bytes;
        (came < floor.bytes).then_some(Limit::Floor(floor, came))
    }

    fn stalled(&self, limit: Limit, now_ms: u64) -> Stalled {
        let part = self.last.as_ref().and_then(|last| last.part.clone());
        // What was fetched of a part, whatever was done with it last: that is what a next try begins with.
        let figures =
            part.clone().and_then(|part| self.parts.get(&(part, Unpacks::No)).copied()).unwrap_or_default();
        Stalled {
            part,
            bytes: figures.bytes,
            of: figures.of,
            last: self.last.as_ref().map_or_else(|| NOTHING.to_owned(), |last| last.event.clone()),
            age_ms: now_ms.saturating_sub(self.heard_ms),
            limit,
        }
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Limit::Silence(after_ms) => write!(f, "nothing moved for {after_ms} ms")?,
            Limit::Floor(floor, came) => {
                let Floor { bytes, window_ms } = floor;
                write!(f, "{came} bytes came in {window_ms} ms, and at least {bytes} are asked for")?;
            }
        }
        let Self { bytes, last, age_ms, .. } = self;
        if let Some(part) = &self.part {
            write!(f, "; {part} has {bytes} ")?;
            match self.of {
                Some(of) => write!(f, "of {of} bytes")?,
                None => f.write_str("bytes of a length that is not known")?,
            }
        }
        write!(f, "; the last event was {last}, {age_ms} ms ago")
    }
}

fn word(activity: PullActivity) -> &'static str {
    match activity {
        PullActivity::Waiting => "waiting for a slot",
        PullActivity::Connecting => "connecting",
        PullActivity::Fetching => "fetching",
        PullActivity::Verifying => "verifying",
        PullActivity::Unpacking => "unpacking",
        PullActivity::Syncing => "syncing",
        PullActivity::Done => "its end",
    }
}

#[cfg(test)]
mod tests;
