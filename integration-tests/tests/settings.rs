//! Settings of pods and containers, on real processes: what was asked for is what the process finds, and what cannot be
//! given is refused by its name.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay::{
    Access, BlockDeviceLimit, ContainerId, ContainerPid, Device, DeviceKind, DeviceRule, Error, HostEntry,
    HugepageLimit, Mount, Network, Paused, PodPlan, Privilege, Propagation, Resources, SandboxChange,
    SandboxId, SandboxSpec, Seccomp, Shutdown, Signal, StopOptions, SupplementaryGroups, UNLIMITED,
};
use mainstay_integration_tests::ledger::cgroup_tops;
use mainstay_integration_tests::{Shorthand, World, run, says, script_spec, wait, waiting, world};
use rstest::rstest;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

/// A tmpfs of a test, unmounted at its end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("made");
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=1m").expect("mounted");
        Self(path)
    }

    fn propagate(&self, how: MountPropagationFlags) {
        mount_change(&self.0, how).expect("changed");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The content of a file of a container's cgroup, in the first hierarchy that has it.
fn cgroup_file(world: &World, pod: &SandboxId, container: &ContainerId, file: &str) -> Option<String> {
    let path = Path::new(pod.as_str()).join(container.as_str()).join(file);
    cgroup_tops(world.cgroup()).iter().find_map(|top| fs::read_to_string(top.join(&path)).ok())
}

/// The whole disk that the machine runs from.
fn disk() -> Option<PathBuf> {
    let names = fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.file_name());
    let mut disks: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !["ram", "zram", "loop"].iter().any(|kind| name.starts_with(kind)))
        .map(|name| Path::new("/dev").join(name))
        .filter(|path| path.exists())
        .collect();
    disks.sort();
    disks.into_iter().next()
}

