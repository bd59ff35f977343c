//! The supervisor on real shims: life cycle, death, adoption, and that nothing is left.

mod world;

use std::time::Instant;

use mainstay_messages::process::{ExitStatus, UnknownReason};
use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::{
    Access, CpuTime, Mount, MountSource, Network, PidMode, Privilege, Rlimit, Rootfs, Terminal, WindowSize,
};
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, DeleteTask, MeasureShim, MeasureTask, PodEnd, QueryTask, SignalScope, SignalTask,
    StartExecTask, StopShim, TaskKnowledge, TaskState, TaskStatus,
};
use mainstay_messages::{ContainerSpec, Error, ExecSpec, SandboxSpec, Signal};
use mainstay_supervisor::{Lifetime, SHIM_DEATH_DEADLINE_MS};
use rustix::process::Signal as UnixSignal;
use world::{Fact, World, runs, signal, until};

const FOREVER: &[&str] = &["sleep", "1000000"];

fn key(container: &mainstay_messages::record::ContainerRecord) -> TaskKey {
    TaskKey { sandbox: container.sandbox.clone(), container: container.id.clone(), exec: None }
}

#[actix::test]
async fn a_container_lives_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    supervisor.run(&sandbox, &container).await;
    let exit = supervisor.exit_of("web").await;
    assert_eq!(exit.status, ExitStatus::Exited { code: 7 });
    let log = world.log(&container);
    assert!(log.contains(" stdout F out\n") && log.contains(" stderr F err\n"), "{log:?}");

    let stats = supervisor.done(MeasureShim { sandbox: sandbox.id.clone() }).await;
    assert!(stats.shim_private_bytes.is_some(), "{stats:?}");
    for _ in 0..2 {
        supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() }).await;
    }
    assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
    for _ in 0..2 {
        supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    }
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// The upper directory of the writable layer gives the container's `/` its mode: it must let everybody in. And the
/// user is looked up in the container's own files.
#[actix::test]
async fn another_user_can_use_the_hosts_root() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let mut container =
        world.container(&sandbox, "web", &["sh", "-c", "id -u; ls / >/dev/null && echo inside"]);
    container.spec.process.user = Some("nobody".into());
    supervisor.run(&sandbox, &container).await;
    let exit = supervisor.exit_of("web").await;
    let log = world.log(&container);
    assert_eq!(exit.status, ExitStatus::Exited { code: 0 }, "{log}");
    assert!(log.contains(" stdout F 65534\n") && log.contains(" stdout F inside\n"), "{log}");
}

#[actix::test]
async fn what_cannot_start_says_why_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;

    let missing = world.container(&sandbox, "missing", &["/nope"]);
    let error = supervisor.create(&sandbox, &missing).await.expect_err("no such program");
    assert!(matches!(error, Error::StartFailed { .. }) && error.to_string().contains("/nope"), "{error}");
    assert!(world.left_of(&missing).is_empty(), "{:?}", world.left_of(&missing));

    let mut rootless = world.container(&sandbox, "rootless", &["true"]);
    rootless.spec.rootfs = Rootfs::Directory { path: "/nonexistent/root".into() };
    let error = supervisor.create(&sandbox, &rootless).await.expect_err("no root");
    assert!(matches!(error, Error::StartFailed { .. }) && error.to_string().contains("rootfs"), "{error}");
    assert!(world.left_of(&rootless).is_empty());

    let mut unmounted = world.container(&sandbox, "unmounted", &["true"]);
    unmounted.spec.mounts = vec![Mount::new(MountSource::Bind { path: "/nonexistent/data".into() }, "/data")];
    let error = supervisor.create(&sandbox, &unmounted).await.expect_err("no source");
    assert!(error.to_string().starts_with("mounts[0].source"), "{error}");
    assert!(world.left_of(&unmounted).is_empty());

    let unknown = QueryTask { task: key(&missing) };
    assert_eq!(supervisor.done(unknown).await, TaskKnowledge::NotKnown);
}

