//! The handle: what the supervisor tells plugins by. It keeps no state of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use actix::{Actor, Addr, Recipient};
use mainstay_messages::adjustment::Adjustment;
use mainstay_messages::router::Noted;
use mainstay_messages::spec::Resources;
use mainstay_messages::{ContainerId, Error, Result, SandboxId};
use mainstay_nri_api::{
    Container, CreateContainerRequest, Event, MessageField, PluginInstance, PodSandbox,
    UpdateContainerRequest, UpdatePodSandboxRequest,
};

use crate::adjust::{Change, Changed, Creation, Merged, described_limits};
use crate::hook::Object;
use crate::line::{Line, Node, Reply, Request};
use crate::name::PluginName;
use crate::others;
use crate::roster::{
    Departure, Dismiss, Find, Found, Join, PluginId, PluginView, Roster, RosterParts, Seat, Show,
};
use crate::round::{Round, failed};
use crate::settings::NriSettings;
use crate::turns::PodTurns;

/// The plugins of a runtime. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Nri(Arc<Inner>);

struct Inner {
    roster: Addr<Roster>,
    settings: Arc<NriSettings>,
    turns: PodTurns,
    node: Arc<dyn Node>,
    journal: Recipient<Noted>,
}

/// A pod that a plugin did not want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrun {
    /// Why.
    pub error: Error,
    /// Those that were to be told of it, and were not.
    pub untold: BTreeSet<PluginName>,
}

/// What plugins are started with.
pub struct NriParts {
    /// The settings.
    pub settings: NriSettings,
    /// Where they find what there is.
    pub node: Arc<dyn Node>,
    /// Where the journal is told what they made of events.
    pub journal: Recipient<Noted>,
    /// Told of each plugin that has come to know all there is, every time.
    pub arrivals: Box<dyn Fn(PluginName)>,
    /// Told of each plugin that is gone, and why.
    pub departures: Box<dyn Fn(Departure)>,
}

impl Nri {
    /// Starts their roster, on the current arbiter. Nobody can register yet.
    pub fn start(parts: NriParts) -> Self {
        let NriParts { settings, node, journal, arrivals, departures } = parts;
        let settings = Arc::new(settings);
        let roster = Roster::new(RosterParts {
            settings: Arc::clone(&settings),
            node: Arc::clone(&node),
            arrivals,
            departures,
        });
        let roster = roster.start();
        Self(Arc::new(Inner { roster, settings, turns: PodTurns::default(), node, journal }))
    }

    pub(crate) fn roster(&self) -> &Addr<Roster> {
        &self.0.roster
    }

    pub(crate) fn turns(&self) -> &PodTurns {
        &self.0.turns
    }

    pub(crate) fn journal(&self) -> &Recipient<Noted> {
        &self.0.journal
    }

    /// The settings.
    pub fn settings(&self) -> &NriSettings {
        &self.0.settings
    }

    /// Where plugins find what there is.
    pub fn node(&self) -> &Arc<dyn Node> {
        &self.0.node
    }

    /// What was there when the runtime started. To be said before anybody can register.
    pub fn found(&self, objects: BTreeSet<Object>) {
        self.0.roster.do_send(Found(objects));
    }

    /// A plugin has registered and is configured. The error is a sentence for it.
    pub async fn join(&self, name: PluginName, line: Arc<dyn Line>) -> Result<PluginId, String> {
        let joined = self.0.roster.send(Join { name, line }).await;
        joined.unwrap_or_else(|_| Err("the runtime ends".to_owned()))
    }

    /// RunPodSandbox: fails when a plugin says no. `intent` is awaited before anybody is told, with those who will be: what it
    /// writes down must be there if this program ends meanwhile (P3).
    pub async fn run_pod(
        &self,
        id: &SandboxId,
        pod: PodSandbox,
        intent: impl AsyncFnOnce(Vec<PluginName>) -> Result<()>,
    ) -> Result<(), Unrun> {
        let event = Event::RUN_POD_SANDBOX;
        let begun = Round::begin(self, event, Object::Pod(id.clone())).await;
        let (mut round, seats) = begun.map_err(|error| Unrun { error, untold: BTreeSet::new() })?;
        let told = async {
            declare(&seats, intent).await?;
            for seat in &seats {
                round.ask(seat, Request::Pod(event, pod.clone())).await?;
            }
            Ok(())
        };
        let told = told.await;
        let untold =
            seats.into_iter().map(|seat| seat.name).filter(|name| !round.acquainted().contains(name));
        let untold = untold.collect();
        round.end(told).map_err(|error| Unrun { error, untold })
    }

    /// Any other event of a pod that carries nothing else. What plugins make of it is in the journal. Answers those who knew
    /// the pod.
    pub async fn tell_pod(&self, event: Event, id: &SandboxId, pod: PodSandbox) -> BTreeSet<PluginName> {
        let object = Object::Pod(id.clone());
        self.told(event, object, Request::Pod(event, pod)).await
    }

