//! Pods with a user namespace, on real processes: root inside is nobody in particular on the host, and all that a container
//! needs works for it all the same.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use mainstay::{
    Access, ContainerId, ContainerPid, ContainerSpec, Device, Error, HostEntry, IdMapping, IdMappings, Mount,
    Network, Owners, PidMode, Privilege, Propagation, Resources, Rlimit, Rootfs, Runtime, SandboxId,
    SandboxSpec, Shutdown, UserNamespace, UserNamespaces,
};
use mainstay_integration_tests::{Shorthand, run, says, script_spec, wait, waiting, world};

/// Ids of the host for pods of this file that are given theirs by hand.
const GIVEN: u32 = 1_600_000_000;
const SIZE: u32 = 65_536;

fn pod_spec(name: &str, namespace: UserNamespace) -> SandboxSpec {
    SandboxSpec { user_namespace: namespace, ..SandboxSpec::new(name.parse().expect("a good name")) }
}

fn given(host: u32) -> UserNamespace {
    UserNamespace::Mapped(IdMappings::both([IdMapping { container: 0, host, size: SIZE }]))
}

/// The first host id of a pod, as its record has it.
fn first_id(runtime: &Runtime, pod: &SandboxId) -> u32 {
    let record = runtime.sandbox(pod).expect("listed").record.clone();
    record.shim.expect("it has a shim").ids.expect("it has ids of its own").uids[0].host
}

/// The real user of a container's first process, on the host.
fn host_user(runtime: &Runtime, container: &ContainerId) -> u32 {
    let process = runtime.container(container).expect("listed").record.process.clone().expect("it runs");
    fs::metadata(format!("/proc/{}/task", process.pid)).expect("it runs").uid()
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).expect("it is there");
    (metadata.uid(), metadata.gid())
}

#[tokio::test]
async fn each_pod_gets_ids_that_no_other_has() {
    let world = world!();
    let mut config = world.config();
    config.user_namespaces = UserNamespaces { first_host_id: GIVEN, host_ids: 3 * SIZE, ids_per_pod: SIZE };
    let start = async || Runtime::start(config.clone()).await.expect("it starts");
    let runtime = start().await;
    let auto = |name: &str| pod_spec(name, UserNamespace::Auto);
    let a = runtime.run_sandbox(auto("a")).await.expect("a pod");
    let b = runtime.run_sandbox(auto("b")).await.expect("a pod");
    let firsts = [first_id(&runtime, &a), first_id(&runtime, &b)];
    assert_ne!(firsts[0], firsts[1]);
    assert!(
        firsts.iter().all(|first| (first - GIVEN).is_multiple_of(SIZE) && first - GIVEN < 3 * SIZE),
        "{firsts:?}"
    );
    let container = run(&runtime, &a, waiting("c", |_| ())).await.expect("runs");
    assert_eq!(host_user(&runtime, &container), firsts[0]);
    assert_eq!(says(&runtime, &container, "id -u; cut -c 1-200 /proc/self/setgroups").await, "0\nallow");
    // What a pod was given is its own: others get something else, by hand too.
    let refused = runtime.run_sandbox(pod_spec("x", given(firsts[1]))).await.expect_err("b's").to_string();
    assert!(refused.starts_with("user_namespace") && refused.contains(b.as_str()), "{refused}");

    // The next daemon knows what is in use, from the pods.
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = start().await;
    wait::until_async("it is adopted", async || {
        runtime
            .container(&container)
            .is_ok_and(|found| found.record.phase == mainstay::ContainerPhase::Running)
    })
    .await;
    assert_eq!([first_id(&runtime, &a), first_id(&runtime, &b)], firsts);
    assert_eq!(says(&runtime, &container, "id -u").await, "0");
    let d = run(&runtime, &a, waiting("d", |_| ())).await.expect("an adopted pod takes containers");
    assert_eq!(host_user(&runtime, &d), firsts[0]);
    let third = runtime.run_sandbox(auto("third")).await.expect("the last range");
    assert!(!firsts.contains(&first_id(&runtime, &third)));
    let refused = runtime.run_sandbox(auto("fourth")).await.expect_err("none is left");
    assert!(
        matches!(refused, Error::ResourceExhausted { limit: 3, .. })
            && refused.to_string().contains("user_namespaces.host_ids"),
        "{refused}"
    );
    runtime.remove_sandbox(&b).await.expect("removed");
    let again = runtime.run_sandbox(auto("fourth")).await.expect("there is one again");
    assert_eq!(first_id(&runtime, &again), firsts[1]);
    world.finish(runtime).await;
}

