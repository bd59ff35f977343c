//! What is looked up at each scrape: counters of the actors, the journal, and how many pods and containers there are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;

use crate::catalogue::{Book, Kind};
use crate::labels::{Outcome, Phase, Version, word};

/// Who knows the state of a runtime without asking anybody.
pub trait Source: fmt::Debug + Send + Sync {
    /// The state now. Called at each scrape; answers at once.
    fn state(&self) -> State;
}

/// What a runtime is and has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Calls that were passed on to a pod or container.
    pub calls_routed: u64,
    /// Calls that were refused because an inbox was full.
    pub calls_refused: u64,
    /// Exits that came before their container was registered.
    pub exits_parked: u64,
    /// Exits that changed the state of a container or exec.
    pub exits_delivered: u64,
    /// Exits that changed nothing.
    pub exits_absorbed: u64,
    /// Exits that nobody claimed by their deadline.
    pub exits_unclaimed: u64,
    /// The journal and its store.
    pub journal: Journal,
    /// Pulls of images.
    pub pulls: Pulls,
    /// Pods by phase.
    pub sandboxes: BTreeMap<&'static str, u64>,
    /// Containers by phase.
    pub containers: BTreeMap<&'static str, u64>,
    /// Containers that are frozen.
    pub containers_paused: u64,
}

/// The journal and its store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// The number of the newest entry.
    pub last: u64,
    /// Entries that were written.
    pub entries: u64,
    /// Their length as they are written, in bytes.
    pub entry_bytes: u64,
    /// Commits that were written.
    pub commits: u64,
    /// Commits that failed, or were not answered in time.
    pub commits_failed: u64,
    /// Transactions that commits were written in.
    pub transactions: u64,
    /// Time that these took, in microseconds.
    pub write_us: u64,
    /// Facts on which no state depends, and which were dropped.
    pub facts_lost: u64,
    /// Commits that wait for the writer.
    pub queue: u64,
    /// How many may.
    pub queue_max: u64,
    /// Readers of the journal that have a place in it.
    pub subscribers: u64,
    /// How far the slowest of them is behind, in entries.
    pub subscriber_lag: u64,
    /// Entries that were trimmed before a subscriber had read them.
    pub entries_missed: u64,
}

/// Pulls of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// Begun.
    pub started: u64,
    /// Callers who joined one that was under way.
    pub joined: u64,
    /// Ended with the image.
    pub succeeded: u64,
    /// Failed, time-outs among them.
    pub failed: u64,
    /// Given up because nobody waited any more.
    pub cancelled: u64,
    /// Given up because nothing moved, questions to a registry among them.
    pub timed_out: u64,
}

/// A number that is looked up.
struct Looked {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&State) -> u64,
}

const fn counter(name: &'static str, help: &'static str, value: fn(&State) -> u64) -> Looked {
    Looked { name, kind: Kind::Counter, help, value }
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&State) -> u64) -> Looked {
    Looked { name, kind: Kind::Gauge, help, value }
}

const LOOKED: &[Looked] = &[
    counter("calls_routed", "Calls that the router passed on to a pod or container", |s| s.calls_routed),
    counter(
        "calls_refused",
        "Calls that were refused because the inbox of a pod or container was full",
        |s| s.calls_refused,
    ),
    counter(
        "exits_parked",
        "Exits that came before their container was registered, and waited for it",
        |s| s.exits_parked,
    ),
    counter("exits_delivered", "Exits that changed the state of a container or exec", |s| s.exits_delivered),
    counter("exits_absorbed", "Exits that changed nothing: of something torn down, or reported again", |s| {
        s.exits_absorbed
    }),
    counter("exits_unclaimed", "Exits that nobody had claimed by their deadline", |s| s.exits_unclaimed),
    counter("journal_entries", "Entries that were written to the journal", |s| s.journal.entries),
    counter("journal_entry_bytes", "Length of the entries that were written to the journal", |s| {
        s.journal.entry_bytes
    }),
    counter("journal_commits", "Commits of records and entries that are durable", |s| s.journal.commits),
    counter("journal_commit_failures", "Commits that failed, or were not answered in time", |s| {
        s.journal.commits_failed
    }),
    counter("journal_transactions", "Transactions that commits were written in", |s| s.journal.transactions),
    counter(
        "journal_facts_lost",
        "Facts on which no state depends, dropped because the store did not keep up",
        |s| s.journal.facts_lost,
    ),
    counter("journal_entries_missed", "Entries that were trimmed before a subscriber had read them", |s| {
        s.journal.entries_missed
    }),
    gauge("journal_last_entry", "Number of the newest entry of the journal", |s| s.journal.last),
    gauge("journal_queue_commits", "Commits that wait for the writer of the store", |s| s.journal.queue),
    gauge("journal_queue_limit_commits", "Commits that may wait for the writer of the store", |s| {
        s.journal.queue_max
    }),
    gauge("journal_subscribers", "Readers that have a place in the journal, the metrics among them", |s| {
        s.journal.subscribers
    }),
    gauge(
        "journal_subscriber_lag_entries",
        "How far the slowest subscriber is behind the newest entry",
        |s| s.journal.subscriber_lag,
    ),
    counter("image_pulls_started", "Pulls of images that were begun", |s| s.pulls.started),
    counter("image_pulls_joined", "Callers who joined a pull that was under way", |s| s.pulls.joined),
    counter(
        "image_pull_timeouts",
        "Pulls, and questions to a registry, that were given up because nothing moved",
        |s| s.pulls.timed_out,
    ),
    gauge("image_pulls_running", "Pulls that are under way", |s| s.pulls.running()),
    gauge("containers_paused", "Containers whose processes are frozen", |s| s.containers_paused),
];

