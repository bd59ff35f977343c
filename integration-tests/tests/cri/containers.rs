//! The life of containers, and what is said of them.

use std::collections::HashMap;
use std::fs;

use mainstay_cri_api::{
    ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState, ContainerStateValue,
    ContainerStatusRequest, CreateContainerRequest, ListContainersRequest, RemoveContainerRequest,
    RemovePodSandboxRequest, ReopenContainerLogRequest, StartContainerRequest, StopContainerRequest,
    StreamContainersRequest,
};
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, busybox, rig};

async fn stop(rig: &Rig, id: &str, timeout: i64) {
    let request = StopContainerRequest { container_id: id.to_owned(), timeout };
    wait::finish("a container stops", rig.runtime().stop_container(request)).await.expect("stopped");
}

async fn remove(rig: &Rig, id: &str) {
    let request = RemoveContainerRequest { container_id: id.to_owned() };
    wait::finish("a container goes", rig.runtime().remove_container(request)).await.expect("removed");
}

async fn list(rig: &Rig, change: impl FnOnce(&mut ContainerFilter)) -> Vec<String> {
    let mut filter = ContainerFilter::default();
    change(&mut filter);
    let request = ListContainersRequest { filter: Some(filter) };
    let answer = rig.runtime().list_containers(request).await.expect("listed").into_inner();
    answer.containers.into_iter().map(|container| container.id).collect()
}

#[tokio::test]
async fn a_container_is_told_of_as_it_was_asked_for_from_its_creation_to_its_removal() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod_config = busybox::pod(&rig, "web");
    let pod = rig.run_pod(&pod_config).await;
    let mut config = busybox::script("app", "echo hello; trap 'exit 5' TERM; while :; do sleep 0.05; done");
    config.annotations = HashMap::from([("example.com/any".to_owned(), "thing".to_owned())]);
    let id = rig.create(&pod, &config).await.expect("made");
    let shown = rig.container(&id).await;
    assert_eq!((&shown.metadata, &shown.labels), (&config.metadata, &config.labels));
    assert_eq!(shown.annotations, config.annotations);
    assert_eq!(
        (shown.state(), shown.started_at, shown.finished_at),
        (ContainerState::ContainerCreated, 0, 0)
    );
    let image = shown.image.clone().expect("given");
    assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), (busybox::IMAGE, busybox::IMAGE));
    assert!(shown.image_id.starts_with("sha256:") && !shown.image_ref.is_empty(), "{shown:?}");
    assert_eq!(shown.log_path, format!("{}/app/0.log", pod_config.log_directory));

    let start = StartContainerRequest { container_id: id.clone() };
    rig.runtime().start_container(start.clone()).await.expect("started");
    let running = rig.container(&id).await;
    assert_eq!(running.state(), ContainerState::ContainerRunning);
    assert!(running.started_at >= running.created_at);
    assert_refused(rig.runtime().start_container(start).await, Code::FailedPrecondition, &["running"]);
    wait::until("its log is there", || {
        fs::read_to_string(&running.log_path).is_ok_and(|log| log.contains(" stdout F hello\n")).then_some(())
    })
    .await;
    fs::rename(&running.log_path, format!("{}.1", running.log_path)).expect("moved");
    let reopen = ReopenContainerLogRequest { container_id: id.clone() };
    rig.runtime().reopen_container_log(reopen.clone()).await.expect("opened anew");
    assert!(fs::exists(&running.log_path).expect("readable"));
    let verbose = ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let info = rig.runtime().container_status(verbose).await.expect("told").into_inner().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("JSON");
    assert!(info["pid"].as_u64().is_some_and(|pid| pid > 1) && info["sandboxID"] == pod.as_str(), "{info}");

    stop(&rig, &id, 30).await;
    let ended = rig.container(&id).await;
    assert_eq!((ended.state(), ended.exit_code), (ContainerState::ContainerExited, 5));
    assert_eq!((ended.reason.as_str(), ended.message.as_str()), ("Error", ""));
    assert!(ended.finished_at >= ended.started_at);
    assert_refused(rig.runtime().reopen_container_log(reopen).await, Code::FailedPrecondition, &[]);
    stop(&rig, &id, 0).await;
    remove(&rig, &id).await;
    remove(&rig, &id).await;
    stop(&rig, "0000", 0).await;
    let gone = ContainerStatusRequest { container_id: id.clone(), verbose: false };
    assert_refused(rig.runtime().container_status(gone).await, Code::NotFound, &[&id]);
    rig.finish().await;
}

