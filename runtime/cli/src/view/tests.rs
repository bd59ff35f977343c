//! The shapes that programs rely on.

use mainstay_messages::event::{Seq, Subject};
use mainstay_messages::record::{ContainerPhase, ContainerRecord};
use mainstay_messages::{ContainerId, SandboxId, Timestamp};
use serde_json::json;

use super::*;

fn exit() -> Exit {
    Exit { status: ExitStatus::Signaled { signal: 9 }, at: Timestamp(1_000_000_000), oom: OomVerdict::Killed }
}

fn container() -> ContainerSnapshot {
    let spec = ContainerSpec::new("web".parse().expect("a name"), ["sh", "-c", "true"]);
    let (id, pod) = (ContainerId::from_random([1; 16]), SandboxId::from_random([2; 16]));
    let mut record = ContainerRecord::intent(id, pod, spec, "/logs/web.log".into(), Timestamp(0));
    record.phase = ContainerPhase::Exited;
    record.exit = Some(exit());
    ContainerSnapshot { record, activity: None }
}

#[test]
fn a_container_is_flat_and_its_times_are_readable() {
    let view = serde_json::to_value(ContainerView::from(&container())).expect("JSON");
    let expected = json!({
        "id": "01".repeat(16),
        "name": "web",
        "pod": "02".repeat(16),
        "phase": "exited",
            "image": null,
        "command": ["sh", "-c", "true"],
        "pid": null,
        "created_at": "1970-01-01T00:00:00.000000000Z",
        "started_at": null,
        "exit": {
            "code": 137,
            "reason": "OOMKilled",
            "signal": 9,
            "oom_killed": true,
            "message": "killed by SIGKILL (out of memory)",
            "at": "1970-01-01T00:00:01.000000000Z",
        },
        "activity": null,
        "log_path": "/logs/web.log",
        "labels": {},
        "paused": false,
        "limits": null,
    });
    assert_eq!(view, expected);
}

#[test]
fn an_object_says_of_which_kind_it_is() {
    let object = Object::Container { container: container(), execs: Vec::new() };
    let view = serde_json::to_value(ObjectView::from(&object)).expect("JSON");
    assert_eq!(view["kind"], "container");
    assert_eq!(view["name"], "web");
    assert_eq!(view["execs"], json!([]));
    assert_eq!(view["spec"]["process"]["command"], json!(["sh", "-c", "true"]));
}

#[test]
fn an_event_has_its_kind_and_its_fields() {
    let snapshot = container();
    let subject = Subject::container(&snapshot.record.sandbox, &snapshot.record.id);
    let event = |what| Event { seq: Seq(7), at: Timestamp(0), subject: subject.clone(), what };
    let plain = event(What::ContainerCreated);
    let plain = serde_json::to_value(EventView::from(&plain)).expect("JSON");
    assert_eq!(plain["kind"], "container_created");
    assert_eq!(plain["detail"], Value::Null);
    assert_eq!(plain["container"], json!("01".repeat(16)));
    let exited = event(What::ContainerExited { exit: exit() });
    let exited = serde_json::to_value(EventView::from(&exited)).expect("JSON");
    assert_eq!(exited["kind"], "container_exited");
    assert_eq!(exited["detail"]["exit"]["code"], 137);
    assert_eq!(exited["text"], "container killed by SIGKILL (out of memory)");
}

#[test]
fn a_log_line_that_is_not_text_keeps_its_bytes() {
    let record = |bytes: &[u8]| LogRecord {
        at: Timestamp(0),
        stream: OutputStream::Stderr,
        bytes: bytes.to_vec(),
        ends: LineEnd::Newline,
    };
    let text = serde_json::to_value(LogView::from(&record(b"hello"))).expect("JSON");
    assert_eq!(
        (&text["text"], &text["stream"], text.get("bytes")),
        (&json!("hello"), &json!("stderr"), None)
    );
    let raw = serde_json::to_value(LogView::from(&record(b"a\xff"))).expect("JSON");
    assert_eq!(raw["bytes"], json!([97, 255]));
}

#[test]
fn a_stream_has_a_document_a_line() {
    assert_eq!(line(&json!({"a": "x\ny"})), "{\"a\":\"x\\ny\"}\n");
}
