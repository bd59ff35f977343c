//! How a pull is shown while it goes on: bars for people at a terminal, a line for each layer that is done where there is
//! none, a document a line for programs. All of it but the documents goes to standard error.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use mainstay_messages::image::{PullActivity, PullProgress};

use crate::failure::{Failure, Result};
use crate::output::{self, tell};
use crate::view;

/// Digits of a digest that are shown.
const DIGEST_DIGITS: usize = 12;
/// How a layer whose length is known is shown.
const BAR: &str = "{prefix:12}  {bar:30}  {bytes:>10} of {total_bytes:<10}  {msg}";
/// How anything else is.
const WORDS: &str = "{prefix:12}  {msg}";

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// For nobody.
    Not,
    /// For people.
    ToPeople,
    /// For programs.
    Json,
}

/// One pull.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    bars: Option<MultiProgress>,
    parts: BTreeMap<String, ProgressBar>,
}

impl Progress {
    /// A pull of `name`.
    pub fn new(name: &str, shown: Shown) -> Self {
        let terminal = std::io::stderr().is_terminal();
        if shown == Shown::ToPeople && !terminal {
            tell(format!("fetching {name}"));
        }
        let bars = (shown == Shown::ToPeople && terminal).then(MultiProgress::new);
        Self { shown, bars, parts: BTreeMap::new() }
    }

    /// Shows what has happened.
    pub fn show(&mut self, progress: &PullProgress) -> Result<()> {
        match (self.shown, self.bars.is_some()) {
            (Shown::Not, _) => {}
            (Shown::Json, _) => output::print(&view::line(progress)).map_err(Failure::Output)?,
            (Shown::ToPeople, true) => self.draw(progress),
            (Shown::ToPeople, false) => {
                if let Some(line) = line(progress) {
                    tell(line);
                }
            }
        }
        Ok(())
    }

    /// Takes the bars away.
    pub fn end(&mut self) {
        if let Some(bars) = &self.bars {
            // A terminal that is gone shows nothing.
            let _ = bars.clear();
        }
    }

    fn draw(&mut self, progress: &PullProgress) {
        match progress {
            PullProgress::Resolved { layers, .. } => {
                for layer in layers {
                    self.bar(&layer.digest, Some(layer.bytes)).set_message(word(PullActivity::Waiting));
                }
            }
            PullProgress::Part { part, activity, bytes, of } => {
                let bar = self.bar(part, *of);
                bar.set_position(*bytes);
                bar.set_message(word(*activity));
            }
            PullProgress::Retry { part, reason, .. } => {
                self.bar(part, None).set_message(format!("again: {}", crate::table::printable(reason)));
            }
        }
    }

    fn bar(&mut self, part: &str, of: Option<u64>) -> &ProgressBar {
        let bars = &self.bars;
        let bar = self.parts.entry(part.to_owned()).or_insert_with(|| {
            let bar = ProgressBar::new(0).with_prefix(short(part).to_owned());
            match bars {
                Some(bars) => bars.add(bar),
                None => bar,
            }
        });
        if let Some(of) = of
            && bar.length() != Some(of)
        {
            bar.set_length(of);
        }
        let template = if bar.length().is_some_and(|length| length > 0) { BAR } else { WORDS };
        // Both templates are fixed and drawn in a test.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    }
}

/// What is worth a line where no bar can move.
fn line(progress: &PullProgress) -> Option<String> {
    match progress {
        PullProgress::Part { part, activity: PullActivity::Done, .. } => {
            Some(format!("{}: done", short(part)))
        }
        PullProgress::Retry { part, reason, after_ms } => {
            Some(format!("{}: {reason}; again in {after_ms} ms", short(part)))
        }
        PullProgress::Part { .. } | PullProgress::Resolved { .. } => None,
    }
}

/// A digest as tables show it.
fn short(part: &str) -> &str {
    match part.split_once(':') {
        Some((_, digits)) => digits.get(..DIGEST_DIGITS).unwrap_or(digits),
        None => part,
    }
}

fn word(activity: PullActivity) -> &'static str {
    match activity {
        PullActivity::Waiting => "waiting",
        PullActivity::Connecting => "connecting",
        PullActivity::Fetching => "fetching",
        PullActivity::Verifying => "verifying",
        PullActivity::Unpacking => "unpacking",
        PullActivity::Syncing => "syncing",
        PullActivity::Done => "done",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_sound() {
        for template in [BAR, WORDS] {
            ProgressStyle::with_template(template).expect("a template");
        }
    }

    #[test]
    fn where_no_bar_can_move_there_is_a_line_for_what_counts() {
        let part = |activity| PullProgress::Part {
            part: format!("sha256:{}", "ab".repeat(32)),
            activity,
            bytes: 1,
            of: None,
        };
        assert_eq!(line(&part(PullActivity::Fetching)), None);
        assert_eq!(line(&part(PullActivity::Done)).as_deref(), Some("abababababab: done"));
        let retry = PullProgress::Retry { part: "manifest".into(), reason: "503".into(), after_ms: 7 };
        assert_eq!(line(&retry).as_deref(), Some("manifest: 503; again in 7 ms"));
    }
}
