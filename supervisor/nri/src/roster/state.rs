//! The pure state of the roster.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_nri_api::Event;

use super::{PluginId, Ticket};
use crate::hook::{Bearing, Object, bearing};
use crate::name::PluginName;

/// Stopped objects that are not there and are remembered: those whose undoing is repeated, and ends that came late.
const STOPPED_SPARE_MAX: usize = 4_096;

/// See [`super`].
///
/// Invariants:
/// 1. What is announced has an open ticket, and what is present has none.
/// 2. A plugin that gathers waits only for tickets that are older than it.
/// 3. Names are unique among those who are here.
#[derive(Clone, Debug, Default)]
pub struct State {
    last_ticket: u64,
    members: BTreeMap<PluginId, Member>,
    required: BTreeSet<PluginName>,
    open: BTreeMap<Ticket, Announcement>,
    present: BTreeSet<Object>,
    /// Whose stop was told: it is told once, whoever sees it.
    stopped: BTreeSet<Object>,
}

#[derive(Clone, Debug)]
struct Member {
    name: PluginName,
    /// Announcements that have to be over before what there is can be put together for it.
    gathering: Option<BTreeSet<Ticket>>,
}

#[derive(Clone, Debug)]
struct Announcement {
    object: Object,
    roster: Vec<PluginId>,
}

/// Who is called for an event, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// For announcements.
    pub ticket: Option<Ticket>,
    /// By index, then by name.
    pub roster: Vec<PluginId>,
}

/// How an announcement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is there.
    Stands,
    /// It is being undone.
    Failed,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell a plugin of these.
    Gathered(PluginId, BTreeSet<Object>),
    /// Tell a plugin that an announcement is over.
    Over(PluginId, Ticket),
}

impl State {
    /// With these that must be there, and these objects that were found at the start.
    pub fn new(required: BTreeSet<PluginName>, present: BTreeSet<Object>) -> Self {
        Self { required, present, ..Self::default() }
    }

    /// Objects that were found later, when the runtime has begun to work: those that are announced are known better.
    pub fn found(&mut self, objects: BTreeSet<Object>) {
        let announced: BTreeSet<_> = self.open.values().map(|it| it.object.clone()).collect();
        self.present.extend(objects.difference(&announced).cloned());
    }

    /// A plugin has registered. The error is who has its name already.
    pub fn join(&mut self, plugin: PluginId, name: PluginName) -> Result<(), PluginId> {
        if let Some((holder, _)) = self.members.iter().find(|(_, member)| member.name == name) {
            return Err(*holder);
        }
        self.members.insert(plugin, Member { name, gathering: None });
        Ok(())
    }

    /// A plugin is gone.
    pub fn left(&mut self, plugin: PluginId) {
        self.members.remove(&plugin);
    }

    /// Required plugins that are not here.
    pub fn missing(&self) -> Vec<PluginName> {
        let here = |name: &PluginName| self.members.values().any(|member| member.name == *name);
        self.required.iter().filter(|name| !here(name)).cloned().collect()
    }

    /// An event is about to be told.
    pub fn enter(&mut self, event: Event, object: &Object) -> Entered {
        let stop = matches!(event, Event::STOP_POD_SANDBOX | Event::STOP_CONTAINER);
        if self.stopped.len() > STOPPED_SPARE_MAX + self.present.len() {
            // What ended after it was withdrawn is told to nobody any more.
            self.stopped.retain(|stopped| self.present.contains(stopped));
        }
        if stop && !self.stopped.insert(object.clone()) {
            return Entered { ticket: None, roster: Vec::new() };
        }
        let mut ordered: Vec<_> = self.members.iter().map(|(id, member)| (&member.name, *id)).collect();
        ordered.sort();
        let roster: Vec<_> = ordered.into_iter().map(|(_, id)| id).collect();
        let ticket = match bearing(event) {
            Bearing::Announces => {
                self.last_ticket += 1;
                let ticket = Ticket(self.last_ticket);
                self.present.remove(object);
                self.open.insert(ticket, Announcement { object: object.clone(), roster: roster.clone() });
                Some(ticket)
            }
            Bearing::Withdraws => {
                self.present.remove(object);
                self.stopped.remove(object);
                None
            }
            Bearing::Concerns => None,
        };
        Entered { ticket, roster }
    }

    /// An announcement is over.
    pub fn leave(&mut self, ticket: Ticket, outcome: Outcome) -> Vec<Effect> {
        let Some(announcement) = self.open.remove(&ticket) else { return Vec::new() };
        if outcome == Outcome::Stands {
            self.present.insert(announcement.object);
        }
        let mut effects: Vec<_> =
            announcement.roster.into_iter().map(|plugin| Effect::Over(plugin, ticket)).collect();
        let mut ready = Vec::new();
        for (id, member) in &mut self.members {
            if let Some(awaited) = &mut member.gathering
                && awaited.remove(&ticket)
                && awaited.is_empty()
            {
                member.gathering = None;
                ready.push(*id);
            }
        }
        effects.extend(ready.into_iter().map(|id| Effect::Gathered(id, self.present.clone())));
        effects
    }

    /// A plugin is to be told of what there is; these announcements do not come to it any more.
    ///
    /// Those that began before it joined are waited for. It has joined before all that come to it, so that no two ever wait
    /// for each other.
    pub fn gather(&mut self, plugin: PluginId, passed: &BTreeSet<Ticket>) -> Vec<Effect> {
        let Some(member) = self.members.get_mut(&plugin) else { return Vec::new() };
        let earlier = self.open.iter().filter(|(_, it)| !it.roster.contains(&plugin));
        let awaited: BTreeSet<_> = earlier.map(|(ticket, _)| *ticket).collect();
        if !awaited.is_empty() {
            member.gathering = Some(awaited);
            return Vec::new();
        }
        let heard = self.open.iter().filter(|(ticket, _)| passed.contains(ticket));
        let mut objects = self.present.clone();
        objects.extend(heard.map(|(_, it)| it.object.clone()));
        vec![Effect::Gathered(plugin, objects)]
    }

    /// Objects that are there.
    pub fn present(&self) -> &BTreeSet<Object> {
        &self.present
    }
}
