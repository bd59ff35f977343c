//! What happens to pods and containers, as a stream.

use mainstay::Network;
use mainstay_cri_api::{
    ContainerEventResponse, ContainerEventType, ContainerState, GetEventsRequest, PodSandboxState,
};
use mainstay_integration_tests::{script_spec, wait};
use mainstay_messages::admin::Reference;
use tonic::Streaming;

use crate::rig;
use crate::rig::{Rig, connect};

const CREATED: ContainerEventType = ContainerEventType::ContainerCreatedEvent;
const STARTED: ContainerEventType = ContainerEventType::ContainerStartedEvent;
const STOPPED: ContainerEventType = ContainerEventType::ContainerStoppedEvent;
const DELETED: ContainerEventType = ContainerEventType::ContainerDeletedEvent;

type Events = Streaming<ContainerEventResponse>;

async fn open(rig: &Rig) -> Events {
    rig.runtime().get_container_events(GetEventsRequest {}).await.expect("open").into_inner()
}

async fn next(events: &mut Events) -> ContainerEventResponse {
    wait::finish("an event", events.message()).await.expect("read").expect("the stream goes on")
}

/// The events up to the deletion of `last`.
async fn until_deleted(events: &mut Events, last: &str) -> Vec<(String, ContainerEventType)> {
    let mut all = Vec::new();
    loop {
        let event = next(events).await;
        all.push((event.container_id.clone(), event.container_event_type()));
        if event.container_id == last && event.container_event_type() == DELETED {
            return all;
        }
    }
}

fn named(pairs: &[(&String, ContainerEventType)]) -> Vec<(String, ContainerEventType)> {
    pairs.iter().map(|(id, kind)| ((*id).clone(), *kind)).collect()
}

#[tokio::test]
async fn events_come_in_order_and_once_each_with_how_it_stands() {
    let rig = rig!();
    let mut events = open(&rig).await;
    let pod = rig.made_pod("p", Network::None).await;
    let container = rig.started_container(&pod, "c", "exit 7", |_| {}).await;
    rig.ended_container(&container).await;
    for kind in [CREATED, STARTED] {
        let event = next(&mut events).await;
        assert_eq!((event.container_id.as_str(), event.container_event_type()), (pod.as_str(), kind));
        let status = event.pod_sandbox_status.expect("a status");
        assert_eq!(status.state(), PodSandboxState::SandboxReady);
        assert_eq!(status.metadata.expect("metadata").uid, "p-uid");
    }
    for kind in [CREATED, STARTED, STOPPED] {
        let event = next(&mut events).await;
        assert_eq!((event.container_id.as_str(), event.container_event_type()), (container.as_str(), kind));
        assert!(event.created_at > 0 && event.containers_statuses.len() == 1);
        if kind == STOPPED {
            let status = &event.containers_statuses[0];
            assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 7));
        }
    }
    rig.removed_container(&container).await;
    rig.stopped_pod(&pod).await;
    rig.removed_pod(&pod).await;
    let mut last = None;
    for (id, kind) in [(&container, DELETED), (&pod, STOPPED), (&pod, DELETED)] {
        let event = next(&mut events).await;
        assert_eq!((&event.container_id, event.container_event_type()), (id, kind));
        assert!(event.containers_statuses.is_empty());
        last = event.pod_sandbox_status;
    }
    let last = last.expect("the last status of a pod that is gone");
    assert_eq!(
        (last.state(), last.metadata.expect("metadata").name),
        (PodSandboxState::SandboxNotready, "p".to_owned())
    );
    rig.finish().await;
}

/// A pod that could not be made was never there for kubelet, and neither was what others have made.
#[tokio::test]
async fn what_was_not_asked_for_over_the_interface_is_not_told() {
    let rig = rig!();
    let mut events = open(&rig).await;
    let spec = mainstay::SandboxSpec::new("private".parse().expect("a name"));
    let other = rig.admin().await.run_sandbox(spec).await.expect("it runs").to_string();
    let pod = rig.made_pod("p", Network::None).await;
    let event = next(&mut events).await;
    assert_eq!((event.container_id.as_str(), event.container_event_type()), (pod.as_str(), CREATED));
    rig.removed_pod(&other).await;
    rig.removed_pod(&pod).await;
    let rest = until_deleted(&mut events, &pod).await;
    assert_eq!(rest, named(&[(&pod, STARTED), (&pod, STOPPED), (&pod, DELETED)]));
    rig.finish().await;
}

/// A creation that failed was told as the end and the deletion of a container that nobody had been told of.
#[tokio::test]
async fn a_container_that_could_not_be_made_is_not_told_of() {
    let rig = rig!();
    let mut events = open(&rig).await;
    let pod = rig.made_pod("p", Network::None).await;
    let mut spec = script_spec("lost", "true");
    spec.rootfs = mainstay::Rootfs::Directory { path: "/does/not/exist".into() };
    spec.identity = Some(mainstay::ContainerIdentity { name: "lost".to_owned(), attempt: 0 });
    let made = async { rig.admin().await.create_container(Reference(pod.clone()), spec).await };
    wait::finish("a creation fails", made).await.expect_err("it has no root");
    let listed = rig.admin().await.list_containers().await.expect("a list");
    for lost in listed {
        rig.removed_container(lost.record.id.as_str()).await;
    }
    rig.removed_pod(&pod).await;
    let all = until_deleted(&mut events, &pod).await;
    assert_eq!(all, named(&[(&pod, CREATED), (&pod, STARTED), (&pod, STOPPED), (&pod, DELETED)]));
    rig.finish().await;
}