    /// An event of a container after which nothing can fail any more. What plugins make of it is in the journal. Answers
    /// those who knew the container.
    pub async fn tell_container(
        &self,
        event: Event,
        (sandbox, id): (&SandboxId, &ContainerId),
        (pod, container): (PodSandbox, Container),
    ) -> BTreeSet<PluginName> {
        let object = Object::Container(sandbox.clone(), id.clone());
        self.told(event, object, Request::Container(event, pod, container)).await
    }

    /// UpdatePodSandbox: fails when a plugin says no.
    pub async fn update_pod(&self, id: &SandboxId, request: UpdatePodSandboxRequest) -> Result<()> {
        let object = Object::Pod(id.clone());
        self.tell(Event::UPDATE_POD_SANDBOX, object, Request::UpdatePod(request)).await.map(drop)
    }

    /// StartContainer: fails when a plugin says no.
    pub async fn start_container(
        &self,
        (sandbox, id): (&SandboxId, &ContainerId),
        (pod, container): (PodSandbox, Container),
    ) -> Result<()> {
        let (event, object) = (Event::START_CONTAINER, Object::Container(sandbox.clone(), id.clone()));
        self.tell(event, object, Request::Container(event, pod, container)).await.map(drop)
    }

    /// CreateContainer: what plugins change of a container before anything is made of it. Fails when a plugin says no, or wants
    /// what another one has changed already. What they want of other containers is begun once they all have agreed.
    pub async fn create_container(
        &self,
        (sandbox, id): (&SandboxId, &ContainerId),
        (pod, container): (PodSandbox, Container),
        intent: impl AsyncFnOnce(Vec<PluginName>) -> Result<()>,
    ) -> Result<Adjustment> {
        let (event, object) = (Event::CREATE_CONTAINER, Object::Container(sandbox.clone(), id.clone()));
        let (mut round, seats) = Round::begin(self, event, object).await?;
        let merged = merge(&mut round, &seats, (pod, container), intent).await;
        let Merged { adjustment, others, evictions } = round.end(merged)?;
        others::begin(&self.0.node, others, evictions);
        Ok(adjustment)
    }

    /// UpdateContainer: what plugins make of a change of limits; none when they leave it as it is.
    pub async fn update_container(
        &self,
        (sandbox, id): (&SandboxId, &ContainerId),
        (pod, container): (PodSandbox, Container),
        limits: &Resources,
    ) -> Result<Option<Resources>> {
        let (event, object) = (Event::UPDATE_CONTAINER, Object::Container(sandbox.clone(), id.clone()));
        let (mut round, seats) = Round::begin(self, event, object).await?;
        if seats.is_empty() {
            return round.end(Ok(None));
        }
        let before = described_limits(limits);
        let mut change = Change::update(id.as_str(), before.clone());
        let changed = async {
            for seat in &seats {
                let request = UpdateContainerRequest {
                    pod: MessageField::some(pod.clone()),
                    container: MessageField::some(container.clone()),
                    linux_resources: change.resources().cloned().into(),
                    ..Default::default()
                };
                if let Some(Reply::Updated(answer)) = round.ask(seat, Request::Update(request)).await? {
                    let changed = Changed { updates: &answer.update, evictions: &answer.evict };
                    let applied = change.apply(&seat.name.to_string(), changed);
                    applied.map_err(|error| failed(event, &seat.name, &error.to_string()))?;
                }
            }
            let untouched = change.resources() == Some(&before);
            let merged = change.finish().map_err(|error| Error::internal("the plugins", error))?;
            Ok((merged, untouched))
        };
        let changed = changed.await;
        let (merged, untouched) = round.end(changed)?;
        others::begin(&self.0.node, merged.others, merged.evictions);
        // What they left alone does not go through their form and back, nor does what that form has no place for.
        Ok(merged.limits.filter(|_| !untouched).map(|made| limits.changed_by(&made)))
    }

    async fn told(&self, event: Event, object: Object, request: Request) -> BTreeSet<PluginName> {
        let about = object.clone();
        match self.tell(event, object, request).await {
            Ok(acquainted) => acquainted,
            Err(error) => {
                tracing::warn!(object = %about, hook = event.name(), %error, "plugins could not be told");
                BTreeSet::new()
            }
        }
    }

