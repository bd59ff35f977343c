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
        ("cpus", Box::new(|s| s.resources.cpu_millis = Some(1))),
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
                s.mounts.push(Mount {
                    target: "/".into(),
                    source: MountSource::Tmpfs { size_bytes: None },
                    access: Access::ReadWrite,
                });
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
