//! The shim's own log: one line per event on standard error, which is `shim.log`.
//!
//! Owns: the form of a line, and that the file stays small. Never: waits, fails, or allocates a logger's machinery;
//! a line that cannot be written is dropped, since there is nobody to tell.

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::time::SystemTime;

use mainstay_messages::Timestamp;

/// When the log is this long, it is emptied and begun anew, in bytes.
const SHIM_LOG_MAX_BYTES: i64 = 1024 * 1024;
/// The longest line, in bytes.
const LINE_MAX_BYTES: usize = 2_048;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// As it should be.
    Info,
    /// Something was worked around, or will be tried again.
    Warn,
    /// Something is lost or broken.
    Error,
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}

/// Writes a line.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    let level = match level {
        Level::Info => "INFO",
        Level::Warn => "WARN",
        Level::Error => "ERROR",
    };
    // One write per line, so that lines stay whole.
    let mut line = format!("{} {level} {text}", now());
    if line.len() > LINE_MAX_BYTES {
        cut(&mut line, LINE_MAX_BYTES);
        line.push('…');
    }
    line = line.replace('\n', " ");
    line.push('\n');
    let stderr = rustix::stdio::stderr();
    if rustix::fs::fstat(stderr).is_ok_and(|stat| stat.st_size > SHIM_LOG_MAX_BYTES) {
        // It is opened for appending, so the next line goes to the front. A failure leaves a longer log.
        let _ = rustix::fs::ftruncate(stderr, 0);
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Counts what comes again and again, so that it is told ever more seldom: the first time, the second, the fourth, the eighth.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Cell<u64>);

impl Seldom {
    /// It has come once more; how often it has come, if that is to be told.
    pub(crate) fn comes(&self) -> Option<u64> {
        self.0.set(self.0.get().saturating_add(1));
        Some(self.0.get()).filter(|count| count.is_power_of_two())
    }
}

/// Shortens a text to at most `length_max` bytes, between two characters.
pub(crate) fn cut(text: &mut String, length_max: usize) {
    let mut end = text.len().min(length_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// An error with everything that caused it, in one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

macro_rules! note {
    ($($text:tt)*) => { $crate::logger::line($crate::logger::Level::Info, format_args!($($text)*)) };
}
macro_rules! warning {
    ($($text:tt)*) => { $crate::logger::line($crate::logger::Level::Warn, format_args!($($text)*)) };
}
macro_rules! error {
    ($($text:tt)*) => { $crate::logger::line($crate::logger::Level::Error, format_args!($($text)*)) };
}
pub(crate) use {error, note, warning};
