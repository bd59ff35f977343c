//! `kill -9`, of the shim and of containerd.

use mainstay_integration_tests::wait;
use rustix::process::{Signal, kill_process};

use crate::containerd;

#[tokio::test]
async fn a_killed_shim_takes_its_container_along() {
    let containerd = containerd!();
    let events = containerd.events().await;
    // A grandchild too, which nobody would find by its parent.
    containerd.run_detached(&[], "web", &["sh", "-c", "sleep 100000 & sleep 100000"]).await;
    let socket = containerd.socket("web");
    let shims = containerd.shims();
    kill_process(shims[0], Signal::KILL).expect("it lives");
    wait::until_async("the task is gone", async || containerd.task("web").await.is_none()).await;
    events.are("web", &["create", "start", "exit", "delete"]).await;
    assert!(events.text().contains("\"exit_status\":137"), "{}", events.text());
    containerd.done(&["container", "rm", "web"]).await;
    containerd.is_bare().await;
    assert!(!socket.exists(), "{socket:?} stays");
}

/// The shim has written down how a container ended before it was killed: that is what is told, and no invention.
#[tokio::test]
async fn an_exit_before_the_shims_death_is_told_as_it_was() {
    let containerd = containerd!();
    let events = containerd.events().await;
    containerd.run_detached(&[], "web", &["sh", "-c", "exit 9"]).await;
    containerd.has_status("web", "STOPPED").await;
    // The shim's own word of it; the other one comes of its death.
    events.are("web", &["create", "start", "exit"]).await;
    kill_process(containerd.shims()[0], Signal::KILL).expect("it lives");
    wait::until_async("the task is gone", async || containerd.task("web").await.is_none()).await;
    events.are("web", &["create", "start", "exit", "exit", "delete"]).await;
    assert!(!events.text().contains("\"exit_status\":137"), "{}", events.text());
    containerd.done(&["container", "rm", "web"]).await;
    containerd.is_bare().await;
}

#[tokio::test]
async fn what_runs_outlives_containerd() {
    let mut containerd = containerd!();
    let script = "trap 'exit 5' TERM; while :; do sleep 0.05; done";
    containerd.run_detached(&[], "web", &["sh", "-c", script]).await;
    containerd
        .run_detached(&[], "short", &["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 6"])
        .await;
    let before = containerd.task("web").await;
    let (pid, _) = containerd.task("short").await.expect("listed");
    let go = format!("/proc/{pid}/root/tmp/go");
    // It ends while there is no containerd.
    let shims = containerd.shims();
    containerd.restart_after(|| std::fs::write(&go, "").expect("written")).await;
    assert_eq!(containerd.task("web").await, before);
    assert_eq!(containerd.shims(), shims, "they are the same");
    let exec = containerd.say(&["task", "exec", "--exec-id", "after", "web", "echo", "here"]).await;
    assert_eq!((exec.code, exec.out.as_str()), (0, "here\n"), "{}", exec.err);
    containerd.has_status("short", "STOPPED").await;
    let events = containerd.events().await;
    containerd.say(&["task", "delete", "short"]).await;
    containerd.done(&["container", "rm", "short"]).await;
    containerd.done(&["task", "kill", "-s", "SIGTERM", "web"]).await;
    containerd.has_status("web", "STOPPED").await;
    containerd.say(&["task", "delete", "web"]).await;
    containerd.done(&["container", "rm", "web"]).await;
    wait::until("exits are told", || events.of("web").contains(&"delete".to_owned()).then_some(())).await;
    for status in ["\"exit_status\":6", "\"exit_status\":5"] {
        assert!(events.text().contains(status), "{}", events.text());
    }
    containerd.is_bare().await;
}