/// The store did not take an exit for a while. Its pod was stopped, and with the pod's directory the record of the exit was
/// gone: whoever asked heard of no end, and wrote down that nobody knew it, before the true one came.
#[actix::test]
async fn an_exit_that_is_not_taken_is_known_when_its_record_is_gone() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.reluctant_supervisor(u32::MAX).await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", &["sh", "-c", "exit 42"]);
    supervisor.run(&sandbox, &container).await;
    supervisor.exit_of("web").await;
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    let known = supervisor.done(QueryTask { task: key(&container) }).await;
    let TaskKnowledge::Known(task) = known else { panic!("{known:?}") };
    let TaskStatus::Exited(exit) = task.status else { panic!("{task:?}") };
    assert_eq!(exit.status, ExitStatus::Exited { code: 42 });
}

/// Case 13: a shim that was killed left its container "running" for ever, or its process alive without anybody who
/// looks after it.
#[actix::test]
async fn a_dead_shims_containers_are_dead_and_reported() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let done = world.container(&sandbox, "done", &["sh", "-c", "exit 42"]);
    supervisor.run(&sandbox, &done).await;
    assert_eq!(supervisor.exit_of("done").await.status, ExitStatus::Exited { code: 42 });
    let running = world.container(&sandbox, "running", FOREVER);
    let waiting = world.container(&sandbox, "waiting", FOREVER);
    let process = supervisor.run(&sandbox, &running).await;
    let held = supervisor.create(&sandbox, &waiting).await.expect("created");

    let killed = Instant::now();
    signal(&sandbox.shim.as_ref().expect("launched").process, UnixSignal::KILL);
    let mut reported = Vec::new();
    loop {
        match supervisor.fact().await {
            Fact::Exited(task, exit) => {
                assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::ShimDied }, "{task:?}");
                reported.push(task.container.to_string());
            }
            Fact::Died(pod) => {
                assert_eq!(pod, sandbox.id);
                break;
            }
        }
    }
    let took = killed.elapsed();
    println!("reported {} ms after the shim's death", took.as_millis());
    assert!(took.as_millis() < u128::from(SHIM_DEATH_DEADLINE_MS), "{took:?}");
    reported.sort();
    assert_eq!(reported, ["running", "waiting"]);
    assert!(!runs(&process) && !runs(&held));

    // What is asked about afterwards is answered, and all of it can be removed.
    let known = supervisor.done(QueryTask { task: key(&done) }).await;
    assert!(matches!(known, TaskKnowledge::Known(state) if matches!(state.status, TaskStatus::Exited(_))));
    assert_eq!(supervisor.done(QueryTask { task: key(&running) }).await, TaskKnowledge::ShimGone);
    for container in [&done, &running, &waiting] {
        supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() }).await;
        assert!(world.left_of(container).is_empty(), "{:?}", world.left_of(container));
    }
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    // The same name can be used again at once.
    supervisor.launch(world.sandbox("pod")).await;
}

/// A pod with a pid namespace of its own has an init that is no container: it must go with the shim, too.
#[actix::test]
async fn a_dead_shims_pod_init_is_dead_too() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let mut sandbox = world.sandbox("pod");
    sandbox.spec.pid = PidMode::Pod;
    let sandbox = supervisor.launch(sandbox).await;
    let container = world.container(&sandbox, "web", &["sh", "-c", "[ $$ != 1 ] && exec sleep 1000000"]);
    supervisor.run(&sandbox, &container).await;
    signal(&sandbox.shim.as_ref().expect("launched").process, UnixSignal::KILL);
    supervisor.exit_of("web").await;
    until("everything of the pod has ended", || {
        world.left(&sandbox).iter().all(|left| !left.starts_with("shim"))
    })
    .await;
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// Case 10, and P9: a shim that hangs must not keep a container from being killed, nor slow down another pod, and heals
/// when it goes on.
#[actix::test]
async fn a_hung_shim_harms_itself_alone() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let hung = supervisor.launch(world.sandbox("hung")).await;
    let well = supervisor.launch(world.sandbox("well")).await;
    let container = world.container(&hung, "web", FOREVER);
    let process = supervisor.run(&hung, &container).await;
    let shim = hung.shim.as_ref().expect("launched").process.clone();
    signal(&shim, UnixSignal::STOP);

    supervisor
        .done(SignalTask { task: key(&container), signal: Signal::KILL, scope: SignalScope::Cgroup })
        .await;
    until("the container is dead", || !runs(&process)).await;

    let other = world.container(&well, "other", &["true"]);
    supervisor.run(&well, &other).await;
    assert_eq!(supervisor.exit_of("other").await.code(), 0);

    // Its calls fail soon, with what was waited for in the error.
    let begun = Instant::now();
    let late = world.container(&hung, "late", &["true"]);
    let error = supervisor.create(&hung, &late).await.expect_err("it hangs");
    assert!(matches!(&error, Error::DeadlineExceeded { what, .. } if what.contains("hung")), "{error}");
    println!("a call to the hung shim failed after {} ms", begun.elapsed().as_millis());
    // How the container ended is to be had without it, and so are statistics.
    let known = supervisor.done(QueryTask { task: key(&container) }).await;
    let TaskKnowledge::Known(TaskState { status: TaskStatus::Exited(exit), .. }) = known else {
        panic!("{known:?}")
    };
    assert_eq!(exit.status, ExitStatus::Signaled { signal: 9 });
    supervisor.done(MeasureTask { sandbox: hung.id.clone(), container: container.id.clone() }).await;

    signal(&shim, UnixSignal::CONT);
    assert_eq!(supervisor.exit_of("web").await.status, ExitStatus::Signaled { signal: 9 });
    supervisor.done(DeleteTask { sandbox: hung.id.clone(), container: container.id.clone() }).await;
}

