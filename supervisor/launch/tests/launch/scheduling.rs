//! Scheduler, priority at disks, and memory policy.

use std::fs;

use mainstay_launch::LaunchError;
use serde_json::json;

use crate::cases;
use crate::world::{Running, WantedIo, World};

cases![
    a_program_is_scheduled_as_the_spec_says,
    an_exec_is_scheduled_by_its_own_process,
    memory_comes_from_where_the_spec_says,
    a_node_that_is_not_there_is_named,
];

/// Nice value and policy, as /proc shows them.
fn cpu(running: &Running) -> (String, String) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[16].to_owned(), fields[38].to_owned())
}

fn io(running: &Running) -> i64 {
    // SAFETY: takes numbers alone.
    unsafe { libc::syscall(libc::SYS_ioprio_get, 1, running.pid().as_raw_pid()) }
}

fn a_program_is_scheduled_as_the_spec_says() {
    let mut world = World::new();
    world.args(&["/bin/sleep", "1000"]);
    world.spec["process"]["scheduler"] = json!({ "policy": "SCHED_BATCH", "nice": 7 });
    world.spec["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_IDLE", "priority": 0 });
    let running = world.start(WantedIo::Pipes).unwrap();
    assert_eq!((cpu(&running), io(&running)), (("7".to_owned(), "3".to_owned()), 3 << 13));
    running.kill();
}

fn an_exec_is_scheduled_by_its_own_process() {
    let mut world = World::new();
    world.args(&["/bin/sleep", "1000"]);
    let running = world.start(WantedIo::Pipes).unwrap();
    let change = json!({
        "scheduler": { "policy": "SCHED_OTHER", "nice": 3 },
        "ioPriority": { "class": "IOPRIO_CLASS_BE", "priority": 6 },
    });
    let exec = world.start_exec(&running, None, change, WantedIo::Pipes).unwrap();
    assert_eq!((cpu(&exec), io(&exec)), (("3".to_owned(), "0".to_owned()), 2 << 13 | 6));
    exec.kill();
    running.kill();
}

fn memory_comes_from_where_the_spec_says() {
    if !fs::exists("/proc/self/numa_maps").unwrap() {
        println!("skipped memory_comes_from_where_the_spec_says: the kernel knows no memory nodes");
        return;
    }
    let mut world = World::new();
    world.spec["linux"]["memoryPolicy"] = json!({ "mode": "MPOL_BIND", "nodes": "0" });
    let ended = world.args(&["/bin/cat", "/proc/self/numa_maps"]).run().unwrap();
    assert!(ended.output().lines().all(|line| line.contains("bind:0")), "{ended:?}");
}

fn a_node_that_is_not_there_is_named() {
    let mut world = World::new();
    world.spec["linux"]["memoryPolicy"] = json!({ "mode": "MPOL_BIND", "nodes": "1023" });
    match world.args(&["/bin/true"]).run() {
        Err(LaunchError::System { subject, .. }) => {
            assert!(subject.contains("linux.memoryPolicy"), "{subject}")
        }
        Err(LaunchError::Machine { field, .. }) => assert_eq!(field, "linux.memoryPolicy"),
        other => panic!("{other:?}"),
    }
}
