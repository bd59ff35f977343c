//! The plugins of a runtime: what they see, what they may do, and how they begin. No decision is made here.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use actix::{Addr, Recipient};
use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_actors::ports::Loaded;
use mainstay_actors::router::{Routed, Router};
use mainstay_actors::{Core, Directory};
use mainstay_messages::container::{StopContainer, UpdateContainer};
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Subject, What};
use mainstay_messages::plugin::{PluginFail, PluginNeed, PluginState, PluginStatus};
use mainstay_messages::record::{SandboxPhase, SandboxRecord};
use mainstay_messages::router::Noted;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::Consult;
use mainstay_messages::{ContainerId, Error, Result, SandboxId};
use mainstay_supervisor::nri::adjust::{self, PodFacts};
use mainstay_supervisor::nri::api::{Container, PodSandbox};
use mainstay_supervisor::nri::gate::Gate;
use mainstay_supervisor::nri::hook::Object;
use mainstay_supervisor::nri::line;
use mainstay_supervisor::nri::name::PluginName;
use mainstay_supervisor::nri::plugin::state::Phase;
use mainstay_supervisor::nri::policy::FailPolicy;
use mainstay_supervisor::nri::roster::Parting;
use mainstay_supervisor::nri::{Nri, NriParts, NriSettings};
use mainstay_supervisor::{PluginCame, ShimSupervisor, WelcomePlugins};

use crate::system::System;

/// The plugins of a runtime while it begins.
pub(crate) struct Plugins {
    nri: Nri,
    node: Arc<Node>,
    supervisor: Rc<OnceCell<Addr<ShimSupervisor>>>,
    gate: Rc<OnceCell<Gate>>,
}

/// What plugins see of the runtime, and what they may do in it.
struct Node {
    cgroup_parent: String,
    wired: OnceLock<Wired>,
}

/// The actors that a node speaks for.
struct Wired {
    directory: Directory,
    router: Addr<Router>,
}

impl Plugins {
    /// Begins with them, if there may be any. On the thread of the actors.
    pub(crate) fn begin(
        settings: &NriSettings,
        cgroup_parent: &str,
        journal: Recipient<Noted>,
    ) -> Option<Self> {
        if !settings.enable {
            return None;
        }
        let node = Arc::new(Node { cgroup_parent: cgroup_parent.to_owned(), wired: OnceLock::new() });
        let supervisor: Rc<OnceCell<Addr<ShimSupervisor>>> = Rc::default();
        let gate: Rc<OnceCell<Gate>> = Rc::default();
        let (to, arrivals) = (Rc::clone(&supervisor), journal.clone());
        let (open, departures) = (Rc::clone(&gate), journal.clone());
        let nri = Nri::start(NriParts {
            settings: settings.clone(),
            node: Arc::clone(&node) as Arc<dyn line::Node>,
            journal,
            arrivals: Box::new(move |plugin| {
                arrivals.do_send(noted(What::PluginReady { plugin: plugin.to_string() }));
                if let Some(supervisor) = to.get() {
                    supervisor.do_send(PluginCame(plugin));
                }
            }),
            departures: Box::new(move |departure| {
                let (plugin, reason) = (departure.plugin.to_string(), departure.reason);
                departures.do_send(noted(What::PluginGone { plugin, reason }));
                if let (Parting::GivenUp, Some(gate)) = (departure.parting, open.get()) {
                    gate.gave_up(&departure.plugin);
                }
            }),
        });
        Some(Self { nri, node, supervisor, gate })
    }

    /// The handle.
    pub(crate) fn handle(&self) -> Nri {
        self.nri.clone()
    }

    /// What was there before is known to them. Before anything is done with it.
    pub(crate) async fn welcome(&self, supervisor: &Addr<ShimSupervisor>, loaded: &Loaded) -> Result<()> {
        // Nobody else sets it.
        let _ = self.supervisor.set(supervisor.clone());
        let pods = loaded.sandboxes.iter().map(|record| record.id.clone()).collect();
        let message = WelcomePlugins { pods, present: present(loaded) };
        supervisor.send(message).await.map_err(|error| Error::unavailable("the supervisor", error))?
    }

    /// They can connect from now on.
    pub(crate) fn open(&self, core: &Core) {
        let wired = Wired { directory: core.directory.clone(), router: core.router.clone() };
        // Nobody else sets them.
        let _ = self.node.wired.set(wired);
        let _ = self.gate.set(Gate::open(self.nri.clone()));
    }
}

