//! Plugins that do wrong cost the call, not the link, unless the connection itself is spoilt.

use std::time::Duration;

use mainstay_nri::link::{CallError, Link, PodNotice};
use mainstay_nri_plugin::api::mux::Closed;
use mainstay_nri_plugin::faults::{Fault, Faults};

use crate::world::{AMPLE, SHORT, World, pod, within};

/// What becomes of a call that meets a fault.
async fn meet(fault: Fault, limit: Duration) -> (World, Link, CallError) {
    let (world, faults) = (World::new(), Faults::default());
    faults.set("RunPodSandbox", fault, Some(1));
    let (link, _updates) = world.obedient(&faults).await;
    let error = link.pod_notice(PodNotice::Run, pod("p1"), limit).await.expect_err("a fault");
    (world, link, error)
}

async fn works(link: &Link) {
    link.pod_notice(PodNotice::Run, pod("p2"), AMPLE).await.expect("told");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_words_of_the_plugin() {
    let (_world, link, error) = meet(Fault::Refuse("not on a Monday".to_owned()), AMPLE).await;
    assert_eq!(error.to_string(), "RunPodSandbox was refused: not on a Monday");
    works(&link).await;
}

#[tokio::test]
async fn a_plugin_that_panics_has_refused() {
    let (_world, link, error) = meet(Fault::Panic, AMPLE).await;
    assert_eq!(error.to_string(), "RunPodSandbox was refused: the plugin panicked (INTERNAL)");
    works(&link).await;
}

/// containerd drops a plugin for good that is late once (nri#114).
#[tokio::test]
async fn one_that_is_late_or_hangs_costs_that_call_only() {
    for fault in [Fault::Late(SHORT * 3), Fault::Hang] {
        let (_world, link, error) = meet(fault, SHORT).await;
        assert_eq!(error.to_string(), "RunPodSandbox was not answered within 100 ms");
        works(&link).await;
        assert_eq!(link.reason(), None);
    }
}

#[tokio::test]
async fn a_slow_call_holds_up_no_other() {
    let (world, faults) = (World::new(), Faults::default());
    faults.set("RunPodSandbox", Fault::Hang, None);
    let (link, _updates) = world.obedient(&faults).await;
    let slow = link.pod_notice(PodNotice::Run, pod("p1"), AMPLE);
    tokio::pin!(slow);
    tokio::select! {
        biased;
        _ = &mut slow => panic!("it hangs"),
        told = link.pod_notice(PodNotice::Stop, pod("p2"), AMPLE) => told.expect("told"),
    }
}

#[tokio::test]
async fn one_that_dies_fails_what_was_asked_and_all_that_is() {
    let (_world, link, error) = meet(Fault::Die, AMPLE).await;
    assert_eq!(error, CallError::Gone { call: "RunPodSandbox", reason: Closed::There });
    assert_eq!(within(link.closed()).await, Closed::There);
    let later = link.pod_notice(PodNotice::Stop, pod("p1"), AMPLE).await.expect_err("gone");
    assert_eq!(later.to_string(), "StopPodSandbox cannot be answered: the other side closed the connection");
}

#[tokio::test]
async fn an_answer_that_is_none_costs_that_call_only() {
    let (_world, link, error) = meet(Fault::Garbage, AMPLE).await;
    assert!(matches!(error, CallError::Garbage { call: "RunPodSandbox", .. }), "{error}");
    works(&link).await;
}

#[tokio::test]
async fn bytes_that_are_no_frames_end_the_link() {
    let (_world, link, error) = meet(Fault::Noise, AMPLE).await;
    assert!(matches!(error, CallError::Gone { reason: Closed::TooLong { .. }, .. }), "{error}");
    assert!(matches!(link.reason(), Some(Closed::TooLong { .. })));
}

#[tokio::test]
async fn answers_that_nobody_asked_for_are_dropped() {
    let (world, faults) = (World::new(), Faults::default());
    faults.set("RunPodSandbox", Fault::Frames(2_000), None);
    let (link, _updates) = world.obedient(&faults).await;
    for _ in 0..3 {
        works(&link).await;
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_sent() {
    let world = World::new();
    let (link, _updates) = world.obedient(&Faults::default()).await;
    let mut large = pod("p1");
    large.annotations.insert("a".to_owned(), "x".repeat(5 << 20));
    let error = link.pod_notice(PodNotice::Run, large, AMPLE).await.expect_err("too long");
    assert!(error.to_string().starts_with("RunPodSandbox would have 5242"), "{error}");
    works(&link).await;
}
