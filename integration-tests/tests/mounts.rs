//! Mounts, devices and rights as orchestrators ask for them, on real processes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use mainstay::{
    Access, AppArmor, ContainerPid, ContainerSpec, CpuTime, Device, IdMapping, IdMappings, MissingSource,
    Mount, Owners, PidMode, ProcessUser, Resources, Restriction, Runtime, SandboxSpec, Submounts,
    SupplementaryGroups,
};
use mainstay_integration_tests::ledger::cgroup_tops;
use mainstay_integration_tests::{Shorthand, run, says, waiting, world};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A tmpfs of a test, unmounted at its end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("made");
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=1m").expect("mounted");
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// kubelet's read-only mounts leave the mounts below them as they are, unless it asks for more; until now a read-only bind was so all
/// the way down, and containers of others that write below one failed.
#[tokio::test]
async fn mounts_below_a_bind_are_as_they_are_asked_for() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let source = Tmpfs::at(world.path().join("source"));
    let below = Tmpfs::at(source.0.join("below"));
    fs::write(below.0.join("seen"), "").expect("written");
    let bind =
        |submounts, target: &str| Mount { submounts, ..Mount::bind(&source.0, target, Access::ReadOnly) };
    let spec = waiting("c", |spec| {
        spec.mounts = vec![
            bind(Submounts::Alike, "/alike"),
            bind(Submounts::AsOnHost, "/as-on-host"),
            bind(Submounts::Absent, "/absent"),
        ];
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    for top in ["alike", "as-on-host", "absent"] {
        let text = says(&runtime, &container, &format!("touch /{top}/x")).await;
        assert!(text.contains("Read-only file system"), "{top}: {text}");
    }
    let text = says(&runtime, &container, "touch /alike/below/x").await;
    assert!(text.contains("Read-only file system"), "{text}");
    assert_eq!(says(&runtime, &container, "touch /as-on-host/below/x && echo done").await, "done");
    assert!(below.0.join("x").exists());
    assert_eq!(says(&runtime, &container, "ls /absent/below").await, "");
    runtime.remove_sandbox(&pod).await.expect("removed");
    drop((below, source));
    world.finish(runtime).await;
}

#[tokio::test]
async fn restrictions_hold_for_the_files_of_a_mount() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let source = world.path().join("source");
    fs::create_dir(&source).expect("made");
    fs::write(source.join("program"), "#!/bin/sh\necho runs\n").expect("written");
    fs::set_permissions(source.join("program"), fs::Permissions::from_mode(0o755)).expect("set");
    let spec = waiting("c", |spec| {
        let restrictions = [Restriction::NoExec, Restriction::NoSuid, Restriction::NoDev].into();
        spec.mounts = vec![
            Mount::bind(&source, "/free", Access::ReadWrite),
            Mount { restrictions, ..Mount::bind(&source, "/bound", Access::ReadWrite) },
        ];
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    assert_eq!(says(&runtime, &container, "/free/program").await, "runs");
    let text = says(&runtime, &container, "/bound/program").await;
    assert!(text.contains("Permission denied"), "{text}");
    let options = says(&runtime, &container, "grep ' /bound ' /proc/self/mountinfo").await;
    for word in ["nosuid", "nodev", "noexec"] {
        assert!(options.contains(word), "{options}");
    }
    world.finish(runtime).await;
}

#[tokio::test]
async fn what_is_missing_on_the_host_is_refused_or_made_and_links_are_followed() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let absent = world.path().join("absent/inside");
    let bind = Mount::bind(&absent, "/m", Access::ReadWrite);
    let refused = waiting("refused", |spec| spec.mounts = vec![bind.clone()]);
    let error = run(&runtime, &pod, refused).await.expect_err("nothing is there").to_string();
    assert!(error.contains("mounts[0].source") && error.contains("absent/inside"), "{error}");
    assert!(!world.path().join("absent").exists());
    let link = world.path().join("link");
    symlink(&absent, &link).expect("made");
    let spec = waiting("made", |spec| {
        let made = Mount { missing: MissingSource::DirectoryMade, ..bind };
        spec.mounts = vec![made, Mount::bind(&link, "/by-link", Access::ReadWrite)];
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    assert_eq!(says(&runtime, &container, "touch /m/x && ls /by-link").await, "x");
    let made = fs::metadata(&absent).expect("made");
    assert_eq!((made.uid(), made.mode() & 0o7777), (0, 0o755));
    world.finish(runtime).await;
}

/// Without a user namespace, too: what is 1000's on the disk is 5000's in the container.
#[tokio::test]
async fn files_have_the_owners_that_are_given() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let source = Tmpfs::at(world.path().join("source"));
    fs::write(source.0.join("file"), "").expect("written");
    chown(source.0.join("file"), Some(1_000), Some(1_001)).expect("given");
    let range = |container, host| vec![IdMapping { container, host, size: 1 }];
    let ids = IdMappings { uids: range(1_000, 5_000), gids: range(1_001, 5_001) };
    let mapped = Mount { owners: Owners::Given(ids), ..Mount::bind(&source.0, "/mapped", Access::ReadWrite) };
    let spec = waiting("c", |spec| {
        spec.mounts = vec![mapped, Mount::bind(&source.0, "/plain", Access::ReadWrite)];
    });
    let container = match run(&runtime, &pod, spec).await {
        Ok(container) => container,
        Err(error) if error.to_string().contains("cannot be id-mapped") => {
            return eprintln!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let script = "stat -c '%u %g' /mapped/file /plain/file";
    assert_eq!(says(&runtime, &container, script).await, "5000 5001\n1000 1001");
    runtime.remove_sandbox(&pod).await.expect("removed");
    drop(source);
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_directory_of_devices_stands_for_all_in_it() {
    let world = world!();
    let directory = world.path().join("devices");
    fs::create_dir_all(directory.join("deeper")).expect("made");
    let null = rustix::fs::makedev(1, 3);
    for name in ["a", "deeper/b"] {
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join(name),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o666),
            null,
        );
        made.expect("made");
    }
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let device = |path: &Path| Device {
        path: path.to_owned(),
        target: Some("/dev/given".into()),
        access: "rw".to_owned(),
    };
    let spec = waiting("c", |spec| spec.devices = vec![device(&directory)]);
    let container = run(&runtime, &pod, spec).await.expect("runs");
    let script = "echo x > /dev/given/a && echo x > /dev/given/deeper/b && stat -c '%t %T' /dev/given/a";
    assert_eq!(says(&runtime, &container, script).await, "1 3");
    let none = waiting("none", |spec| spec.devices = vec![device(Path::new("/etc"))]);
    let error = run(&runtime, &pod, none).await.expect_err("no devices").to_string();
    assert!(error.contains("devices[0].path") && error.contains("without one"), "{error}");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_container_has_the_cdi_devices_that_its_spec_names() {
    let world = world!();
    let directory = world.path().join("cdi");
    fs::create_dir(&directory).expect("made");
    let file = r#"{
        "cdiVersion": "0.6.0", "kind": "vendor.example/thing",
        "devices": [{"name": "one", "containerEdits": {"env": ["THING=one"],
            "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/zero"}]}}]}"#;
    fs::write(directory.join("thing.json"), file).expect("written");
    let mut config = world.config();
    config.cdi_dirs = vec![directory];
    let runtime = Runtime::start(config).await.expect("it starts");
    let pod = runtime.pod("p").await;
    let with = |name: &str, device: &str| {
        waiting(name, |spec| spec.cdi_devices = vec![format!("vendor.example/thing={device}")])
    };
    let container = run(&runtime, &pod, with("c", "one")).await.expect("runs");
    let script = "tr '\\0' '\\n' < /proc/1/environ | grep THING; head -c 3 /dev/thing | wc -c";
    assert_eq!(says(&runtime, &container, script).await, "THING=one\n3");
    let error = run(&runtime, &pod, with("none", "two")).await.expect_err("no such device").to_string();
    assert!(error.contains("vendor.example/thing=two"), "{error}");
    world.finish(runtime).await;
}

#[tokio::test]
async fn ambient_capabilities_reach_the_programs_of_others_than_root() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let spec = |name: &str, ambient: &[&str]| {
        waiting(name, |spec| {
            spec.process.user = Some("1000:1000".into());
            spec.security.capabilities_ambient = ambient.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let script = "grep -E 'CapEff|CapAmb' /proc/1/status | cut -f2";
    let none = run(&runtime, &pod, spec("none", &[])).await.expect("runs");
    assert_eq!(says(&runtime, &none, script).await, "0000000000000000\n0000000000000000");
    let some = run(&runtime, &pod, spec("some", &["NET_ADMIN"])).await.expect("runs");
    assert_eq!(says(&runtime, &some, script).await, "0000000000001000\n0000000000001000");
    world.finish(runtime).await;
}

#[tokio::test]
async fn profiles_that_the_machine_has_not_are_refused() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let name = "mainstay-no-such-profile";
    let spec = waiting("c", |spec| spec.security.apparmor = AppArmor::Profile { name: name.into() });
    let error = run(&runtime, &pod, spec).await.expect_err("nothing would confine it").to_string();
    assert!(error.contains("apparmor") && error.contains(name), "{error}");
    let spec = waiting("d", |spec| spec.security.apparmor = AppArmor::Unconfined);
    run(&runtime, &pod, spec).await.expect("asks for nothing");
    world.finish(runtime).await;
}

/// In a pod that shares them a container can have its own, or see the host's.
#[tokio::test]
async fn a_container_sees_the_processes_that_it_asks_for() {
    let world = world!();
    let runtime = world.start().await;
    let sandbox = SandboxSpec { pid: PidMode::Pod, ..SandboxSpec::new("p".parse().expect("a name")) };
    let pod = runtime.run_sandbox(sandbox).await.expect("it runs");
    let mut namespaces = Vec::new();
    for (name, pid) in [
        ("shared", ContainerPid::Pod),
        ("other", ContainerPid::Pod),
        ("own", ContainerPid::Own),
        ("host", ContainerPid::Host),
    ] {
        let container = run(&runtime, &pod, waiting(name, |spec| spec.pid = pid)).await.expect("runs");
        namespaces.push(says(&runtime, &container, "readlink /proc/self/ns/pid").await);
    }
    let of_host = fs::read_link("/proc/self/ns/pid").expect("readable");
    assert_eq!(namespaces[0], namespaces[1]);
    assert!(namespaces[2] != namespaces[0] && namespaces[2] != namespaces[3]);
    assert_eq!(Path::new(&namespaces[3]), of_host);
    world.finish(runtime).await;
}

/// kubelet gives quota and period as they are to be written: 12345 of 50000 was rounded to thousandths of a CPU.
#[tokio::test]
async fn cpu_time_is_limited_exactly_as_given() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let time = CpuTime { quota_us: 12_345, period_us: 50_000 };
    let spec = waiting("c", |spec| {
        spec.resources = Resources { cpu_time: Some(time), ..Resources::default() };
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    let file = |name: &str| {
        let path = Path::new(pod.as_str()).join(container.as_str()).join(name);
        cgroup_tops(world.cgroup()).iter().find_map(|top| fs::read_to_string(top.join(&path)).ok())
    };
    match file("cpu.max") {
        Some(text) => assert_eq!(text, "12345 50000\n"),
        None => {
            assert_eq!(file("cpu.cfs_quota_us").as_deref(), Some("12345\n"));
            assert_eq!(file("cpu.cfs_period_us").as_deref(), Some("50000\n"));
        }
    }
    world.finish(runtime).await;
}

/// The ids of PID 1 are those that the kernel has, whatever they were made from.
#[tokio::test]
async fn a_record_tells_as_whom_a_container_runs() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let spec = waiting("c", |spec: &mut ContainerSpec| {
        spec.process.user = Some("1000:1001".into());
        spec.process.groups = vec![7];
        spec.security.supplementary_groups = SupplementaryGroups::Strict;
    });
    let container = run(&runtime, &pod, spec).await.expect("runs");
    let found = runtime.container(&container).expect("listed").record.user.clone();
    let ProcessUser { uid, gid, mut groups } = found.expect("found out");
    groups.sort_unstable();
    assert_eq!((uid, gid, groups), (1_000, 1_001, vec![7, 1_001]));
    world.finish(runtime).await;
}
