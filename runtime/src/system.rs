//! The wiring: opens the store, starts the actors on a thread of their own, connects them, and has what was there
//! adopted. No decision is made here.
//!
//! ```text
//!   caller's tokio            thread "mainstay-actors"                 threads of the store
//!   Runtime ── Addr ────────► Router, Sandbox, Container, Journal ───► writer, reader
//!           ── Directory ───► (published snapshots)
//!           ── Pulls ───────► ImagePulls, ImagePull                  threads of the pull engine
//!           ── NodeImages ──► (blocking threads of the caller)
//!                             ShimSupervisor ── ttrpc ──► shims
//! ```

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use actix::{Actor, Addr};
use mainstay_actors::image::Pulls;
use mainstay_actors::ports::{Clock, Ids, Loaded, Ports, Store, Supervisor};
use mainstay_actors::{Core, Counters, Directory, EventLog, HowDown, Parts, Recover, Router};
use mainstay_messages::error::chain;
use mainstay_messages::event::Seq;
use mainstay_messages::id::ID_BYTES;
use mainstay_messages::{Error, Result, Timestamp};
use mainstay_metrics::Metrics;
use mainstay_store::{Options, SqliteStore};
use mainstay_supervisor::nri::Nri;
use mainstay_supervisor::paths::Directories;
use mainstay_supervisor::{
    Claim, Lifetime, OomScorePolicy, PodNetworks, Program, ShimSupervisor, SupervisorSettings, identity,
};
use rustix::rand::GetRandomFlags;
use tokio::sync::oneshot;

use crate::audit::{Known, UnderWay, audit_forever};
use crate::closing::{Closed, Closing};
use crate::config::{self, Config, ShimLifetime};
use crate::images::{ImageStore, Keep, NodeImages, Opening, Records, Source};
use crate::lost;
use crate::metrics::{Published, count_forever};
use crate::networks::Networks;
use crate::plugins::Plugins;
use crate::usage::{self, Samples};

/// The file of the store in the root directory.
pub const STORE_FILE: &str = "store.db";

/// A running system.
pub(crate) struct System {
    pub(crate) config: Config,
    pub(crate) directory: Directory,
    pub(crate) event_log: EventLog,
    pub(crate) router: Addr<Router>,
    pub(crate) supervisor: Addr<ShimSupervisor>,
    pub(crate) nri: Option<Nri>,
    pub(crate) directories: Directories,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) pulls: Pulls,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) known: Mutex<Known>,
    pub(crate) under_way: UnderWay,
    pub(crate) networks: Arc<Networks>,
    pub(crate) samples: Samples,
    pub(crate) began_after: Seq,
    counters: Arc<Counters>,
    store: Arc<SqliteStore>,
    actors: Mutex<Option<Actors>>,
    closing: Closing,
}

/// The thread of the actors.
struct Actors {
    system: actix::System,
    thread: JoinHandle<()>,
}

/// What the thread of the actors answers when it is ready.
struct Ready {
    core: Core,
    images: Arc<NodeImages>,
    pulls: Pulls,
    metrics: Arc<Metrics>,
    supervisor: Addr<ShimSupervisor>,
    nri: Option<Nri>,
    networks: Arc<Networks>,
    began_after: Seq,
    store: Arc<SqliteStore>,
    system: actix::System,
}

impl System {
    /// See [`crate::Runtime::start`]. `throw_away` goes with everything else when this process is killed.
    pub(crate) async fn start(config: Config, throw_away: Option<PathBuf>) -> Result<Arc<Self>> {
        let settings = SupervisorSettings { throw_away, ..settings(&config) };
        let parts = config.clone();
        let directories = settings.directories();
        let (sender, ready) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("mainstay-actors".into())
            .spawn(move || run_actors(settings, &parts, sender))
            .map_err(|error| Error::unavailable("a thread for the actors", error))?;
        let stopped = |_| Error::internal("the actors", "their thread ended before it was ready");
        let Ready { core, images, pulls, metrics, supervisor, nri, networks, began_after, store, system } =
            ready.await.map_err(stopped)??;
        let Core { router, events, directory, counters, .. } = core;
        let arbiter = system.arbiter().clone();
        let actors = Mutex::new(Some(Actors { system, thread }));
        let (interval_ms, disk_ms) = (config.audit.interval_ms, config.usage.disk_interval_ms);
        let system = Arc::new(Self {
            config,
            directory,
            event_log: events,
            router,
            supervisor,
            nri,
            directories,
            images,
            pulls,
            metrics,
            known: Mutex::default(),
            under_way: UnderWay::default(),
            networks,
            samples: Samples::default(),
            began_after,
            counters,
            store,
            actors,
            closing: Closing::new(),
        });
        if interval_ms > 0 {
            arbiter.spawn(audit_forever(Arc::downgrade(&system), Duration::from_millis(interval_ms)));
        }
        if disk_ms > 0 {
            arbiter.spawn(usage::count_forever(Arc::downgrade(&system), Duration::from_millis(disk_ms)));
        }
        Ok(system)
    }

