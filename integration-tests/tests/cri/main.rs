//! The Container Runtime Interface on real processes: a daemon, and a client of the same messages as kubelet's.

mod busybox;
mod images;
mod limits;
mod node;
mod port_forward;
mod rig;
mod streams;
mod systemd;

use tonic::Code;

/// What an answer of an error must be: its code, and all of these parts in its text.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, tonic::Status>, code: Code, parts: &[&str]) {
    let status = answer.expect_err("an error");
    assert_eq!(status.code(), code, "{status:?}");
    for part in parts {
        assert!(status.message().contains(part), "{part:?} is not in {:?}", status.message());
    }
}
