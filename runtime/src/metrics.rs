//! The metrics of a runtime: counting what the journal says, looking up what is published, and the endpoint of a daemon.
//!
//! Owns: the wiring of `mainstay-metrics` to the actors, the store and the sockets. Never: asks an actor, or decides what is
//! counted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay_actors::{Counters, Directory, EventLog, Item, Subscription};
use mainstay_admin::Socket;
use mainstay_messages::error::chain;
use mainstay_messages::record::{ContainerPhase, Paused, SandboxPhase};
use mainstay_metrics::http::{self, Listener};
use mainstay_metrics::{Journal, Metrics, MetricsSettings, Pulls, Source, State};
use mainstay_store::SqliteStore;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use crate::config::Config;

/// The pause after the journal could not be read, in milliseconds.
const COUNT_AGAIN_MS: u64 = 1_000;

/// Where a scrape looks: numbers and snapshots that nobody waits for.
pub(crate) struct Published {
    pub(crate) counters: Arc<Counters>,
    pub(crate) directory: Directory,
    pub(crate) events: EventLog,
    pub(crate) store: Arc<SqliteStore>,
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Published")
    }
}

impl Source for Published {
    fn state(&self) -> State {
        let counters = &self.counters;
        let mut state = State {
            calls_routed: counters.routed.get(),
            calls_refused: counters.refused.get(),
            exits_parked: counters.parked.get(),
            exits_delivered: counters.delivered.get(),
            exits_absorbed: counters.absorbed.get(),
            exits_unclaimed: counters.unclaimed.get(),
            journal: self.journal(),
            pulls: Pulls {
                started: counters.pulls_started.get(),
                joined: counters.pulls_joined.get(),
                succeeded: counters.pulls_succeeded.get(),
                failed: counters.pulls_failed.get(),
                cancelled: counters.pulls_cancelled.get(),
                timed_out: counters.pulls_timed_out.get(),
            },
            sandboxes: SandboxPhase::ALL.iter().map(|phase| (phase.word(), 0)).collect(),
            containers: ContainerPhase::ALL.iter().map(|phase| (phase.word(), 0)).collect(),
            containers_paused: 0,
        };
        for pod in self.directory.sandboxes() {
            *state.sandboxes.entry(pod.record.phase.word()).or_default() += 1;
        }
        for container in self.directory.containers(None) {
            *state.containers.entry(container.record.phase.word()).or_default() += 1;
            state.containers_paused += u64::from(container.record.paused == Paused::Yes);
        }
        state
    }
}

impl Published {
    fn journal(&self) -> Journal {
        let (written, readers) = (self.store.written(), self.events.readers());
        let (queue, queue_max) = self.store.commit_queue();
        Journal {
            last: self.events.last().0,
            entries: written.facts(),
            entry_bytes: written.fact_bytes(),
            commits: written.commits(),
            commits_failed: self.counters.failed_commits.get(),
            transactions: written.transactions(),
            write_us: written.write_us(),
            facts_lost: self.counters.lost_notes.get(),
            queue: queue as u64,
            queue_max: queue_max as u64,
            subscribers: readers.subscribers,
            subscriber_lag: readers.lag,
            entries_missed: readers.missed,
        }
    }
}

/// Counts each entry of the journal, as long as there is one.
pub(crate) async fn count_forever(mut journal: Subscription, metrics: Arc<Metrics>) {
    loop {
        match journal.next().await {
            Ok(Item::Event(event)) => metrics.observe(&event),
            Ok(Item::Lagged { from, to }) => metrics.missed(from, to),
            Err(error) => {
                tracing::warn!(%error, "the metrics could not read the journal");
                tokio::time::sleep(Duration::from_millis(COUNT_AGAIN_MS)).await;
            }
        }
        // The actors, whose thread this is, come first.
        tokio::task::coop::consume_budget().await;
    }
}

/// The endpoint of a daemon: closed, and its socket removed, when it is dropped.
pub(crate) struct Endpoint {
    _socket: Option<Socket>,
    servers: JoinSet<()>,
}

/// Serves metrics where the configuration says. A place that cannot be had is told and left out: containers are worth more than
/// what is said of them.
pub(crate) async fn serve(config: &Config, metrics: &Arc<Metrics>) -> Endpoint {
    let settings = &config.metrics;
    let mut endpoint = Endpoint { _socket: None, servers: JoinSet::new() };
    if let Some(path) = settings.socket_beside(&config.admin_socket) {
        match Socket::bind(&path).map_err(|error| chain(&error)).and_then(listen) {
            Ok((socket, listener)) => {
                endpoint._socket = Some(socket);
                endpoint.add(Listener::Unix(listener), metrics, settings);
            }
            Err(reason) => {
                tracing::error!(socket = %path.display(), %reason, "metrics are not served there");
            }
        }
    }
    if let Some(address) = settings.listen {
        match TcpListener::bind(address).await {
            Ok(listener) => endpoint.add(Listener::Tcp(listener), metrics, settings),
            Err(error) => tracing::error!(%address, %error, "metrics are not served there"),
        }
    }
    endpoint
}

impl Endpoint {
    fn add(&mut self, listener: Listener, metrics: &Arc<Metrics>, settings: &MetricsSettings) {
        let (metrics, settings) = (Arc::clone(metrics), settings.clone());
        self.servers.spawn(async move { match http::serve(listener, metrics, settings).await {} });
    }
}

fn listen(socket: Socket) -> std::result::Result<(Socket, UnixListener), String> {
    let listener = socket.listener().and_then(UnixListener::from_std);
    listener.map(|listener| (socket, listener)).map_err(|error| error.to_string())
}
