//! Changes of containers that are there already: their limits, and that they are to be stopped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mainstay_messages::ContainerId;
use mainstay_messages::spec::Resources;
use mainstay_nri_api::{ContainerEviction, ContainerUpdate, LinuxResources};

use super::ENTRIES_MAX;
use super::error::{AdjustError, Fault, quoted};
use super::limits::limits;
use super::owners::{Claims, Owners};
use super::resources;

/// The longest reason of an eviction that is kept, in bytes.
const REASON_MAX_BYTES: usize = 1_024;

/// Other limits for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherUpdate {
    /// Which.
    pub container: ContainerId,
    /// Those that change.
    pub limits: Resources,
    /// Whether its failure fails what the plugins were asked about.
    pub failure: Failure,
}

/// What a failed update of another container is to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its failure.
    Counts,
    /// Nothing.
    Ignored,
}

/// A container that a plugin wants to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which.
    pub container: ContainerId,
    /// Why, for people.
    pub reason: String,
    /// Who.
    pub plugin: String,
}

/// What all plugins together want, in an event other than a creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeMerged {
    /// The limits that the updated container is to get.
    pub limits: Option<Resources>,
    /// Of others.
    pub others: Vec<OtherUpdate>,
    /// Containers that are to be stopped.
    pub evictions: Vec<Eviction>,
}

/// What a plugin's answer says about containers that are there already.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    /// Limits.
    pub updates: &'a [ContainerUpdate],
    /// Containers to be stopped.
    pub evictions: &'a [ContainerEviction],
}

/// The updates and evictions of an event other than a creation: an update of a container, a stop, or what a plugin asks for
/// unasked.
#[derive(Clone, Debug)]
pub struct Change {
    target: Option<Target>,
    others: Others,
    owners: Owners,
}

#[derive(Clone, Debug)]
struct Target {
    id: String,
    resources: LinuxResources,
}

impl Change {
    /// An update of a container to these limits.
    pub fn update(container: impl Into<String>, resources: LinuxResources) -> Self {
        let target = Some(Target { id: container.into(), resources });
        Self { target, others: Others::default(), owners: Owners::default() }
    }

    /// An event in which only others can be changed.
    pub fn others() -> Self {
        Self { target: None, others: Others::default(), owners: Owners::default() }
    }

    /// The limits of the update as the next plugin is to see them.
    pub fn resources(&self) -> Option<&LinuxResources> {
        self.target.as_ref().map(|target| &target.resources)
    }

    /// Takes the answer of a plugin. A refused one changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, or who had changed the same before.
    pub fn apply(&mut self, plugin: &str, changed: Changed<'_>) -> Result<(), AdjustError> {
        let mut next = self.clone();
        let target = next.target.as_mut().map(|target| (target.id.as_str(), &mut target.resources));
        next.others.apply(plugin, changed, None, target, &mut next.owners)?;
        *self = next;
        Ok(())
    }

    /// What is to be done.
    ///
    /// # Errors
    /// Never for what the runtime asked with and what was applied.
    pub fn finish(self) -> Result<ChangeMerged, AdjustError> {
        // Files of cgroup v2 that it was created with are told to plugins, and not theirs to change: they are not in the result.
        let own = |target: Target| LinuxResources { unified: HashMap::new(), ..target.resources };
        let target = self.target.map(|target| limits(&own(target))).transpose();
        let target = target.map_err(|fault| fault.of("all together"))?;
        let (others, evictions) = self.others.finish()?;
        Ok(ChangeMerged { limits: target, others, evictions })
    }
}

/// Updates and evictions, each container once.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    updates: BTreeMap<String, ContainerUpdate>,
    order: Vec<String>,
    evictions: Vec<Eviction>,
}

