//! Commands in containers, run to their end.

use mainstay_cri_api::{ContainerState, ExecSyncRequest};
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::{assert_refused, busybox, rig};

/// What ExecSync keeps of output at most, beside the few bytes that the answer takes itself.
const OUTPUT_BYTES_MAX: usize = (16 << 20) - 1_024;

#[tokio::test]
async fn a_command_says_what_it_says_and_how_it_ended() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let output = rig.exec(&id, "echo out; echo err >&2; exit 3", 10).await.expect("it runs");
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (b"out\n".as_slice(), b"err\n".as_slice())
    );
    assert_eq!(output.exit_code, 3);
    let request = ExecSyncRequest { container_id: id.clone(), cmd: vec!["/nowhere".to_owned()], timeout: 10 };
    assert_refused(rig.runtime().exec_sync(request).await, Code::FailedPrecondition, &["/nowhere"]);
    let request = ExecSyncRequest { container_id: id.clone(), cmd: Vec::new(), timeout: 10 };
    assert_refused(rig.runtime().exec_sync(request).await, Code::InvalidArgument, &["cmd"]);
    assert_refused(rig.exec("0123", "true", 1).await, Code::NotFound, &["0123"]);
    let ended = rig.run_container(&pod, &busybox::script("ended", "exit 0")).await;
    assert_eq!(rig.ended(&ended).await.state(), ContainerState::ContainerExited);
    assert_refused(rig.exec(&ended, "true", 1).await, Code::FailedPrecondition, &["exited"]);
    rig.finish().await;
}

/// A command that leaves a child behind, which holds its output open, has ended when it has ended (case 31): probes of that kind hung
/// far past their time, and cost their daemons all of the memory.
#[tokio::test]
async fn a_command_is_not_waited_for_longer_than_it_runs() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let output = rig.exec(&id, "sleep 500 & echo hi", 30).await.expect("it ends");
    assert_eq!((output.stdout.as_slice(), output.exit_code), (b"hi\n".as_slice(), 0));
    rig.finish().await;
}

#[tokio::test]
async fn a_command_whose_time_is_over_is_killed() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let late = rig.exec(&id, "echo $$ > /dev/shm/pid; trap '' TERM; exec sleep 500", 1).await;
    assert_refused(late, Code::DeadlineExceeded, &["sleep 500", "1000 ms"]);
    wait::until_async("it is gone", async || {
        rig.says(&id, "cat /proc/$(cat /dev/shm/pid)/cmdline 2>/dev/null").await.is_empty()
    })
    .await;
    rig.finish().await;
}

/// Output without an end is cut where no answer could hold more, and holds nobody up (case 33).
#[tokio::test]
async fn output_is_cut_at_a_limit_and_the_command_goes_on() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let output =
        rig.exec(&id, "dd if=/dev/zero bs=1M count=40 2>/dev/null; exit 4", 60).await.expect("it ends");
    assert_eq!((output.stdout.len(), output.exit_code), (OUTPUT_BYTES_MAX, 4));
    let exact =
        rig.exec(&id, "dd if=/dev/zero bs=1M count=1 2>/dev/null; exit 3", 60).await.expect("it ends");
    assert_eq!((exact.stdout.len(), exact.exit_code), (1 << 20, 3));
    rig.finish().await;
}