/// What plugins are told of when they come: what is not about to be undone.
fn present(loaded: &Loaded) -> BTreeSet<Object> {
    let whole = |record: &&SandboxRecord| match record.phase {
        SandboxPhase::Starting => false,
        // Without a shim it never was ready.
        SandboxPhase::NotReady => record.shim.is_some(),
        _ => true,
    };
    let pods = loaded.sandboxes.iter().filter(whole).map(|record| Object::Pod(record.id.clone()));
    let containers = loaded.containers.iter();
    let containers = containers.map(|record| Object::Container(record.sandbox.clone(), record.id.clone()));
    pods.chain(containers).collect()
}

fn noted(what: What) -> Noted {
    Noted { subject: Subject { sandbox: None, container: None, exec: None }, what }
}

impl Node {
    fn facts(&self, pod: &SandboxRecord) -> PodFacts {
        PodFacts::of(pod, pod.cgroup(&self.cgroup_parent))
    }
}

impl line::Node for Node {
    fn pod(&self, pod: &SandboxId) -> Option<PodSandbox> {
        let shown = self.wired.get()?.directory.sandbox(pod)?;
        Some(adjust::pod(&shown.record, &self.facts(&shown.record)))
    }

    fn container(&self, container: &ContainerId) -> Option<Container> {
        let directory = &self.wired.get()?.directory;
        let shown = directory.container(container)?;
        let pod = directory.sandbox(&shown.record.sandbox)?;
        Some(adjust::container(&shown.record, &self.facts(&pod.record)))
    }

    fn update(&self, container: ContainerId, limits: Resources) -> BoxFuture<'static, Result<()>> {
        let router = self.wired.get().map(|wired| wired.router.clone());
        let change = Routed(UpdateContainer { container, change: limits, consult: Consult::Nobody });
        async move {
            let router = router.ok_or_else(beginning)?;
            router.send(change).await.map_err(|error| Error::unavailable("the router", error))?
        }
        .boxed()
    }

    fn evict(&self, container: ContainerId) -> BoxFuture<'static, Result<()>> {
        let router = self.wired.get().map(|wired| wired.router.clone());
        let stop = Routed(StopContainer { container, signal: None, grace_ms: None });
        async move {
            let router = router.ok_or_else(beginning)?;
            router.send(stop).await.map_err(|error| Error::unavailable("the router", error))?
        }
        .boxed()
    }
}

fn beginning() -> Error {
    Error::unavailable("the router", "the runtime is beginning")
}

impl System {
    pub(crate) async fn plugins(&self) -> Result<Vec<PluginStatus>> {
        let Some(nri) = &self.nri else { return Ok(Vec::new()) };
        let (here, missing) = nri.plugins().await?;
        let required = &nri.settings().required;
        let need = |name| if required.contains(name) { PluginNeed::Required } else { PluginNeed::Optional };
        let shown = here.iter().map(|view| PluginStatus {
            name: view.name.to_string(),
            state: match view.phase {
                Phase::Live => PluginState::Live,
                Phase::Settling | Phase::Gathering | Phase::Synchronising => PluginState::Synchronising,
                Phase::Closed { .. } => PluginState::Absent,
            },
            pid: view.pid,
            events: view.events.events().map(|event| event.name().to_owned()).collect(),
            fail: fail(view.policy),
            need: need(&view.name),
            strikes: view.strikes,
            waiting: count(view.waiting),
            objects: count(view.objects),
        });
        let absent = missing.iter().map(|name| PluginStatus {
            name: name.to_string(),
            state: PluginState::Absent,
            pid: None,
            events: Vec::new(),
            fail: fail(nri.settings().policy(name)),
            need: PluginNeed::Required,
            strikes: 0,
            waiting: 0,
            objects: 0,
        });
        let mut plugins: Vec<_> = shown.chain(absent).collect();
        plugins.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plugins)
    }

    pub(crate) async fn restart_plugin(&self, plugin: &str) -> Result<()> {
        let unknown = || Error::not_found(Kind::Plugin, plugin);
        let name: PluginName = plugin.parse().map_err(|_| unknown())?;
        let nri = self.nri.as_ref().ok_or_else(unknown)?;
        match nri.dismiss(name, "an operator wants it to begin again".to_owned()).await? {
            true => Ok(()),
            false => Err(unknown()),
        }
    }
}

fn fail(policy: FailPolicy) -> PluginFail {
    match policy {
        FailPolicy::Open => PluginFail::Open,
        FailPolicy::Closed => PluginFail::Closed,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
