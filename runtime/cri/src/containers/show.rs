//! Containers as the interface shows them, from published snapshots.

use std::collections::HashMap;

use mainstay::{ContainerPhase, ContainerRecord, ContainerSnapshot, ExitStatus, OomVerdict};
use mainstay_cri_api as api;
use mainstay_cri_api::{ContainerMetadata, ContainerState};
use serde_json::json;

use super::{mounts, signal};
use crate::{notes, resources, times};

/// A container in a list.
pub(crate) fn listed(record: &ContainerRecord) -> api::Container {
    let image_id = image_id(record);
    api::Container {
        id: record.id.to_string(),
        pod_sandbox_id: record.sandbox.to_string(),
        metadata: Some(metadata(record)),
        image: Some(image(record)),
        image_ref: image_id.clone(),
        state: state(record).into(),
        created_at: times::nanos(record.created_at),
        labels: record.spec.labels.clone().into_iter().collect(),
        annotations: record.spec.annotations.clone().into_iter().collect(),
        image_id,
    }
}

/// What there is to say of a container.
pub(crate) fn status(snapshot: &ContainerSnapshot) -> api::ContainerStatus {
    let record = &snapshot.record;
    let exit = record.exit.as_ref();
    let image_ref = match record.spec.notes.get(notes::IMAGE_REF) {
        Some(reference) => reference.clone(),
        None => image_id(record),
    };
    let mut status = api::ContainerStatus {
        id: record.id.to_string(),
        metadata: Some(metadata(record)),
        state: state(record).into(),
        created_at: times::nanos(record.created_at),
        started_at: times::nanos_or_none(record.started_at),
        finished_at: times::nanos_or_none(exit.map(|exit| exit.at)),
        exit_code: exit.map_or(0, |exit| i32::try_from(exit.code()).unwrap_or(i32::MAX)),
        image: Some(image(record)),
        image_ref,
        reason: exit.map(|exit| exit.reason().to_owned()).unwrap_or_default(),
        message: message(record),
        labels: record.spec.labels.clone().into_iter().collect(),
        annotations: record.spec.annotations.clone().into_iter().collect(),
        mounts: record.spec.mounts.iter().filter_map(mounts::shown).collect(),
        log_path: record.log_path.display().to_string(),
        resources: Some(resources::shown(record)),
        image_id: image_id(record),
        user: user(record),
        ..Default::default()
    };
    status.set_stop_signal(signal::shown(record.spec.stop_signal));
    status
}

