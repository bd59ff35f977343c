//! A supervisor and shims of another version: shims keep running while the program that started them is replaced.
//!
//! What a shim of version 1 said is kept in `upgrade/version-1`, as it was said, and is said again here by a shim that is
//! none. A change that an older shim would not understand, or that could not read what an older shim left, fails here.

#[path = "upgrade/false_shim.rs"]
mod false_shim;
mod world;

use std::process::{Child, Command, Stdio};

use false_shim::{FalseShim, Recording};
use mainstay_cgroups::{Cgroup, CgroupPath, Controllers, Layout};
use mainstay_messages::process::{ExitStatus, OomVerdict, UnknownReason};
use mainstay_messages::record::SandboxRecord;
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, DeleteTask, MeasureTask, PodEnd, ReopenTaskLog, SignalScope, SignalTask, StopShim,
    TaskStatus,
};
use mainstay_messages::{ContainerId, Error, Exit, ProcessIdentity, Signal, Timestamp};
use mainstay_supervisor::identity::identity_of;
use mainstay_task_api::EXTENSION_PROTOCOL;
use world::{Fact, Running, World, runs, until, wire};

/// A version that this program does not know.
const LATER: u64 = EXTENSION_PROTOCOL as u64 + 1;

fn id(text: &str) -> ContainerId {
    text.parse().expect("a good id")
}

fn key(sandbox: &SandboxRecord, container: &str) -> TaskKey {
    TaskKey { sandbox: sandbox.id.clone(), container: id(container), exec: None }
}

/// A pod as the store has it, whose shim is the one that is none.
fn adopted_pod(world: &World, shim: &FalseShim) -> SandboxRecord {
    let mut sandbox = world.sandbox("pod");
    sandbox.shim = Some(shim.record(world));
    sandbox
}

async fn adopt(
    supervisor: &Running,
    sandbox: &SandboxRecord,
    processes: &[(&str, ProcessIdentity)],
) -> mainstay_messages::Result<Adopted> {
    let containers = processes.iter().map(|(container, _)| id(container)).collect();
    let processes = processes.iter().map(|(container, process)| (id(container), process.clone())).collect();
    supervisor
        .address
        .send(AdoptShim { record: sandbox.clone(), containers, processes })
        .await
        .expect("it runs")
}

/// The exchange of version 1: what is asked has the bytes that a shim of then understood, and what it said is understood.
#[actix::test]
async fn a_shim_of_version_1_is_adopted() {
    let Some(world) = World::new() else { return };
    let recording = Recording::version_1();
    let shim = FalseShim::start(&world, "pod", recording.answers());
    let mut supervisor = world.supervisor().await;
    let sandbox = adopted_pod(&world, &shim);
    let processes = [("web", recording.process("web")), ("done", recording.process("done"))];
    let adopted = adopt(&supervisor, &sandbox, &processes).await.expect("it answers");
    let Adopted::Running(mut tasks) = adopted else { panic!("it runs") };
    tasks.sort_by_key(|task| task.container.to_string());
    let exit = Exit {
        status: ExitStatus::Exited { code: 42 },
        at: Timestamp(recording.exit_at()),
        oom: OomVerdict::NotKilled,
    };
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    assert_eq!((&tasks[0].container, &tasks[0].status), (&id("done"), &TaskStatus::Exited(exit.clone())));
    assert_eq!((&tasks[1].container, &tasks[1].status), (&id("web"), &TaskStatus::Running));
    let pid = tasks[1].process.as_ref().expect("it runs").pid;
    assert_eq!(pid, recording.process("web").pid);

    // What it had to say while nobody was there comes up once, and is acknowledged.
    assert_eq!(supervisor.exit_of("done").await, exit);
    until("the exit is acknowledged", || shim.was_asked("NextExits", &recording.asked("acknowledge"))).await;

    // What it has no answer to is done without it, or is a clear error.
    world.make_group("pod/web");
    supervisor.done(MeasureTask { sandbox: sandbox.id.clone(), container: id("web") }).await;
    let reopen = ReopenTaskLog { sandbox: sandbox.id.clone(), container: id("web") };
    let error = supervisor.address.send(reopen).await.expect("it runs").expect_err("it knows no such call");
    assert!(error.to_string().contains("log of container web"), "{error}");
    let reason = "not supported: the shim is of an older version, which cannot do this";
    assert!(error.to_string().ends_with(reason), "the machine is not to blame: {error}");

    supervisor
        .done(SignalTask { task: key(&sandbox, "web"), signal: Signal::KILL, scope: SignalScope::Cgroup })
        .await;
    assert!(shim.was_asked("Kill", &recording.asked("kill")), "{:?}", shim.asked());
    supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: id("done") }).await;
    assert!(shim.was_asked("Delete", &recording.asked("delete")), "{:?}", shim.asked());
    for question in ["info", "tasks", "next_exits"] {
        let method = Recording::method(question);
        assert!(shim.was_asked(method, &recording.asked(question)), "{question}: {:?}", shim.asked());
    }
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(shim.has_ended() && world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// A program that was started on records and exit records of version 1 reads them.
#[test]
fn what_version_1_left_in_a_pods_directory_is_read() {
    let temp = tempfile::tempdir().expect("a directory");
    let directories =
        mainstay_supervisor::paths::Directories::new(temp.path().join("run"), temp.path().join("lib"));
    directories.prepare().expect("made");
    let recording = Recording::version_1();
    let (pod, container) = ("pod".parse().expect("a good id"), id("done"));
    std::fs::create_dir_all(directories.bundle(&pod, &container)).expect("made");
    for (name, path) in [
        ("pod.json", directories.pod_record(&pod)),
        ("shim.json", directories.shim_identity(&pod)),
        ("container.json", directories.container_record(&pod, &container)),
    ] {
        std::fs::write(path, recording.file(name)).expect("written");
    }
    let rebuilt = mainstay_supervisor::rebuilt::rebuild(&directories, &Default::default());
    assert_eq!(rebuilt.unreadable, Vec::<std::path::PathBuf>::new());
    let shim = rebuilt.sandboxes[0].shim.as_ref().expect("it is written down");
    assert_eq!((shim.protocol, shim.process.pid > 0), (1, true));
    assert_eq!(rebuilt.containers[0].spec.process.command, ["sh", "-c", "exit 42"]);

    let record = directories.bundle(&pod, &container).join("exit");
    std::fs::write(&record, wire::from_hex(&String::from_utf8_lossy(&recording.file("exit.hex"))))
        .expect("written");
    let read = mainstay_shim::read_exit_record(&record).expect("whole").expect("there");
    assert_eq!((read.exit.status, read.exit.at.0), (ExitStatus::Exited { code: 42 }, recording.exit_at()));
}

/// A container of a shim that is none: a process of this test in the cgroup where its container would be.
struct Inmate(Child);

impl Inmate {
    fn start(world: &World, group: &str, script: &str) -> Self {
        let group = world.make_group(group);
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)
            .expect("it says that it is ready");
        group.add(rustix::process::Pid::from_child(&child)).expect("moved");
        Self(child)
    }

    fn process(&self) -> ProcessIdentity {
        identity_of(self.0.id()).expect("not waited for")
    }
}