#[tokio::test]
async fn a_paused_container_stands_still_until_it_is_resumed() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "while :; do i=$((i+1)); echo $i > /count; done";
    let container = runtime.started(&pod, "c", script).await;
    runtime.pause_container(&container).await.expect("paused");
    runtime.pause_container(&container).await.expect("already paused");
    let record = || runtime.container(&container).expect("listed").record.clone();
    assert_eq!(record().paused, Paused::Yes);
    let refused = runtime.exec(&container, mainstay::ExecSpec::new(["true"])).await.expect_err("frozen");
    assert!(
        matches!(refused, Error::WrongPhase { .. }) && refused.to_string().contains("paused"),
        "{refused}"
    );
    // All of its processes stand still: the kernel counts no time for them any more.
    let used = || async { runtime.stats(&container).await.expect("measured").cpu_usage_ns };
    let (before, after) = (used().await, used().await);
    assert_eq!(before, after);

    runtime.resume_container(&container).await.expect("resumed");
    runtime.resume_container(&container).await.expect("already resumed");
    assert_eq!(record().paused, Paused::No);
    let count = says(&runtime, &container, "cat /count").await;
    wait::until_async("it counts on", async || says(&runtime, &container, "cat /count").await != count).await;
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// A signal is not seen by a process that stands still: a stop of a paused container ended in SIGKILL, always.
#[tokio::test]
async fn a_paused_container_is_stopped_as_any_other() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "trap 'exit 7' TERM; echo ready > /ready; while :; do sleep 0.01; done";
    let container = runtime.started(&pod, "c", script).await;
    wait::until_async("its trap is set", async || {
        !says(&runtime, &container, "cat /ready").await.contains("No such")
    })
    .await;
    runtime.pause_container(&container).await.expect("paused");
    runtime.stop_container(&container, StopOptions::default()).await.expect("stopped");
    let exit = runtime.exit_of(&container).await;
    assert_eq!(exit.code(), 7, "{exit}");
    assert_eq!(runtime.container(&container).expect("listed").record.paused, Paused::No);
    let refused = runtime.pause_container(&container).await.expect_err("ended");
    assert!(matches!(refused, Error::WrongPhase { .. }), "{refused}");

    let container = runtime.started(&pod, "killed", "exec sleep 1000").await;
    runtime.pause_container(&container).await.expect("paused");
    runtime.kill_container(&container, Signal::KILL).await.expect("killed");
    assert_eq!(runtime.exit_of(&container).await.code(), 137);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_paused_container_is_found_paused_by_the_next_daemon() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let change = Resources { pids: Some(50), ..Resources::default() };
    runtime.update_container(&container, change).await.expect("changed");
    runtime.pause_container(&container).await.expect("paused");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = world.start().await;
    let found = async || {
        runtime
            .container(&container)
            .is_ok_and(|found| found.record.phase == mainstay::ContainerPhase::Running)
    };
    wait::until_async("it is adopted", found).await;
    let record = runtime.container(&container).expect("listed").record.clone();
    assert_eq!((record.paused, record.limits().pids), (Paused::Yes, Some(50)));
    runtime.resume_container(&container).await.expect("resumed");
    assert_eq!(says(&runtime, &container, "echo on").await, "on");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn limits_of_a_running_container_are_changed_and_lifted() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let spec = waiting("c", |spec| {
        spec.resources.memory_bytes = Some(64 << 20);
        spec.resources.cpu_shares = Some(512);
    });
    let container = run(&runtime, &pod, spec.clone()).await.expect("runs");
    let stats = async || runtime.stats(&container).await.expect("measured");
    assert_eq!(stats().await.memory_limit_bytes, Some(64 << 20));
    let change = Resources {
        memory_bytes: Some(128 << 20),
        memory_reservation_bytes: Some(32 << 20),
        pids: Some(77),
        ..Resources::default()
    };
    runtime.update_container(&container, change).await.expect("changed");
    let now = stats().await;
    assert_eq!((now.memory_limit_bytes, now.pids_limit), (Some(128 << 20), Some(77)));
    let limits = runtime.container(&container).expect("listed").record.limits().clone();
    assert_eq!((limits.memory_bytes, limits.cpu_shares, limits.pids), (Some(128 << 20), Some(512), Some(77)));

    let lift = Resources { pids: Some(UNLIMITED), memory_bytes: Some(UNLIMITED), ..Resources::default() };
    runtime.update_container(&container, lift).await.expect("lifted");
    let now = stats().await;
    assert_eq!((now.pids_limit, now.memory_limit_bytes), (None, None));
    assert_eq!(runtime.container(&container).expect("listed").record.limits().pids, None);
    // What it was made from is still what it was made from.
    assert_eq!(runtime.create_container(&pod, spec).await.expect("joined"), container);

    let wrong = [
        (Resources { memory_bytes: Some(5), ..Resources::default() }, "memory"),
        (Resources { memory_swap_bytes: Some(64 << 20), ..Resources::default() }, "memory_swap"),
        (Resources { cpuset_cpus: Some("0-".into()), ..Resources::default() }, "cpuset_cpus"),
    ];
    for (change, field) in wrong {
        let refused = runtime.update_container(&container, change).await.expect_err("refused").to_string();
        assert!(refused.starts_with(field), "{refused}");
    }
    // A limit that the kernel refuses takes back those that were in force before it came to that one.
    let change = Resources { pids: Some(33), cpuset_cpus: Some("999".into()), ..Resources::default() };
    let refused = runtime.update_container(&container, change).await.expect_err("refused").to_string();
    assert!(refused.starts_with("limits") && refused.contains("999"), "{refused}");
    assert_eq!(stats().await.pids_limit, None);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn limits_of_a_ready_pod_are_changed_and_lifted() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let _container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let change = |limits: Resources| SandboxChange { limits, ..SandboxChange::default() };
    let limits = Resources { memory_bytes: Some(128 << 20), pids: Some(77), ..Resources::default() };
    runtime.update_sandbox(&pod, change(limits.clone())).await.expect("changed");
    let stats = async || runtime.sandbox_stats(&pod).await.expect("measured").total;
    let now = stats().await;
    assert_eq!((now.memory_limit_bytes, now.pids_limit), (Some(128 << 20), Some(77)));
    assert_eq!(*runtime.sandbox(&pod).expect("listed").record.limits(), limits);
    let plan =
        PodPlan { overhead: Resources { pids: Some(3), ..Resources::default() }, ..PodPlan::default() };
    runtime.update_sandbox(&pod, SandboxChange { plan, ..SandboxChange::default() }).await.expect("changed");
    assert_eq!(runtime.sandbox(&pod).expect("listed").record.plan().overhead.pids, Some(3));

    // A limit that the kernel refuses takes back those that were in force before it came to that one.
    let wrong = Resources { pids: Some(33), cpuset_cpus: Some("999".into()), ..Resources::default() };
    let refused = runtime.update_sandbox(&pod, change(wrong)).await.expect_err("refused").to_string();
    assert!(refused.starts_with("cpuset_cpus") && refused.contains("999"), "{refused}");
    assert_eq!(stats().await.pids_limit, Some(77));
    let lift = Resources { pids: Some(UNLIMITED), ..Resources::default() };
    runtime.update_sandbox(&pod, change(lift)).await.expect("lifted");
    assert_eq!(stats().await.pids_limit, None);
    runtime.stop_sandbox(&pod, Some(std::time::Duration::ZERO)).await.expect("stopped");
    let refused = runtime.update_sandbox(&pod, SandboxChange::default()).await.expect_err("stopped");
    assert!(matches!(refused, Error::WrongPhase { .. }), "{refused}");
    world.finish(runtime).await;
}

