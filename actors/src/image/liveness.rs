//! Whether a pull is alive (P8): every event of any part says that it is, with bytes or without; only silence for the
//! whole time-out says that it is not. Pure: the time is given, and only its going forward counts.
//!
//! ```text
//!            event: the time-out begins anew, after the pause that a retry announces
//!              ┌───┐
//!              │   ▼
//!  begin ───► Alive ── nothing for the whole time-out ──────────────► Stalled, said once
//!              │ ▲ └── a window with fewer bytes than the floor ─────► (a floor is set only on request)
//!              ▼ │ event
//!            Waiting: all that is not done waits for others to make room, who have time-outs of their own
//! ```

use std::collections::BTreeMap;
use std::fmt;

use mainstay_messages::image::{PullActivity, PullProgress};

/// The longest silence of a pull, in milliseconds, when the setting `pull_progress_timeout_ms` says nothing else.
pub const PULL_PROGRESS_TIMEOUT_DEFAULT_MS: u64 = 300_000;

/// How long a pull is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest silence, in milliseconds; 0 is for ever.
    pub silence_ms: u64,
    /// The least that has to come, where trickles are not borne.
    pub floor: Option<Floor>,
}

/// The least that has to come: so many bytes in each window. Bytes that are fetched, verified and unpacked count
/// alike. A window in which a part waits for room or for a retry, or is synced, begins anew.
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
/// 2. An event never brings its deadline nearer.
#[derive(Clone, Debug)]
pub struct Liveness {
    patience: Patience,
    /// By name: `manifest`, or the digest of a blob.
    parts: BTreeMap<String, Part>,
    /// Of the last event.
    heard_ms: u64,
    /// The end of the pause that a retry has announced.
    paused_until_ms: u64,
    window: Window,
    verdict: Verdict,
}

/// Why a pull is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The part that has been silent longest, of those that are at work: `manifest`, or the digest of a blob; none when
    /// there was no event.
    pub part: Option<String>,
    /// Bytes of it that are here.
    pub bytes: u64,
    /// Bytes of it that there should be, where that is known.
    pub of: Option<u64>,
    /// Its last event, in words.
    pub last: String,
    /// How long ago that was, in milliseconds.
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

#[derive(Clone, Debug, Default)]
struct Part {
    /// Bytes that were fetched, or verified, which is what a next try begins with.
    bytes: u64,
    of: Option<u64>,
    unpacked: u64,
    last: Last,
    at_ms: u64,
}

/// The last event of a part.
#[derive(Clone, Debug, Default)]
enum Last {
    #[default]
    Nothing,
    Does(PullActivity),
    Retry(String),
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
            heard_ms: now_ms,
            paused_until_ms: now_ms,
            window: Window { since_ms: now_ms, bytes: 0 },
            verdict: Verdict::Open,
        }
    }

    /// Something happened.
    pub fn heard(&mut self, progress: &PullProgress, now_ms: u64) {
        if self.all_wait() {
            self.window = Window { since_ms: now_ms, bytes: 0 };
        }
        self.heard_ms = self.heard_ms.max(now_ms);
        match progress {
            PullProgress::Resolved { .. } => {}
            PullProgress::Retry { part, reason, after_ms } => {
                // Often the registry itself has asked for the pause: it is no silence.
                self.paused_until_ms = self.paused_until_ms.max(self.heard_ms.saturating_add(*after_ms));
                self.window = Window { since_ms: self.paused_until_ms, bytes: 0 };
                self.part(part).last = Last::Retry(reason.clone());
            }
            PullProgress::Part { part, activity, bytes, of } => self.count(part, *activity, *bytes, *of),
        }
    }

    /// When it has to be asked, at the latest; none when it bears everything, or has said all.
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.verdict == Verdict::Given || self.all_wait() {
            return None;
        }
        let window = self.patience.floor.map(|floor| self.window.since_ms.saturating_add(floor.window_ms));
        self.silent_at().into_iter().chain(window).min()
    }

    /// Whether it is to be given up now.
    pub fn check(&mut self, now_ms: u64) -> Option<Stalled> {
        if self.verdict == Verdict::Given || self.all_wait() {
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
        Some(self.heard_ms.max(self.paused_until_ms).saturating_add(silence_ms))
    }

    /// Whether there is work, and all of it waits.
    fn all_wait(&self) -> bool {
        let mut open =
            self.parts.values().filter(|part| !matches!(part.last, Last::Does(PullActivity::Done)));
        let waits = |part: &Part| matches!(part.last, Last::Does(PullActivity::Waiting));
        open.next().is_some_and(waits) && open.all(waits)
    }

    fn part(&mut self, name: &str) -> &mut Part {
        let heard_ms = self.heard_ms;
        let part = self.parts.entry(name.to_owned()).or_default();
        part.at_ms = heard_ms;
        part
    }

    fn count(&mut self, name: &str, activity: PullActivity, bytes: u64, of: Option<u64>) {
        let part = self.part(name);
        part.last = Last::Does(activity);
        let known = if activity == PullActivity::Unpacking {
            &mut part.unpacked
        } else {
            part.of = of.or(part.of);
            &mut part.bytes
        };
        // Fewer than before: it began anew.
        let came = bytes.saturating_sub(std::mem::replace(known, bytes));
        self.window.bytes = self.window.bytes.saturating_add(came);
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
        let rests = |part: &Part| matches!(part.last, Last::Does(PullActivity::Waiting | PullActivity::Done));
        let silent = self.parts.iter().min_by_key(|(_, part)| (rests(part), part.at_ms));
        let (name, part) = silent.map_or_else(
            || (None, Part { at_ms: self.heard_ms, ..Part::default() }),
            |(name, part)| (Some(name.clone()), part.clone()),
        );
        Stalled {
            part: name,
            bytes: part.bytes,
            of: part.of,
            last: part.last.to_string(),
            age_ms: now_ms.saturating_sub(part.at_ms),
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
        write!(f, "; its last event was {last}, {age_ms} ms ago")
    }
}

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("its beginning"),
            Self::Does(activity) => f.write_str(word(*activity)),
            Self::Retry(reason) => write!(f, "a retry, since {reason}"),
        }
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