#[actix::test]
async fn stopping_a_pod_reports_what_ran_in_it() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", FOREVER);
    let process = supervisor.run(&sandbox, &container).await;
    let (first, second) = futures::join!(
        supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }),
        supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed })
    );
    assert_eq!((first, second), ((), ()));
    assert!(!runs(&process));
    assert_eq!(supervisor.exit_of("web").await.status, ExitStatus::Signaled { signal: 9 });
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() }).await;
    assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
}

type Change = fn(&mut SandboxSpec, &mut ContainerSpec);

/// Every kind of spec must be one that shim and launcher understand.
#[rstest::rstest]
#[case::privileged("[ -c /dev/null ] && mount -t tmpfs t /mnt && echo good", |_: &mut SandboxSpec, c: &mut ContainerSpec| {
    c.security.privilege = Privilege::Privileged;
})]
#[case::confined("! mount -t tmpfs t /mnt 2>/dev/null && ! echo 1 2>/dev/null >/proc/sys/kernel/printk && echo good",
    |_: &mut SandboxSpec, _: &mut ContainerSpec| {})]
#[case::host_network("[ $(readlink /proc/self/ns/net) = $HOST_NET ] && echo good", |pod: &mut SandboxSpec, c: &mut ContainerSpec| {
    pod.network = Network::Host;
    let own = std::fs::read_link("/proc/self/ns/net").expect("/proc is mounted");
    c.process.env.insert("HOST_NET".into(), own.to_str().expect("text").into());
})]
#[case::host_pid("[ -d /proc/$HOST_PID ] && [ $$ != 1 ] && echo good", |pod: &mut SandboxSpec, c: &mut ContainerSpec| {
    pod.pid = PidMode::Host;
    c.process.env.insert("HOST_PID".into(), std::process::id().to_string());
})]
#[case::terminal("[ \"$(stty size)\" = '40 120' ] && echo good", |_: &mut SandboxSpec, c: &mut ContainerSpec| {
    c.process.terminal = Terminal::Tty(WindowSize { rows: 40, columns: 120 });
})]
#[case::read_only("! touch /x 2>/dev/null && touch /tmp/x /dev/shm/x && [ $(hostname) = pod ] && echo good", |_: &mut SandboxSpec, c: &mut ContainerSpec| {
    c.security.root = Access::ReadOnly;
    c.mounts.push(Mount::tmpfs("/tmp", Some(1 << 20)));
})]
#[case::read_only_bind("ls /data >/dev/null && ! touch /data/x 2>/dev/null && echo good", |_: &mut SandboxSpec, c: &mut ContainerSpec| {
    c.mounts.push(Mount::bind(std::env::temp_dir(), "/data", Access::ReadOnly));
})]
#[case::limited("[ $(ulimit -n) = 77 ] && echo good", |pod: &mut SandboxSpec, c: &mut ContainerSpec| {
    pod.resources.memory_bytes = Some(256 << 20);
    c.resources.memory_bytes = Some(64 << 20);
    c.resources.cpu_time = Some(CpuTime::of_millis(500));
    c.resources.cpu_shares = Some(512);
    c.resources.pids = Some(50);
    c.rlimits.push(Rlimit { name: "NOFILE".into(), soft: 77, hard: 77 });
})]
#[actix::test]
async fn every_kind_of_container_runs(#[case] script: &str, #[case] change: Change) {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let mut sandbox = world.sandbox("pod");
    let mut container = world.container(&sandbox, "web", &["sh", "-c", script]);
    change(&mut sandbox.spec, &mut container.spec);
    let sandbox = supervisor.launch(sandbox).await;
    supervisor.run(&sandbox, &container).await;
    let exit = supervisor.exit_of("web").await;
    let log = world.log(&container);
    assert!(exit.code() == 0 && log.contains(" stdout F good"), "{exit}: {log}");
}