const WRITE_SECONDS: (&str, &str) =
    ("journal_write_seconds", "Time that the transactions of the store took, all together");
const PULLS: (&str, &str) = ("image_pulls", "Pulls of images that have ended, by how");
const SANDBOXES: (&str, &str) = ("sandboxes", "Pods by phase");
const CONTAINERS: (&str, &str) = ("containers", "Containers by phase");

impl Pulls {
    fn running(&self) -> u64 {
        self.started.saturating_sub(self.succeeded + self.failed + self.cancelled)
    }

    fn ended(&self) -> [(&'static str, u64); 3] {
        [("succeeded", self.succeeded), ("failed", self.failed), ("cancelled", self.cancelled)]
    }
}

struct Lookup(Arc<dyn Source>);

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

pub(crate) fn register_version(book: &mut Book<'_>, version: &str) {
    let info = Info::new(Version { version: version.to_owned() });
    let help = "The version of the runtime";
    book.registry.register("build", help, info);
    book.describe("build", Kind::Info, &["version"], help);
}

pub(crate) fn register(book: &mut Book<'_>, source: Arc<dyn Source>) {
    for Looked { name, kind, help, .. } in LOOKED {
        book.describe(name, *kind, &[], help);
    }
    book.describe(WRITE_SECONDS.0, Kind::Counter, &[], WRITE_SECONDS.1);
    book.describe(PULLS.0, Kind::Counter, &["outcome"], PULLS.1);
    book.describe(SANDBOXES.0, Kind::Gauge, &["phase"], SANDBOXES.1);
    book.describe(CONTAINERS.0, Kind::Gauge, &["phase"], CONTAINERS.1);
    book.registry.register_collector(Box::new(Lookup(source)));
}

impl Collector for Lookup {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.0.state();
        for Looked { name, kind, help, value } in LOOKED {
            let value = value(&state);
            match kind {
                Kind::Counter => one(&mut encoder, name, help, &ConstCounter::new(value))?,
                _ => one(&mut encoder, name, help, &ConstGauge::new(value))?,
            }
        }
        let seconds = state.journal.write_us as f64 / 1e6;
        one(&mut encoder, WRITE_SECONDS.0, WRITE_SECONDS.1, &ConstCounter::new(seconds))?;
        let mut pulls = family(&mut encoder, PULLS, &ConstCounter::new(0_u64))?;
        for (outcome, ended) in state.pulls.ended() {
            ConstCounter::new(ended).encode(pulls.encode_family(&Outcome { outcome })?)?;
        }
        phases(&mut encoder, SANDBOXES, &state.sandboxes)?;
        phases(&mut encoder, CONTAINERS, &state.containers)
    }
}

fn one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    // The registry ends its own help texts with a full stop.
    metric.encode(encoder.encode_descriptor(name, &format!("{help}."), None, metric.metric_type())?)
}

fn family<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    (name, help): (&'static str, &str),
    of: &impl EncodeMetric,
) -> Result<prometheus_client::encoding::MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, &format!("{help}."), None, of.metric_type())
}

fn phases(
    encoder: &mut DescriptorEncoder<'_>,
    named: (&'static str, &str),
    numbers: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    let mut phases = family(encoder, named, &ConstGauge::new(0_u64))?;
    for (phase, number) in numbers {
        ConstGauge::new(*number).encode(phases.encode_family(&Phase { phase: word(phase) })?)?;
    }
    Ok(())
}