impl Drop for Inmate {
    fn drop(&mut self) {
        // Ended long ago where a test has come to its end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon that was set back to an older version finds shims that speak no protocol of its own. It says so, and leaves
/// nothing behind for all that: it stops, kills and removes, and tells the ends of what runs, with their real codes.
#[actix::test]
async fn a_shim_of_a_later_version_is_no_orphan() {
    let Some(world) = World::new() else { return };
    let recording = Recording::version_1();
    let later = [("Info", recording.info_of(LATER, LATER))];
    let shim = FalseShim::start(&world, "pod", later.into());
    let web = Inmate::start(&world, "pod/web", "trap 'exit 7' TERM; echo; while :; do sleep 0.05; done");
    let stubborn = Inmate::start(&world, "pod/stubborn", "trap '' TERM; echo; while :; do sleep 0.05; done");
    let mut supervisor = world.supervisor().await;
    let sandbox = adopted_pod(&world, &shim);
    let processes = [("web", web.process()), ("stubborn", stubborn.process())];
    let error = adopt(&supervisor, &sandbox, &processes).await.expect_err("nothing in common");
    let said = format!(
        "it speaks the versions {LATER} to {LATER} of the protocol, and this program 1 to {EXTENSION_PROTOCOL}"
    );
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains(&said), "{error}");
    assert!(error.to_string().contains("can still be stopped and removed"), "{error}");
    assert!(runs(&web.process()) && runs(&stubborn.process()), "nothing is ended that may be of use");
    supervisor.done(MeasureTask { sandbox: sandbox.id.clone(), container: id("web") }).await;
    let late = world.container(&sandbox, "late", &["true"]);
    let refused = supervisor.create(&sandbox, &late).await.expect_err("it is not understood");
    assert!(refused.to_string().contains(&said), "{refused}");
    assert!(world.left_of(&late).is_empty(), "{:?}", world.left_of(&late));

    let signal =
        |container: &str, signal, scope| SignalTask { task: key(&sandbox, container), signal, scope };
    supervisor.done(signal("web", Signal::TERM, SignalScope::Process)).await;
    assert_eq!(supervisor.exit_of("web").await.status, ExitStatus::Exited { code: 7 });
    supervisor.done(signal("stubborn", Signal::TERM, SignalScope::Process)).await;
    supervisor.done(signal("stubborn", Signal::KILL, SignalScope::Cgroup)).await;
    assert_eq!(supervisor.exit_of("stubborn").await.status, ExitStatus::Signaled { signal: 9 });
    for container in ["web", "stubborn"] {
        supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: id(container) }).await;
    }
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(shim.has_ended() && world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    let next = tokio::time::timeout(std::time::Duration::from_millis(100), supervisor.fact()).await;
    assert!(!matches!(next, Ok(Fact::Exited(..))), "{next:?}: each end is told once");
}