#[actix::test]
async fn a_limit_that_the_machine_cannot_hold_is_refused_before_anything_starts() {
    let Some(world) = World::new() else { return };
    let supervisor = world.supervisor().await;
    let mut sandbox = world.sandbox("pod");
    sandbox.spec.resources.cpuset_cpus = Some("4000".into());
    let launch = mainstay_messages::supervisor::LaunchShim { record: sandbox.clone() };
    let error = supervisor.address.send(launch).await.expect("it runs").expect_err("no such CPU");
    assert!(error.to_string().contains("cpuset_cpus"), "{error}");
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// A shim that hangs for good must not keep its pod from being removed.
#[actix::test]
async fn a_hung_shim_can_be_stopped() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", FOREVER);
    let process = supervisor.run(&sandbox, &container).await;
    signal(&sandbox.shim.as_ref().expect("launched").process, UnixSignal::STOP);
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(!runs(&process));
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
    // Its containers get their terminal fact, and no "shim died", since its end was asked for.
    let exit = supervisor.exit_of("web").await;
    assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::ShimDied });
}

#[actix::test]
async fn exits_come_again_until_they_are_settled() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.reluctant_supervisor(2).await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", &["sh", "-c", "exit 3"]);
    supervisor.run(&sandbox, &container).await;
    for _ in 0..3 {
        assert_eq!(supervisor.exit_of("web").await.status, ExitStatus::Exited { code: 3 });
    }
    // A next container's exit is not held up, and the settled one does not come again.
    let next = world.container(&sandbox, "next", &["true"]);
    supervisor.run(&sandbox, &next).await;
    for _ in 0..3 {
        assert_eq!(supervisor.exit_of("next").await.code(), 0);
    }
}

#[actix::test]
async fn execs_are_reported_like_containers() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", FOREVER);
    supervisor.run(&sandbox, &container).await;
    let exec = |id: &str, command: &[&str]| StartExecTask {
        sandbox: sandbox.id.clone(),
        container: container.clone(),
        exec: id.parse().expect("a good id"),
        spec: ExecSpec::new(command.iter().copied()),
    };
    let started = supervisor.done(exec("probe", &["sh", "-c", "exit 5"])).await;
    assert_ne!(started.pid, 0);
    let Fact::Exited(task, exit) = supervisor.fact().await else { panic!("no exit") };
    assert_eq!((task.exec.as_ref().map(|id| id.as_str()), exit.code()), (Some("probe"), 5));

    let failed = supervisor.address.send(exec("broken", &["/nope"])).await.expect("it runs");
    let error = failed.expect_err("no such program");
    assert!(error.to_string().contains("/nope"), "{error}");

    // One that runs when the shim dies has a terminal fact like the container.
    supervisor.done(exec("long", FOREVER)).await;
    signal(&sandbox.shim.as_ref().expect("launched").process, UnixSignal::KILL);
    let mut ended = Vec::new();
    while let Fact::Exited(task, exit) = supervisor.fact().await {
        if exit.status == (ExitStatus::Unknown { reason: UnknownReason::ShimDied }) {
            ended.push(task.exec.map(|exec| exec.to_string()));
        }
    }
    ended.sort();
    assert_eq!(ended, [None, Some("long".to_owned())]);
}

