//! Specs with what plugins have changed.

use mainstay_messages::adjustment::{
    Adjustment, DeviceAccess, DeviceChange, DeviceNode, Hook, Hooks, MountChange, ResourceChange,
};
use mainstay_messages::spec::{CpuTime, Device, Resources};
use serde_json::json;

use super::*;

fn adjusted(change: impl FnOnce(&mut ContainerSpec), adjust: impl FnOnce(&mut Adjustment)) -> Result<Value> {
    let mut adjustment = Adjustment::default();
    adjust(&mut adjustment);
    let record = container(change).adjusted(adjustment);
    spec_on(&host(), &record).map(|spec| serde_json::to_value(spec).expect("writable"))
}

fn put(destination: &str) -> MountChange {
    MountChange::Put {
        destination: destination.into(),
        kind: "bind".to_owned(),
        source: "/srv".to_owned(),
        options: vec!["rbind".to_owned()],
    }
}

#[test]
fn an_environment_keeps_its_order() {
    let env = |spec: &mut ContainerSpec| {
        spec.process.env =
            [("A", "1"), ("B", "1"), ("PATH", "/bin")].map(|(k, v)| (k.into(), v.into())).into();
    };
    let value = adjusted(env, |all| {
        all.env = vec![
            ("NEW".to_owned(), Some("2".to_owned())),
            ("A".to_owned(), Some("2".to_owned())),
            ("B".to_owned(), None),
        ];
    })
    .expect("good");
    assert_eq!(value["process"]["env"], json!(["A=2", "PATH=/bin", "NEW=2"]));
}

/// What the launcher goes by is not for plugins, nor for callers, to say.
#[test]
fn annotations_of_the_runtime_are_its_own() {
    let value = adjusted(
        |spec| {
            spec.annotations =
                [("dev.mainstay.user", "root"), ("a", "1")].map(|(k, v)| (k.into(), v.into())).into();
        },
        |all| {
            all.annotations = [
                ("dev.mainstay.user".to_owned(), Some("root".to_owned())),
                ("b".to_owned(), Some("2".to_owned())),
            ]
            .into();
        },
    )
    .expect("good");
    assert_eq!(value["annotations"], json!({ "a": "1", "b": "2" }));
}

/// Every annotation of a pod went on to the runtime, where programs obey some of them: whoever could write a pod could say them.
#[test]
fn annotations_for_the_runtime_are_those_that_the_caller_lets_through() {
    let value = adjusted(
        |spec| {
            spec.annotations = [("a", "1"), ("c", "3")].map(|(k, v)| (k.into(), v.into())).into();
            spec.runtime_annotations = Some([("a".to_owned(), "1".to_owned())].into());
        },
        |all| all.annotations = [("b".to_owned(), Some("2".to_owned()))].into(),
    )
    .expect("good");
    assert_eq!(value["annotations"], json!({ "a": "1", "b": "2" }));
}

#[test]
fn mounts_are_made_from_the_top() {
    let value = adjusted(usual, |all| {
        all.mounts = vec![
            put("/data/deep/er"),
            put("/data"),
            MountChange::Remove { destination: "/dev/shm".into() },
            MountChange::Remove { destination: "/nowhere".into() },
        ];
    })
    .expect("good");
    let places: Vec<&str> = value["mounts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|mount| mount["destination"].as_str())
        .collect();
    let at = |place: &str| places.iter().position(|other| *other == place);
    assert!(at("/data") < at("/data/deep/er") && at("/dev") < at("/dev/pts"), "{places:?}");
    assert_eq!(at("/dev/shm"), None);
}

#[test]
fn a_device_comes_with_its_rule_and_goes_with_it() {
    let node = |minor: i64| DeviceNode {
        path: "/dev/x".into(),
        kind: "c".to_owned(),
        major: 10,
        minor,
        mode: Some(0o440),
        uid: None,
        gid: Some(7),
    };
    let value = adjusted(usual, |all| {
        all.devices = vec![DeviceChange::Put(node(1))];
        all.resources.device_rules = vec![DeviceAccess {
            allow: false,
            kind: "b".to_owned(),
            major: None,
            minor: None,
            access: "m".to_owned(),
        }];
    })
    .expect("good");
    assert_eq!(value["linux"]["devices"][0]["gid"], json!(7));
    let rules = value["linux"]["resources"]["devices"].as_array().expect("a list");
    let [.., own, last] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!((&own["major"], &own["minor"], &own["access"]), (&json!(10), &json!(1), &json!("rm")));
    assert_eq!((&last["allow"], &last["type"]), (&json!(false), &json!("b")));

    let mut host = host();
    let mut named = oci_spec::runtime::LinuxDevice::default();
    named
        .set_path("/dev/fuse".into())
        .set_typ(oci_spec::runtime::LinuxDeviceType::C)
        .set_major(10)
        .set_minor(229);
    host.named_devices = vec![vec![named]];
    let fuse = |spec: &mut ContainerSpec| {
        spec.devices = vec![Device { path: "/dev/fuse".into(), target: None, access: "rwm".to_owned() }];
    };
    let has_rule = |spec: &Spec| {
        let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref()).expect("limits");
        resources.devices().iter().flatten().any(|rule| rule.minor() == Some(229))
    };
    let gone = Adjustment {
        devices: vec![DeviceChange::Remove { path: "/dev/fuse".into() }],
        ..Adjustment::default()
    };
    assert!(has_rule(&spec_on(&host, &container(fuse)).expect("good")));
    assert!(!has_rule(&spec_on(&host, &container(fuse).adjusted(gone)).expect("good")));
}

