//! Real containers from create to delete.

mod rig;

use mainstay_messages::process::{ExitStatus, OomVerdict};
use mainstay_shim::{exit_record_path, read_exit_record};
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension;
use mainstay_task_api::streams::{OnLag, StdinUse};
use mainstay_task_api::task::{self, Status};
use rig::{Lifeline, Plan, Rig, Runtime, context, next_exits, possible, until};
use serde_json::json;

fn key(id: &str) -> ProcessKey {
    ProcessKey::parse(id, "").expect("a good id")
}

#[tokio::test]
async fn a_container_runs_and_its_exit_is_recorded_announced_and_forgotten() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id =
        rig.create(&Plan { args: &["sh", "-c", "echo out; echo err >&2; exit 7"], ..Plan::default() }).await;
    assert_eq!(rig.status(&id).await, Status::CREATED);
    rig.start_task(&id, "").await.expect("started");
    assert_eq!(rig.wait(&id, "").await, 7);
    assert_eq!(rig.status(&id).await, Status::STOPPED);
    assert_eq!(rig::joined(&rig.log_path(&id), "stdout"), b"out\n");
    assert_eq!(rig::joined(&rig.log_path(&id), "stderr"), b"err\n");

    let record =
        read_exit_record(&exit_record_path(&rig.directory, &key(&id))).expect("good").expect("there");
    assert_eq!(record.exit.status, ExitStatus::Exited { code: 7 });
    assert_eq!(rig.next_exits(&[]).await, [(key(&id), record.exit.clone())]);
    // A daemon that was restarted gets it again, at once.
    let again = rig.connect_again().await;
    assert_eq!(next_exits(&again, &[], true).await, [(key(&id), record.exit)]);
    assert_eq!(rig.delete(&id, "").await.expect("deleted"), 7);
    assert!(!rig.bundle(&id).exists());
    assert!(rig.delete(&id, "").await.expect_err("gone").to_string().contains("not known"));
    assert!(!v2_directory_exists(&rig, &id));
}

fn v2_directory_exists(rig: &Rig, id: &str) -> bool {
    rig.container_cgroup(id).v2_dir().expect("readable").is_some()
        || !rig.container_cgroup(id).v1_procs().expect("readable").is_empty()
}

/// Case 8: a failed start showed code 0, or left debris.
#[tokio::test]
async fn what_cannot_be_started_is_refused_and_leaves_nothing() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    std::fs::write(rig.rootfs.join("etc/plain"), "x").expect("written");
    for (program, named) in [("/nope", "/nope"), ("/etc", "directory"), ("/etc/plain", "executable")] {
        let id = rig.new_id("bad");
        let error =
            rig.try_create(&id, &Plan { args: &[program], ..Plan::default() }).await.expect_err("refused");
        // Others say it in their own words.
        let named = match rig::runtime() {
            Runtime::Own => named,
            Runtime::Runc | Runtime::ShimRunc => program,
            Runtime::Crun => "executable",
        };
        assert!(error.to_string().contains(named), "{error}");
        assert!(!v2_directory_exists(&rig, &id), "the cgroup of {id} is left");
        assert!(!rig.log_path(&id).exists(), "the log of {id} is left");
        let state = task::StateRequest { id: id.clone(), ..Default::default() };
        assert!(rig.task.state(context(), &state).await.is_err());
        // The same id can be used at once.
        rig.try_create(&id, &Plan::default()).await.expect("created");
        rig.delete(&id, "").await.expect("a created container can be deleted");
    }
}

#[tokio::test]
async fn an_exec_format_error_after_the_release_is_an_exit() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let path = rig.rootfs.join("etc/broken");
    std::fs::write(&path, "\x7fELF nonsense").expect("written");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let id = rig.new_id("c");
    match rig.try_create(&id, &Plan { args: &["/etc/broken"], ..Plan::default() }).await {
        // Seen before the release already.
        Err(error) => assert!(error.to_string().contains("/etc/broken"), "{error}"),
        // Others have told that it runs by then.
        Ok(_) if rig::runtime() != Runtime::Own => {
            rig.start_task(&id, "").await.expect("let go");
            assert_ne!(rig.wait(&id, "").await, 0);
        }
        Ok(_) => {
            let error = rig.start_task(&id, "").await.expect_err("it cannot be executed");
            assert!(error.to_string().contains("/etc/broken"), "{error}");
            assert_eq!(rig.wait(&id, "").await, 128);
            assert!(matches!(rig.next_exits(&[]).await[0].1.status, ExitStatus::StartError { .. }));
        }
    }
}

