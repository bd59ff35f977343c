//! What plugins change of containers whose root is not the host's.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use mainstay::{IdMapping, IdMappings, SandboxSpec, UserNamespace};
use mainstay_integration_tests::{run, says, script_spec, waiting, world};
use mainstay_nri_plugin::faults::Faults;
use mainstay_nri_plugin::{Adjusted, Plugin, Result, api};

use crate::stage::{Stub, live, spec, start, with_plugins};

/// Ids of the host for the pods of this file.
const HOST: u32 = 1_700_000_000;
const SIZE: u32 = 65_536;

/// A plugin that changes each container as it was told last.
#[derive(Clone, Default)]
struct Dresser(Arc<Mutex<api::ContainerAdjustment>>);

impl Dresser {
    fn wears(&self, change: impl FnOnce(&mut api::ContainerAdjustment)) {
        let linux = Some(api::LinuxContainerAdjustment::default()).into();
        let mut next = api::ContainerAdjustment { linux, ..Default::default() };
        change(&mut next);
        *self.0.lock().expect("sound") = next;
    }
}

#[mainstay_nri_plugin::async_trait]
impl Plugin for Dresser {
    fn events(&self) -> api::EventMask {
        api::EventMask::NONE.with(api::Event::CREATE_CONTAINER)
    }

    async fn create_container(&self, _: api::PodSandbox, _: api::Container) -> Result<Adjusted> {
        Ok(Adjusted { adjust: self.0.lock().expect("sound").clone(), ..Default::default() })
    }
}

fn pod_spec(name: &str) -> SandboxSpec {
    let mapping = IdMapping { container: 0, host: HOST, size: SIZE };
    SandboxSpec { user_namespace: UserNamespace::Mapped(IdMappings::both([mapping])), ..spec(name) }
}

fn mount(kind: &str, source: impl Into<PathBuf>, destination: &str, options: &[&str]) -> api::Mount {
    api::Mount {
        destination: destination.to_owned(),
        type_: kind.to_owned(),
        source: source.into().to_string_lossy().into_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..Default::default()
    }
}

fn device(path: &str, minor: i64, mode: u32, owner: Option<(u32, u32)>) -> api::LinuxDevice {
    let id = |id: u32| Some(api::OptionalUInt32 { value: id, ..Default::default() }).into();
    let mut device = api::LinuxDevice {
        path: path.to_owned(),
        type_: "c".to_owned(),
        major: 1,
        minor,
        file_mode: Some(api::OptionalFileMode { value: mode, ..Default::default() }).into(),
        ..Default::default()
    };
    if let Some((uid, gid)) = owner {
        (device.uid, device.gid) = (id(uid), id(gid));
    }
    device
}

