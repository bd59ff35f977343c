//! Metrics of one runtime: what is counted, and how it is shown to Prometheus and to people.
//!
//! ```text
//!   journal ──► Facts ───┐  each entry once, as a subscriber like any other
//!   audits ───► Audits ──┼──► registry ──► text ──► socket, `mainstay metrics`, embedding program
//!   Source ───► State ───┘  asked at each scrape: counters and published snapshots
//! ```
//!
//! Owns: the names, their labels and buckets ([`Catalogue`], METRICS.md), the counting of journal entries, the endpoint
//! ([`http`]). Never: asks an actor, a disk or the kernel while it is scraped (P6), keeps a number beyond the end of the
//! process (all of them begin at 0 with it), or puts an id or a free text into a label: names that come from outside are
//! counted as `other` beyond [`labels::NAMES_MAX`].

mod audits;
mod catalogue;
pub mod exposition;
mod facts;
pub mod http;
pub mod labels;
mod pending;
mod sagas;
mod settings;
mod state;

use std::sync::Arc;

use mainstay_messages::event::{Event, Seq};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

pub use audits::{Audited, FindingKind, Found, Running};
pub use catalogue::{Catalogue, Entry, Kind};
pub use settings::{MetricsSettings, SOCKET_FILE};
pub use state::{Journal, Pulls, Source, State};

/// What all names begin with.
pub const PREFIX: &str = "mainstay";

/// A text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// That of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

/// The metrics of one runtime.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    catalogue: Catalogue,
    facts: facts::Facts,
    audits: audits::Audits,
}

impl Metrics {
    /// All metrics, at 0; `source` is asked at each scrape and must answer at once.
    pub fn new(version: &str, source: Arc<dyn Source>) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let mut catalogue = Catalogue::default();
        let mut book = catalogue::Book::new(&mut registry, &mut catalogue);
        state::register_version(&mut book, version);
        let facts = facts::Facts::register(&mut book);
        let audits = audits::Audits::register(&mut book);
        state::register(&mut book, source);
        Self { registry, catalogue, facts, audits }
    }

    /// Counts a journal entry.
    pub fn observe(&self, event: &Event) {
        self.facts.observe(event);
    }

    /// Journal entries were trimmed before they could be counted.
    pub fn missed(&self, from: Seq, to: Seq) {
        self.facts.missed(from, to);
    }

    /// Shows what an audit has found.
    pub fn audited(&self, audited: &Audited) {
        self.audits.show(audited);
    }

    /// An audit could not be done.
    pub fn audit_failed(&self) {
        self.audits.failed();
    }

    /// All that there may be.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What a scraper gets.
    pub fn text(&self, format: Format) -> String {
        let mut out = String::new();
        let written = match format {
            Format::Prometheus => prometheus_text::encode(&mut out, &self.registry),
            Format::OpenMetrics => text::encode(&mut out, &self.registry),
        };
        // A string takes all that is written to it.
        debug_assert!(written.is_ok());
        out
    }
}

#[cfg(test)]
mod tests;
