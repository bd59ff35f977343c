//! A daemon may have all the files open that it may; what it starts begins with what the daemon was started with. A program of its own,
//! because the limit is the whole process's.

mod world;

use mainstay_messages::supervisor::{PodEnd, StopShim};
use mainstay_supervisor::open_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use world::World;

/// The soft limit of a process.
fn open_files_of(pid: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("it is there");
    line.split_whitespace().nth(3).expect("a soft limit").to_owned()
}

/// Each pod takes a descriptor of the daemon, and 1,024 are usual.
#[actix::test]
async fn a_raised_limit_is_not_passed_on_to_shims_and_containers() {
    const BEFORE: u64 = 512;
    let Some(world) = World::new() else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(BEFORE), maximum }).expect("lowered");
    assert_eq!(open_files::raise().expect("raised"), maximum);
    assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", &["sleep", "1000000"]);
    let process = supervisor.run(&sandbox, &container).await;
    let shim = sandbox.shim.as_ref().expect("a shim").process.pid;
    assert_eq!(open_files_of(shim), BEFORE.to_string());
    assert_eq!(open_files_of(process.pid), BEFORE.to_string());
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
}