#[tokio::test]
async fn an_exit_says_why() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let good = rig.run_container(&pod, &busybox::script("good", "exit 0")).await;
    let deaf =
        rig.run_container(&pod, &busybox::script("deaf", "trap '' TERM; while :; do sleep 0.05; done")).await;
    let lost = rig.run_container(&pod, &busybox::script("nowhere", "true")).await;
    let good = rig.ended(&good).await;
    assert_eq!((good.exit_code, good.reason.as_str()), (0, "Completed"));
    stop(&rig, &deaf, 0).await;
    let deaf = rig.ended(&deaf).await;
    assert_eq!((deaf.exit_code, deaf.reason.as_str()), (137, "Error"));
    rig.ended(&lost).await;

    // What is not there is said by whoever is asked to run it, and stays to be looked at.
    let nowhere = ContainerConfig { command: vec!["/nowhere".to_owned()], ..busybox::script("none", "") };
    match rig.create(&pod, &nowhere).await {
        Ok(id) => {
            let start = StartContainerRequest { container_id: id.clone() };
            let refused = rig.runtime().start_container(start).await;
            assert_refused(refused, Code::FailedPrecondition, &["/nowhere"]);
            let shown = rig.ended(&id).await;
            assert_eq!((shown.exit_code, shown.reason.as_str()), (128, "StartError"));
            assert!(shown.finished_at > 0 && shown.message.contains("/nowhere"), "{shown:?}");
            remove(&rig, &id).await;
        }
        Err(status) => {
            assert!(status.message().contains("/nowhere"), "{status:?}");
            assert_eq!(list(&rig, |_| {}).await.len(), 3, "what could not be made is not left");
        }
    }
    rig.finish().await;
}

#[tokio::test]
async fn a_list_has_what_its_filter_wants() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let (one, two) = (busybox::pod(&rig, "one"), busybox::pod(&rig, "two"));
    let (one, two) = (rig.run_pod(&one).await, rig.run_pod(&two).await);
    let runs = rig.run_container(&one, &busybox::script("runs", "exec sleep 1000")).await;
    let ended = rig.run_container(&one, &busybox::script("ended", "exit 0")).await;
    let waits = rig.create(&two, &busybox::script("waits", "true")).await.expect("made");
    rig.ended(&ended).await;
    let mut all = vec![runs.clone(), ended.clone(), waits.clone()];
    all.sort();
    assert_eq!(list(&rig, |_| {}).await, all);
    assert_eq!(list(&rig, |filter| filter.pod_sandbox_id = two.clone()).await, [waits.as_str()]);
    assert_eq!(list(&rig, |filter| filter.id = runs[..20].to_owned()).await, [runs.as_str()]);
    let labels = HashMap::from([("container".to_owned(), "ended".to_owned())]);
    assert_eq!(list(&rig, |filter| filter.label_selector = labels).await, [ended.as_str()]);
    for (state, id) in [
        (ContainerState::ContainerCreated, &waits),
        (ContainerState::ContainerRunning, &runs),
        (ContainerState::ContainerExited, &ended),
    ] {
        let wanted = Some(ContainerStateValue { state: state.into() });
        assert_eq!(list(&rig, |filter| filter.state = wanted).await, [id.as_str()], "{state:?}");
    }
    let request = StreamContainersRequest { filter: None };
    let mut stream = rig.runtime().stream_containers(request).await.expect("opened").into_inner();
    let mut streamed = Vec::new();
    while let Some(answer) = stream.message().await.expect("told") {
        streamed.extend(answer.containers.into_iter().map(|container| container.id));
    }
    assert_eq!(streamed, all);
    rig.finish().await;
}