/// The runtime was killed while a container was being made, so that nobody had written down its process, and the next one
/// could not talk to its shim: nobody watched that container, and it counted as running until its pod was removed.
#[actix::test]
async fn a_container_whose_process_was_not_written_down_is_watched_too() {
    let Some(world) = World::new() else { return };
    let recording = Recording::version_1();
    let shim = FalseShim::start(&world, "pod", [("Info", recording.info_of(LATER, LATER))].into());
    let inmate = Inmate::start(&world, "pod/killed", "echo; while :; do sleep 0.05; done");
    let mut supervisor = world.supervisor().await;
    let sandbox = adopted_pod(&world, &shim);
    let recorded = world.directories.bundle(&sandbox.id, &id("done"));
    std::fs::create_dir_all(&recorded).expect("made");
    std::fs::write(
        recorded.join("exit"),
        wire::from_hex(&String::from_utf8_lossy(&recording.file("exit.hex"))),
    )
    .expect("written");
    let containers = ["done", "killed", "never-made"].map(id).to_vec();
    let adopt =
        AdoptShim { record: sandbox.clone(), containers, processes: std::collections::BTreeMap::new() };
    supervisor.address.send(adopt).await.expect("it runs").expect_err("nothing in common");

    let unknown = ExitStatus::Unknown { reason: UnknownReason::ShimOutOfReach };
    let mut told = std::collections::BTreeMap::new();
    while told.len() < 2 {
        let Fact::Exited(task, exit) = supervisor.fact().await else { panic!("no exit") };
        assert!(told.insert(task.container.to_string(), exit.status).is_none(), "{told:?}");
    }
    let expected = [("done", ExitStatus::Exited { code: 42 }), ("never-made", unknown.clone())];
    assert_eq!(told, expected.map(|(name, status)| (name.to_owned(), status)).into());
    assert!(runs(&inmate.process()), "what runs has not ended");
    let kill = SignalTask { task: key(&sandbox, "killed"), signal: Signal::KILL, scope: SignalScope::Cgroup };
    supervisor.done(kill).await;
    drop(inmate);
    assert_eq!(supervisor.exit_of("killed").await.status, unknown);
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(shim.has_ended() && world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// One that is later, and still speaks what this program speaks, is as good as any.
#[actix::test]
async fn a_later_shim_that_still_speaks_this_version_is_adopted() {
    let Some(world) = World::new() else { return };
    let recording = Recording::version_1();
    let mut answers = recording.answers();
    answers.insert("Info", recording.info_of(LATER, u64::from(EXTENSION_PROTOCOL)));
    let shim = FalseShim::start(&world, "pod", answers);
    let mut supervisor = world.supervisor().await;
    let sandbox = adopted_pod(&world, &shim);
    let adopted =
        adopt(&supervisor, &sandbox, &[("web", recording.process("web"))]).await.expect("it answers");
    assert!(matches!(&adopted, Adopted::Running(tasks) if tasks.len() == 2), "{adopted:?}");
    supervisor.exit_of("done").await;
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
}

/// Makes the recording anew, from the shim of this version or the one of `MAINSTAY_RECORD_SHIM`, into the directory
/// `MAINSTAY_RECORD_TO`: for a version that has been released, and never again for it.
#[actix::test]
#[ignore = "makes a recording"]
async fn record() {
    let mut world = World::new().expect("root");
    if let Some(program) = std::env::var_os("MAINSTAY_RECORD_SHIM") {
        world.settings.program = mainstay_supervisor::Program::Path(program.into());
    }
    let to =
        std::path::PathBuf::from(std::env::var_os("MAINSTAY_RECORD_TO").expect("a directory to record to"));
    let mut supervisor = world.reluctant_supervisor(u32::MAX).await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let done = world.container(&sandbox, "done", &["sh", "-c", "exit 42"]);
    supervisor.run(&sandbox, &done).await;
    supervisor.exit_of("done").await;
    let web = world.container(&sandbox, "web", &["sleep", "1000000"]);
    supervisor.run(&sandbox, &web).await;
    Recording::make(&world, &sandbox, &to);
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
}

impl World {
    /// Makes a cgroup below this world's own.
    fn make_group(&self, below: &str) -> Cgroup {
        let path =
            CgroupPath::parse(&format!("{}/{below}", self.settings.cgroup_parent)).expect("a good path");
        let layout = Layout::detect().expect("cgroups are mounted");
        Cgroup::create(&layout, &path, Controllers::NONE).expect("made")
    }
}