#[tokio::test]
async fn everything_works_for_a_root_that_is_not_the_hosts() {
    let world = world!();
    let runtime = world.start().await;
    let mut spec = pod_spec("p", given(GIVEN + 3 * SIZE));
    let host = GIVEN + 3 * SIZE;
    spec.hostname = Some("box".into());
    spec.names.hosts =
        vec![HostEntry { name: "db".into(), address: "10.0.0.7".parse().expect("an address") }];
    spec.sysctls = [
        ("net.ipv4.ip_unprivileged_port_start".to_owned(), "7".to_owned()),
        ("kernel.shmmni".to_owned(), "99".to_owned()),
    ]
    .into();
    let pod = runtime.run_sandbox(spec).await.expect("a pod");
    let container = run(
        &runtime,
        &pod,
        waiting("c", |spec| {
            spec.resources =
                Resources { memory_bytes: Some(64 << 20), pids: Some(50), ..Resources::default() };
            spec.rlimits = vec![Rlimit { name: "NOFILE".into(), soft: 100, hard: 200 }];
            spec.process.groups = vec![5, 600];
            spec.mounts = vec![Mount::tmpfs("/scratch", Some(1 << 20))];
        }),
    )
    .await
    .expect("runs");
    let lines = [
        ("id -u; id -g", "0\n0"),
        ("hostname; tail -n 1 /etc/hosts", "box\n10.0.0.7\tdb"),
        ("cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni", "7\n99"),
        ("ulimit -Sn; ulimit -Hn", "100\n200"),
        ("set -- $(grep Groups: /proc/1/status); shift; echo $(echo $* | tr ' ' '\\n' | sort -n)", "0 5 600"),
        ("stat -c '%u:%g' / /etc /scratch /dev/null /dev/shm /proc/1", "0:0\n0:0\n0:0\n0:0\n0:0\n0:0"),
        ("echo x > /dev/null && head -c 3 /dev/urandom | wc -c", "3"),
        ("echo s > /dev/shm/s && echo t > /scratch/t && cat /dev/shm/s /scratch/t", "s\nt"),
        ("touch /f && chown 5:6 /f && stat -c '%u:%g' /f && rm /f", "5:6"),
        ("cat /sys/fs/cgroup/pids/pids.max 2> /dev/null || cat /sys/fs/cgroup/pids.max", "50"),
        ("grep Seccomp: /proc/1/status | tr -d '\\t'", "Seccomp:2"),
        ("mkdir /m; mount -t tmpfs x /m 2> /dev/null || echo confined", "confined"),
        ("mknod /disk b 8 0 2>&1 | grep -c 'not permitted'", "1"),
    ];
    for (script, expected) in lines {
        assert_eq!(says(&runtime, &container, script).await, expected, "{script}");
    }
    assert_eq!(host_user(&runtime, &container), host);
    let stats = runtime.stats(&container).await.expect("measured");
    assert_eq!((stats.memory_limit_bytes, stats.pids_limit), (Some(64 << 20), Some(50)));
    runtime.pause_container(&container).await.expect("paused");
    runtime.resume_container(&container).await.expect("resumed");
    let change = Resources { pids: Some(40), ..Resources::default() };
    runtime.update_container(&container, change).await.expect("changed");

    let joined =
        waiting("joined", |spec| spec.pid = ContainerPid::Container { container: container.clone() });
    let joined = run(&runtime, &pod, joined).await.expect("runs");
    assert_eq!(
        says(&runtime, &joined, "tr '\\0' ' ' < /proc/1/cmdline; stat -c %u /proc/1").await,
        "sleep 1000 0"
    );

    // Its output is logged, also what it writes to the devices of its standard streams.
    let script = "echo out; echo err > /dev/stderr; id -u; exit 3";
    let other = run(&runtime, &pod, script_spec("talks", script)).await.expect("runs");
    assert_eq!(runtime.exit_of(&other).await.code(), 3);
    let log = fs::read_to_string(&runtime.container(&other).expect("listed").record.log_path).expect("a log");
    let words: Vec<&str> = log.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!((words.len(), words.contains(&"out"), words.contains(&"err")), (3, true, true), "{log}");
    // A user of the image's files, and one that the namespace does not have.
    let daemon = run(&runtime, &pod, waiting("daemon", |spec| spec.process.user = Some("daemon".into())));
    let daemon = daemon.await.expect("runs");
    assert_eq!(host_user(&runtime, &daemon), host + 1);
    assert_eq!(says(&runtime, &daemon, "echo log > /dev/stdout").await, "log");
    let stranger = waiting("stranger", |spec| spec.process.user = Some("70000".into()));
    let refused = run(&runtime, &pod, stranger).await.expect_err("not mapped").to_string();
    assert!(refused.contains("the user id 70000 is not mapped"), "{refused}");
    world.finish(runtime).await;
}

