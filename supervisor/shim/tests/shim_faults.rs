//! A shim of containerd's behind the pod's own that is killed, hangs, or is not what it should be: bounded, told by name, and the
//! pod can be removed.

mod rig;

use std::path::{Path, PathBuf};
use std::time::Instant;

use mainstay_messages::process::ExitStatus;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension;
use mainstay_task_api::task;
use rig::{DEADLINE, Lifeline, Plan, Rig, Runtime, context, next_exits, until};
use rustix::process::{Pid, Signal, kill_process};

/// A rig with a pod behind containerd's shim for runc.
async fn start() -> Option<Rig> {
    if !rig::possible_with(Runtime::ShimRunc) {
        return None;
    }
    Some(Rig::start_behind(Lifeline::Without, Some(Runtime::ShimRunc)).await)
}

async fn behind(rig: &Rig) -> Pid {
    let info = rig.extension.info(context(), &extension::InfoRequest::default()).await.expect("an answer");
    let backend = info.backend.as_ref().expect("something stands behind it");
    assert_eq!(backend.protocol, "task v2");
    Pid::from_raw(i32::try_from(backend.pids[0]).expect("a process id")).expect("not zero")
}

fn key(id: &str) -> ProcessKey {
    ProcessKey::parse(id, "").expect("a good id")
}

async fn exit_of(rig: &Rig, id: &str) -> ExitStatus {
    let begun = Instant::now();
    loop {
        let exits = next_exits(&rig.extension, &[], true).await;
        if let Some((_, exit)) = exits.into_iter().find(|(found, _)| *found == key(id)) {
            return exit.status;
        }
        assert!(begun.elapsed() < DEADLINE, "no exit of {id}\n{}", rig.shim_log());
    }
}

/// Processes of the pod's cgroup, by any means.
fn processes(rig: &Rig) -> usize {
    mainstay_cgroups::Cgroup::open(&rig.layout, &rig.cgroup).pids().map_or(0, |pids| pids.len())
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

/// A shim that dies leaves its containers running (containerd 10727), and nobody hears of their ends.
#[tokio::test]
async fn the_death_of_the_shim_behind_ends_its_containers_with_their_real_exits() {
    let Some(rig) = start().await else { return };
    let runs = rig.run_idle().await;
    let waits = rig.create(&Plan::default()).await;
    let pid = behind(&rig).await;
    kill_process(pid, Signal::KILL).expect("it lives");
    // Killed as orphans, and reaped by the pod's own shim.
    for id in [&runs, &waits] {
        assert_eq!(exit_of(&rig, id).await, ExitStatus::Signaled { signal: 9 });
    }
    until("nothing runs", || processes(&rig) == 0).await;
    let refused = rig.try_create("new", &Plan::default()).await.expect_err("it has no shim").to_string();
    assert!(refused.contains("containerd-shim-runc-v2") && refused.contains("signal 9"), "{refused}");
    for id in [&runs, &waits] {
        rig.delete(id, "").await.expect("deleted without it");
        assert!(!rig.bundle(id).exists());
    }
    assert!(no_mount_below(&rig), "a root stays mounted");
}

fn no_mount_below(rig: &Rig) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", rig.shim_pid())).expect("a table");
    let place = rig.directory.join("c").display().to_string();
    !table.lines().any(|line| line.contains(&place))
}

/// One that ends by itself while its shim is dying must not become a kill.
#[tokio::test]
async fn an_exit_that_the_dead_shim_did_not_tell_is_known_all_the_same() {
    let Some(rig) = start().await else { return };
    let id = rig.run(&Plan { args: &["sh", "-c", "exit 7"], ..Plan::default() }).await;
    let pid = behind(&rig).await;
    kill_process(pid, Signal::KILL).expect("it lives");
    assert_eq!(exit_of(&rig, &id).await, ExitStatus::Exited { code: 7 });
    rig.delete(&id, "").await.expect("deleted");
}

