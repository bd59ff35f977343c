//! Capabilities, no_new_privs, the system call filter, name spaces.

use std::fs;

use mainstay_launch::LaunchError;
use serde_json::json;

use crate::cases;
use crate::world::{World, status_line};

cases![
    capabilities_are_those_of_the_spec,
    capabilities_of_a_user,
    a_spec_without_capabilities_gives_none,
    no_new_privs_and_the_filter_are_on,
    the_default_filter_denies,
    a_filter_without_no_new_privs,
    a_host_name_of_its_own,
    name_spaces_are_new,
    what_is_not_done_is_said,
];

const STATUS: [&str; 2] = ["/bin/cat", "/proc/self/status"];
/// The 14 default ones as the kernel prints them.
const DEFAULT_MASK: &str = "00000000a80425fb";
const NONE_MASK: &str = "0000000000000000";

fn capabilities_are_those_of_the_spec() {
    let mut world = World::new();
    let ended = world.args(&STATUS).run().unwrap();
    for (set, mask) in [
        ("CapBnd", DEFAULT_MASK),
        ("CapEff", DEFAULT_MASK),
        ("CapPrm", DEFAULT_MASK),
        ("CapInh", NONE_MASK),
        ("CapAmb", NONE_MASK),
    ] {
        assert_eq!(status_line(ended.output(), set), mask, "{set}");
    }
    let all = json!(["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_CHOWN"]);
    world.spec["process"]["capabilities"] = json!({ "bounding": all, "effective": all, "permitted": all });
    let ended = world.run().unwrap();
    let effective = u64::from_str_radix(&status_line(ended.output(), "CapEff"), 16).unwrap();
    let own =
        u64::from_str_radix(&status_line(&fs::read_to_string("/proc/self/status").unwrap(), "CapPrm"), 16)
            .unwrap();
    let wanted = 1 << 21 | 1 << 24 | 1;
    assert_eq!(effective, wanted & own);
    assert_eq!(
        ended.warnings.iter().any(|warning| warning.contains("CAP_SYS_RESOURCE")),
        wanted & own != wanted
    );
}

fn capabilities_of_a_user() {
    let mut world = World::new();
    let ended = world.args(&STATUS).user("app").run().unwrap();
    assert_eq!(status_line(ended.output(), "CapEff"), NONE_MASK);
    assert_eq!(status_line(ended.output(), "CapPrm"), NONE_MASK);
    let net = json!(["CAP_NET_BIND_SERVICE"]);
    world.spec["process"]["capabilities"] =
        json!({ "bounding": net, "effective": net, "permitted": net, "inheritable": net, "ambient": net });
    let ended = world.run().unwrap();
    for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(status_line(ended.output(), set), "0000000000000400", "{set}");
    }
}

fn a_spec_without_capabilities_gives_none() {
    let mut world = World::new();
    world.spec["process"].as_object_mut().unwrap().remove("capabilities");
    let ended = world.args(&STATUS).run().unwrap();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(status_line(ended.output(), set), NONE_MASK, "{set}");
    }
}

fn no_new_privs_and_the_filter_are_on() {
    let mut world = World::new();
    let ended = world.args(&STATUS).run().unwrap();
    assert_eq!(status_line(ended.output(), "NoNewPrivs"), "1");
    assert_eq!(status_line(ended.output(), "Seccomp"), "2");
    world.spec["process"]["noNewPrivileges"] = json!(false);
    world.spec["linux"].as_object_mut().unwrap().remove("seccomp");
    let ended = world.run().unwrap();
    assert_eq!(status_line(ended.output(), "NoNewPrivs"), "0");
    assert_eq!(status_line(ended.output(), "Seccomp"), "0");
}

fn the_default_filter_denies() {
    let mut world = World::new();
    let script = "unshare -U true; mount -t tmpfs x /data; unshare -m true; mknod /tmp/n p && echo made; chroot / true && echo rooted";
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.stdout, "made\nrooted\n", "{ended:?}");
    assert_eq!(
        ended.stderr.matches("not permitted").count() + ended.stderr.matches("ermission denied").count(),
        3,
        "{ended:?}"
    );
}

fn a_filter_without_no_new_privs() {
    let mut world = World::new();
    world.spec["process"]["noNewPrivileges"] = json!(false);
    for user in ["root", "app"] {
        let ended = world.args(&STATUS).user(user).run().unwrap();
        assert_eq!(status_line(ended.output(), "Seccomp"), "2");
        let mask = if user == "root" { DEFAULT_MASK } else { NONE_MASK };
        assert_eq!(status_line(ended.output(), "CapEff"), mask);
        assert_eq!(status_line(ended.output(), "CapBnd"), DEFAULT_MASK);
    }
}

fn a_host_name_of_its_own() {
    let mut world = World::new();
    world.spec["hostname"] = json!("of-its-own");
    world.spec["domainname"] = json!("domain");
    let ended = world.shell("hostname; cat /proc/sys/kernel/domainname").run().unwrap();
    assert_eq!(ended.output(), "of-its-own\ndomain");
    world.spec["linux"]["namespaces"].as_array_mut().unwrap().retain(|namespace| namespace["type"] != "uts");
    assert!(matches!(world.run(), Err(LaunchError::Spec { .. })));
}

fn name_spaces_are_new() {
    let mut world = World::new();
    let script = "for n in pid net ipc uts mnt cgroup; do readlink /proc/self/ns/$n; done; echo $$; ip link show lo | head -n1";
    let ended = world.shell(script).run().unwrap();
    let lines: Vec<_> = ended.output().lines().collect();
    for (line, name) in lines.iter().zip(["pid", "net", "ipc", "uts", "mnt", "cgroup"]) {
        let own = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(*line, own.to_str().unwrap());
    }
    assert_eq!(lines[6], "1");
    assert!(lines[7].contains("LOOPBACK,UP"), "{}", lines[7]);
}

/// Invariant 3: what is asked for and not done is never dropped silently.
fn what_is_not_done_is_said() {
    for field in ["apparmorProfile", "selinuxLabel"] {
        let mut world = World::new();
        world.spec["process"][field] = json!("no-such-profile");
        let error = world.run().expect_err("nothing is confined by it").to_string();
        assert!(error.contains("no-such-profile"), "{error}");
    }
    type Change = fn(&mut serde_json::Value);
    let changes: [Change; 6] = [
        |spec| spec["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" })),
        |spec| spec["linux"]["uidMappings"] = json!([{ "hostID": 1, "containerID": 0, "size": 1 }]),
        |spec| spec["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_BE", "priority": 8 }),
        |spec| spec["linux"]["intelRdt"] = json!({ "closID": "fast" }),
        |spec| spec["linux"]["timeOffsets"] = json!({ "boottime": { "secs": 1, "nanosecs": 0 } }),
        |spec| {
            spec["linux"]["namespaces"]
                .as_array_mut()
                .unwrap()
                .retain(|namespace| namespace["type"] != "mount")
        },
    ];
    for change in changes {
        let mut world = World::new();
        change(&mut world.spec);
        assert!(matches!(world.run(), Err(LaunchError::Unsupported { .. } | LaunchError::Spec { .. })));
    }
}
