use super::wire::{decode, failed};
use super::*;
use crate::error::{CommandFault, Context, Step, invalid, unsupported};

fn round_trip(error: LaunchError) {
    let frame = failed(&error);
    assert!(frame.len() <= FRAME_MAX_BYTES);
    match decode(&frame, None).unwrap() {
        Reply::Failed(decoded) => assert_eq!(format!("{decoded:?}"), format!("{error:?}")),
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn every_error_survives_the_socket() {
    round_trip(invalid("mounts[2]", "source \"/nope\" does not exist"));
    round_trip(unsupported("linux.timeOffsets", "a time name space"));
    round_trip(LaunchError::User { user: "www".into(), problem: "no such user".into() });
    for fault in [
        CommandFault::NotFound { searched: None },
        CommandFault::NotFound { searched: Some("/bin".into()) },
        CommandFault::Directory,
        CommandFault::NotExecutable,
        CommandFault::NoInterpreter,
        CommandFault::WrongFormat,
    ] {
        round_trip(LaunchError::Command { program: "/x".into(), fault });
    }
    let refused: std::result::Result<(), _> = Err(io::Error::from_raw_os_error(libc::EPERM));
    round_trip(refused.context(Step::Seccomp, || "loading the filter".into()).unwrap_err());
    round_trip(LaunchError::TargetGone);
    round_trip(LaunchError::Internal { detail: "odd".into() });
}

#[test]
fn long_texts_are_cut_at_a_character_and_still_arrive() {
    let error = invalid("é".repeat(FRAME_MAX_BYTES), "ü".repeat(FRAME_MAX_BYTES));
    let frame = failed(&error);
    assert!(frame.len() <= FRAME_MAX_BYTES);
    assert!(matches!(decode(&frame, None).unwrap(), Reply::Failed(LaunchError::Spec { .. })));
}

#[test]
fn no_prefix_of_a_report_is_taken_for_a_report() {
    let frame = failed(&LaunchError::Command {
        program: "/x".into(),
        fault: CommandFault::NotFound { searched: Some("/bin".into()) },
    });
    for length in 0..frame.len() {
        assert!(decode(&frame[..length], None).is_err(), "{length} bytes");
    }
}

#[test]
fn the_parent_sees_ready_then_the_closing_and_nothing_after() {
    let (parent, child) = pair().unwrap();
    let this = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(this, rustix::process::PidfdFlags::empty()).unwrap();
    let mut launching = Launching::new(this, pidfd, parent);
    assert!(launching.try_reply().unwrap().is_none());
    let (read, _write) = rustix::pipe::pipe().unwrap();
    child.ready(Some(&read), &["clamped".to_owned()]);
    match launching.try_reply().unwrap() {
        Some(Reply::Ready { terminal: Some(_), warnings }) => assert_eq!(warnings, ["clamped"]),
        other => panic!("{other:?}"),
    }
    launching.release().unwrap();
    child.wait_for_release();
    drop(child);
    assert!(matches!(launching.try_reply().unwrap(), Some(Reply::Running)));
    assert!(launching.try_reply().unwrap().is_none());
    assert!(launching.release().is_err());
}

#[test]
fn a_child_that_dies_without_a_word_is_reported() {
    let (parent, child) = pair().unwrap();
    let this = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(this, rustix::process::PidfdFlags::empty()).unwrap();
    let mut launching = Launching::new(this, pidfd, parent);
    launching.go().unwrap();
    drop(child);
    assert!(matches!(launching.try_reply().unwrap(), Some(Reply::Failed(LaunchError::ChildGone))));
}

/// A child that failed before it read its "go" once looked as if it had died without a word: the kernel reports the unread
/// message first.
#[test]
fn a_report_arrives_even_when_the_child_read_nothing() {
    let (parent, child) = pair().unwrap();
    let this = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(this, rustix::process::PidfdFlags::empty()).unwrap();
    let mut launching = Launching::new(this, pidfd, parent);
    launching.go().unwrap();
    child.failed(&LaunchError::TargetGone);
    drop(child);
    assert!(matches!(launching.try_reply().unwrap(), Some(Reply::Failed(LaunchError::TargetGone))));
}
