//! The Container Runtime Interface on real processes: a daemon, and a client of the same messages as kubelet's.

mod busybox;
mod containers;
mod events;
mod execs;
mod images;
mod limits;
mod made;
mod mounts;
mod node;
mod pods;
mod port_forward;
mod rig;
mod security;
mod streams;
mod systemd;
mod updates;
mod usage;

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