/// Cases 3 and 4: what ends while the daemon is down has its real exit afterwards, and what runs goes on.
#[actix::test]
async fn another_supervisor_adopts_what_runs() {
    let Some(world) = World::new() else { return };
    let first = world.supervisor().await;
    let sandbox = first.launch(world.sandbox("pod")).await;
    let long = world.container(&sandbox, "long", FOREVER);
    let process = first.run(&sandbox, &long).await;
    let gate = world.directories.pods().join("gate");
    let mut short = world.container(
        &sandbox,
        "short",
        &["sh", "-c", "while ! [ -e /gate/gate ]; do sleep 0.01; done; exit 42"],
    );
    short.spec.mounts = vec![Mount::new(MountSource::Bind { path: world.directories.pods() }, "/gate")];
    let ended = first.run(&sandbox, &short).await;
    first.vanish();
    std::fs::write(&gate, "").expect("opened");
    until("the short one has ended", || !runs(&ended)).await;

    let mut second = world.supervisor().await;
    let adopt = AdoptShim {
        record: sandbox.clone(),
        containers: vec![long.id.clone(), short.id.clone()],
        processes: Default::default(),
    };
    let Adopted::Running(mut tasks) = second.done(adopt).await else { panic!("it runs") };
    tasks.sort_by_key(|task| task.container.to_string());
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    assert_eq!((&tasks[0].process, &tasks[0].status), (&Some(process), &TaskStatus::Running));
    assert!(matches!(&tasks[1].status, TaskStatus::Exited(exit) if exit.code() == 42), "{tasks:?}");
    assert_eq!(second.exit_of("short").await.status, ExitStatus::Exited { code: 42 });

    second.done(SignalTask { task: key(&long), signal: Signal::KILL, scope: SignalScope::Cgroup }).await;
    assert_eq!(second.exit_of("long").await.status, ExitStatus::Signaled { signal: 9 });
    second.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// Case 10: one shim that hung kept a daemon from starting for ever. Here it is given up for the moment, stays known, and
/// heals when it goes on, without another restart.
#[actix::test]
async fn a_hung_shim_is_adopted_when_it_goes_on() {
    let Some(world) = World::new() else { return };
    let first = world.supervisor().await;
    let sandbox = first.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", FOREVER);
    let process = first.run(&sandbox, &container).await;
    first.vanish();
    let shim = sandbox.shim.clone().expect("launched").process;
    signal(&shim, UnixSignal::STOP);

    let mut second = world.supervisor().await;
    let adopt = AdoptShim {
        record: sandbox.clone(),
        containers: vec![container.id.clone()],
        processes: Default::default(),
    };
    let answer = second.address.send(adopt.clone()).await.expect("it runs");
    assert!(matches!(&answer, Err(Error::DeadlineExceeded { .. })), "{answer:?}");
    assert!(runs(&process));

    signal(&shim, UnixSignal::CONT);
    let Adopted::Running(tasks) = second.done(adopt).await else { panic!("it runs") };
    assert_eq!(tasks.len(), 1);
    signal(&process, UnixSignal::KILL);
    assert_eq!(second.exit_of("web").await.status, ExitStatus::Signaled { signal: 9 });
}

/// The shim died while the daemon was down: what it wrote down counts, the rest is unknown, and nothing runs on.
#[actix::test]
async fn a_shim_that_died_meanwhile_is_buried() {
    let Some(world) = World::new() else { return };
    let mut first = world.reluctant_supervisor(u32::MAX).await;
    let sandbox = first.launch(world.sandbox("pod")).await;
    let done = world.container(&sandbox, "done", &["sh", "-c", "exit 42"]);
    first.run(&sandbox, &done).await;
    first.exit_of("done").await;
    let running = world.container(&sandbox, "running", FOREVER);
    let process = first.run(&sandbox, &running).await;
    first.vanish();
    let shim = &sandbox.shim.as_ref().expect("launched").process;
    signal(shim, UnixSignal::KILL);
    until("the shim is dead", || !runs(shim)).await;

    let mut second = world.supervisor().await;
    let adopt = AdoptShim {
        record: sandbox.clone(),
        containers: vec![done.id.clone(), running.id.clone()],
        processes: Default::default(),
    };
    assert_eq!(second.done(adopt).await, Adopted::Gone);
    assert!(!runs(&process));
    let mut exits = Vec::new();
    for _ in 0..2 {
        let Fact::Exited(task, exit) = second.fact().await else { panic!("no exit") };
        exits.push((task.container.to_string(), exit.status));
    }
    exits.sort_by(|a, b| a.0.cmp(&b.0));
    let unknown = ExitStatus::Unknown { reason: UnknownReason::LostWhileDown };
    assert_eq!(
        exits,
        [("done".to_owned(), ExitStatus::Exited { code: 42 }), ("running".to_owned(), unknown)]
    );
    second.done(DeleteTask { sandbox: sandbox.id.clone(), container: running.id.clone() }).await;
    assert!(world.left_of(&running).is_empty(), "{:?}", world.left_of(&running));
    second.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// P10: after a reboot the recorded number is a stranger's. It must not be taken for the shim, nor be signalled.
#[actix::test]
async fn after_a_reboot_nobody_is_taken_for_the_shim() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let mut sandbox = world.sandbox("pod");
    let mut stranger = std::process::Command::new("sleep").arg("1000000").spawn().expect("started");
    let mut process = mainstay_supervisor::identity::identity_of(stranger.id()).expect("it runs");
    process.boot_id = "00000000-0000-0000-0000-000000000000".into();
    sandbox.shim = Some(mainstay_messages::record::ShimRecord {
        process,
        socket: world.directories.shim_socket(&sandbox.id),
        protocol: 1,
        ids: None,
    });
    let adopt = AdoptShim {
        record: sandbox.clone(),
        containers: vec!["web".parse().expect("a good id")],
        processes: Default::default(),
    };
    assert_eq!(supervisor.done(adopt).await, Adopted::Gone);
    let exit = supervisor.exit_of("web").await;
    assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::HostRebooted });
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(stranger.try_wait().expect("ours").is_none(), "the stranger was killed");
    stranger.kill().expect("ours");
    stranger.wait().expect("ours");
}

