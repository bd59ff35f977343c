//! Which entries of the journal are events of the interface, and what is said with them.
//!
//! | journal | event |
//! |---|---|
//! | pod ready | created and started, of the pod itself |
//! | pod not ready (its shim died), pod stopped | stopped, whichever comes first |
//! | pod removed | deleted |
//! | container prepared, started, exited, removed | created, started, stopped, deleted |
//!
//! A pod that never was ready is not told of, nor a container that never was prepared, nor what was not asked for over this interface.
//! The statuses are those of the moment at which the event is told, never of one before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mainstay::{ContainerId, ContainerSnapshot, Event, SandboxId, SandboxPhase, Subject, What};
use mainstay_cri_api::{ContainerEventResponse, ContainerEventType, PodSandboxState, PodSandboxStatus};
use tokio::time::Instant;

use super::book::{Change, Track};
use crate::limits::{EVENT_PODS_MAX, EVENT_SETTLE_MS};
use crate::node::Node;
use crate::{containers, filter, pods, times};

/// Time between two looks whether a snapshot shows what the journal says, in milliseconds.
const LOOK_MS: u64 = 2;

/// A message, and what the client knows once it has it.
pub(super) struct Told {
    pub(super) message: ContainerEventResponse,
    pub(super) change: Option<Change>,
}

/// What one stream knows beside the journal.
pub(super) struct Telling {
    node: Arc<Node>,
    /// Pods of which it was said that they have ended, with what still waits to be read.
    ended: HashSet<SandboxId>,
    /// The pods that it may tell of, as they were last: one that is gone has no snapshot any more.
    seen: HashMap<SandboxId, PodSandboxStatus>,
    /// Pods that were not asked for over this interface.
    others: HashSet<SandboxId>,
}

impl Telling {
    pub(super) fn new(node: Arc<Node>, track: &Track) -> Self {
        let seen = filter::pods(&node.runtime).into_iter();
        let seen = seen.filter(|pod| !pod.record.is_half_made());
        let seen = seen.map(|pod| (pod.record.id.clone(), pods::show::status(&pod.record))).collect();
        let others = node.runtime.sandboxes().into_iter().filter(|pod| pod.record.spec.identity.is_none());
        let others = others.map(|pod| pod.record.id.clone()).take(EVENT_PODS_MAX).collect();
        Self { node, ended: track.ended(), seen, others }
    }