/// CVE-2021-43816 and others of its kind: of a read-only volume only the top mount was read-only. And where the host's root
/// is no shared mount, what was mounted on the host after the start of a pod was not seen by the pod's shim: containers got
/// the empty directory below it.
#[tokio::test]
async fn a_read_only_bind_is_read_only_all_the_way_down() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let below = Tmpfs::at(world.path().join("volume/below"));
    let volume = world.path().join("volume");
    let spec = waiting("c", |spec| {
        spec.mounts = vec![
            Mount::bind(&volume, "/ro", Access::ReadOnly),
            Mount::bind(&volume, "/rw", Access::ReadWrite),
        ];
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    let script = "touch /ro/a; touch /ro/below/a; touch /rw/below/b && ls /ro/below";
    let text = says(&runtime, &container, script).await;
    assert_eq!(text.matches("Read-only file system").count(), 2, "{text}");
    assert!(text.ends_with('b'), "{text}");
    assert!(below.0.join("b").exists(), "it is the mount, not what it hides");
    runtime.remove_sandbox(&pod).await.expect("removed");
    drop(below);
    world.finish(runtime).await;
}

#[tokio::test]
async fn mounts_propagate_as_the_spec_says() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let source = Tmpfs::at(world.path().join("source"));
    let bind = |propagation| Mount { propagation, ..Mount::bind(&source.0, "/m", Access::ReadWrite) };
    let make = |name: &str, propagation| {
        waiting(name, |spec| {
            spec.mounts = vec![bind(propagation)];
            spec.security.privilege = Privilege::Privileged;
        })
    };
    for propagation in [Propagation::Slave, Propagation::Shared] {
        let refused =
            run(&runtime, &pod, make("refused", propagation)).await.expect_err("private").to_string();
        assert!(refused.contains("mounts[0].propagation") && refused.contains("make-shared"), "{refused}");
    }
    source.propagate(MountPropagationFlags::SHARED);
    let mut containers = Vec::new();
    for (name, how) in
        [("private", Propagation::Private), ("slave", Propagation::Slave), ("shared", Propagation::Shared)]
    {
        containers.push(run(&runtime, &pod, make(name, how)).await.expect("runs"));
    }
    let [private, slave, shared] = &containers[..] else { unreachable!() };
    let of_host = Tmpfs::at(source.0.join("of-host"));
    fs::write(of_host.0.join("seen"), "").expect("written");
    let look = "ls /m/of-host";
    let absent = says(&runtime, private, look).await;
    assert!(absent.is_empty() || absent.contains("No such file"), "{absent}");
    assert_eq!(says(&runtime, slave, look).await, "seen");
    assert_eq!(says(&runtime, shared, look).await, "seen");

    let make = "mkdir -p /m/mine && mount -t tmpfs x /m/mine && echo mounted > /m/mine/file";
    assert_eq!(says(&runtime, slave, make).await, "");
    assert!(!source.0.join("mine/file").exists(), "a slave's mount is its own");
    assert_eq!(says(&runtime, shared, make).await, "");
    assert_eq!(fs::read_to_string(source.0.join("mine/file")).expect("seen by the host"), "mounted\n");
    assert_eq!(
        says(&runtime, private, "cat /m/mine/file").await,
        "cat: /m/mine/file: No such file or directory"
    );
    unmount(source.0.join("mine"), UnmountFlags::DETACH).expect("unmounted");
    runtime.remove_sandbox(&pod).await.expect("removed");
    drop(of_host);
    drop(source);
    world.finish(runtime).await;
}