/// What people look for who look closely.
pub(crate) fn info(snapshot: &ContainerSnapshot) -> HashMap<String, String> {
    let record = &snapshot.record;
    let info = json!({
        "sandboxID": record.sandbox,
        "pid": record.process.as_ref().map_or(0, |process| process.pid),
        "phase": record.phase,
        "activity": snapshot.activity,
        "paused": record.paused,
        "process": record.process,
        "exit": record.exit,
        "config": record.spec,
        "limits": record.limits(),
        "changedByPlugins": record.adjustment,
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}

/// Who a container is. One without an identity is not shown.
pub(crate) fn metadata(record: &ContainerRecord) -> ContainerMetadata {
    let identity = record.spec.identity.clone().unwrap_or_default();
    ContainerMetadata { name: identity.name, attempt: identity.attempt }
}

/// Where it is. Whether one that is being removed has run and has ended, its record says.
pub(crate) fn state(record: &ContainerRecord) -> ContainerState {
    match record.phase {
        _ if record.exit.is_some() => ContainerState::ContainerExited,
        ContainerPhase::Creating | ContainerPhase::Created | ContainerPhase::Starting => {
            ContainerState::ContainerCreated
        }
        ContainerPhase::Running => ContainerState::ContainerRunning,
        ContainerPhase::Stopping | ContainerPhase::Removing => match record.started_at {
            Some(_) => ContainerState::ContainerRunning,
            None => ContainerState::ContainerCreated,
        },
        ContainerPhase::Exited => ContainerState::ContainerExited,
        ContainerPhase::Unknown => ContainerState::ContainerUnknown,
    }
}

/// What its exit's code does not tell.
fn message(record: &ContainerRecord) -> String {
    match &record.exit {
        Some(exit) if exit.oom == OomVerdict::Killed => exit.to_string(),
        Some(exit) => match &exit.status {
            ExitStatus::StartError { reason } => reason.clone(),
            ExitStatus::Unknown { .. } => exit.to_string(),
            ExitStatus::Exited { .. } | ExitStatus::Signaled { .. } => String::new(),
        },
        None => String::new(),
    }
}

/// The image under a name that people know, where it has one.
fn image(record: &ContainerRecord) -> api::ImageSpec {
    let note = |key: &str| record.spec.notes.get(key).cloned();
    api::ImageSpec {
        image: note(notes::IMAGE_NAME).or_else(|| note(notes::IMAGE)).unwrap_or_default(),
        user_specified_image: note(notes::IMAGE_USER).unwrap_or_default(),
        ..Default::default()
    }
}

fn image_id(record: &ContainerRecord) -> String {
    record.spec.rootfs.stands_on().map(|image| image.0.clone()).unwrap_or_default()
}

/// Who its first process is, since that is known.
fn user(record: &ContainerRecord) -> Option<api::ContainerUser> {
    let user = record.user.as_ref()?;
    Some(api::ContainerUser {
        linux: Some(api::LinuxContainerUser {
            uid: i64::from(user.uid),
            gid: i64::from(user.gid),
            supplemental_groups: user.groups.iter().map(|group| i64::from(*group)).collect(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use mainstay::{ContainerIdentity, ContainerSpec, Exit, OomVerdict, Signal, Timestamp, UnknownReason};

    use super::*;

    fn snapshot(change: impl FnOnce(&mut ContainerRecord)) -> ContainerSnapshot {
        let mut spec = ContainerSpec::new("app_3".parse().expect("a name"), ["true"]);
        spec.identity = Some(ContainerIdentity { name: "app".to_owned(), attempt: 3 });
        let notes =
            [(notes::IMAGE, "sha256:1"), (notes::IMAGE_USER, "a:1"), (notes::IMAGE_NAME, "docker.io/a:1")];
        spec.notes = notes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        spec.stop_signal = Some(Signal(1));
        let (id, pod) = ("box".parse().expect("an id"), "pod".parse().expect("an id"));
        let mut record = ContainerRecord::intent(id, pod, spec, "/logs/0.log".into(), Timestamp(7));
        record.phase = ContainerPhase::Created;
        change(&mut record);
        ContainerSnapshot { record, activity: None }
    }

    fn ended(status: ExitStatus, oom: OomVerdict) -> api::ContainerStatus {
        super::status(&snapshot(|record| {
            record.phase = ContainerPhase::Exited;
            record.exit = Some(Exit { status, at: Timestamp(9), oom });
        }))
    }

    #[test]
    fn a_container_is_shown_as_it_was_asked_for() {
        let shown = super::status(&snapshot(|_| {}));
        assert_eq!(shown.metadata, Some(ContainerMetadata { name: "app".to_owned(), attempt: 3 }));
        let image = shown.image.clone().expect("given");
        assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("docker.io/a:1", "a:1"));
        assert_eq!((shown.created_at, shown.started_at, shown.finished_at, shown.exit_code), (7, 0, 0, 0));
        assert_eq!((shown.log_path.as_str(), shown.stop_signal()), ("/logs/0.log", api::Signal::Sighup));
        assert_eq!(shown.state(), ContainerState::ContainerCreated);
    }

    /// One that is being removed is what it was before: kubelet does not know a state of its own for that.
    #[test]
    fn what_is_on_its_way_is_shown_as_what_it_still_is() {
        let state = |phase: ContainerPhase, started: bool| {
            super::state(
                &snapshot(|record| {
                    record.phase = phase;
                    record.started_at = started.then_some(Timestamp(8));
                })
                .record,
            )
        };
        assert_eq!(state(ContainerPhase::Stopping, true), ContainerState::ContainerRunning);
        assert_eq!(state(ContainerPhase::Removing, true), ContainerState::ContainerRunning);
        assert_eq!(state(ContainerPhase::Removing, false), ContainerState::ContainerCreated);
        assert_eq!(state(ContainerPhase::Unknown, true), ContainerState::ContainerUnknown);
    }

    #[test]
    fn an_end_is_told_with_its_reason() {
        let told = |status: ExitStatus, oom: OomVerdict| {
            let shown = ended(status, oom);
            assert_eq!((shown.state(), shown.finished_at), (ContainerState::ContainerExited, 9));
            (shown.exit_code, shown.reason, shown.message)
        };
        let of = |code: i32, reason: &str, message: &str| (code, reason.to_owned(), message.to_owned());
        let (killed, not) = (OomVerdict::Killed, OomVerdict::NotKilled);
        assert_eq!(told(ExitStatus::Exited { code: 0 }, not), of(0, "Completed", ""));
        assert_eq!(told(ExitStatus::Exited { code: 7 }, not), of(7, "Error", ""));
        assert_eq!(told(ExitStatus::Signaled { signal: 9 }, not), of(137, "Error", ""));
        assert_eq!(told(ExitStatus::Signaled { signal: 9 }, killed).1, "OOMKilled");
        let failed = ExitStatus::StartError { reason: "no such file".to_owned() };
        assert_eq!(told(failed, not), of(128, "StartError", "no such file"));
        let unknown = told(ExitStatus::Unknown { reason: UnknownReason::HostRebooted }, not);
        assert_eq!((unknown.0, unknown.1.as_str()), (255, "Unknown"));
        assert!(unknown.2.contains("rebooted"), "{}", unknown.2);
    }
}