#[tokio::test]
async fn files_belong_to_whom_they_should_on_both_sides() {
    let world = world!();
    let runtime = world.start().await;
    let host = GIVEN + 4 * SIZE;
    let pod = runtime.run_sandbox(pod_spec("p", given(host))).await.expect("a pod");
    let volume = world.path().join("volume");
    let kept = world.path().join("kept");
    for directory in [&volume, &kept] {
        fs::create_dir(directory).expect("made");
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("changed");
    }
    fs::write(volume.join("of-app"), "x").expect("written");
    chown(volume.join("of-app"), Some(1_000), Some(1_000)).expect("changed");
    let container = run(
        &runtime,
        &pod,
        waiting("c", |spec| {
            spec.mounts = vec![
                Mount::bind(&volume, "/mapped", Access::ReadWrite),
                Mount { owners: Owners::Host, ..Mount::bind(&kept, "/kept", Access::ReadWrite) },
                Mount::bind(&volume, "/read-only", Access::ReadOnly),
            ];
        }),
    )
    .await
    .expect("runs");
    let script = "stat -c %u /mapped /mapped/of-app /kept; touch /mapped/a /kept/b; touch /read-only/c 2> /dev/null || echo ro";
    assert_eq!(says(&runtime, &container, script).await, "0\n1000\n65534\nro");
    assert_eq!(owner(volume.join("a")), (0, 0), "what its root writes is root's where it was mapped");
    assert_eq!(owner(kept.join("b")), (host, host));

    // What goes to the container's own layer has ids of the pod's, and is removed with it.
    assert_eq!(
        says(&runtime, &container, "mkdir -m 700 /made && touch /made/x && stat -c %u /made").await,
        "0"
    );
    let layer = world.path().join("root/layers").join(container.as_str()).join("upper");
    assert_eq!(owner(layer.join("made/x")), (host, host));
    runtime.remove_container(&container, mainstay::IfRunning::Kill).await.expect("removed");
    assert!(!layer.exists());

    // A directory as root: used as it is, and mapped.
    let root = world.path().join("image");
    for directory in ["bin", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(directory)).expect("made");
    }
    let busybox = Path::new("/bin/busybox");
    if busybox.exists() {
        fs::copy(busybox, root.join("bin/busybox")).expect("copied");
        for (name, rootfs) in [
            ("direct", Rootfs::Directory { path: root.clone() }),
            ("layered", Rootfs::CopyOnWrite { path: root.clone() }),
        ] {
            let mut spec = ContainerSpec::new(
                name.parse().expect("a good name"),
                [
                    "/bin/busybox",
                    "sh",
                    "-c",
                    "busybox touch /tmp/$0 && busybox stat -c %u:%g /tmp/$0 /bin",
                    name,
                ],
            );
            spec.process.env = [("PATH".to_owned(), "/bin".to_owned())].into();
            spec.rootfs = rootfs;
            let container = run(&runtime, &pod, spec).await.expect("runs");
            assert_eq!(runtime.exit_of(&container).await.code(), 0);
            let log = &runtime.container(&container).expect("listed").record.log_path;
            let log = fs::read_to_string(log).expect("a log");
            assert_eq!(log.matches(" 0:0\n").count(), 2, "{log}");
        }
        assert_eq!(owner(root.join("tmp/direct")), (0, 0));
        assert!(!root.join("tmp/layered").exists());
    }
    world.finish(runtime).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_its_name() {
    let world = world!();
    let runtime = world.start().await;
    let mut with_network = pod_spec("a", UserNamespace::Auto);
    with_network.network = Network::Host;
    let mut with_processes = pod_spec("a", UserNamespace::Auto);
    with_processes.pid = PidMode::Host;
    let root = UserNamespace::Mapped(IdMappings::both([IdMapping { container: 0, host: 0, size: 1 }]));
    for (spec, field) in [
        (with_network, "network"),
        (with_processes, "pid"),
        (pod_spec("a", root), "user_namespace.uids[0]"),
        (pod_spec("a", UserNamespace::Mapped(IdMappings::default())), "user_namespace.uids"),
    ] {
        let refused = runtime.run_sandbox(spec).await.expect_err("refused").to_string();
        assert!(refused.starts_with(field), "{refused}");
    }
    let pod = runtime.run_sandbox(pod_spec("p", UserNamespace::Auto)).await.expect("a pod");
    let shared = Mount { propagation: Propagation::Shared, ..Mount::bind("/tmp", "/m", Access::ReadWrite) };
    let refused = run(&runtime, &pod, waiting("shared", |spec| spec.mounts = vec![shared])).await;
    assert!(refused.expect_err("it would mount on the host").to_string().contains("mounts[0].propagation"));
    // proc does not take id-mapped mounts on any kernel.
    let proc = Mount::bind("/proc", "/m", Access::ReadOnly);
    let refused = run(&runtime, &pod, waiting("proc", |spec| spec.mounts = vec![proc.clone()])).await;
    let refused = refused.expect_err("not possible");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
    assert!(refused.to_string().contains("\"/proc\" cannot be id-mapped"), "{refused}");
    let kept = Mount { owners: Owners::Host, ..proc };
    run(&runtime, &pod, waiting("kept", |spec| spec.mounts = vec![kept]))
        .await
        .expect("as it is on the host");
    world.finish(runtime).await;
}

