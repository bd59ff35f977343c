//! Which entries of the journal are events of the interface, and what is said with them.
//!
//! | journal | event |
//! |---|---|
//! | pod ready | created and started, of the pod itself |
//! | pod not ready (its shim died), pod stopped | stopped, whichever comes first |
//! | pod removed | deleted |
//! | container prepared, started, exited, removed | created, started, stopped, deleted |
//!
//! A pod that never was ready is not told of, and neither is what was not asked for over this interface. The statuses are those of the
//! moment at which the event is told, never of one before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mainstay::{ContainerId, ContainerSnapshot, Event, SandboxId, SandboxPhase, Subject, What};
use mainstay_cri_api::{ContainerEventResponse, ContainerEventType, PodSandboxState, PodSandboxStatus};
use tokio::time::Instant;

use super::book::Track;
use crate::limits::{EVENT_PODS_MAX, EVENT_SETTLE_MS};
use crate::node::Node;
use crate::{containers, filter, pods, times};

/// Time between two looks whether a snapshot shows what the journal says, in milliseconds.
const LOOK_MS: u64 = 2;

/// What one stream knows beside the journal.
pub(super) struct Telling {
    node: Arc<Node>,
    track: Arc<Track>,
    /// The pods that it may tell of, as they were last: one that is gone has no snapshot any more.
    seen: HashMap<SandboxId, PodSandboxStatus>,
    /// Pods that were not asked for over this interface.
    others: HashSet<SandboxId>,
}

impl Telling {
    pub(super) fn new(node: Arc<Node>, track: &Arc<Track>) -> Self {
        let seen = filter::pods(&node.runtime).into_iter();
        let seen = seen.filter(|pod| !pod.record.is_half_made());
        let seen = seen.map(|pod| (pod.record.id.clone(), pods::show::status(&pod.record))).collect();
        let others = node.runtime.sandboxes().into_iter().filter(|pod| pod.record.spec.identity.is_none());
        let others = others.map(|pod| pod.record.id.clone()).take(EVENT_PODS_MAX).collect();
        Self { node, track: Arc::clone(track), seen, others }
    }

    /// The messages that an entry comes to, in their order.
    pub(super) async fn messages(&mut self, event: &Event) -> Vec<ContainerEventResponse> {
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
        let message = |kind: &ContainerEventType| ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: (*kind).into(),
            created_at: times::nanos(event.at),
            pod_sandbox_status: Some(status.clone()),
            containers_statuses: statuses.clone(),
        };
        types.iter().map(message).collect()
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
                let told = self.was_ready(id).await && self.track.ended().insert(id.clone());
                if told { &[ContainerStoppedEvent] } else { &[] }
            }
            What::SandboxRemoved => {
                self.settled(|node| node.runtime.sandbox(id).is_err()).await;
                let told = self.was_ready(id).await;
                self.track.ended().remove(id);
                if told { &[ContainerDeletedEvent] } else { &[] }
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
        match shown(&self.node) {
            Some(container) if container.record.spec.identity.is_none() => &[],
            _ => kind,
        }
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
