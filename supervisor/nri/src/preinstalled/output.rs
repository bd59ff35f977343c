//! What a plugin prints, as lines for the log.
//!
//! Owns: cutting it into lines, and their limits. Never: reads or logs. Pure.

use std::time::{Duration, Instant};

/// The longest line, in bytes; the rest of it is left out.
pub const LINE_MAX_BYTES: usize = 4_096;
/// How many lines a minute of one plugin are logged.
pub const LINES_PER_MINUTE_MAX: u32 = 600;
const MINUTE: Duration = Duration::from_secs(60);

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    /// A line, without anything that a terminal would obey.
    Line(String),
    /// So many lines were left out before.
    LeftOut(u64),
}

/// The lines of one plugin.
#[derive(Debug)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The line is cut, and its rest is passed over.
    is_cut: bool,
    minute_began: Instant,
    in_this_minute: u32,
    left_out: u64,
}

impl Lines {
    pub fn new(now: Instant) -> Self {
        Self { line: Vec::new(), is_cut: false, minute_began: now, in_this_minute: 0, left_out: 0 }
    }

    /// Some bytes more.
    pub fn push(&mut self, bytes: &[u8], now: Instant) -> Vec<Logged> {
        let mut logged = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(now, &mut logged),
                _ if self.is_cut => {}
                byte => {
                    self.line.push(*byte);
                    self.is_cut = self.line.len() == LINE_MAX_BYTES;
                }
            }
        }
        logged
    }

    /// There is no more.
    pub fn finish(mut self, now: Instant) -> Vec<Logged> {
        let mut logged = Vec::new();
        if !self.line.is_empty() {
            self.end_line(now, &mut logged);
        }
        self.tell_left_out(&mut logged);
        logged
    }

    fn end_line(&mut self, now: Instant, logged: &mut Vec<Logged>) {
        let line = std::mem::take(&mut self.line);
        let is_cut = std::mem::take(&mut self.is_cut);
        if now.duration_since(self.minute_began) >= MINUTE {
            (self.minute_began, self.in_this_minute) = (now, 0);
        }
        if self.in_this_minute == LINES_PER_MINUTE_MAX {
            self.left_out += 1;
            return;
        }
        self.in_this_minute += 1;
        self.tell_left_out(logged);
        let mut text: String = String::from_utf8_lossy(&line)
            .chars()
            .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
            .collect();
        if is_cut {
            text.push_str(" […]");
        }
        logged.push(Logged::Line(text));
    }

    fn tell_left_out(&mut self, logged: &mut Vec<Logged>) {
        if self.left_out > 0 {
            logged.push(Logged::LeftOut(std::mem::take(&mut self.left_out)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Logged {
        Logged::Line(text.to_owned())
    }

    #[test]
    fn lines_are_whole_however_they_come_and_harmless() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        assert_eq!(lines.push(b"one\ntw", now), [line("one")]);
        assert_eq!(lines.push(b"o\n\x1b[31mred\xff\n", now), [line("two"), line("\u{fffd}[31mred\u{fffd}")]);
        assert_eq!(lines.push(b"rest", now), []);
        assert_eq!(lines.finish(now), [line("rest")]);
    }

    #[test]
    fn a_line_that_does_not_end_is_cut() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        for _ in 0..100 {
            assert_eq!(lines.push(&[b'x'; 1_000], now), []);
        }
        let logged = lines.push(b"\nnext\n", now);
        assert_eq!(logged, [line(&format!("{} […]", "x".repeat(LINE_MAX_BYTES))), line("next")]);
    }

    #[test]
    fn a_plugin_that_prints_too_much_is_counted_instead() {
        let now = Instant::now();
        let mut lines = Lines::new(now);
        let logged = lines.push(&b"x\n".repeat(1_000), now);
        assert_eq!(logged.len(), LINES_PER_MINUTE_MAX as usize);
        assert_eq!(lines.push(b"later\n", now + MINUTE), [Logged::LeftOut(400), line("later")]);
        assert_eq!(lines.finish(now + MINUTE), []);
    }
}