/// cd#4604, one of the oldest of its kind: whoever asks again for a container, because the answer did not come in time, hears that its
/// name is reserved.
#[tokio::test]
async fn the_same_container_again_is_the_same_container() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let config = busybox::script("app", "exec sleep 1000");
    let (one, two) = tokio::join!(rig.create(&pod, &config), rig.create(&pod, &config));
    let id = one.expect("made");
    assert_eq!(two.expect("joined"), id);
    assert_eq!(rig.create(&pod, &config).await.expect("answered"), id);
    let other = busybox::script("app", "exec sleep 2000");
    assert_refused(rig.create(&pod, &other).await, Code::AlreadyExists, &["app, attempt 0", &id]);
    let next =
        ContainerConfig { metadata: Some(ContainerMetadata { name: "app".to_owned(), attempt: 1 }), ..other };
    assert_ne!(rig.create(&pod, &next).await.expect("another attempt is another container"), id);
    rig.finish().await;
}

#[tokio::test]
async fn a_container_that_cannot_be_is_refused_with_the_name_of_what_is_wrong() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let config = || busybox::script("app", "true");
    let nowhere = rig.create("0123", &config()).await;
    assert_refused(nowhere, Code::NotFound, &["0123"]);
    let nameless = ContainerConfig { metadata: None, ..config() };
    assert_refused(rig.create(&pod, &nameless).await, Code::InvalidArgument, &["config.metadata"]);
    let mut unknown = config();
    unknown.image.as_mut().expect("given").image = "example.com/none:1".to_owned();
    assert_refused(rig.create(&pod, &unknown).await, Code::NotFound, &["example.com/none:1"]);
    let request = CreateContainerRequest { pod_sandbox_id: pod.clone(), config: None, sandbox_config: None };
    assert_refused(rig.runtime().create_container(request).await, Code::InvalidArgument, &["config"]);
    let stop = mainstay_cri_api::StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
    rig.runtime().stop_pod_sandbox(stop).await.expect("stopped");
    assert_refused(rig.create(&pod, &config()).await, Code::FailedPrecondition, &["stopped"]);
    assert!(list(&rig, |_| {}).await.is_empty());
    rig.finish().await;
}

/// Removal again and again, of the container and of its pod, from many at once (case 25).
#[tokio::test]
async fn removals_at_the_same_time_all_succeed() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let removals = (0..20).map(|number| {
        let (mut runtime, pod, id) = (rig.runtime(), pod.clone(), id.clone());
        async move {
            match number % 2 {
                0 => runtime
                    .remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod })
                    .await
                    .map(drop),
                _ => runtime.remove_container(RemoveContainerRequest { container_id: id }).await.map(drop),
            }
        }
    });
    let removals = wait::finish("all answer", futures::future::join_all(removals)).await;
    for removal in removals {
        removal.expect("removed");
    }
    assert!(list(&rig, |_| {}).await.is_empty());
    rig.finish().await;
}

/// A grace is a promise to the container: a caller that leaves, and a daemon that is killed, do not cut it short (case 27).
#[tokio::test]
async fn a_grace_outlives_its_caller_and_the_daemon() {
    let mut rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let gate = rig.world().path().join("gate");
    fs::create_dir(&gate).expect("made");
    let mut config = busybox::script(
        "slow",
        "trap 'echo > /gate/asked; while [ ! -e /gate/go ]; do sleep 0.05; done; exit 9' TERM; while :; do sleep 0.05; done",
    );
    config.mounts = vec![mainstay_cri_api::Mount {
        container_path: "/gate".to_owned(),
        host_path: gate.display().to_string(),
        ..Default::default()
    }];
    let id = rig.run_container(&pod, &config).await;
    {
        let mut runtime = rig.runtime();
        let stop = runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 600 });
        tokio::pin!(stop);
        let asked = wait::until("it is asked to stop", || gate.join("asked").exists().then_some(()));
        tokio::select! {
            answer = &mut stop => panic!("it waits for the gate: {answer:?}"),
            () = asked => {}
        }
    }
    assert_eq!(rig.container(&id).await.state(), ContainerState::ContainerRunning);
    rig.restart().await;
    wait::until_async("it is adopted", async || {
        rig.container(&id).await.state() == ContainerState::ContainerRunning
    })
    .await;
    fs::write(gate.join("go"), "").expect("written");
    assert_eq!(rig.ended(&id).await.exit_code, 9, "it came to its own end");
    rig.finish().await;
}