#[tokio::test]
async fn signals_reach_the_process_and_a_dead_one_is_not_found() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let id = rig.run(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    until("the trap", || rig::joined(&rig.log_path(&id), "stdout") == b"ready\n").await;
    assert!(rig.delete(&id, "").await.expect_err("it runs").to_string().contains("is running"));
    rig.kill(&id, "", 15).await.expect("sent");
    assert_eq!(rig.wait(&id, "").await, 5);
    let error = rig.kill(&id, "", 15).await.expect_err("it has exited");
    assert!(matches!(error, ttrpc::Error::RpcStatus(status) if status.code() == ttrpc::Code::NOT_FOUND));

    let id = rig.run_idle().await;
    rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(rig.wait(&id, "").await, 137);
    let exit =
        rig.next_exits(&[key("c1")]).await.into_iter().find(|(found, _)| *found == key(&id)).expect("there");
    assert_eq!((exit.1.status, exit.1.oom), (ExitStatus::Signaled { signal: 9 }, OomVerdict::NotKilled));
}

/// Case 7, with a real out-of-memory kill of PID 1.
#[tokio::test]
async fn an_out_of_memory_kill_of_pid_1_is_told_apart() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let limit = |spec: &mut serde_json::Value| {
        let memory = json!({ "limit": 16 * 1024 * 1024, "swap": 16 * 1024 * 1024 });
        spec["linux"]["resources"] = json!({ "memory": memory });
    };
    let eat = ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"];
    let id = rig.new_id("c");
    if let Err(error) = rig.try_create(&id, &Plan { args: &eat, edit: &limit, ..Plan::default() }).await {
        return eprintln!("skipped: memory cannot be limited here: {error}");
    }
    rig.start_task(&id, "").await.expect("started");
    assert_eq!(rig.wait(&id, "").await, 137);
    let exits = rig.next_exits(&[]).await;
    assert_eq!(exits[0].1.oom, OomVerdict::Killed, "{exits:?}");

    // A child is killed, PID 1 ends well.
    let script = "dd if=/dev/zero of=/dev/null bs=200M count=1; exit 0";
    let id = rig.run(&Plan { args: &["sh", "-c", script], edit: &limit, ..Plan::default() }).await;
    assert_eq!(rig.wait(&id, "").await, 0);
    assert!(rig.stats(&id).await.stats.oom_kills.is_some_and(|kills| kills > 0));
    let exits = next_exits(&rig.extension, &[], true).await;
    let exit = &exits.iter().find(|(found, _)| *found == key(&id)).expect("there").1;
    assert_eq!((exit.reason(), exit.oom), ("Completed", OomVerdict::NotKilled));
}

#[tokio::test]
async fn pausing_stops_everything_and_resuming_lets_it_run() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";
    let id = rig.run(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    let request = task::PauseRequest { id: id.clone(), ..Default::default() };
    rig.task.pause(context(), &request).await.expect("paused");
    assert_eq!(rig.status(&id).await, Status::PAUSED);
    let request = task::ResumeRequest { id: id.clone(), ..Default::default() };
    rig.task.resume(context(), &request).await.expect("resumed");
    let size = || std::fs::metadata(rig.log_path(&id)).map_or(0, |file| file.len());
    let before = size();
    until("output after the resume", || size() > before).await;
    rig.task
        .pause(context(), &task::PauseRequest { id: id.clone(), ..Default::default() })
        .await
        .expect("paused");
    rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(rig.wait(&id, "").await, 137);
}

#[tokio::test]
async fn limits_numbers_and_process_ids_of_a_container() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "sleep 1000 & wait";
    let id = rig.run(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    let request = task::PidsRequest { id: id.clone(), ..Default::default() };
    let deadline = std::time::Instant::now() + rig::DEADLINE;
    while rig.task.pids(context(), &request).await.expect("pids").processes.len() != 2 {
        assert!(std::time::Instant::now() < deadline, "there are never two processes");
    }
    assert!(rig.stats(&id).await.stats.cpu_usage_ns.is_some());
    let pod = rig.stats("").await;
    assert!(pod.shim_private_bytes.is_some_and(|bytes| bytes > 0));
    let resources = mainstay_task_api::well_known_types::any::Any {
        type_url: mainstay_task_api::RESOURCES_TYPE_URL.to_owned(),
        value: br#"{"memory":{"limit":67108864}}"#.to_vec(),
        ..Default::default()
    };
    let request =
        task::UpdateTaskRequest { id: id.clone(), resources: Some(resources).into(), ..Default::default() };
    match rig.task.update(context(), &request).await {
        Ok(_) => assert_eq!(rig.stats(&id).await.stats.memory_limit_bytes, Some(67_108_864)),
        Err(error) => eprintln!("memory cannot be limited here: {error}"),
    }
}