    /// Hears of the end of this system.
    pub(crate) fn closed(&self) -> Closed {
        self.closing.listen()
    }

    /// Ends the actors, then the store. What they had asked of the store is written. Whoever waits is told first.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.closing.say();
        let actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Actors { system, thread }) = actors else { return Ok(()) };
        system.stop();
        let (store, networks) = (Arc::clone(&self.store), Arc::clone(&self.networks));
        let joined = tokio::task::spawn_blocking(move || {
            let joined = thread.join();
            networks.close();
            store.close();
            joined
        });
        let joined = joined.await;
        self.images.shut().await;
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err(Error::internal("the actors", "their thread panicked")),
        }
    }

    /// What the actors count, by name.
    /// What is wrong with the store, as far as its last write tells.
    pub(crate) fn store_trouble(&self) -> Option<mainstay_store::Trouble> {
        self.store.written().trouble()
    }

    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let counters = &self.counters;
        [
            ("calls_routed", counters.routed.get()),
            ("calls_refused", counters.refused.get()),
            ("exits_parked", counters.parked.get()),
            ("exits_delivered", counters.delivered.get()),
            ("exits_absorbed", counters.absorbed.get()),
            ("exits_unclaimed", counters.unclaimed.get()),
            ("actor_restarts", counters.restarts.get()),
            ("commits_failed", counters.failed_commits.get()),
            ("facts_lost", counters.lost_notes.get()),
            ("store_commits", self.store.written().commits()),
            ("store_transactions", self.store.written().transactions()),
            ("store_write_us", self.store.written().write_us()),
            ("image_pulls_started", counters.pulls_started.get()),
            ("image_pulls_joined", counters.pulls_joined.get()),
            ("image_pulls_succeeded", counters.pulls_succeeded.get()),
            ("image_pulls_failed", counters.pulls_failed.get()),
            ("image_pulls_cancelled", counters.pulls_cancelled.get()),
            ("image_pulls_timed_out", counters.pulls_timed_out.get()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Some(Actors { system, .. }) =
            self.actors.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            // Nobody waits: whoever wants to be sure that it has ended calls `Runtime::close`.
            system.stop();
        }
    }
}

fn settings(config: &Config) -> SupervisorSettings {
    let mut settings = SupervisorSettings::new(&config.state_dir, &config.root_dir);
    settings.cgroup_parent = config.cgroup_parent.clone();
    settings.program = config.shim_program.clone().map_or(Program::SelfExe, Program::Path);
    settings.lifetime = match config.shims {
        ShimLifetime::Outlive => Lifetime::Outlive,
        ShimLifetime::WithRuntime => Lifetime::WithRuntime,
    };
    settings.oom_score = match config.oom_score_adj {
        config::OomScorePolicy::Clamp => OomScorePolicy::Clamp,
        config::OomScorePolicy::Refuse => OomScorePolicy::Refuse,
    };
    settings.netns_dir.clone_from(&config.network.netns_dir);
    settings.cdi_dirs.clone_from(&config.cdi_dirs);
    settings.user_namespaces = config.user_namespaces;
    settings.handlers = config.handler.handlers();
    settings.timeouts = config.timeouts.clone();
    settings
}

/// The body of the actors' thread.
fn run_actors(settings: SupervisorSettings, config: &Config, sender: oneshot::Sender<Result<Ready>>) {
    let runner = actix::System::new();
    match runner.block_on(start_actors(settings, config)) {
        Ok(ready) => {
            if sender.send(Ok(ready)).is_err() {
                // Whoever started it has left.
                return;
            }
            if let Err(error) = runner.run() {
                tracing::error!(%error, "the event loop of the actors failed");
            }
        }
        Err(error) => {
            // The receiver may have left; then nobody wants to know.
            let _ = sender.send(Err(error));
        }
    }
}