/// What each change is to a program in such a pod. The root of a user namespace had the machine's own owner of a device of a CDI
/// file as its own, and could use what is the machine's root's alone; and a plugin's device without an owner was nobody's.
#[tokio::test]
async fn what_plugins_change_works_for_a_root_that_is_not_the_hosts() {
    let world = world!();
    let files = world.path().join("files");
    std::fs::create_dir(&files).expect("made");
    std::fs::write(files.join("file"), "content").expect("written");
    // /dev/port is the machine's root's alone; its number is looked up, and so is its owner.
    let cdi = r#"{ "cdiVersion": "0.6.0", "kind": "mainstay.test/card", "devices": [
        { "name": "one", "containerEdits": { "env": ["CARD=one"], "deviceNodes": [
            { "path": "/dev/card", "hostPath": "/dev/mainstay-port" },
            { "path": "/dev/own", "type": "c", "major": 1, "minor": 5, "fileMode": 384, "uid": 5, "gid": 6 } ] } }] }"#;
    let node = world.path().join("port");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &node,
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        rustix::fs::makedev(1, 9),
    );
    made.expect("made");
    std::fs::set_permissions(&node, PermissionsExt::from_mode(0o600)).expect("set");
    let cdi = cdi.replace("/dev/mainstay-port", &node.to_string_lossy());
    let registry = world.path().join("cdi");
    std::fs::create_dir(&registry).expect("made");
    std::fs::write(registry.join("card.json"), cdi).expect("written");
    let config = with_plugins(&world, |config| config.cdi_dirs = vec![registry]);
    let runtime = start(&config).await;
    let dresser = Dresser::default();
    let _stub = Stub::with(&config, "10", "dresser", dresser.clone(), Faults::default());
    live(&runtime, "10-dresser").await;
    let pod = runtime.run_sandbox(pod_spec("p")).await.expect("a pod");
    let hook_saw = world.path().join("hook");
    let hook = api::Hook {
        path: "/bin/sh".to_owned(),
        args: ["sh", "-c", &format!("id -u > {hook_saw:?}")].map(str::to_owned).into(),
        ..Default::default()
    };
    dresser.wears(|all| {
        all.env.push(api::KeyValue { key: "DRESSED".into(), value: "yes".into(), ..Default::default() });
        all.mounts.push(mount("bind", &files, "/as-it-is", &["rbind", "ro"]));
        all.mounts.push(mount("bind", &files, "/mapped", &["rbind", "rw", "ridmap"]));
        all.mounts.push(mount("tmpfs", "tmpfs", "/scratch", &["mode=0700", "size=1m"]));
        all.rlimits.push(api::POSIXRlimit {
            type_: "RLIMIT_NOFILE".into(),
            hard: 2_048,
            soft: 1_024,
            ..Default::default()
        });
        all.cdi_devices.push(api::CDIDevice { name: "mainstay.test/card=one".into(), ..Default::default() });
        all.hooks = Some(api::Hooks { create_runtime: vec![hook], ..Default::default() }).into();
        let linux = all.linux.mut_or_insert_default();
        linux.devices.push(device("/dev/roots", 3, 0o600, None));
        linux.devices.push(device("/dev/given", 3, 0o640, Some((7, 8))));
        linux.oom_score_adj = Some(api::OptionalInt { value: 600, ..Default::default() }).into();
        linux.sysctl.insert("net.core.somaxconn".into(), "77".into());
        linux.scheduler = Some(api::LinuxScheduler {
            policy: api::LinuxSchedulerPolicy::SCHED_OTHER.into(),
            nice: 5,
            ..Default::default()
        })
        .into();
        let pids = Some(api::LinuxPids { limit: 44, ..Default::default() }).into();
        linux.resources = Some(api::LinuxResources { pids, ..Default::default() }).into();
    });
    let container = run(&runtime, &pod, waiting("c", |_| ())).await.expect("it runs");
    let lines = [
        ("tr '\\0' '\\n' < /proc/1/environ | grep -E 'DRESSED|CARD' | sort", "CARD=one\nDRESSED=yes"),
        // What is not asked to be mapped is as it is: the host's root is nobody here.
        ("stat -c %u:%g /as-it-is/file; cat /as-it-is/file", "65534:65534\ncontent"),
        ("touch /as-it-is/new 2>/dev/null || echo read-only", "read-only"),
        (
            "stat -c %u:%g /mapped/file; echo more >> /mapped/file && tail -n 1 /mapped/file",
            "0:0\ncontentmore",
        ),
        ("stat -c %u:%g:%a /scratch; touch /scratch/x && echo own", "0:0:700\nown"),
        ("ulimit -Sn; ulimit -Hn", "1024\n2048"),
        ("stat -c %t:%T:%u:%g:%a /dev/roots /dev/given", "1:3:0:0:600\n1:3:7:8:640"),
        ("echo x > /dev/roots && echo open", "open"),
        ("stat -c %t:%T:%u:%g:%a /dev/own", "1:5:5:6:600"),
        ("head -c 2 /dev/own | wc -c", "2"),
        // It is there, and it is not for whoever is not the machine's root.
        (
            "stat -c %t:%T:%u:%g:%a /dev/card; head -c 1 /dev/card 2>&1 | grep -c denied",
            "1:9:65534:65534:600\n1",
        ),
        ("cat /proc/1/oom_score_adj /proc/sys/net/core/somaxconn", "600\n77"),
        ("awk '{print $19}' /proc/1/stat", "5"),
        ("cat /sys/fs/cgroup/pids/pids.max 2> /dev/null || cat /sys/fs/cgroup/pids.max", "44"),
    ];
    for (script, expected) in lines {
        assert_eq!(says(&runtime, &container, script).await, expected, "{script}");
    }
    let seen = std::fs::read_to_string(&hook_saw).expect("the hook has run");
    assert_eq!(seen.trim(), "0", "hooks of the host run as the host's root");
    let there = std::fs::metadata(files.join("file")).expect("there");
    assert_eq!(
        std::os::unix::fs::MetadataExt::uid(&there),
        0,
        "what is written through a mapped mount is the host's own"
    );

    // What cannot be is said, and leaves nothing.
    type Change = fn(&mut api::ContainerAdjustment);
    let refusals: [(&str, Change); 3] = [
        ("linux.devices[\"/dev/x\"].uid", |all| {
            all.linux.mut_or_insert_default().devices.push(device("/dev/x", 3, 0o600, Some((SIZE, 0))));
        }),
        ("mounts[\"/shared\"].options", |all| {
            all.mounts.push(mount("bind", "/tmp", "/shared", &["rshared"]))
        }),
        ("oom_score_adj", |all| {
            let linux = all.linux.mut_or_insert_default();
            linux.oom_score_adj = Some(api::OptionalInt { value: 1_001, ..Default::default() }).into();
        }),
    ];
    for (field, change) in refusals {
        dresser.wears(change);
        let refused = runtime.create_container(&pod, script_spec("x", "true")).await.expect_err("refused");
        assert!(refused.to_string().contains(field), "{refused}");
    }
    assert_eq!(runtime.containers_of(&pod).len(), 1);
    world.finish(runtime).await;
}