#[tokio::test]
async fn the_pod_shares_namespaces_and_dev_shm() {
    if !possible() {
        return;
    }
    let rig = Rig::start_behind(Lifeline::Without, None).await;
    let request = extension::CreatePodRequest {
        hostname: "web-0".to_owned(),
        pid: extension::PidMode::PID_POD.into(),
        ..rig.pod_of(rig::runtime()).unwrap_or_default()
    };
    let pod = rig.extension.create_pod(context(), &request).await.expect("made");
    let again = rig.extension.create_pod(context(), &request).await.expect("the same");
    assert_eq!(pod, again);
    let other = extension::CreatePodRequest { hostname: "db-0".to_owned(), ..request };
    assert!(rig.extension.create_pod(context(), &other).await.is_err());
    let share = |spec: &mut serde_json::Value| {
        let shared = pod.namespaces.iter().map(|held| json!({ "type": held.kind, "path": held.path }));
        spec["linux"]["namespaces"] = shared.chain([json!({ "type": "mount" })]).collect();
        let shm = json!({ "destination": "/dev/shm", "type": "bind", "source": pod.shm_path, "options": ["rbind", "rw"] });
        spec["mounts"].as_array_mut().expect("a list").push(shm);
    };
    let script = "cat /proc/sys/kernel/hostname; echo hello > /dev/shm/note; exec sleep 1000";
    let first = rig.run(&Plan { args: &["sh", "-c", script], edit: &share, ..Plan::default() }).await;
    until("the name", || rig::joined(&rig.log_path(&first), "stdout") == b"web-0\n").await;
    let script = "cat /proc/sys/kernel/hostname /dev/shm/note; test -d /proc/2";
    let second = rig.run(&Plan { args: &["sh", "-c", script], edit: &share, ..Plan::default() }).await;
    assert_eq!(rig.wait(&second, "").await, 0);
    assert_eq!(rig::joined(&rig.log_path(&second), "stdout"), b"web-0\nhello\n");
    // Nothing of it is seen on the host.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!mounts.contains(&pod.shm_path), "{} is mounted on the host", pod.shm_path);
}

#[tokio::test]
async fn a_shim_ends_with_the_daemon_that_holds_its_lifeline() {
    if !possible() {
        return;
    }
    let mut rig = Rig::start_with(Lifeline::With).await;
    let id = rig.run_idle().await;
    assert!(v2_directory_exists(&rig, &id));
    rig.lifeline.take();
    let deadline = std::time::Instant::now() + rig::DEADLINE;
    while !rig.has_ended() {
        assert!(std::time::Instant::now() < deadline, "the shim does not end");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(!rig.directory.exists());
    assert!(!v2_directory_exists(&rig, &id));
}

#[tokio::test]
async fn a_shutdown_waits_for_the_tasks_unless_it_is_told_not_to() {
    if !possible() {
        return;
    }
    let mut rig = Rig::start().await;
    rig.run_idle().await;
    rig.task.shutdown(context(), &task::ShutdownRequest::default()).await.expect("nothing happens");
    assert!(!rig.has_ended());
    rig.task
        .shutdown(context(), &task::ShutdownRequest { now: true, ..Default::default() })
        .await
        .expect("answered");
    let deadline = std::time::Instant::now() + rig::DEADLINE;
    while !rig.has_ended() {
        assert!(std::time::Instant::now() < deadline, "the shim does not end");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// What the shim leaves when it is killed is enough to tell what became of a container.
#[tokio::test]
async fn the_exit_record_outlives_the_shim() {
    if !possible() {
        return;
    }
    let mut rig = Rig::start().await;
    let id = rig.run(&Plan { args: &["sh", "-c", "exit 3"], ..Plan::default() }).await;
    rig.wait(&id, "").await;
    rig.kill_shim();
    let record =
        read_exit_record(&exit_record_path(&rig.directory, &key(&id))).expect("good").expect("there");
    assert_eq!(record.exit.code(), 3);
}

/// Exits are owed to whoever started the processes, also when the container is deleted first.
#[tokio::test]
async fn exits_outlive_their_container() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig.register_exec(&id, &["sleep", "100000"], false, "").await.expect("registered");
    rig.start_task(&id, &exec).await.expect("started");
    rig.kill(&id, "", 9).await.expect("sent");
    rig.wait(&id, "").await;
    rig.wait(&id, &exec).await;
    rig.delete(&id, "").await.expect("deleted");
    let exits = next_exits(&rig.extension, &[], true).await;
    let exec = ProcessKey::parse(&id, &exec).expect("good ids");
    assert_eq!(exits.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&key(&id), &exec]);
    assert_eq!(exits.iter().map(|(_, exit)| exit.code()).collect::<Vec<_>>(), [137, 137]);
}

#[tokio::test]
async fn an_exec_in_a_frozen_container_is_refused_and_an_unstarted_one_ends_with_it() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig.register_exec(&id, &["cat"], false, "stream://once").await.expect("registered");
    let mut streams = rig.open(&id, &exec, StdinUse::Yes, OnLag::Block).await;
    streams.writer.write(b"never read").await.expect("written");
    rig.task
        .pause(context(), &task::PauseRequest { id: id.clone(), ..Default::default() })
        .await
        .expect("paused");
    let error = rig.start_task(&id, &exec).await.expect_err("it would hang");
    assert!(error.to_string().contains("is paused"), "{error}");
    rig.kill(&id, "", 9).await.expect("sent");
    rig.wait(&id, "").await;
    assert!(rig::read_to_end(&mut streams).await.is_empty());
    let error = rig.start_task(&id, &exec).await.expect_err("it has ended");
    assert!(error.to_string().contains("has exited"), "{error}");
}

