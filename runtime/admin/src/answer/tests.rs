//! Parts and joining them again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_messages::Timestamp;
use mainstay_messages::admin::{ServerBody, ServerFrame};
use mainstay_messages::id::{ContainerId, ExecId, SandboxId};
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use mainstay_messages::record::{ContainerRecord, ExecPhase, SandboxRecord};
use mainstay_messages::spec::{ContainerSpec, ExecSpec, ProcessSpec, SandboxSpec};
use rstest::rstest;

use super::*;
use crate::wire::ServerMessage;

fn sandbox_id() -> SandboxId {
    SandboxId::from_random([7; 16])
}

fn container(number: u32, annotation_bytes: usize) -> ContainerSnapshot {
    let spec = ContainerSpec {
        annotations: BTreeMap::from([("note".to_owned(), "x".repeat(annotation_bytes))]),
        ..ContainerSpec::new("web".parse().expect("a name"), ["true"])
    };
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    let id = ContainerId::from_random(id);
    let record = ContainerRecord::intent(id, sandbox_id(), spec, PathBuf::from("/log"), Timestamp(1));
    ContainerSnapshot { record, activity: None }
}

fn sandbox() -> SandboxSnapshot {
    let spec = SandboxSpec::new("pod".parse().expect("a name"));
    SandboxSnapshot { record: SandboxRecord::intent(sandbox_id(), spec, Timestamp(1)), activity: None }
}

fn exec(number: u8) -> ExecSnapshot {
    ExecSnapshot {
        id: ExecId::from_random([number; 16]),
        container: ContainerId::from_random([1; 16]),
        spec: ExecSpec {
            process: ProcessSpec { command: vec!["y".repeat(100_000)], ..ProcessSpec::default() },
            ..ExecSpec::default()
        },
        phase: ExecPhase::Running,
        pid: Some(1),
        created_at: Timestamp(1),
        exit: Some(Exit {
            status: ExitStatus::Exited { code: 0 },
            at: Timestamp(2),
            oom: OomVerdict::NotKilled,
        }),
    }
}

/// Containers with 200 KiB of annotations each cannot be listed in one frame; the list must come whole all
/// the same.
#[rstest]
#[case::list_of_containers(Response::Containers((0..100).map(|n| container(n, 200 * 1024)).collect()))]
#[case::pod_with_containers(Response::Object(Box::new(Object::Sandbox {
    sandbox: sandbox(),
    containers: (0..100).map(|n| container(n, 50_000)).collect(),
})))]
#[case::container_with_execs(Response::Object(Box::new(Object::Container {
    container: container(1, 3_000_000),
    execs: (0..100).map(exec).collect(),
})))]
#[case::large_elements(Response::Containers((0..5).map(|n| container(n, 4_000_000)).collect()))]
#[case::exec(Response::Object(Box::new(Object::Exec(exec(1)))))]
#[case::nothing_in_the_list(Response::Sandboxes(Vec::new()))]
#[case::one_pod(Response::Sandboxes(vec![sandbox()]))]
#[case::no_list(Response::Done)]
fn parts_fit_and_make_the_whole(#[case] response: Response) {
    let mut parts = Parts::of(response.clone());
    let mut whole: Option<Response> = None;
    let mut last = More::Follows;
    while let Some((part, more)) = parts.next() {
        assert_eq!(last, More::Follows, "a part after the last one");
        last = more;
        let frame = ServerFrame { request: 1, body: ServerBody::Reply(Ok(part.clone())) };
        ServerMessage::Part(frame).seal("a part").expect("it fits into a frame");
        match &mut whole {
            Some(whole) => join(whole, part).expect("parts of one answer"),
            None => whole = Some(part),
        }
    }
    assert_eq!(last, More::None);
    assert!(whole == Some(response), "the parts make another answer");
}

#[test]
fn small_elements_share_a_part() {
    let mut parts = Parts::of(Response::Containers((0..100).map(|n| container(n, 10)).collect()));
    assert!(matches!(parts.next(), Some((Response::Containers(list), More::None)) if list.len() == 100));
}

#[test]
fn parts_of_different_answers_do_not_join() {
    let mut containers = Response::Containers(Vec::new());
    assert_eq!(join(&mut containers, Response::Done), Err(Mismatch));
    assert_eq!(join(&mut containers, Response::Events(Vec::new())), Err(Mismatch));
    let mut exec = Response::Object(Box::new(Object::Exec(exec(1))));
    assert_eq!(join(&mut exec, Response::Containers(Vec::new())), Err(Mismatch));
}

/// What no frame holds is named, so that its owner can be told.
#[test]
fn an_element_that_is_too_large_is_named() {
    let response = Response::Containers(vec![container(1, 10), container(2, 5_000_000)]);
    let mut parts = Parts::of(response);
    let (_, more) = parts.next().expect("a first part");
    assert_eq!(more, More::Follows);
    let (part, _) = parts.next().expect("a second part");
    assert_eq!(describe(&part), format!("container {}", container(2, 0).record.id));
    let what = describe(&part);
    let frame = ServerFrame { request: 1, body: ServerBody::Reply(Ok(part)) };
    let error = ServerMessage::Frame(frame).seal(&what).expect_err("too large").to_string();
    assert!(error.starts_with("container 00000002"), "{error}");
}