    async fn tell(&self, event: Event, object: Object, request: Request) -> Result<BTreeSet<PluginName>> {
        let (mut round, seats) = Round::begin(self, event, object).await?;
        let mut told = Ok(());
        let mut change = Change::others();
        for seat in &seats {
            match round.ask(seat, request.clone()).await {
                // What it may change when a container has ended is others, which have its share now.
                Ok(Some(Reply::Stopped(answer))) => {
                    let changed = Changed { updates: &answer.update, evictions: &[] };
                    if let Err(error) = change.apply(&seat.name.to_string(), changed) {
                        tracing::warn!(plugin = %seat.name, hook = event.name(), %error, "what it wants cannot be done");
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    told = Err(error);
                    break;
                }
            }
        }
        let told = told.map(|()| round.acquainted().clone());
        let told = round.end(told)?;
        match change.finish() {
            Ok(merged) => others::begin(&self.0.node, merged.others, merged.evictions),
            Err(error) => tracing::warn!(hook = event.name(), %error, "what plugins want cannot be done"),
        }
        Ok(told)
    }

    /// Tells one plugin of the end of a pod that it heard of in an earlier life of this program, or of its own. The answer is
    /// whether it is there to be told.
    pub async fn settle_pod(&self, plugin: &PluginName, id: &SandboxId, pod: &PodSandbox) -> bool {
        for event in [Event::STOP_POD_SANDBOX, Event::REMOVE_POD_SANDBOX] {
            let request = Request::Pod(event, pod.clone());
            if !self.settle(plugin, Object::Pod(id.clone()), request).await {
                return false;
            }
        }
        true
    }

    /// The same of a container.
    pub async fn settle_container(
        &self,
        plugin: &PluginName,
        (sandbox, id): (&SandboxId, &ContainerId),
        (pod, container): (PodSandbox, Container),
    ) -> bool {
        for event in [Event::STOP_CONTAINER, Event::REMOVE_CONTAINER] {
            let object = Object::Container(sandbox.clone(), id.clone());
            let request = Request::Container(event, pod.clone(), container.clone());
            if !self.settle(plugin, object, request).await {
                return false;
            }
        }
        true
    }

    async fn settle(&self, plugin: &PluginName, object: Object, request: Request) -> bool {
        let Ok(Some(seat)) = self.0.roster.send(Find(plugin.clone())).await else { return false };
        let mut round = Round::private(self, request.event(), object, &seat).await;
        let asked = round.ask(&seat, request).await;
        // What it made of that is in the journal.
        let _ = round.end(asked);
        true
    }

    /// All plugins, and those that are required and not here.
    pub async fn plugins(&self) -> Result<(Vec<PluginView>, Vec<PluginName>)> {
        self.0.roster.send(Show).await.map_err(|error| Error::unavailable("the plugins", error))
    }

    /// Ends the connection of a plugin, for this reason. One that the runtime has started is started again. The answer is
    /// whether there is one of this name.
    pub async fn dismiss(&self, name: PluginName, reason: String) -> Result<bool> {
        let dismissed = self.0.roster.send(Dismiss { name, reason }).await;
        dismissed.map_err(|error| Error::unavailable("the plugins", error))
    }
}

impl fmt::Debug for Nri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nri").finish_non_exhaustive()
    }
}

/// Before anybody is told of a beginning: names those who want to hear of the end.
async fn declare(seats: &[Seat], intent: impl AsyncFnOnce(Vec<PluginName>) -> Result<()>) -> Result<()> {
    const ENDS: [Event; 4] =
        [Event::STOP_POD_SANDBOX, Event::REMOVE_POD_SANDBOX, Event::STOP_CONTAINER, Event::REMOVE_CONTAINER];
    let wants = |seat: &&Seat| ENDS.into_iter().any(|event| seat.events.contains(event));
    let names: Vec<_> = seats.iter().filter(wants).map(|seat| seat.name.clone()).collect();
    if names.is_empty() { Ok(()) } else { intent(names).await }
}

/// Asks all plugins what they change of a container, then all validators whether they agree.
async fn merge(
    round: &mut Round,
    seats: &[Seat],
    (pod, container): (PodSandbox, Container),
    intent: impl AsyncFnOnce(Vec<PluginName>) -> Result<()>,
) -> Result<Merged> {
    if seats.is_empty() {
        return Ok(Merged::default());
    }
    declare(seats, intent).await?;
    let mut creation = Creation::new(container);
    for seat in seats {
        let request = CreateContainerRequest {
            pod: MessageField::some(pod.clone()),
            container: MessageField::some(creation.container().clone()),
            ..Default::default()
        };
        if let Some(Reply::Created(answer)) = round.ask(seat, Request::Create(request)).await? {
            let applied = creation.apply(&seat.name.to_string(), &answer);
            applied.map_err(|error| failed(Event::CREATE_CONTAINER, &seat.name, &error.to_string()))?;
        }
    }
    let event = Event::VALIDATE_CONTAINER_ADJUSTMENT;
    let validators: Vec<_> = seats.iter().filter(|seat| seat.events.contains(event)).collect();
    for seat in validators {
        let asked = seats.iter().map(|seat| PluginInstance {
            name: seat.name.name().to_owned(),
            index: seat.name.index().to_owned(),
            ..Default::default()
        });
        let request = creation.validation(&pod, asked.collect());
        match round.ask(seat, Request::Validate(request)).await? {
            Some(Reply::Validated(answer)) if answer.reject => {
                return Err(failed(event, &seat.name, &answer.reason));
            }
            _ => {}
        }
    }
    creation.finish().map_err(|error| Error::internal("the plugins", error))
}
