//! What all parts of one simulation share: chance, the trace, how rough things are, and what went wrong.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chance::Chance;

/// The lines of a trace that are kept for whoever reads it after a failure.
const LINES_MAX: usize = 400;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Stage(Arc<Mutex<Inner>>);

struct Inner {
    chance: Chance,
    climate: Weather,
    weather: Weather,
    trace: Trace,
    fault: Option<String>,
}

/// How rough things are in one seed: how often in a hundred times each thing goes wrong. Each seed has its own,
/// so that rare things meet each other in some and long quiet times are in others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub call_late: u64,
    pub call_fails: u64,
    pub call_lost: u64,
    pub report_rough: u64,
    pub commit_fails: u64,
    pub commit_late: u64,
    pub read_fails: u64,
    pub poison: u64,
    pub crash: u64,
    pub reboot: u64,
    pub shim_dies: u64,
    pub vanish: u64,
}

/// How the weather turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Calm,
    Rough,
}

/// All that happened, as a number, and the end of it in words.
struct Trace {
    hash: u64,
    lines: std::collections::VecDeque<String>,
    aloud: Aloud,
}

/// Whether the trace is printed while it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aloud {
    Yes,
    No,
}

impl Weather {
    /// The weather of a seed.
    pub fn of(chance: &mut Chance) -> Self {
        let mut sometimes = |percent: u64, max: u64| match chance.happens(percent) {
            true => chance.pick(1..max),
            false => 0,
        };
        Self {
            call_late: sometimes(70, 40),
            call_fails: sometimes(50, 20),
            call_lost: sometimes(50, 12),
            report_rough: sometimes(60, 60),
            commit_fails: sometimes(35, 30),
            commit_late: sometimes(50, 40),
            read_fails: sometimes(25, 30),
            poison: sometimes(50, 10),
            crash: sometimes(60, 8),
            reboot: sometimes(30, 60),
            shim_dies: sometimes(40, 8),
            vanish: sometimes(50, 40),
        }
    }
}

impl Stage {
    /// The stage of a seed.
    pub fn new(seed: u64, aloud: Aloud) -> Self {
        let mut chance = Chance::new(seed);
        let climate = Weather::of(&mut chance);
        let trace = Trace { hash: FNV_OFFSET, lines: std::collections::VecDeque::new(), aloud };
        Self(Arc::new(Mutex::new(Inner { chance, climate, weather: climate, trace, fault: None })))
    }

    /// From now on all goes well, or as roughly as this seed has it.
    pub fn turn(&self, to: Turn) {
        let mut inner = self.lock();
        inner.weather = match to {
            Turn::Calm => Weather::default(),
            Turn::Rough => inner.climate,
        };
    }

    /// How rough things are now.
    pub fn weather(&self) -> Weather {
        self.lock().weather
    }

    /// Something that depends on chance.
    pub fn roll<T>(&self, with: impl FnOnce(&mut Chance) -> T) -> T {
        with(&mut self.lock().chance)
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: fmt::Arguments<'_>) {
        let mut inner = self.lock();
        let line = line.to_string();
        for byte in line.bytes().chain([b'\n']) {
            inner.trace.hash = (inner.trace.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        if inner.trace.aloud == Aloud::Yes {
            eprintln!("{line}");
        }
        inner.trace.lines.push_back(line);
        if inner.trace.lines.len() > LINES_MAX {
            inner.trace.lines.pop_front();
        }
    }

    /// A promise was broken. The first one counts.
    pub fn broken(&self, what: String) {
        self.note(format_args!("BROKEN: {what}"));
        self.lock().fault.get_or_insert(what);
    }

    /// The promise that was broken, if any was.
    pub fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// All that happened, as a number.
    pub fn hash(&self) -> u64 {
        self.lock().trace.hash
    }

    /// The end of the trace.
    pub fn lines(&self) -> Vec<String> {
        self.lock().trace.lines.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a promise is broken unless a condition holds.
#[macro_export]
macro_rules! promise {
    ($stage:expr, $condition:expr, $($words:tt)+) => {
        if !$condition {
            $stage.broken(format!($($words)+));
        }
    };
}
