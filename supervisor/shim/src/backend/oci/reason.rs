//! Why a runtime refused, in its own words: from its log, or from what it has written to its standard error.
//!
//! Owns: finding the sentence, and keeping it short. Never: believes that there is one, or that it is text.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use crate::logger;
use crate::output::pump::Ends;

/// How much of a log is looked at, in bytes from its end.
const LOG_TAIL_MAX_BYTES: u64 = 64 * 1024;
/// How much of a standard error is kept, in bytes.
const WORDS_MAX_BYTES: usize = 8 * 1024;
/// The longest reason, in bytes.
const REASON_MAX_BYTES: usize = 2 * 1024;

/// The end of what a runtime has written.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<u8>);

impl Words {
    /// Reads what is there; the number of bytes, 0 at the end.
    pub(super) fn read(&mut self, fd: &OwnedFd) -> Result<usize, Errno> {
        let mut buffer = [0; 4096];
        let count = rustix::io::read(fd, &mut buffer)?;
        self.0.extend_from_slice(&buffer[..count]);
        let surplus = self.0.len().saturating_sub(WORDS_MAX_BYTES);
        self.0.drain(..surplus);
        Ok(count)
    }

    /// Reads what is there at this moment, and no more: what the runtime has left behind may hold the other end, and write for
    /// ever.
    pub(super) fn read_left(&mut self, fd: &OwnedFd) {
        // The count fits: a pipe holds at most 1 GiB.
        let mut left = rustix::io::ioctl_fionread(fd).unwrap_or(0) as usize;
        while left > 0 {
            match self.read(fd) {
                Ok(0) | Err(_) => return,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    }

    /// The last line that says something.
    pub(super) fn last(&self) -> Option<String> {
        last_line(&String::from_utf8_lossy(&self.0))
    }
}

/// What a runtime that has ended has left in the standard error of the container that it was to make.
pub(super) fn last_words(ends: &Ends) -> String {
    let mut words = Words::default();
    if let Ends::Pipes { stderr, .. } = ends {
        words.read_left(stderr.get_ref());
    }
    words.last().unwrap_or_else(|| "it failed and gave no reason".to_owned())
}

/// The last error of a log.
pub(super) fn of_log(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_MAX_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    in_log(&String::from_utf8_lossy(&bytes))
}

/// The last error, or failing that the last line that says something: a runtime may be killed before it says more.
fn in_log(text: &str) -> Option<String> {
    let entries = || text.lines().rev().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    let grave = |entry: &Entry| matches!(entry.level.as_str(), "error" | "fatal" | "panic");
    let found = entries().find(grave).map(|entry| entry.msg);
    found.and_then(|message| last_line(&one_line(&message))).or_else(|| last_line(text))
}

#[derive(serde::Deserialize)]
struct Entry {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn last_line(text: &str) -> Option<String> {
    let plain = |line: &str| -> String {
        line.chars()
            .map(|each| if each.is_control() { ' ' } else { each })
            .collect::<String>()
            .trim()
            .to_owned()
    };
    let mut line = text.lines().rev().map(plain).find(|line| !line.is_empty())?;
    logger::cut(&mut line, REASON_MAX_BYTES);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_log_is_the_reason() {
        let log = concat!(
            "{\"level\":\"warning\",\"msg\":\"signal: killed\",\"time\":\"2026-11-30T13:00:00Z\"}\n",
            "{\"level\":\"error\",\"msg\":\"runc create failed: unable to start container process: exec: \\\"nothing\\\": executable file not found in $PATH\"}\n",
            "{\"level\":\"debug\",\"msg\":\"bye\"}\n",
        );
        let reason = in_log(log).expect("there is one");
        assert!(reason.starts_with("runc create failed: unable to start"), "{reason}");
        // crun has no level of its own for them.
        let crun = "{\"msg\": \"executable file `nothing` not found in $PATH\", \"level\": \"error\", \"time\": \"x\"}";
        assert_eq!(in_log(crun).as_deref(), Some("executable file `nothing` not found in $PATH"));
    }

    #[test]
    fn rubbish_is_a_short_line_of_plain_text() {
        assert_eq!(in_log(""), None);
        assert_eq!(in_log("\n \n"), None);
        assert_eq!(in_log("{\"level\":\"info\"\u{1b}[31m\n").as_deref(), Some("{\"level\":\"info\" [31m"));
        let long = "x".repeat(1 << 20);
        assert!(in_log(&long).is_some_and(|reason| reason.len() <= REASON_MAX_BYTES));
    }
}