/// A full disk must not make an exit unknown to a daemon that is there to hear it.
#[tokio::test]
async fn an_exit_whose_record_cannot_be_written_is_announced_and_written_later() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.create(&Plan { args: &["sh", "-c", "exit 4"], ..Plan::default() }).await;
    // A directory in the place of the temporary file makes the write fail.
    let obstacle = rig.bundle(&id).join("exit.exit-new");
    std::fs::create_dir(&obstacle).expect("made");
    rig.start_task(&id, "").await.expect("started");
    assert_eq!(rig.next_exits(&[]).await[0].1.code(), 4);
    let record = || read_exit_record(&exit_record_path(&rig.directory, &key(&id))).expect("good");
    assert!(record().is_none());
    std::fs::remove_dir(&obstacle).expect("removed");
    until("the record", || record().is_some_and(|record| record.exit.code() == 4)).await;
}

#[tokio::test]
async fn the_task_service_answers_to_the_name_of_version_3_too() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let address = format!("unix://{}", rig.directory.join("ttrpc.sock").display());
    let client = ttrpc::r#async::Client::connect(&address).await.expect("bound");
    let task = mainstay_task_api::task_v3::TaskClient::new(client);
    let request = task::ConnectRequest { id, ..Default::default() };
    let answer = task.connect(context(), &request).await.expect("answered");
    assert_eq!(answer.shim_pid, rig.shim_pid());
    assert!(answer.task_pid > 0);
}

/// A mount on a dead file system hung the whole runtime. Here the child is frozen instead: it cannot go on either.
#[tokio::test]
#[ignore = "takes a minute, the deadline of a creation"]
async fn a_creation_that_hangs_is_ended_and_harms_nothing_else() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let other = rig.run_idle().await;
    let frozen = rig.new_id("frozen");
    let group = mainstay_cgroups::Cgroup::create(
        &rig.layout,
        &rig.cgroup.child(&frozen).expect("a good name"),
        mainstay_cgroups::Controllers::NONE,
    );
    group.expect("made").freeze().expect("asked for");
    let plan = Plan::default();
    let create = rig.try_create(&frozen, &plan);
    let meanwhile = async { rig.exec(&other, &["echo", "hi"]).await };
    let (created, (output, _)) = tokio::join!(create, meanwhile);
    assert_eq!(output, b"hi\n");
    let error = created.expect_err("it hangs").to_string();
    assert!(error.contains("did not finish within 60000 ms"), "{error}");
    println!("{error}");
    assert!(!v2_directory_exists(&rig, &frozen));
}

#[tokio::test]
async fn an_overlay_root_keeps_what_is_written_in_its_layer_alone() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let layer = rig.scratch().join("layer");
    let plan = Plan { args: &["sh", "-c", "echo new > /etc/note"], layer: Some(&layer), ..Plan::default() };
    let id = rig.run(&plan).await;
    assert_eq!(rig.wait(&id, "").await, 0);
    assert_eq!(std::fs::read(layer.join("upper/etc/note")).expect("written"), b"new\n");
    assert!(!rig.rootfs.join("etc/note").exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!mounts.contains(&rig.bundle(&id).display().to_string()), "its root is mounted on the host");
    rig.delete(&id, "").await.expect("deleted");
}