    /// The messages that an entry comes to, in their order.
    pub(super) async fn messages(&mut self, event: &Event) -> Vec<Told> {
        let Some(pod) = event.subject.sandbox.clone() else { return Vec::new() };
        let over = matches!(event.what, What::SandboxRemoved);
        if event.subject.exec.is_some() {
            return Vec::new();
        }
        if self.is_anothers(&pod) {
            if over {
                self.others.remove(&pod);
            }
            return Vec::new();
        }
        let types = match &event.subject.container {
            Some(container) => self.of_container(container, &event.what).await,
            None => self.of_pod(&pod, &event.what).await,
        };
        if types.is_empty() {
            return Vec::new();
        }
        let id = event.subject.container.as_ref().map_or(pod.as_str(), |container| container.as_str());
        let status = self.pod_status(&pod);
        let statuses = self.node.runtime.containers_of(&pod);
        let statuses = statuses.iter().filter(|container| filter::shows_container(container));
        let statuses: Vec<_> = statuses.map(|container| containers::show::status(container)).collect();
        if over {
            self.seen.remove(&pod);
        }
        let change = if event.subject.container.is_some() { None } else { change_by(&pod, &event.what) };
        if let Some(change) = change.clone() {
            change.apply(&mut self.ended);
        }
        let message = |kind: &ContainerEventType| ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: (*kind).into(),
            created_at: times::nanos(event.at),
            pod_sandbox_status: Some(status.clone()),
            containers_statuses: statuses.clone(),
        };
        types.iter().map(|kind| Told { message: message(kind), change: change.clone() }).collect()
    }

    async fn of_pod(&mut self, id: &SandboxId, what: &What) -> &'static [ContainerEventType] {
        use ContainerEventType::{
            ContainerCreatedEvent, ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent,
        };
        let is_ready = |phase| phase == SandboxPhase::Ready;
        match what {
            What::SandboxReady => {
                self.settled(|node| {
                    node.runtime.sandbox(id).map_or(true, |pod| pod.record.phase != SandboxPhase::Starting)
                })
                .await;
                &[ContainerCreatedEvent, ContainerStartedEvent]
            }
            What::SandboxNotReady { .. } | What::SandboxStopped => {
                self.settled(|node| node.runtime.sandbox(id).map_or(true, |pod| !is_ready(pod.record.phase)))
                    .await;
                let told = !self.ended.contains(id) && self.was_ready(id).await;
                if told { &[ContainerStoppedEvent] } else { &[] }
            }
            What::SandboxRemoved => {
                self.settled(|node| node.runtime.sandbox(id).is_err()).await;
                if self.was_ready(id).await { &[ContainerDeletedEvent] } else { &[] }
            }
            _ => &[],
        }
    }

    async fn of_container(&self, id: &ContainerId, what: &What) -> &'static [ContainerEventType] {
        type Shows = fn(&ContainerSnapshot) -> bool;
        let (kind, shows): (&'static [_], Shows) = match what {
            What::ContainerPrepared { .. } => {
                (&[ContainerEventType::ContainerCreatedEvent], |shown| !shown.record.is_half_made())
            }
            What::ContainerStarted { .. } => {
                (&[ContainerEventType::ContainerStartedEvent], |shown| shown.record.started_at.is_some())
            }
            What::ContainerExited { .. } => {
                (&[ContainerEventType::ContainerStoppedEvent], |shown| shown.record.exit.is_some())
            }
            What::ContainerRemoved => (&[ContainerEventType::ContainerDeletedEvent], |_| false),
            _ => return &[],
        };
        let shown = |node: &Node| node.runtime.container(id).ok();
        self.settled(|node| shown(node).is_none_or(|container| shows(&container))).await;
        let told = match shown(&self.node) {
            Some(container) if container.record.spec.identity.is_none() => false,
            _ if matches!(what, What::ContainerPrepared { .. } | What::ContainerStarted { .. }) => true,
            Some(container) => container.record.process.is_some() || container.record.started_at.is_some(),
            None => self.was_prepared(id).await,
        };
        if told { kind } else { &[] }
    }

    /// A snapshot is published a moment after the entry.
    async fn settled(&self, shows: impl Fn(&Node) -> bool) {
        let deadline = Instant::now() + Duration::from_millis(EVENT_SETTLE_MS);
        while !shows(&self.node) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }

    /// Whether a pod was not asked for over this interface. Of one that was gone before this stream came to it nobody knows: whoever
    /// reads is told.
    fn is_anothers(&mut self, id: &SandboxId) -> bool {
        match self.node.runtime.sandbox(id) {
            Ok(pod) if pod.record.spec.identity.is_none() => {
                if self.others.len() < EVENT_PODS_MAX {
                    self.others.insert(id.clone());
                }
                true
            }
            Ok(_) => false,
            Err(_) => self.others.contains(id),
        }
    }

    /// Whether a pod ever was ready: the journal knows, also when the pod is gone.
    async fn was_ready(&self, id: &SandboxId) -> bool {
        if self.seen.contains_key(id) {
            return true;
        }
        let life = self.node.runtime.explain(Subject::Sandbox(id.clone())).await;
        life.is_ok_and(|life| life.iter().any(|event| event.what == What::SandboxReady))
    }

    /// Whether a container that is gone ever was prepared: the journal knows. When it cannot be read, whoever reads is told.
    async fn was_prepared(&self, id: &ContainerId) -> bool {
        let life = self.node.runtime.explain(Subject::Container(id.clone())).await;
        life.map_or(true, |life| is_life_of_one_prepared(life.iter().map(|event| &event.what)))
    }

    /// How a pod is, or how it was last.
    fn pod_status(&mut self, id: &SandboxId) -> PodSandboxStatus {
        if let Ok(pod) = self.node.runtime.sandbox(id) {
            let status = pods::show::status(&pod.record);
            if self.seen.len() < EVENT_PODS_MAX || self.seen.contains_key(id) {
                self.seen.insert(id.clone(), status.clone());
            }
            return status;
        }
        let mut status = self
            .seen
            .get(id)
            .cloned()
            .unwrap_or_else(|| PodSandboxStatus { id: id.to_string(), ..PodSandboxStatus::default() });
        status.set_state(PodSandboxState::SandboxNotready);
        status
    }
}

/// What a message about a pod changes.
fn change_by(pod: &SandboxId, what: &What) -> Option<Change> {
    match what {
        What::SandboxNotReady { .. } | What::SandboxStopped => Some(Change::Ended(pod.clone())),
        What::SandboxRemoved => Some(Change::Gone(pod.clone())),
        _ => None,
    }
}

/// Whether a container was prepared, from what the journal still has of it. One whose beginning is not kept any more was.
fn is_life_of_one_prepared<'a>(life: impl Iterator<Item = &'a What>) -> bool {
    let mut begins = false;
    for what in life {
        match what {
            What::ContainerPrepared { .. } | What::ContainerStarted { .. } => return true,
            What::ContainerCreated => begins = true,
            _ => {}
        }
    }
    !begins
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A creation that failed was told as the end and the deletion of a container that nobody had been told of.
    #[test]
    fn a_container_that_could_not_be_made_is_not_told_of() {
        let undone = What::Undone { step: "create".to_owned(), outcome: "no such program".to_owned() };
        let failed = [What::ContainerCreated, undone, What::ContainerRemoved];
        assert!(!is_life_of_one_prepared(failed.iter()));
        let made = [What::ContainerCreated, What::ContainerPrepared { pid: 7 }, What::ContainerRemoved];
        assert!(is_life_of_one_prepared(made.iter()));
    }

    /// The journal keeps its newest entries only, and a container may be older than all of them.
    #[test]
    fn a_container_whose_beginning_is_not_kept_any_more_is_told_of() {
        assert!(is_life_of_one_prepared([What::ContainerRemoved].iter()));
        assert!(is_life_of_one_prepared([].iter()));
    }

    #[test]
    fn the_end_of_a_pod_is_remembered_until_it_is_gone() {
        let (pod, mut ended) = (SandboxId::from_random([7; 16]), HashSet::new());
        assert_eq!(change_by(&pod, &What::SandboxReady), None);
        change_by(&pod, &What::SandboxStopped).expect("a change").apply(&mut ended);
        assert!(ended.contains(&pod));
        change_by(&pod, &What::SandboxRemoved).expect("a change").apply(&mut ended);
        assert!(ended.is_empty());
    }
}
