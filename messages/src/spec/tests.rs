//! What specs take and refuse, and that each refusal names its field.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rstest::rstest;

use super::*;

type Change = Box<dyn FnOnce(&mut ContainerSpec)>;

fn container() -> ContainerSpec {
    ContainerSpec::new("c".parse().expect("a good name"), ["true"])
}

fn refused(change: impl FnOnce(&mut ContainerSpec)) -> String {
    let mut spec = container();
    change(&mut spec);
    spec.check().expect_err("must be refused").to_string()
}

#[test]
fn takes_the_plain_spec() {
    container().check().expect("a good spec");
    SandboxSpec::new("p".parse().expect("a good name")).check().expect("a good spec");
}

#[test]
fn every_refusal_names_its_field() {
    let cases: Vec<(&str, Change)> = vec![
        ("command", Box::new(|s| s.process.command.clear())),
        ("command[0]", Box::new(|s| s.process.command[0].clear())),
        ("command", Box::new(|s| s.process.command.push("a\0b".into()))),
        ("env", Box::new(|s| drop(s.process.env.insert("A=B".into(), "c".into())))),
        ("workdir", Box::new(|s| s.process.workdir = Some("tmp".into()))),
        ("workdir", Box::new(|s| s.process.workdir = Some("/a/../../b".into()))),
        ("terminal", Box::new(|s| s.process.terminal = Terminal::Tty(WindowSize { rows: 0, columns: 80 }))),
        ("rootfs", Box::new(|s| s.rootfs = Rootfs::Directory { path: "x".into() })),
        ("memory", Box::new(|s| s.resources.memory_bytes = Some(1))),
        ("cpu_time.quota_us", Box::new(|s| s.resources.cpu_time = Some(CpuTime::of_millis(1)))),
        ("pids_limit", Box::new(|s| s.resources.pids = Some(0))),
        ("cpuset_cpus", Box::new(|s| s.resources.cpuset_cpus = Some("3-1".into()))),
        ("oom_score_adj", Box::new(|s| s.oom_score_adj = Some(1001))),
        ("rlimits", Box::new(|s| s.rlimits.push(Rlimit { name: "FILES".into(), soft: 1, hard: 1 }))),
        ("rlimits.NOFILE", Box::new(|s| s.rlimits.push(Rlimit { name: "NOFILE".into(), soft: 2, hard: 1 }))),
        ("log_path", Box::new(|s| s.log_path = Some("log".into()))),
        ("log_path", Box::new(|s| s.log_path = Some(OsStr::from_bytes(b"/a\xff").into()))),
        ("spec", Box::new(|s| s.process.command = vec!["x".repeat(100_000); 40])),
        (
            "mounts[0].target",
            Box::new(|s| {
                s.mounts.push(Mount::tmpfs("/", None));
            }),
        ),
    ];
    for (field, change) in cases {
        let text = refused(change);
        assert!(text.starts_with(field), "{text:?} does not start with {field:?}");
    }
}

/// CVE-2024-40635 and its kind: a user out of range or numeric but odd ran as root.
#[rstest]
#[case("4294967296")]
#[case("4294967295")]
#[case("99999999999")]
#[case("-1")]
#[case("0x3e8")]
#[case("1000:4294967296")]
#[case(" 0")]
#[case("")]
#[case(":")]
#[case("1000:")]
#[case("a/b")]
fn refuses_users_that_others_took_for_root(#[case] user: &str) {
    let text = refused(|s| s.process.user = Some(user.into()));
    assert!(text.starts_with("user"), "{text}");
}

#[rstest]
#[case("0")]
#[case("1000")]
#[case("2147483648")]
#[case("4294967294:4294967294")]
#[case("www-data")]
#[case("www-data:100")]
#[case("1003:users")]
fn takes_users(#[case] user: &str) {
    let mut spec = container();
    spec.process.user = Some(user.into());
    spec.check().expect("a good user");
}

#[test]
fn limits_change_and_come_back() {
    let before = Resources { memory_bytes: Some(64 << 20), cpu_shares: Some(512), ..Resources::default() };
    let change = Resources { memory_bytes: Some(UNLIMITED), pids: Some(9), ..Resources::default() };
    let tried = before.changed_by(&change);
    assert_eq!((tried.memory_bytes, tried.cpu_shares, tried.pids), (Some(UNLIMITED), Some(512), Some(9)));
    let now = tried.clone().in_force();
    assert_eq!((now.memory_bytes, now.cpu_shares, now.pids), (None, Some(512), Some(9)));
    let back = before.restoring(&tried);
    assert_eq!((back.memory_bytes, back.cpu_shares, back.pids), (Some(64 << 20), Some(512), Some(UNLIMITED)));
}