#[tokio::test]
async fn a_client_that_comes_back_has_missed_nothing() {
    let rig = rig!();
    let mut events = open(&rig).await;
    let pod = rig.made_pod("p", Network::None).await;
    let first = rig.started_container(&pod, "first", "exit 0", |_| {}).await;
    rig.ended_container(&first).await;
    for _ in 0..5 {
        next(&mut events).await;
    }
    drop(events);
    let second = rig.started_container(&pod, "second", "exit 0", |_| {}).await;
    rig.ended_container(&second).await;
    rig.removed_container(&second).await;
    let mut events = open(&rig).await;
    let missed = until_deleted(&mut events, &second).await;
    assert_eq!(
        missed,
        named(&[(&second, CREATED), (&second, STARTED), (&second, STOPPED), (&second, DELETED)])
    );
    rig.removed_pod(&pod).await;
    let rest = until_deleted(&mut events, &pod).await;
    assert_eq!(rest, named(&[(&pod, STOPPED), (&first, DELETED), (&pod, DELETED)]));
    rig.finish().await;
}

/// The end of a container while no daemon runs is told by the next one.
#[tokio::test]
async fn what_happened_while_the_daemon_was_down_is_told_by_the_next() {
    let mut rig = rig!();
    let pod = rig.made_pod("p", Network::None).await;
    let go = rig.world().path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 9", go.display());
    let share = |spec: &mut mainstay::ContainerSpec| {
        let path = rig.world().path();
        spec.mounts.push(mainstay::Mount::bind(path, path, mainstay::Access::ReadOnly));
    };
    let container = rig.started_container(&pod, "c", &script, share).await;
    let mut events = open(&rig).await;
    rig.daemon().kill();
    while wait::finish("the stream ends", events.message()).await.is_ok() {}
    std::fs::write(&go, "").expect("written");
    rig.restart().await;
    let mut events = open(&rig).await;
    let mut event = next(&mut events).await;
    // What the daemon that was killed had not written down yet is told again.
    while event.container_event_type() != STOPPED {
        event = next(&mut events).await;
    }
    assert_eq!(event.container_id, container);
    assert_eq!(event.containers_statuses[0].exit_code, 9);
    rig.removed_pod(&pod).await;
    let rest = until_deleted(&mut events, &pod).await;
    assert_eq!(rest, named(&[(&pod, STOPPED), (&container, DELETED), (&pod, DELETED)]));
    rig.finish().await;
}

/// What a client had not read yet when the daemon ended was told to nobody: the next one began with what had happened since its own
/// start.
#[tokio::test]
async fn what_was_not_read_when_the_daemon_ended_is_told_by_the_next() {
    let mut rig = rig!();
    let mut events = open(&rig).await;
    let pod = rig.made_pod("p", Network::None).await;
    for kind in [CREATED, STARTED] {
        assert_eq!(next(&mut events).await.container_event_type(), kind);
    }
    drop(events);
    let container = rig.started_container(&pod, "c", "exit 3", |_| {}).await;
    rig.ended_container(&container).await;
    rig.end_and_restart().await;
    let mut events = open(&rig).await;
    rig.removed_pod(&pod).await;
    let rest = until_deleted(&mut events, &pod).await;
    let wanted = [
        (&container, CREATED),
        (&container, STARTED),
        (&container, STOPPED),
        (&pod, STOPPED),
        (&container, DELETED),
        (&pod, DELETED),
    ];
    assert_eq!(rest, named(&wanted));
    rig.finish().await;
}

/// In containerd a client that does not read holds up every operation once 100 events wait for it.
#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let rig = rig!();
    let stalled = connect(&rig.socket()).await;
    let mut client = mainstay_cri_api::runtime_service_client::RuntimeServiceClient::new(stalled);
    let unread = client.get_container_events(GetEventsRequest {}).await.expect("open").into_inner();
    let mut events = open(&rig).await;
    let pod = rig.made_pod("p", Network::None).await;
    let mut wanted = named(&[(&pod, CREATED), (&pod, STARTED)]);
    for number in 0..40 {
        let container = rig.started_container(&pod, &format!("c{number}"), "exit 0", |_| {}).await;
        rig.ended_container(&container).await;
        rig.removed_container(&container).await;
        wanted.extend(named(&[
            (&container, CREATED),
            (&container, STARTED),
            (&container, STOPPED),
            (&container, DELETED),
        ]));
    }
    rig.removed_pod(&pod).await;
    wanted.extend(named(&[(&pod, STOPPED), (&pod, DELETED)]));
    assert_eq!(until_deleted(&mut events, &pod).await, wanted);
    drop(unread);
    rig.finish().await;
}
