//! P5: the daemon may be killed at any instant, and what runs goes on.

use std::fs;

use mainstay::{ContainerPhase, Runtime};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Shorthand, script_spec, wait};
use mainstay_messages::admin::Reference;

use crate::stage::{Stage, pod_spec};
use crate::streams::logged;

/// Lines that are written, some of them while nobody is there.
const LINES: usize = 20_000;

/// Case 38 (cd#9342), case 4 (cd#6771): with the daemon down, chatty containers froze in write(2), and an exit became code 0 or
/// 255.
pub async fn a_killed_daemon_costs_no_exit_and_no_line(stage: Stage) {
    let config = stage.config();
    let (world, by) = stage.leave().await;
    let mut daemon = Daemon::start_with(&world, &config, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    client.run_sandbox(pod_spec("p")).await.expect("a pod runs");
    let script = format!(
        "n=0; while [ $n -lt {LINES} ]; do n=$((n+1)); echo \"line $n of a log that fills more than a pipe\"; done; exit 42"
    );
    let pod = Reference("p".to_owned());
    let container = client.create_container(pod, script_spec("c", &script)).await.expect("created");
    client.start_container(Reference(container.to_string())).await.expect("started");
    daemon.kill();
    let runtime = Runtime::start(config).await.expect("another one");
    let stage = Stage { world, runtime, by };
    let exit = stage.runtime.exit_of(&container).await;
    assert_eq!(exit.code(), 42, "{exit}");
    assert_eq!(stage.exits_of(&container).await, [exit]);
    let out = logged(&stage.runtime, &container).await.remove("stdout").expect("lines");
    assert_eq!(out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), LINES);
    stage.finish().await;
}

pub async fn what_ran_goes_on_and_can_be_used(stage: Stage) {
    let pod = stage.pod("p").await;
    let gate = stage.world.path().join("gate");
    fs::create_dir(&gate).expect("made");
    let script = format!("until [ -e {}/open ]; do sleep 0.02; done; exit 9", gate.display());
    let mut spec = script_spec("ends", &script);
    spec.mounts.push(mainstay::Mount::bind(&gate, &gate, mainstay::Access::ReadWrite));
    let ends = mainstay_integration_tests::run(&stage.runtime, &pod, spec).await.expect("it runs");
    let runs = stage.runtime.started(&pod, "runs", "exec sleep 1000").await;
    let process = stage.runtime.container(&ends).expect("listed").record.process.clone().expect("it runs");
    let left = stage.leave().await;
    fs::write(gate.join("open"), "").expect("written");
    wait::until("it has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')).then_some(())
    })
    .await;
    let stage = Stage::again(left).await;
    assert_eq!(stage.runtime.exit_of(&ends).await.code(), 9);
    assert_eq!(stage.exits_of(&ends).await.len(), 1);
    assert_eq!(stage.runtime.sh(&runs, "echo hi").await.stdout, b"hi\n", "the other runs on");
    let more = stage.runtime.started(&pod, "more", "exit 3").await;
    assert_eq!(stage.runtime.exit_of(&more).await.code(), 3, "the pod takes containers");
    stage.finish().await;
}

pub async fn what_was_created_can_still_be_started(stage: Stage) {
    let pod = stage.pod("p").await;
    let created = stage.runtime.created(&pod, "c", "exit 6").await;
    let stage = Stage::again(stage.leave().await).await;
    wait::until("it is known", || {
        let phase = stage.runtime.container(&created).ok()?.record.phase;
        (phase == ContainerPhase::Created).then_some(())
    })
    .await;
    stage.runtime.start_container(&created).await.expect("started");
    assert_eq!(stage.runtime.exit_of(&created).await.code(), 6);
    stage.finish().await;
}