#[test]
fn limits_are_changed_one_by_one() {
    let value = adjusted(
        |spec| {
            spec.resources = Resources {
                memory_bytes: Some(64 << 20),
                memory_swap_bytes: Some(128 << 20),
                cpu_time: Some(CpuTime::of_millis(500)),
                pids: Some(5),
                ..Resources::default()
            };
        },
        |all| {
            all.resources = ResourceChange {
                memory_limit: Some(32 << 20),
                cpu_shares: Some(7),
                unified: [("memory.high".to_owned(), "1".to_owned())].into(),
                ..ResourceChange::default()
            };
        },
    )
    .expect("good");
    let limits = &value["linux"]["resources"];
    assert_eq!(limits["memory"], json!({ "limit": 32 << 20, "swap": 32 << 20 }));
    assert_eq!(limits["cpu"], json!({ "shares": 7, "quota": 50_000, "period": 100_000 }));
    assert_eq!((&limits["pids"]["limit"], &limits["unified"]["memory.high"]), (&json!(5), &json!("1")));
}

#[test]
fn hooks_and_namespaces_are_as_they_were_asked_for() {
    let hook = Hook { path: "/hook".into(), timeout_s: Some(5), ..Hook::default() };
    let value = adjusted(usual, |all| {
        all.hooks = Hooks { create_runtime: vec![hook.clone()], poststop: vec![hook], ..Hooks::default() };
        all.namespaces =
            [("uts".to_owned(), Some("/proc/1/ns/uts".to_owned())), ("ipc".to_owned(), Some(String::new()))]
                .into();
    })
    .expect("good");
    assert_eq!(value["hooks"]["createRuntime"], json!([{ "path": "/hook", "env": [], "timeout": 5 }]));
    assert_eq!(value["hooks"]["prestart"], Value::Null);
    // It would rename somebody else.
    assert_eq!(value["hostname"], Value::Null);
    let all = value["linux"]["namespaces"].as_array().expect("a list");
    assert!(all.contains(&json!({ "type": "uts", "path": "/proc/1/ns/uts" })), "{all:?}");
    assert!(all.contains(&json!({ "type": "ipc" })), "{all:?}");
    assert!(all.iter().any(|namespace| namespace["type"] == "network"));
}

#[test]
fn an_exec_is_as_the_container_was_adjusted() {
    let adjustment = Adjustment {
        env: vec![("A".to_owned(), None), ("B".to_owned(), Some("2".to_owned()))],
        oom_score_adj: Some(5),
        rlimits: vec![Rlimit { name: "NOFILE".to_owned(), soft: 1, hard: 2 }],
        ..Adjustment::default()
    };
    let record = container(|spec| spec.process.env = [("A".to_owned(), "1".to_owned())].into());
    let record = record.adjusted(adjustment);
    let process =
        exec_process(&record, &ExecSpec::new(["sh"]), &host(), OomScorePolicy::Refuse).expect("good");
    let env = process.env().clone().unwrap_or_default();
    assert!(env.contains(&"B=2".to_owned()) && !env.iter().any(|entry| entry.starts_with("A=")), "{env:?}");
    assert_eq!(process.oom_score_adj(), Some(5));
    assert_eq!(process.rlimits().as_ref().map(Vec::len), Some(1));
}
