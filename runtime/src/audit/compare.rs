//! The comparison: an inventory of the machine beside what readers are shown. Pure.
//!
//! | found on the machine | is accounted for by |
//! |---|---|
//! | shim | a pod that is Ready, with this very process as its shim |
//! | process | a pod that is Ready, a container that has not ended |
//! | cgroup, pod directory, socket, mount | a pod that is not stopped |
//! | bundle, exit record | a container in a pod that is not stopped |
//! | layer, log | a container |
//! | log directory | a pod |
//! | network link and port, firewall rule, address lease, CNI record and file | a pod that is not stopped, with a network |
//! | name of a network namespace | a pod that is not stopped |
//!
//! The other way round a pod that is Ready counts on its shim, directory, sockets and cgroup, and a container that is
//! Created or Running on its process, bundle, layer and cgroup. What a pod counts on of a network that could not be looked at
//! is not missed.
//!
//! What an object in motion (being made, stopped or removed, or Unknown) has or has not is never a finding: somebody is at
//! work on it. And since a look at a machine takes a while, there are two views, from before and after: what either
//! accounts for is no leak, and only what both count on can be a ghost.

mod network;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use mainstay_actors::Directory;
use mainstay_messages::audit::{Deviation, Finding, Inventory, Leak, Owner, Remedy, Thing, ThingKind};
use mainstay_messages::record::{
    ContainerPhase, ContainerRecord, ContainerSnapshot, SandboxPhase, SandboxSnapshot,
};
use mainstay_messages::spec::{Network, Rootfs};
use mainstay_messages::{ContainerId, ProcessIdentity, SandboxId};
use mainstay_metrics::Running;
use mainstay_supervisor::paths::Directories;

/// What to do about a record whose files are gone.
const MAKE_ANEW: &str = "remove it and make it anew";

/// What readers are shown at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    sandboxes: HashMap<SandboxId, Arc<SandboxSnapshot>>,
    containers: HashMap<ContainerId, Arc<ContainerSnapshot>>,
}

/// What is wrong, and what can be done about it.
type Fault = (String, Remedy);

/// What is there, for finding out what is not.
struct Present<'a> {
    owned: HashSet<(ThingKind, &'a Owner)>,
    places: HashSet<&'a str>,
    ended: HashSet<&'a ProcessIdentity>,
    unseen_networks: &'a [Network],
}

impl View {
    pub(super) fn of(directory: &Directory) -> Self {
        Self::new(directory.sandboxes(), directory.containers(None))
    }

    pub(super) fn new(sandboxes: Vec<Arc<SandboxSnapshot>>, containers: Vec<Arc<ContainerSnapshot>>) -> Self {
        Self {
            sandboxes: sandboxes.into_iter().map(|pod| (pod.record.id.clone(), pod)).collect(),
            containers: containers.into_iter().map(|one| (one.record.id.clone(), one)).collect(),
        }
    }

    /// The processes that the records count on.
    pub(super) fn processes(&self) -> Vec<ProcessIdentity> {
        let shims = self.sandboxes.values().filter_map(|pod| pod.record.shim.as_ref());
        let first = self.containers.values().filter_map(|container| container.record.process.as_ref());
        shims.map(|shim| &shim.process).chain(first).cloned().collect()
    }

    /// Why nothing accounts for a thing, if that is so.
    fn fault(&self, thing: &Thing) -> Option<Fault> {
        match (&thing.owner, thing.kind) {
            (_, ThingKind::Stranger) => Some((
                "the runtime makes nothing of this name here".to_owned(),
                by_hand("remove it, if it is of no use"),
            )),
            (Owner { container: Some(container), sandbox }, _) => {
                self.container_fault(container, sandbox.as_ref(), thing)
            }
            (Owner { sandbox: Some(sandbox), .. }, _) => self.pod_fault(sandbox, thing),
            (_, ThingKind::Process) => Some((
                "it runs among the pods, and in none of them".to_owned(),
                by_hand("move or end it, if it is of no use"),
            )),
            _ => Some(("its name is not that of a pod".to_owned(), by_hand("remove it, if it is of no use"))),
        }
    }