/// A privileged container has all rights over what is the pod's, and none over what is the host's.
#[tokio::test]
async fn a_privileged_container_is_root_of_its_pod_alone() {
    let world = world!();
    let runtime = world.start().await;
    let mut spec = pod_spec("p", UserNamespace::Auto);
    spec.pid = PidMode::Pod;
    let pod = runtime.run_sandbox(spec).await.expect("a pod");
    let secret = world.path().join("secret");
    fs::write(&secret, "secret").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("changed");
    let container = run(
        &runtime,
        &pod,
        waiting("c", |spec| {
            spec.security.privilege = Privilege::Privileged;
            spec.mounts =
                vec![Mount { owners: Owners::Host, ..Mount::bind(&secret, "/secret", Access::ReadWrite) }];
            spec.devices = vec![Device { path: "/dev/full".into(), target: None, access: "rwm".into() }];
        }),
    )
    .await
    .expect("runs");
    for (script, expected) in [
        ("mkdir -p /m && mount -t tmpfs x /m && echo mounted", "mounted"),
        ("hostname inside && hostname", "inside"),
        ("cat /secret > /dev/null 2>&1 || echo denied", "denied"),
        ("ls /dev/vda /dev/sda /dev/mem 2> /dev/null | wc -l", "0"),
        ("mknod /disk b 8 0 2> /dev/null || echo denied", "denied"),
        ("echo 1 2> /dev/null > /proc/sys/vm/drop_caches || echo denied", "denied"),
        ("chown 0:0 /secret 2> /dev/null || echo denied", "denied"),
        ("nsenter -t 1 -n true 2> /dev/null; kill -9 1; echo alive", "alive"),
        ("stat -c %t:%T /dev/full", "1:7"),
    ] {
        assert_eq!(says(&runtime, &container, script).await, expected, "{script}");
    }
    world.finish(runtime).await;
}
