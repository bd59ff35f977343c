//! What is not done, and is said by name.

use mainstay_integration_tests::wait;

use crate::containerd;

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_name() {
    let containerd = containerd!();
    for (options, named) in [
        (&["--cgroup", "system.slice:ctr:web"][..], "SystemdCgroup"),
        (&["--cgroup", "/../web"], "linux.cgroupsPath"),
    ] {
        let said = containerd.run(options, "web", &["true"]).await;
        assert!(said.code != 0 && said.err.contains(named), "{options:?}: {}", said.err);
        wait::until_async("its task is gone", async || containerd.task("web").await.is_none()).await;
    }
    containerd.is_bare().await;
}

/// Everything in the cgroup of a container is killed with it, so one that somebody is in must not become that of a
/// container; nor must the clearing after the refusal take it for one.
#[tokio::test]
async fn a_cgroup_with_processes_is_nobodys_to_take() {
    let containerd = containerd!();
    containerd.run_detached(&[], "first", &["sleep", "100000"]).await;
    let taken = format!("{}/first", containerd.cgroup());
    let said = containerd.run(&["--cgroup", &taken], "second", &["true"]).await;
    assert!(said.code != 0 && said.err.contains("no process"), "{}", said.err);
    wait::until_async("its task is gone", async || containerd.task("second").await.is_none()).await;
    containerd.has_status("first", "RUNNING").await;
    containerd.end("first").await;
    containerd.is_bare().await;
}