/// Case 9: the daemon was killed after it had started the shim and before it had written anything down. The shim must
/// be found all the same, by the next launch or stop of its pod.
#[actix::test]
async fn a_shim_that_nothing_was_written_about_is_found() {
    let Some(world) = World::new() else { return };
    let first = world.supervisor().await;
    let sandbox = first.launch(world.sandbox("pod")).await;
    let process = sandbox.shim.clone().expect("launched").process;
    first.vanish();
    std::fs::remove_file(world.directories.shim_identity(&sandbox.id)).expect("it was there");

    let second = world.supervisor().await;
    let unrecorded = world.sandbox("pod");
    let adopt =
        AdoptShim { record: unrecorded.clone(), containers: Vec::new(), processes: Default::default() };
    assert_eq!(second.done(adopt).await, Adopted::Running(Vec::new()));
    second.vanish();
    let third = world.supervisor().await;
    let again = third.launch(unrecorded).await;
    assert!(!runs(&process));
    assert_ne!(again.shim.expect("launched").process, process);
    third.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// Case 64 begins with a descriptor that leaked into the helper. A shim has its sockets and its log, and nothing that the
/// embedding program forgot to close.
#[actix::test]
async fn a_shim_inherits_nothing() {
    let Some(world) = World::new() else { return };
    let leaked = std::fs::File::open("/etc").expect("a directory");
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("not closed on exec any more");
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let pid = sandbox.shim.as_ref().expect("launched").process.pid;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).expect("root may look") {
        let target = std::fs::read_link(entry.expect("an entry").path()).unwrap_or_default();
        assert_ne!(target, std::path::Path::new("/etc"));
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("root may look");
    assert_eq!(environment, b"");
    drop(leaked);
    supervisor.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
}

/// A program that embeds the runtime for one run leaves nothing behind, however it ends.
#[actix::test]
async fn a_shim_that_lives_with_the_runtime_ends_with_it() {
    let Some(mut world) = World::new() else { return };
    world.settings.lifetime = Lifetime::WithRuntime;
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", FOREVER);
    let process = supervisor.run(&sandbox, &container).await;
    supervisor.vanish();
    until("container and shim have ended", || !runs(&process) && world.left(&sandbox).is_empty()).await;
}

#[actix::test]
async fn a_launch_that_fails_leaves_nothing_and_says_why() {
    let Some(mut world) = World::new() else { return };
    // A program that is no shim: it ends at once.
    world.settings.program = mainstay_supervisor::Program::Path("/bin/false".into());
    let supervisor = world.supervisor().await;
    let sandbox = world.sandbox("pod");
    let launch = mainstay_messages::supervisor::LaunchShim { record: sandbox.clone() };
    let error = supervisor.address.send(launch).await.expect("it runs").expect_err("no shim");
    assert!(error.to_string().contains("exited with code 1"), "{error}");
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}