#[test]
fn rates_of_a_disk_change_one_by_one() {
    let disk = |path: &str, read_bps, write_bps| BlockDeviceLimit {
        read_bps,
        write_bps,
        ..BlockDeviceLimit::new(path)
    };
    let mut before = Resources::default();
    before.block_io.devices = vec![disk("/dev/a", Some(1), Some(2)), disk("/dev/b", Some(3), None)];
    let mut change = Resources::default();
    change.block_io.devices = vec![disk("/dev/b", Some(UNLIMITED), None), disk("/dev/a", Some(7), None)];
    let now = before.changed_by(&change).in_force();
    assert_eq!(now.block_io.devices, [disk("/dev/a", Some(7), Some(2))]);
}

#[rstest]
#[case(|s: &mut ContainerSpec| s.resources.memory_swap_bytes = Some(64 << 20), "memory_swap")]
#[case(|s: &mut ContainerSpec| { s.resources.memory_bytes = Some(64 << 20); s.resources.memory_swap_bytes = Some(32 << 20) }, "memory_swap")]
#[case(|s: &mut ContainerSpec| { s.resources.memory_bytes = Some(32 << 20); s.resources.memory_reservation_bytes = Some(64 << 20) }, "memory_reservation")]
#[case(|s: &mut ContainerSpec| s.resources.hugepages = vec![HugepageLimit { page_size: "2M".into(), bytes: 0 }], "hugepages[0]")]
#[case(|s: &mut ContainerSpec| s.resources.block_io.weight = Some(9), "block_io.weight")]
#[case(|s: &mut ContainerSpec| s.resources.block_io.devices = vec![BlockDeviceLimit { read_bps: Some(0), ..BlockDeviceLimit::new("/dev/a") }], "block_io.devices[0]")]
#[case(|s: &mut ContainerSpec| s.resources.block_io.devices = vec![BlockDeviceLimit::new("a")], "block_io.devices[0]")]
#[case(|s: &mut ContainerSpec| s.devices = vec![Device { path: "/dev/a".into(), target: None, access: "rr".into() }], "devices[0].access")]
#[case(|s: &mut ContainerSpec| s.devices = vec![Device { path: "/dev/a".into(), target: Some("b".into()), access: "r".into() }], "devices[0].target")]
#[case(|s: &mut ContainerSpec| s.device_rules = vec![DeviceRule { kind: DeviceKind::All, major: Some(1), minor: None, access: "r".into() }], "device_rules[0]")]
#[case(|s: &mut ContainerSpec| s.mounts = vec![Mount { propagation: Propagation::Shared, ..Mount::tmpfs("/a", None) }], "mounts[0].propagation")]
#[case(|s: &mut ContainerSpec| s.security.seccomp = Seccomp::Profile { json: "x".repeat(SECCOMP_PROFILE_LENGTH_MAX + 1) }, "seccomp")]
fn further_settings_are_refused_by_name(#[case] change: fn(&mut ContainerSpec), #[case] field: &str) {
    let mut spec = ContainerSpec::new("c".parse().expect("a good name"), ["true"]);
    change(&mut spec);
    let error = spec.check().expect_err("wrong").to_string();
    assert!(error.starts_with(&format!("{field}:")), "{error}");
}

/// Records of an earlier release have none of the newer fields.
#[test]
fn specs_of_an_earlier_release_are_read() {
    let container = r#"{"name": "c", "process": {"command": ["true"]},
        "mounts": [{"target": "/a", "source": {"tmpfs": {"size_bytes": null}}}], "resources": {"pids": 7}}"#;
    let spec: ContainerSpec = serde_json::from_str(container).expect("readable");
    let mut expected = ContainerSpec::new("c".parse().expect("a good name"), ["true"]);
    expected.mounts = vec![Mount::tmpfs("/a", None)];
    expected.resources.pids = Some(7);
    assert_eq!(spec, expected);
    let pod: SandboxSpec = serde_json::from_str(r#"{"name": "p"}"#).expect("readable");
    assert_eq!(pod, SandboxSpec::new("p".parse().expect("a good name")));
}
