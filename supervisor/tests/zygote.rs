//! The supervisor and its zygote. In a process of its own: the zygotes of other tests could not be told from this one's.

mod world;

use std::fs;

use mainstay_messages::supervisor::{PodEnd, StopShim};
use rustix::process::{Pid, Signal as UnixSignal};
use world::{World, runs, until};

/// The zygotes that are children of this process.
fn zygotes() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").expect("this process runs").flatten();
    let children =
        tasks.flat_map(|task| fs::read_to_string(task.path().join("children"))).collect::<String>();
    let is_zygote = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"mainstay-shim\0--zygote-fd\0")
    };
    let numbers = children.split_whitespace().filter(is_zygote).flat_map(str::parse);
    numbers.filter_map(Pid::from_raw).collect()
}

/// Shims are forked from a process that somebody may kill, as they may kill anything: pods are started all the same, and
/// those that run do not notice.
#[actix::test]
async fn pods_start_without_their_zygote() {
    let Some(world) = World::new() else { return };
    let supervisor = world.supervisor().await;
    let first = supervisor.launch(world.sandbox("first")).await;
    for zygote in zygotes() {
        rustix::process::kill_process(zygote, UnixSignal::KILL).expect("ours");
    }
    // One that dies with a request in its hands may have forked or not: that request fails, and the next one works.
    until("the zygote is dead", || zygotes().is_empty()).await;
    let second = supervisor.launch(world.sandbox("second")).await;
    for sandbox in [first, second] {
        assert!(runs(&sandbox.shim.as_ref().expect("launched").process));
        supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
        assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    }
    assert_eq!(zygotes().len(), 1);
    supervisor.vanish();
    until("the zygote has ended with its supervisor", || zygotes().is_empty()).await;
}
