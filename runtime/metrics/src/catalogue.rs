//! All metrics by name, with what they mean: from the same calls that register them, so that the page, the dashboard and the
//! alerts can be checked against what there is. A family without a value is not in a scrape, and is in here.

use std::fmt;

use prometheus_client::registry::{Metric, Registry};

use crate::PREFIX;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

/// A metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in a scrape, but for what a histogram adds (`_bucket`, `_sum`, `_count`).
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one sentence without its full stop.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
    /// Always 1; its labels say something.
    Info,
}

/// Where metrics are registered: a registry, and the catalogue beside it.
pub(crate) struct Book<'a> {
    pub(crate) registry: &'a mut Registry,
    catalogue: &'a mut Catalogue,
}

impl<'a> Book<'a> {
    pub(crate) fn new(registry: &'a mut Registry, catalogue: &'a mut Catalogue) -> Self {
        Self { registry, catalogue }
    }

    /// Registers a metric and gives it back.
    pub(crate) fn add<M: Metric + Clone>(
        &mut self,
        name: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        self.registry.register(name, help, metric.clone());
        self.describe(name, kind, labels, help);
        metric
    }

    /// Notes a metric that a collector shows.
    pub(crate) fn describe(
        &mut self,
        name: &str,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
    ) {
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let name = format!("{PREFIX}_{name}{suffix}");
        self.catalogue.entries.push(Entry { name, kind, labels, help });
    }
}

impl Catalogue {
    /// All of them, in the order of a scrape.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The metric that a series is of, whose name may end as a histogram's parts do.
    pub fn entry_of(&self, series: &str) -> Option<&Entry> {
        let parts = ["_bucket", "_sum", "_count"];
        let family = parts.iter().find_map(|part| series.strip_suffix(part));
        self.entries.iter().find(|entry| {
            entry.name == series || (entry.kind == Kind::Histogram && Some(entry.name.as_str()) == family)
        })
    }
}

impl fmt::Display for Catalogue {
    /// The table of METRICS.md.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| metric | kind | labels | what it says |\n|---|---|---|---|")?;
        for Entry { name, kind, labels, help } in &self.entries {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            writeln!(f, "| `{name}` | {kind} | {labels} | {help} |")?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        })
    }
}