#[tokio::test]
async fn a_shim_that_hangs_harms_no_kill_no_exit_and_no_removal() {
    let Some(mut rig) = start().await else { return };
    let id = rig.run_idle().await;
    let ends = rig.run(&Plan { args: &["sh", "-c", "sleep 0.5; exit 5"], ..Plan::default() }).await;
    let pid = behind(&rig).await;
    kill_process(pid, Signal::STOP).expect("it lives");
    // The kernel says how it ended, while it is a zombie of a shim that does not look.
    assert_eq!(exit_of(&rig, &ends).await, ExitStatus::Exited { code: 5 });
    let term = rig.kill(&id, "", 15).await.expect_err("nobody sends it").to_string();
    assert!(term.contains("Kill was not answered within"), "{term}");
    rig.kill(&id, "", 9).await.expect("killed without it");
    assert_eq!(exit_of(&rig, &id).await, ExitStatus::Signaled { signal: 9 });
    let request = task::ShutdownRequest { now: true, ..Default::default() };
    rig.task.shutdown(context(), &request).await.expect("the pod ends");
    until("the shim ends", || rig.has_ended()).await;
    until("nothing runs", || processes(&rig) == 0 && !is_alive(pid)).await;
}

/// A first deletion waited for a shim that hung, with the root still mounted; a second one found nothing to do, and removed the bundle
/// with all that is in it: the user's own directory, through the mount.
#[tokio::test]
async fn a_second_deletion_during_the_first_one_does_not_empty_the_root() {
    let Some(rig) = start().await else { return };
    let id = rig.run_idle().await;
    let pid = behind(&rig).await;
    rig.kill(&id, "", 9).await.expect("killed");
    assert_eq!(exit_of(&rig, &id).await, ExitStatus::Signaled { signal: 9 });
    kill_process(pid, Signal::STOP).expect("it lives");
    let (first, second) = tokio::join!(rig.delete(&id, ""), rig.delete(&id, ""));
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    assert!(rig.rootfs.join("bin/busybox").exists(), "the user's directory was emptied");
    assert!(!rig.bundle(&id).exists() && no_mount_below(&rig));
}

/// The supervisor kills the pod's cgroup when a shim dies; nothing else would find the shim behind it.
#[tokio::test]
async fn the_shim_behind_is_in_the_cgroup_of_the_pod() {
    let Some(mut rig) = start().await else { return };
    rig.run_idle().await;
    let pid = behind(&rig).await;
    rig.kill_shim();
    assert!(is_alive(pid), "it ends with its pod, not with its parent");
    mainstay_cgroups::Cgroup::open(&rig.layout, &rig.cgroup).kill().expect("killed");
    until("nothing runs", || processes(&rig) == 0 && !is_alive(pid)).await;
}

#[tokio::test]
async fn an_orderly_end_leaves_no_socket_and_no_process() {
    let Some(mut rig) = start().await else { return };
    let sockets = std::fs::read_dir(rig.directory.join("x/s")).expect("of the pod's own").flatten();
    let sockets: Vec<_> = sockets.map(|socket| socket.file_name()).collect();
    assert!(!sockets.is_empty());
    let id = rig.run(&Plan::default()).await;
    assert_eq!(rig.wait(&id, "").await, 0);
    rig.delete(&id, "").await.expect("deleted");
    let pid = behind(&rig).await;
    rig.task.shutdown(context(), &task::ShutdownRequest::default()).await.expect("it ends");
    until("the shim ends", || rig.has_ended()).await;
    until("nothing runs", || processes(&rig) == 0 && !is_alive(pid)).await;
    let on_host = |name: &std::ffi::OsString| Path::new("/run/containerd/s").join(name).exists();
    assert!(!sockets.iter().any(on_host), "its socket was never on the host");
}