    fn pod_fault(&self, sandbox: &SandboxId, thing: &Thing) -> Option<Fault> {
        let removal = || match (thing.kind, &thing.process) {
            (ThingKind::Shim, Some(process)) => {
                Remedy::Remove(Leak::Shim { sandbox: sandbox.clone(), process: process.clone() })
            }
            (ThingKind::LogDirectory, _) => Remedy::Remove(Leak::LogDirectory { sandbox: sandbox.clone() }),
            (kind, _) if network::is_of_network(kind) => {
                Remedy::Remove(Leak::Network { sandbox: sandbox.clone() })
            }
            _ => Remedy::Remove(Leak::Pod { sandbox: sandbox.clone() }),
        };
        let Some(pod) = self.sandboxes.get(sandbox) else {
            return Some((format!("no record names pod {sandbox}"), removal()));
        };
        if pod_in_motion(pod) {
            return None;
        }
        match (pod.record.phase, thing.kind) {
            (SandboxPhase::Ready, ThingKind::Shim) => {
                let own = pod.record.shim.as_ref().map(|shim| &shim.process);
                match own {
                    own if own == thing.process.as_ref() => None,
                    Some(own) => {
                        Some((format!("the shim of pod {sandbox} is process {}", own.pid), removal()))
                    }
                    None => Some((format!("pod {sandbox} has no shim"), removal())),
                }
            }
            (SandboxPhase::NotReady, ThingKind::Shim) => {
                Some((format!("pod {sandbox} has lost its shim"), removal()))
            }
            (SandboxPhase::NotReady, ThingKind::Process) => Some((
                format!("pod {sandbox} has lost its shim, and nothing of it should run"),
                Remedy::Remove(Leak::PodProcesses { sandbox: sandbox.clone() }),
            )),
            // It has lost the knowledge of its network, not the network: what runs in it may be in use.
            (SandboxPhase::Ready, kind)
                if network::needs_attachment(kind) && network::is_not_known(&pod.record) =>
            {
                let reason =
                    format!("pod {sandbox} is ready, and its record does not say what network it has");
                Some((reason, by_hand("remove the pod and make it anew")))
            }
            (_, kind) if network::needs_attachment(kind) && pod.record.network.is_none() => {
                Some((format!("pod {sandbox} has no network"), removal()))
            }
            (SandboxPhase::Stopped, kind) if kind != ThingKind::LogDirectory => {
                Some((format!("pod {sandbox} is stopped"), removal()))
            }
            _ => None,
        }
    }

    fn container_fault(
        &self,
        container: &ContainerId,
        sandbox: Option<&SandboxId>,
        thing: &Thing,
    ) -> Option<Fault> {
        let Some(found) = self.containers.get(container) else {
            let reason = format!("no record names container {container}");
            let container = container.clone();
            return Some(match sandbox.cloned() {
                Some(sandbox) => (reason, Remedy::Remove(Leak::Container { sandbox, container })),
                None => (reason, Remedy::Remove(Leak::Layer { container })),
            });
        };
        let own = &found.record.sandbox;
        if sandbox.is_some_and(|sandbox| sandbox != own) {
            let reason = format!("container {container} is in pod {own}");
            return Some((reason, by_hand("remove it, if it is of no use")));
        }
        let pod = self.sandboxes.get(own);
        if container_in_motion(found) || pod.is_some_and(|pod| pod_in_motion(pod)) {
            return None;
        }
        let stopped = pod.is_some_and(|pod| pod.record.phase == SandboxPhase::Stopped);
        match (found.record.phase, thing.kind) {
            (_, ThingKind::Layer | ThingKind::Log) => None,
            (_, _) if stopped => {
                let remedy = Remedy::Remove(Leak::Pod { sandbox: own.clone() });
                Some((format!("pod {own} is stopped"), remedy))
            }
            (ContainerPhase::Exited, ThingKind::Process) => Some((
                format!("container {container} has ended"),
                Remedy::Remove(Leak::ContainerProcesses {
                    sandbox: own.clone(),
                    container: container.clone(),
                }),
            )),
            _ => None,
        }
    }

    /// Pods that both views show in the same phase and at rest.
    fn steady_pods<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = &'a SandboxSnapshot> {
        let steady = |pod: &&'a Arc<SandboxSnapshot>| {
            let before = self.sandboxes.get(&pod.record.id);
            !pod_in_motion(pod)
                && before.is_some_and(|b| !pod_in_motion(b) && b.record.phase == pod.record.phase)
        };
        after.sandboxes.values().filter(steady).map(|pod| &**pod)
    }

    /// Containers that both views show in the same phase and at rest, in pods that are at rest or not known.
    fn steady_containers<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = &'a ContainerSnapshot> {
        let steady = |container: &&'a Arc<ContainerSnapshot>| {
            let before = self.containers.get(&container.record.id);
            let pod_moves =
                |view: &Self| view.sandboxes.get(&container.record.sandbox).is_some_and(|p| pod_in_motion(p));
            !container_in_motion(container)
                && before.is_some_and(|b| !container_in_motion(b) && b.record.phase == container.record.phase)
                && !pod_moves(self)
                && !pod_moves(after)
        };
        after.containers.values().filter(steady).map(|container| &**container)
    }
}