impl Others {
    pub(super) fn apply(
        &mut self,
        plugin: &str,
        changed: Changed<'_>,
        created: Option<&str>,
        mut target: Option<(&str, &mut LinuxResources)>,
        owners: &mut Owners,
    ) -> Result<(), AdjustError> {
        let Changed { updates, evictions } = changed;
        check_count(plugin, "update", updates.len())?;
        check_count(plugin, "evict", evictions.len())?;
        let refuse = |what, container: &str| {
            let container = container.chars().take(128).collect();
            Err(AdjustError::BeingCreated { plugin: plugin.to_owned(), what, container })
        };
        for update in updates {
            if created == Some(&update.container_id) {
                return refuse("update", &update.container_id);
            }
            let target = target.as_mut().map(|(id, resources)| (*id, &mut **resources));
            // What can be ignored is done wholly or not at all.
            let mut trial = owners.clone();
            match self.update(plugin, update, target, &mut trial) {
                Ok(()) => *owners = trial,
                Err(_) if update.ignore_failure => {}
                Err(error) => return Err(error),
            }
        }
        for eviction in evictions {
            if created == Some(&eviction.container_id) {
                return refuse("evict", &eviction.container_id);
            }
            self.evict(plugin, eviction)?;
        }
        Ok(())
    }

    fn update(
        &mut self,
        plugin: &str,
        update: &ContainerUpdate,
        target: Option<(&str, &mut LinuxResources)>,
        owners: &mut Owners,
    ) -> Result<(), AdjustError> {
        let id = &update.container_id;
        parsed(plugin, "update", id)?;
        let empty = LinuxResources::new();
        let change = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()).unwrap_or(&empty);
        limits(change).map_err(|fault| fault.of(plugin))?;
        let claims = &mut Claims { owners, container: id, plugin };
        if let Some((own, resources)) = target
            && own == id
        {
            let mut next = resources.clone();
            resources::merge(claims, change, &mut [&mut next])?;
            *resources = next;
            return Ok(());
        }
        let is_new = !self.updates.contains_key(id);
        let mut next = self.updates.get(id).cloned().unwrap_or_else(|| ContainerUpdate {
            container_id: id.clone(),
            ignore_failure: true,
            ..Default::default()
        });
        let pending = next.linux.mut_or_insert_default().resources.mut_or_insert_default();
        resources::merge(claims, change, &mut [pending])?;
        next.ignore_failure &= update.ignore_failure;
        self.updates.insert(id.clone(), next);
        if is_new {
            self.order.push(id.clone());
        }
        Ok(())
    }

    fn evict(&mut self, plugin: &str, eviction: &ContainerEviction) -> Result<(), AdjustError> {
        let container = parsed(plugin, "evict", &eviction.container_id)?;
        if self.evictions.iter().any(|earlier| earlier.container == container) {
            return Ok(());
        }
        let mut reason = eviction.reason.clone();
        while reason.len() > REASON_MAX_BYTES {
            reason.pop();
        }
        self.evictions.push(Eviction { container, reason, plugin: plugin.to_owned() });
        Ok(())
    }

    /// As validators are told.
    pub(super) fn to_api(&self) -> Vec<ContainerUpdate> {
        self.order.iter().filter_map(|id| self.updates.get(id).cloned()).collect()
    }

    pub(super) fn finish(self) -> Result<(Vec<OtherUpdate>, Vec<Eviction>), AdjustError> {
        let evicted: BTreeSet<&str> =
            self.evictions.iter().map(|eviction| eviction.container.as_str()).collect();
        let updates = self.order.iter().filter_map(|id| self.updates.get(id));
        // Who is to go needs no limits.
        let updates = updates.filter(|update| !evicted.contains(update.container_id.as_str()));
        let convert = |update: &ContainerUpdate| {
            let change = update.linux.clone().unwrap_or_default().resources;
            Ok(OtherUpdate {
                container: parsed("all together", "update", &update.container_id)?,
                limits: limits(&change.unwrap_or_default()).map_err(|fault| fault.of("all together"))?,
                failure: if update.ignore_failure { Failure::Ignored } else { Failure::Counts },
            })
        };
        let updates = updates.map(convert).collect::<Result<Vec<_>, AdjustError>>()?;
        Ok((updates, self.evictions))
    }
}

fn parsed(plugin: &str, field: &str, id: &str) -> Result<ContainerId, AdjustError> {
    id.parse().map_err(|_| {
        let expected = "the id of a container";
        Fault::invalid(format!("{field}.container_id"), quoted(id), expected).of(plugin)
    })
}

fn check_count(plugin: &str, field: &str, count: usize) -> Result<(), AdjustError> {
    if count <= ENTRIES_MAX {
        return Ok(());
    }
    let expected = format!("at most {ENTRIES_MAX}");
    Err(Fault::invalid(field, format!("{count} entries"), expected).of(plugin))
}