#[tokio::test]
async fn devices_and_their_rules() {
    let world = world!();
    // What the host itself can open, and is not in every container anyway.
    let known = ["/dev/fuse", "/dev/loop-control", "/dev/autofs", "/dev/kvm"].map(PathBuf::from);
    let Some(path) = known.into_iter().find(|path| fs::File::open(path).is_ok()) else {
        return eprintln!("skipped: this machine has no device that can be opened");
    };
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let device = |access: &str| Device {
        path: path.clone(),
        target: Some("/dev/given".into()),
        access: access.to_owned(),
    };
    let reader = waiting("reader", |spec| spec.devices = vec![device("r")]);
    let container = run(&runtime, &pod, reader).await.expect("runs");
    assert_eq!(says(&runtime, &container, ": < /dev/given && echo open").await, "open");
    let text = says(&runtime, &container, ": <> /dev/given").await;
    assert!(text.contains("Operation not permitted"), "{text}");

    let number = says(&runtime, &container, "stat -c '%t %T' /dev/given").await;
    let make = format!("set -- {number}; mknod /node c 0x$1 0x$2 && : < /node && echo open");
    let none = run(&runtime, &pod, waiting("none", |_| ())).await.expect("runs");
    let text = says(&runtime, &none, &make).await;
    assert!(text.contains("Operation not permitted"), "{text}");
    let rule = DeviceRule { kind: DeviceKind::Character, major: Some(10), minor: None, access: "r".into() };
    let ruled =
        run(&runtime, &pod, waiting("ruled", |spec| spec.device_rules = vec![rule])).await.expect("runs");
    assert_eq!(says(&runtime, &ruled, &make).await, "open");

    for (name, path) in [("file", "/etc/passwd"), ("absent", "/dev/no-such-device")] {
        let spec = waiting(name, |spec| spec.devices = vec![Device { path: path.into(), ..device("rw") }]);
        let refused = run(&runtime, &pod, spec).await.expect_err("no device").to_string();
        assert!(refused.contains("devices[0].path") && refused.contains(path), "{refused}");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_seccomp_profile_of_the_callers() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let json = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []}],
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 30, "args": []}]}"#;
    let spec = waiting("c", |spec| spec.security.seccomp = Seccomp::Profile { json: json.into() });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    let text = says(&runtime, &container, "mkdir /new; grep Seccomp: /proc/self/status").await;
    assert!(text.contains("Read-only file system") && text.ends_with('2'), "{text}");
    // One of the default profile's refusals works here.
    assert_eq!(says(&runtime, &container, "unshare -U true && echo allowed").await, "allowed");

    let spec =
        waiting("wrong", |spec| spec.security.seccomp = Seccomp::Profile { json: "{\"a\": 1}".into() });
    let refused = run(&runtime, &pod, spec).await.expect_err("no profile").to_string();
    assert!(refused.contains("seccomp") && refused.contains("defaultAction"), "{refused}");
    let json = " ".repeat(300 * 1024);
    let spec = waiting("large", |spec| spec.security.seccomp = Seccomp::Profile { json });
    let refused = run(&runtime, &pod, spec).await.expect_err("too large").to_string();
    assert!(refused.starts_with("seccomp") && refused.contains("262144"), "{refused}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[rstest]
#[case(mainstay::PidMode::Container)]
#[case(mainstay::PidMode::Pod)]
#[tokio::test]
async fn kernel_parameters_of_a_pod(#[case] pid: mainstay::PidMode) {
    let world = world!();
    let runtime = world.start().await;
    let mut spec = SandboxSpec::new("p".parse().expect("a name"));
    spec.pid = pid;
    let given = [
        ("net.core.somaxconn", "777"),
        ("kernel.shmmni", "99"),
        ("net.ipv4.ip_local_port_range", "5000\t6000"),
    ];
    spec.sysctls = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let pod = runtime.run_sandbox(spec).await.expect("a pod");
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let read =
        "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/shmmni /proc/sys/net/ipv4/ip_local_port_range";
    assert_eq!(says(&runtime, &container, read).await, "777\n99\n5000\t6000");
    let host = fs::read_to_string("/proc/sys/kernel/shmmni").expect("readable");
    assert_ne!(host.trim(), "99", "the host's is its own");
    runtime.remove_sandbox(&pod).await.expect("removed");

    for (network, name, value) in [
        (Network::None, "kernel.core_pattern", "x"),
        (Network::None, "vm.swappiness", "1"),
        (Network::None, "net..x", "1"),
        (Network::Host, "net.core.somaxconn", "9"),
    ] {
        let mut spec = SandboxSpec::new("q".parse().expect("a name"));
        spec.network = network;
        spec.sysctls = [(name.to_owned(), value.to_owned())].into();
        let refused = runtime.run_sandbox(spec).await.expect_err("refused").to_string();
        assert!(refused.starts_with(&format!("sysctls.{name}")), "{refused}");
    }
    // One that the kernel does not know is found out when the pod is made, and nothing is left of that pod.
    let mut spec = SandboxSpec::new("r".parse().expect("a name"));
    spec.sysctls = [("net.core.no_such_thing".to_owned(), "1".to_owned())].into();
    let refused = runtime.run_sandbox(spec).await.expect_err("no such parameter").to_string();
    assert!(refused.contains("net.core.no_such_thing"), "{refused}");
    world.finish(runtime).await;
}

/// A limit is either in force, or refused by its name: never left out in silence.
#[tokio::test]
async fn further_limits_are_in_force_or_refused_by_name() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let disk = disk();
    let mut cases: Vec<(&str, Resources, &str, &[&str])> = vec![
        (
            "reservation",
            Resources { memory_reservation_bytes: Some(8 << 20), ..Resources::default() },
            "memory_reservation",
            &["memory.soft_limit_in_bytes=8388608", "memory.low=8388608"],
        ),
        (
            "swap",
            Resources {
                memory_bytes: Some(32 << 20),
                memory_swap_bytes: Some(48 << 20),
                ..Resources::default()
            },
            "memory_swap",
            &["memory.memsw.limit_in_bytes=50331648", "memory.swap.max=16777216"],
        ),
        (
            "hugepages",
            Resources {
                hugepages: vec![HugepageLimit { page_size: "2MB".into(), bytes: 4 << 20 }],
                ..Resources::default()
            },
            "hugepages",
            &["hugetlb.2MB.limit_in_bytes=4194304", "hugetlb.2MB.max=4194304"],
        ),
    ];
    let mut weighted = Resources::default();
    weighted.block_io.weight = Some(100);
    cases.push((
        "weight",
        weighted,
        "block_io.weight",
        &["blkio.weight=100", "blkio.bfq.weight=100", "io.weight=", "io.bfq.weight="],
    ));
    if let Some(disk) = &disk {
        let mut throttled = Resources::default();
        throttled.block_io.devices =
            vec![BlockDeviceLimit { read_bps: Some(1 << 20), ..BlockDeviceLimit::new(disk) }];
        let files: &[&str] = &["blkio.throttle.read_bps_device=1048576", "io.max=rbps=1048576"];
        cases.push(("throttle", throttled, "block_io.devices", files));
    }
    for (name, resources, field, files) in cases {
        match run(&runtime, &pod, waiting(name, |spec| spec.resources = resources)).await {
            Ok(container) => {
                let found = files.iter().any(|expected| {
                    let (file, value) = expected.split_once('=').expect("a file and a value");
                    cgroup_file(&world, &pod, &container, file).is_some_and(|text| text.contains(value))
                });
                assert!(found, "{name} is in none of {files:?}");
            }
            Err(refused) => {
                let text = refused.to_string();
                eprintln!("{name}: {text}");
                assert!(text.contains(field), "{text}");
            }
        }
    }
    for path in ["/dev/null", "/dev/no-such-disk"] {
        let mut limits = Resources::default();
        limits.block_io.devices = vec![BlockDeviceLimit { read_bps: Some(1), ..BlockDeviceLimit::new(path) }];
        let spec = waiting("no-disk", |spec| spec.resources = limits);
        let refused = run(&runtime, &pod, spec).await.expect_err("no disk").to_string();
        assert!(refused.contains("block_io.devices[0].path") && refused.contains(path), "{refused}");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_container_has_no_more_processes_than_its_limit() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "i=0; while [ $i -lt 9 ]; do sleep 1000 & i=$((i+1)); done; wait";
    let mut spec = script_spec("c", script);
    spec.resources.pids = Some(4);
    let container = run(&runtime, &pod, spec).await.expect("runs");
    // The shell cannot make its fourth child, and ends for that.
    assert_ne!(runtime.exit_of(&container).await.code(), 0);
    let log =
        fs::read_to_string(&runtime.container(&container).expect("listed").record.log_path).expect("a log");
    assert!(log.contains("fork"), "{log}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_container_sees_the_processes_of_another() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let first = runtime.started(&pod, "first", "exec sleep 4321").await;
    let with = |name: &str, container: &ContainerId| {
        waiting(name, |spec| spec.pid = ContainerPid::Container { container: container.clone() })
    };
    let second = run(&runtime, &pod, with("second", &first)).await.expect("runs");
    let read = "tr '\\0' ' ' < /proc/1/cmdline";
    assert_eq!(says(&runtime, &second, read).await, "sleep 4321");
    assert_eq!(says(&runtime, &second, "kill -0 1 && echo reached").await, "reached");
    let created = runtime.created(&pod, "created", "true").await;
    let elsewhere = runtime.pod("q").await;
    for (place, other) in
        [(&pod, &created), (&pod, &"no-such-container".parse().expect("an id")), (&elsewhere, &first)]
    {
        let refused = run(&runtime, place, with("refused", other)).await.expect_err("refused").to_string();
        assert!(
            refused.contains("pid: container") && refused.contains("running container of the same pod"),
            "{refused}"
        );
    }
    // The namespace ends with its first process, and so does who is in it; both exits are told.
    runtime.kill_container(&first, Signal::KILL).await.expect("killed");
    assert_eq!(runtime.exit_of(&first).await.code(), 137);
    assert_eq!(runtime.exit_of(&second).await.code(), 137);
    runtime.remove_sandbox(&elsewhere).await.expect("removed");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Kubernetes' SupplementalGroupsPolicy: groups of the image's files are groups that nobody who reads the spec sees.
#[tokio::test]
async fn supplementary_groups_can_be_those_of_the_spec_alone() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let groups = world.path().join("group");
    fs::write(&groups, "root:x:0:\ndaemon:x:1:\nextra:x:4242:daemon\n").expect("written");
    let with = |name: &str, policy| {
        waiting(name, |spec| {
            spec.process.user = Some("daemon".into());
            spec.process.groups = vec![77];
            spec.mounts = vec![Mount::bind(&groups, "/etc/group", Access::ReadOnly)];
            spec.security.supplementary_groups = policy;
        })
    };
    for (name, policy, expected) in
        [("merge", SupplementaryGroups::Merge, "1 77 4242"), ("strict", SupplementaryGroups::Strict, "1 77")]
    {
        let container = run(&runtime, &pod, with(name, policy)).await.expect("runs");
        for place in ["1", "self"] {
            let read = format!(
                "set -- $(grep Groups: /proc/{place}/status); shift; echo $(echo $* | tr ' ' '\\n' | sort -n)"
            );
            assert_eq!(says(&runtime, &container, &read).await, expected, "{name}, {place}");
        }
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn names_are_looked_up_as_the_pod_says() {
    let world = world!();
    let runtime = world.start().await;
    let mut spec = SandboxSpec::new("p".parse().expect("a name"));
    spec.names.servers = vec!["10.1.2.3".parse().expect("an address")];
    spec.names.searches = vec!["example.org".into()];
    spec.names.hosts =
        vec![HostEntry { name: "db".into(), address: "10.0.0.7".parse().expect("an address") }];
    let pod = runtime.run_sandbox(spec).await.expect("a pod");
    let user = waiting("c", |spec| spec.process.user = Some("1000".into()));
    let container = run(&runtime, &pod, user).await.expect("runs");
    let text = says(&runtime, &container, "cat /etc/resolv.conf").await;
    assert_eq!(text, "nameserver 10.1.2.3\nsearch example.org");
    let text = says(&runtime, &container, "cat /etc/hosts; echo >> /etc/hosts").await;
    assert!(text.contains("10.0.0.7\tdb") && text.contains("127.0.1.1\tp"), "{text}");
    let refused = ["Read-only file system", "Permission denied"];
    assert!(refused.iter().any(|word| text.contains(word)), "{text}");
    runtime.remove_sandbox(&pod).await.expect("removed");

    let mut spec = SandboxSpec::new("q".parse().expect("a name"));
    spec.names.hosts =
        vec![HostEntry { name: "a b".into(), address: "10.0.0.7".parse().expect("an address") }];
    let refused = runtime.run_sandbox(spec).await.expect_err("no name").to_string();
    assert!(refused.starts_with("names.hosts[0].name"), "{refused}");
    world.finish(runtime).await;
}