async fn start_actors(settings: SupervisorSettings, config: &Config) -> Result<Ready> {
    // Before anything is looked at: what another runtime has is none of our business.
    let claim = Claim::take(&settings)?;
    let boot_id = identity::boot_id().map_err(|error| Error::unavailable("the boot id", error))?;
    let path = settings.root_dir.join(STORE_FILE);
    let limits = config.store;
    let keep = if settings.throw_away.is_some() { Keep::WhileUsed } else { Keep::WhileRunning };
    let options = Options {
        boot_id: boot_id.clone(),
        commit_queue_max: limits.commit_queue_max,
        read_queue_max: limits.read_queue_max,
        events_kept_max: limits.events_kept_max,
        bytes_max: limits.bytes_max,
        busy_timeout_ms: limits.busy_timeout_ms,
    };
    let opened =
        SqliteStore::open(&path, options).map_err(|error| Error::unavailable("the store", chain(&error)))?;
    if let Some(aside) = &opened.set_aside {
        tracing::error!(aside = %aside.display(), "the store could not be read and was set aside; it begins empty");
    }
    let store = Arc::new(opened.store);
    let mut loaded = store.load().await?;
    let how = how_down(&loaded, &boot_id);
    let began_after = loaded.last;
    let root_dir = settings.root_dir.clone();
    let written = written_to(&store);
    let networks = Arc::new(Networks::new(config, settings.namespace_names()));
    let places = lost::Places { directories: &settings.directories(), networks: &networks };
    lost::bring_back(&*written, &mut loaded, places, opened.set_aside.as_deref()).await;
    let records = if loaded.damaged.is_empty() { Records::Whole } else { Records::Damaged };
    let ports = Ports { store: written, clock: Arc::new(WallClock), ids: Arc::new(KernelRandom) };
    let parts = Parts { ports, log_dir: settings.directories().logs(), last: loaded.last };
    let connected = Arc::clone(&networks) as Arc<dyn PodNetworks>;
    let (mut supervisor, mut plugins) = (None, None);
    let core = Core::start(parts, |facts| {
        let noted = facts.noted.clone();
        let mut actor =
            ShimSupervisor::new(settings, claim, connected, facts.exited, facts.died, facts.noted)?;
        plugins = Plugins::begin(&config.nri, &config.cgroup_parent, noted);
        if let Some(plugins) = &plugins {
            actor = actor.with_plugins(plugins.handle());
        }
        Ok::<_, Error>(Supervisor::of(supervisor.insert(actor.start())))
    })?;
    let supervisor =
        supervisor.ok_or_else(|| Error::internal("the actors", "they began without a supervisor"))?;
    let metrics = measure(&core, &store);
    let closed = |_| Error::internal("the router", "it ended while it was started");
    if let Some(plugins) = &plugins {
        // Pods come back without it (P5): what it costs is that plugins do not hear of ends that came before.
        if let Err(error) = plugins.welcome(&supervisor, &loaded).await {
            tracing::error!(%error, "what plugins were told of pods could not be read; they may not hear of ends that they are owed");
        }
    }
    core.router.send(Recover { loaded, how }).await.map_err(closed)?;
    if let Some(plugins) = &plugins {
        plugins.open(&core);
    }
    let opening = Opening {
        directory: config.images.directory_in(&root_dir),
        boot_id,
        settings: config.images.clone(),
    };
    let image_store = Arc::new(ImageStore::new(opening, keep));
    let pulls = core.start_pulls(Arc::new(Source(Arc::clone(&image_store))), config.images.patience());
    let images = Arc::new(NodeImages::new(image_store, root_dir, core.directory.clone(), records));
    actix::spawn(Arc::clone(&images).collect_forever(config.images.gc_interval_ms));
    let nri = plugins.map(|plugins| plugins.handle());
    Ok(Ready {
        core,
        images,
        pulls,
        metrics,
        supervisor,
        nri,
        networks,
        began_after,
        store,
        system: actix::System::current(),
    })
}

/// Counts from now on.
fn measure(core: &Core, store: &Arc<SqliteStore>) -> Arc<Metrics> {
    let published = Published {
        counters: Arc::clone(&core.counters),
        directory: core.directory.clone(),
        events: core.events.clone(),
        store: Arc::clone(store),
    };
    let metrics = Arc::new(Metrics::new(crate::VERSION, Arc::new(published)));
    let journal = core.events.subscribe(core.events.last());
    actix::spawn(count_forever(journal, Arc::clone(&metrics)));
    metrics
}

/// The store as the actors see it.
#[cfg(not(feature = "faults"))]
fn written_to(store: &Arc<SqliteStore>) -> Arc<dyn Store> {
    Arc::clone(store) as Arc<dyn Store>
}

/// The store as the actors see it: one that fails where a test wants it to.
#[cfg(feature = "faults")]
fn written_to(store: &Arc<SqliteStore>) -> Arc<dyn Store> {
    Arc::new(crate::faults::StruckStore::new(Arc::clone(store) as Arc<dyn Store>))
}

/// Whether the machine was rebooted since the last run.
fn how_down(loaded: &Loaded, boot_id: &str) -> HowDown {
    match &loaded.boot_id {
        Some(before) if before != boot_id => HowDown::Rebooted,
        _ => HowDown::Restarted,
    }
}

/// The clock of the machine.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_system(SystemTime::now())
    }
}

/// The kernel's random numbers.
struct KernelRandom;

impl Ids for KernelRandom {
    fn random(&self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        // getrandom(2) fills up to 256 bytes at once, and fails only for bad arguments.
        let filled = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty());
        assert_eq!(filled, Ok(ID_BYTES), "the kernel's random numbers");
        bytes
    }
}
