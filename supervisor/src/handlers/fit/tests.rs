use serde_json::{Value, json};

use super::*;

/// As Debian's runc has answered.
const RUNC_1_1_5: &str = include_str!("runc-1.1.5.json");

fn runc(version: &str, features: &str) -> Abilities {
    let release = Release::parse(&format!("runc version {version}")).expect("a version");
    Abilities { release, features: Features::parse(features.as_bytes()).expect("an answer") }
}

fn spec(change: Value) -> Spec {
    let mut spec = json!({
        "ociVersion": "1.1.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["true"], "cwd": "/" },
        "linux": { "namespaces": [{ "type": "mount" }] },
    });
    for (path, value) in change.as_object().expect("paths") {
        let (above, name) = path.rsplit_once('/').expect("a path");
        spec.pointer_mut(above).expect("there")[name] = value.clone();
    }
    serde_json::from_value(spec).expect("a spec")
}

#[rstest::rstest]
#[case(json!({ "/domainname": "example.org" }), "domainname")]
#[case(json!({ "/process/scheduler": { "policy": "SCHED_BATCH" } }), "process.scheduler")]
#[case(json!({ "/process/ioPriority": { "class": "IOPRIO_CLASS_IDLE", "priority": 0 } }), "process.ioPriority")]
#[case(json!({ "/linux/namespaces": [{ "type": "time" }] }), "linux.namespaces (time)")]
#[case(json!({ "/linux/personality": { "domain": "LINUX32" } }), "linux.personality")]
#[case(json!({ "/linux/netDevices": { "eth9": {} } }), "linux.netDevices")]
#[case(
    json!({ "/linux/seccomp": { "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"] } }),
    "linux.seccomp.flags"
)]
#[case(
    json!({ "/mounts": [{ "destination": "/a", "source": "/b", "type": "bind", "options": ["rbind", "ridmap"] }] }),
    "mounts[0] (\"/a\")"
)]
#[case(
    json!({ "/mounts": [{ "destination": "/a", "source": "image", "type": "overlay", "options": ["lowerdir+=/l"] }] }),
    "mounts[0] (\"/a\")"
)]
fn an_old_runtime_refuses_what_it_would_leave_out(#[case] change: Value, #[case] field: &str) {
    let lack = runc("1.1.5+ds1", RUNC_1_1_5).lack(&spec(change)).expect("refused");
    assert_eq!(lack.field, field);
    assert!(!lack.reason.is_empty());
}

#[test]
fn what_is_usual_is_taken() {
    let usual = spec(json!({
        "/mounts": [{ "destination": "/a", "source": "/b", "type": "bind", "options": ["rbind", "rro", "nosuid"] }],
        "/linux/seccomp": { "defaultAction": "SCMP_ACT_ERRNO" },
        "/process/apparmorProfile": "mainstay-default",
        "/hooks": { "createRuntime": [{ "path": "/bin/true" }], "poststop": [{ "path": "/bin/true" }] },
    }));
    assert_eq!(runc("1.1.5+ds1", RUNC_1_1_5).lack(&usual), None);
}

#[test]
fn a_newer_one_is_believed() {
    let features = json!({
        "hooks": ["prestart"],
        "linux": {
            "namespaces": ["mount", "time"],
            "netDevices": { "enabled": true },
            "mountExtensions": { "idmap": { "enabled": true } },
            "seccomp": { "enabled": true, "supportedFlags": ["SECCOMP_FILTER_FLAG_LOG"] },
            "apparmor": { "enabled": false },
        },
    });
    let newer = runc("1.4.3", &features.to_string());
    let asked = spec(json!({
        "/domainname": "example.org",
        "/process/scheduler": { "policy": "SCHED_BATCH" },
        "/linux/namespaces": [{ "type": "time" }],
        "/linux/netDevices": { "eth9": {} },
        "/linux/seccomp": { "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"] },
        "/mounts": [{ "destination": "/a", "source": "/b", "type": "bind", "options": ["rbind", "ridmap"] }],
    }));
    assert_eq!(newer.lack(&asked), None);
    let confined = spec(json!({ "/process/apparmorProfile": "x" }));
    assert_eq!(newer.lack(&confined).map(|lack| lack.field).as_deref(), Some("process.apparmorProfile"));
    let hooked = spec(json!({ "/hooks": { "poststop": [{ "path": "/bin/true" }] } }));
    assert_eq!(newer.lack(&hooked).map(|lack| lack.field).as_deref(), Some("hooks.poststop"));
}

#[test]
fn an_answer_that_is_none_is_no_answer() {
    for bad in ["", "unknown command features", "3", "{\"linux\": 3}"] {
        assert_eq!(Features::parse(bad.as_bytes()), None, "{bad:?}");
    }
    assert_eq!(Features::parse(b"{}"), Some(Features::default()));
}