/// What ends while no daemon runs is told as it was (case 4), and the next attempt needs no more than a removal.
#[tokio::test]
async fn an_exit_without_a_daemon_is_told_by_the_next() {
    let mut rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let gate = rig.world().path().join("gate");
    fs::create_dir(&gate).expect("made");
    let mut config =
        busybox::script("app", "while [ ! -e /gate/go ]; do sleep 0.05; done; echo > /gate/went; exit 42");
    config.mounts = vec![mainstay_cri_api::Mount {
        container_path: "/gate".to_owned(),
        host_path: gate.display().to_string(),
        ..Default::default()
    }];
    let id = rig.run_container(&pod, &config).await;
    let before = rig.container(&id).await;
    rig.daemon().kill();
    fs::write(gate.join("go"), "").expect("written");
    wait::until("it has ended", || gate.join("went").exists().then_some(())).await;
    rig.restart().await;
    let ended = rig.ended(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (42, "Error"));
    assert_eq!((ended.metadata, ended.labels, ended.image), (before.metadata, before.labels, before.image));
    remove(&rig, &id).await;
    let next = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "app".to_owned(), attempt: 1 }),
        ..config
    };
    let id = rig.run_container(&pod, &next).await;
    assert_eq!(rig.ended(&id).await.exit_code, 42);
    rig.finish().await;
}

/// cd#10583: one call that hangs in an OCI call makes every list hang, and the node is not ready. Here a pod whose shim stands still holds
/// up its own container alone (case 41), and who asks for that again joins.
#[tokio::test]
async fn lists_and_statuses_wait_for_no_container_that_hangs() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let (stuck, other) = (busybox::pod(&rig, "stuck"), busybox::pod(&rig, "other"));
    let (stuck, other) = (rig.run_pod(&stuck).await, rig.run_pod(&other).await);
    let ran = rig.run_container(&stuck, &busybox::script("ran", "exec sleep 1000")).await;
    let request = mainstay_cri_api::PodSandboxStatusRequest { pod_sandbox_id: stuck.clone(), verbose: true };
    let shown = rig.runtime().pod_sandbox_status(request.clone()).await.expect("told").into_inner();
    let info: serde_json::Value = serde_json::from_str(&shown.info["info"]).expect("JSON");
    let shim = Stopped::new(info["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid"));
    let config = busybox::script("hangs", "exit 3");
    let mut creating = Box::pin(rig.create(&stuck, &config));
    let looks = async {
        for _ in 0..50 {
            assert_eq!(
                list(&rig, |_| {}).await,
                [ran.as_str()],
                "who asked for the other does not know it yet"
            );
            assert_eq!(rig.container(&ran).await.state(), ContainerState::ContainerRunning);
            rig.runtime().pod_sandbox_status(request.clone()).await.expect("told");
            rig.runtime()
                .list_pod_sandbox(mainstay_cri_api::ListPodSandboxRequest::default())
                .await
                .expect("told");
        }
        let works = rig.run_container(&other, &busybox::script("works", "exit 4")).await;
        assert_eq!(rig.ended(&works).await.exit_code, 4);
    };
    tokio::select! {
        made = &mut creating => panic!("its shim stands still: {made:?}"),
        () = wait::finish("all are told", looks) => {}
    }
    let again = rig.create(&stuck, &config);
    drop(shim);
    let (first, again) = tokio::join!(creating, again);
    assert_eq!(first.expect("made"), again.expect("joined"));
    rig.finish().await;
}

/// A process that stands still until this is dropped.
struct Stopped(rustix::process::Pid);

impl Stopped {
    fn new(pid: i32) -> Self {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is there");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}
