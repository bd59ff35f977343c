//! The socket and its limits.

use std::os::unix::fs::PermissionsExt;

use mainstay_cri_api::image_service_client::ImageServiceClient;
use mainstay_cri_api::{
    CheckpointContainerRequest, CheckpointPodRequest, ListImagesRequest, RestorePodRequest,
    RunPodSandboxRequest, VersionRequest,
};
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::{assert_refused, rig};

#[tokio::test]
async fn the_socket_is_the_daemons_own_users_alone_and_goes_with_it() {
    let mut rig = rig!();
    let socket = rig.socket();
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().expect("a directory")), 0o700);
    let pid = rustix::process::Pid::from_raw(rig.daemon().pid().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    rig.daemon().ended().await;
    assert!(!socket.exists(), "a daemon that ends takes its socket with it");
    rig.restart().await;
    rig.runtime().version(VersionRequest::default()).await.expect("answered");
    rig.finish().await;
}

#[tokio::test]
async fn a_daemon_that_is_not_to_serve_it_has_no_socket() {
    let world = mainstay_integration_tests::world!();
    let mut config = world.config();
    config.cri.enable = false;
    let daemon = mainstay_integration_tests::Daemon::start_with(&world, &config, &[]).await;
    assert!(!config.admin_socket.with_file_name("cri.sock").exists());
    drop(daemon);
    world.assert_nothing_left().await;
}

/// gRPC answers a message that is too large with RESOURCE_EXHAUSTED everywhere, and kubelet looks for it; the library that serves ours says
/// OUT_OF_RANGE.
#[tokio::test]
async fn a_message_beyond_16_mib_is_refused_and_harms_no_other_call() {
    let rig = rig!();
    let request = RunPodSandboxRequest { runtime_handler: "x".repeat(16 << 20), ..Default::default() };
    let mut runtime = rig.runtime();
    assert_refused(runtime.run_pod_sandbox(request).await, Code::ResourceExhausted, &["16777216"]);
    wait::finish("an answer", runtime.version(VersionRequest::default())).await.expect("answered");
    rig.finish().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_one_to_go() {
    let rig = rig!();
    let mut connections = Vec::new();
    for _ in 0..200 {
        connections.push(std::os::unix::net::UnixStream::connect(rig.socket()).expect("connected"));
    }
    drop(connections);
    let channel = rig::connect(&rig.socket()).await;
    let mut images = ImageServiceClient::new(channel);
    wait::finish("an answer", images.list_images(ListImagesRequest::default())).await.expect("answered");
    rig.finish().await;
}

#[tokio::test]
async fn checkpoints_are_not_there_and_that_is_said() {
    let rig = rig!();
    let mut runtime = rig.runtime();
    let container = runtime.checkpoint_container(CheckpointContainerRequest::default()).await;
    assert_refused(container, Code::Unimplemented, &["CheckpointContainer", "CRIU"]);
    let pod = runtime.checkpoint_pod(CheckpointPodRequest::default()).await;
    assert_refused(pod, Code::Unimplemented, &["CheckpointPod"]);
    let restored = runtime.restore_pod(RestorePodRequest::default()).await;
    assert_refused(restored, Code::Unimplemented, &["RestorePod"]);
    rig.finish().await;
}
