use mainstay_messages::event::Seq;
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};

use super::*;
use crate::life::svg::{ROWS_MAX, picture};

fn pod() -> Subject {
    Subject::sandbox(&SandboxId::from_random([0xaa; 16]))
}

fn container() -> Subject {
    Subject::container(&SandboxId::from_random([0xaa; 16]), &ContainerId::from_random([0xbb; 16]))
}

fn life(entries: Vec<(u64, Subject, What)>) -> Vec<Event> {
    let event = |((ms, subject, what), seq)| Event { seq: Seq(seq), at: at(ms), subject, what };
    entries.into_iter().zip(1..).map(event).collect()
}

fn at(ms: u64) -> Timestamp {
    Timestamp(1_000_000_000 + ms * 1_000_000)
}

fn step(step: &str, way: Way, ms: u64, trouble: Option<&str>) -> StepTaken {
    let trouble = trouble.map(str::to_owned);
    StepTaken { step: step.to_owned(), way, took_us: ms * 1_000, trouble }
}

fn saga(steps: Vec<StepTaken>) -> What {
    What::StepsTaken { saga: "run-pod".to_owned(), steps }
}

fn shown(rows: &[Row]) -> Vec<(u64, Option<u64>, &str)> {
    let ms = |nanos: u64| nanos / 1_000_000;
    rows.iter().map(|row| (ms(row.start.0) - 1_000, row.took().map(ms), row.text.as_str())).collect()
}

#[test]
fn steps_are_rows_that_began_where_the_one_before_ended() {
    let rows = rows(&life(vec![
        (0, pod(), What::SandboxCreated),
        (12, pod(), What::ShimStarted { pid: 7 }),
        (20, pod(), saga(vec![step("cgroup", Way::Act, 4, None), step("shim", Way::Act, 6, None)])),
        (21, pod(), What::SandboxReady),
    ]));
    let expected = [
        (0, None, "pod recorded"),
        (10, Some(10), "run-pod"),
        (10, Some(4), "cgroup"),
        (12, None, "shim started, pid 7"),
        (14, Some(6), "shim"),
        (21, None, "pod ready"),
    ];
    assert_eq!(shown(&rows), expected);
}

#[test]
fn what_failed_and_what_was_undone_says_so() {
    let failed = saga(vec![
        step("cgroup", Way::Act, 1, None),
        step("shim", Way::Act, 2, Some("no room")),
        step("shim", Way::Undo, 1, None),
        step("cgroup", Way::Undo, 1, Some("busy")),
    ]);
    let rows =
        rows(&life(vec![(5, pod(), failed), (9, pod(), saga(vec![step("cgroup", Way::Undo, 1, None)]))]));
    let expected = [
        (0, Some(5), "run-pod failed, and was undone"),
        (0, Some(1), "cgroup"),
        (1, Some(2), "shim failed: no room"),
        (3, Some(1), "undo shim"),
        (4, Some(1), "undo cgroup failed: busy"),
        (8, Some(1), "run-pod undone"),
        (8, Some(1), "undo cgroup"),
    ];
    assert_eq!(shown(&rows), expected);
    let kinds = [RowKind::FailedStep, RowKind::Undo, RowKind::FailedStep];
    assert_eq!([2, 3, 4].map(|index| rows[index].kind), kinds);
}

#[test]
fn a_hook_has_a_row_for_each_plugin() {
    let call = |plugin: &str, ms: u64, outcome, trouble: Option<&str>| HookCall {
        plugin: plugin.to_owned(),
        outcome,
        took_us: ms * 1_000,
        trouble: trouble.map(str::to_owned),
    };
    let calls = vec![
        call("10-a", 2, HookOutcome::Answered, None),
        call("20-b", 3, HookOutcome::Refused, Some("not this one")),
    ];
    let rows = rows(&life(vec![(9, pod(), What::HookCalled { hook: "RunPodSandbox".to_owned(), calls })]));
    let expected = [
        (4, Some(5), "hook RunPodSandbox"),
        (4, Some(2), "10-a"),
        (6, Some(3), "20-b refused: not this one"),
    ];
    assert_eq!(shown(&rows), expected);
}

#[test]
fn phases_last_until_something_ends_them() {
    let exit = Exit { status: ExitStatus::Exited { code: 0 }, at: at(30), oom: OomVerdict::NotKilled };
    let rows = rows(&life(vec![
        (0, pod(), What::SandboxReady),
        (10, container(), What::ContainerStarted { pid: 9 }),
        (15, container(), What::ContainerPaused),
        (17, container(), What::ContainerResumed),
        (30, container(), What::ContainerExited { exit }),
    ]));
    let took: Vec<_> = shown(&rows).into_iter().map(|(_, took, _)| took).collect();
    assert_eq!(took, [None, Some(20), Some(2), None, None], "the pod is ready still");
}

/// A name or an error that a container has chosen could have been a script in the browser of whoever looks.
#[test]
fn a_picture_is_xml_whatever_the_texts_are() {
    let hostile = What::ContainerUnknown { reason: "</text><script>\u{0}\u{1b}&\"".to_owned() };
    let steps = saga(vec![step("shim", Way::Act, 3, None)]);
    let picture = picture("c<1>", &rows(&life(vec![(5, pod(), steps), (6, container(), hostile)])));
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(!picture.contains("<script") && !picture.contains(['\u{0}', '\u{1b}']), "{picture}");
    assert!(picture.contains("&lt;script&gt;\u{fffd}\u{fffd}&amp;&quot;"), "{picture}");
    for tag in ["svg", "text", "g", "title"] {
        let (open, close) = (picture.matches(&format!("<{tag}")).count(), format!("</{tag}>"));
        let alone = if tag == "g" { 0 } else { open };
        assert!(open == picture.matches(&close).count() || alone == 0, "{tag}: {picture}");
    }
    assert_eq!(picture.matches("<rect").count(), 3, "the ground, the saga and its step");
}

#[test]
fn a_picture_has_an_end_however_long_a_life_is() {
    let many = (0..3_000).map(|ms| (ms, pod(), What::ExitParked)).collect();
    let picture = picture("x", &rows(&life(many)));
    assert_eq!(picture.matches("<g>").count(), ROWS_MAX);
    assert!(picture.contains("and 1000 more, which are not drawn"));
    assert!(super::svg::picture("x", &[]).contains("</svg>"));
}