async fn refusal_of(script: &str) -> Option<String> {
    if !rig::possible_with(Runtime::ShimRunc) {
        return None;
    }
    let rig = Rig::start_behind(Lifeline::Without, None).await;
    let program: PathBuf = rig.script("containerd-shim-odd-v2", script);
    let request = rig::shim_request(Path::new(&program));
    let error = rig.extension.create_pod(context(), &request).await.expect_err("refused").to_string();
    until("nothing runs", || processes(&rig) == 0).await;
    // Another one may have it.
    let request = rig.pod_of(Runtime::ShimRunc).expect("one behind a shim");
    rig.extension.create_pod(context(), &request).await.expect("made");
    Some(error)
}

#[tokio::test]
async fn a_program_that_is_no_shim_is_told_with_what_it_said() {
    for (script, named) in [
        ("#!/bin/sh\necho no such luck >&2; exit 3\n", "no such luck"),
        ("#!/bin/sh\necho rubbish\n", "rubbish"),
        ("#!/bin/sh\n", "answered nothing"),
        ("#!/bin/sh\necho unix:///nowhere/at/all\n", "/nowhere/at/all"),
        ("#!/bin/sh\nsleep 1000 & sleep 1000\n", "did not end within"),
    ] {
        let Some(error) = refusal_of(script).await else { return };
        assert!(error.contains(named), "{error}");
        assert!(error.contains("containerd-shim-odd-v2"), "{error}");
    }
}

/// Its root could not get to the bundle.
#[tokio::test]
async fn a_user_namespace_is_refused_by_name() {
    if !rig::possible_with(Runtime::ShimRunc) {
        return;
    }
    let rig = Rig::start_behind(Lifeline::Without, None).await;
    let mut request = rig.pod_of(Runtime::ShimRunc).expect("one behind a shim");
    let all = || extension::IdMapping { container: 0, host: 1_000_000, size: 65_536, ..Default::default() };
    (request.uids, request.gids) = (vec![all()], vec![all()]);
    let error = rig.extension.create_pod(context(), &request).await.expect_err("refused").to_string();
    assert!(error.contains("a user namespace behind another shim"), "{error}");
}

/// For shims that know no loggers.
#[tokio::test]
async fn output_comes_by_fifos_where_the_handler_says_so() {
    if !rig::possible_with(Runtime::ShimRunc) {
        return;
    }
    let rig = Rig::start_behind(Lifeline::Without, None).await;
    let mut request = rig.pod_of(Runtime::ShimRunc).expect("one behind a shim");
    let Some(extension::backend::Kind::Shim(shim)) = request.backend.as_mut().and_then(|it| it.kind.as_mut())
    else {
        panic!("it has a shim")
    };
    shim.output = extension::OutputBy::OUTPUT_FIFO.into();
    rig.extension.create_pod(context(), &request).await.expect("made");
    let script = "seq 1 20000; echo end >&2; exit 3";
    let id = rig.run(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    assert_eq!(rig.wait(&id, "").await, 3);
    let expected: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(rig::joined(&rig.log_path(&id), "stdout"), expected.as_bytes());
    assert_eq!(rig::joined(&rig.log_path(&id), "stderr"), b"end\n");
    let id = rig.run_idle().await;
    assert_eq!(rig.exec(&id, &["sh", "-c", "seq 1 5000 | wc -l; exit 4"]).await.1, 4);
}

/// What is frozen cannot die, and the freezer is that of the shim behind.
#[tokio::test]
async fn a_paused_container_can_be_killed() {
    let Some(rig) = start().await else { return };
    let id = rig.run_idle().await;
    let request = task::PauseRequest { id: id.clone(), ..Default::default() };
    rig.task.pause(context(), &request).await.expect("paused");
    assert_eq!(rig.status(&id).await, task::Status::PAUSED);
    rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(exit_of(&rig, &id).await, ExitStatus::Signaled { signal: 9 });
    rig.delete(&id, "").await.expect("deleted");
}