/// Everything in which machine and records differ, leaks first, shims before what they hold.
pub(super) fn compare(
    before: &View,
    inventory: &Inventory,
    after: &View,
    directories: &Directories,
) -> Vec<Finding> {
    let leak = |thing: &Thing| {
        before.fault(thing)?;
        let (reason, remedy) = after.fault(thing)?;
        let finding = Finding {
            deviation: Deviation::Leak,
            kind: thing.kind,
            place: thing.place.clone(),
            pid: thing.process.as_ref().map(|process| process.pid),
            owner: thing.owner.clone(),
            since: thing.since,
            reason,
            remedy,
            outcome: None,
        };
        Some(finding)
    };
    let mut findings: Vec<Finding> = inventory.things.iter().filter_map(leak).collect();
    let present = Present::of(inventory);
    for pod in before.steady_pods(after).filter(|pod| pod.record.phase == SandboxPhase::Ready) {
        findings.extend(present.missing_of_pod(pod, directories));
    }
    let alive = |phase| matches!(phase, ContainerPhase::Created | ContainerPhase::Running);
    for container in before.steady_containers(after).filter(|container| alive(container.record.phase)) {
        if !after.sandboxes.contains_key(&container.record.sandbox) {
            findings.push(without_pod(container));
        }
        findings.extend(present.missing_of_container(&container.record, directories));
    }
    findings.extend(names_taken_twice(after));
    findings.sort_by(order);
    findings
}

/// Leaks first, shims before what they hold.
pub(super) fn order(a: &Finding, b: &Finding) -> Ordering {
    (a.deviation, a.kind, &a.place, a.pid).cmp(&(b.deviation, b.kind, &b.place, b.pid))
}

/// The containers with processes, and the shims, as the records have them and as the kernel has them.
pub(super) fn running(inventory: &Inventory, view: &View) -> (Running, Running) {
    let of_kind = |kind| inventory.things.iter().filter(move |thing| thing.kind == kind);
    let owners: HashSet<_> =
        of_kind(ThingKind::Process).filter_map(|thing| thing.owner.container.as_ref()).collect();
    let alive = |container: &&Arc<ContainerSnapshot>| {
        let has_ended = container.record.exit.is_some();
        container.record.process.is_some() && !has_ended
    };
    let has_shim =
        |pod: &&Arc<SandboxSnapshot>| pod.record.phase == SandboxPhase::Ready && pod.record.shim.is_some();
    let containers = Running {
        by_records: view.containers.values().filter(alive).count() as u64,
        by_kernel: owners.len() as u64,
    };
    let shims = Running {
        by_records: view.sandboxes.values().filter(has_shim).count() as u64,
        by_kernel: of_kind(ThingKind::Shim).count() as u64,
    };
    (containers, shims)
}

impl<'a> Present<'a> {
    fn of(inventory: &'a Inventory) -> Self {
        Self {
            owned: inventory.things.iter().map(|thing| (thing.kind, &thing.owner)).collect(),
            places: inventory.things.iter().map(|thing| thing.place.as_str()).collect(),
            ended: inventory.ended.iter().collect(),
            unseen_networks: &inventory.unseen_networks,
        }
    }

    fn missing_of_pod(&self, pod: &SandboxSnapshot, directories: &Directories) -> Vec<Finding> {
        let id = &pod.record.id;
        let owner = Owner::pod(id);
        let ghost = |kind, place: &std::path::Path, remedy| {
            let reason = format!("pod {id} is ready without it");
            ghost(kind, place.display().to_string(), owner.clone(), reason, remedy)
        };
        let mut missing = Vec::new();
        let directory = directories.pod(id);
        let shim = pod.record.shim.as_ref().map(|shim| &shim.process);
        if shim.is_none_or(|shim| self.ended.contains(shim)) {
            let death = Remedy::SettleShimDeath { sandbox: id.clone() };
            let pid = shim.map(|shim| shim.pid);
            missing.push(Finding { pid, ..ghost(ThingKind::Shim, &directory, death) });
        }
        if !self.owned.contains(&(ThingKind::PodDirectory, &owner)) {
            missing.push(ghost(ThingKind::PodDirectory, &directory, by_hand(MAKE_ANEW)));
        }
        if !self.owned.contains(&(ThingKind::Cgroup, &owner)) {
            missing.push(ghost(ThingKind::Cgroup, id.as_str().as_ref(), by_hand(MAKE_ANEW)));
        }
        for socket in [directories.shim_socket(id), directories.streams_socket(id)] {
            if !self.places.contains(&*socket.display().to_string()) {
                missing.push(ghost(ThingKind::Socket, &socket, by_hand(MAKE_ANEW)));
            }
        }
        let mut lost = network::counted_on(&pod.record);
        let is_unseen = self.unseen_networks.contains(&pod.record.spec.network);
        lost.retain(|(kind, _)| {
            !(self.owned.contains(&(*kind, &owner)) || is_unseen && network::needs_attachment(*kind))
        });
        let remedy = network::remedy(id, &lost);
        missing.extend(lost.iter().map(|(kind, place)| ghost(*kind, place.as_ref(), remedy.clone())));
        missing
    }

    fn missing_of_container(&self, record: &ContainerRecord, directories: &Directories) -> Vec<Finding> {
        let (id, sandbox) = (&record.id, &record.sandbox);
        let owner = Owner::container(sandbox, id);
        let ghost = |kind, place: String, remedy| {
            let reason = format!("container {id} is {} without it", record.phase);
            ghost(kind, place, owner.clone(), reason, remedy)
        };
        let mut missing = Vec::new();
        if record.process.as_ref().is_none_or(|process| self.ended.contains(process)) {
            let settle = Remedy::SettleExit { sandbox: sandbox.clone(), container: id.clone() };
            let pid = record.process.as_ref().map(|process| process.pid);
            missing.push(Finding { pid, ..ghost(ThingKind::Process, "PID 1".to_owned(), settle) });
        }
        let layered = !matches!(record.spec.rootfs, Rootfs::Directory { .. });
        let layer_owner = Owner::container_alone(id);
        if layered && !self.owned.contains(&(ThingKind::Layer, &layer_owner)) {
            let place = directories.layer(id).directory.display().to_string();
            missing.push(ghost(ThingKind::Layer, place, by_hand(MAKE_ANEW)));
        }
        if !self.owned.contains(&(ThingKind::Bundle, &owner)) {
            let place = directories.bundle(sandbox, id).display().to_string();
            missing.push(ghost(ThingKind::Bundle, place, by_hand(MAKE_ANEW)));
        }
        if !self.owned.contains(&(ThingKind::Cgroup, &owner)) {
            missing.push(ghost(ThingKind::Cgroup, format!("{sandbox}/{id}"), by_hand(MAKE_ANEW)));
        }
        missing
    }
}

fn without_pod(container: &ContainerSnapshot) -> Finding {
    let (id, sandbox) = (&container.record.id, &container.record.sandbox);
    let reason = format!("container {id} is in this pod, which no record names");
    let owner = Owner::container(sandbox, id);
    ghost(ThingKind::Record, sandbox.to_string(), owner, reason, by_hand("remove the container"))
}

/// Names that more than one object has. Only one of them can be found by it.
fn names_taken_twice(view: &View) -> Vec<Finding> {
    let mut holders: BTreeMap<String, Vec<Owner>> = BTreeMap::new();
    for pod in view.sandboxes.values().filter(|pod| !pod_in_motion(pod)) {
        holders.entry(pod.record.name().to_string()).or_default().push(Owner::pod(&pod.record.id));
    }
    for container in view.containers.values().filter(|container| !container_in_motion(container)) {
        let (id, sandbox) = (&container.record.id, &container.record.sandbox);
        let name = format!("{sandbox}/{}", container.record.name());
        holders.entry(name).or_default().push(Owner::container(sandbox, id));
    }
    let shared = holders.into_iter().filter(|(_, owners)| owners.len() > 1);
    let finding = |(name, owners): (String, Vec<Owner>)| {
        let reason = format!("{} have this name", owners.len());
        owners.into_iter().map(move |owner| {
            ghost(ThingKind::Name, name.clone(), owner, reason.clone(), by_hand("remove all but one"))
        })
    };
    shared.flat_map(finding).collect()
}

fn ghost(kind: ThingKind, place: String, owner: Owner, reason: String, remedy: Remedy) -> Finding {
    let deviation = Deviation::Ghost;
    Finding { deviation, kind, place, pid: None, owner, since: None, reason, remedy, outcome: None }
}

fn by_hand(how: &str) -> Remedy {
    Remedy::ByHand { how: how.to_owned() }
}

/// Whether somebody is at work on a pod, or nobody knows what has become of it.
fn pod_in_motion(pod: &SandboxSnapshot) -> bool {
    let rests =
        matches!(pod.record.phase, SandboxPhase::Ready | SandboxPhase::NotReady | SandboxPhase::Stopped);
    pod.activity.is_some() || !rests
}

/// Whether somebody is at work on a container, or nobody knows what has become of it.
fn container_in_motion(container: &ContainerSnapshot) -> bool {
    let rests = matches!(
        container.record.phase,
        ContainerPhase::Created | ContainerPhase::Running | ContainerPhase::Exited
    );
    container.activity.is_some() || !rests
}
