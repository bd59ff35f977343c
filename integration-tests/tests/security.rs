//! P12 on real processes: roots, users and settings that others were taken in by.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use mainstay::{
    Access, ContainerSpec, CpuTime, Mount, NewPrivileges, Privilege, Rlimit, Rootfs, Runtime, SandboxId,
};
use mainstay_integration_tests::{Shorthand, World, peer, script_spec, world};
use rstest::rstest;

/// A root file system with a static busybox, made for one test.
fn busybox_root(world: &World) -> Option<PathBuf> {
    let busybox = peer::find("busybox", "busybox-static")?;
    let root = world.path().join("image");
    for dir in ["bin", "etc", "tmp", "root", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(dir)).expect("made");
    }
    fs::copy(busybox, root.join("bin/busybox")).expect("copied");
    for applet in ["sh", "id", "cat", "ls", "grep", "sleep", "readlink", "touch", "mount", "stat"] {
        symlink("busybox", root.join("bin").join(applet)).expect("linked");
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nwww:x:33:44::/:/bin/sh\n4294967296:x:0:0::/:/bin/sh\n",
    )
    .expect("written");
    fs::write(root.join("etc/group"), "root:x:0:\nweb:x:44:\nextra:x:55:www\n").expect("written");
    Some(root)
}

fn on_root(root: &Path, name: &str, script: &str) -> ContainerSpec {
    let mut spec = script_spec(name, script);
    spec.rootfs = Rootfs::CopyOnWrite { path: root.into() };
    spec
}

/// Runs a container to its end; its output and its code, or the sentence with which it was refused.
async fn outcome(runtime: &Runtime, pod: &SandboxId, spec: ContainerSpec) -> Result<(String, u32), String> {
    let container = runtime.create_container(pod, spec).await.map_err(|error| error.to_string())?;
    runtime.start_container(&container).await.map_err(|error| error.to_string())?;
    let exit = runtime.exit_of(&container).await;
    let log = runtime.container(&container).expect("listed").record.log_path.clone();
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    Ok((lines.join("\n"), exit.code()))
}

/// CVE-2024-21626: a working directory below /proc/self/fd put the process into a directory of the host.
#[tokio::test]
async fn a_working_directory_never_leads_out() {
    let world = world!();
    let Some(root) = busybox_root(&world) else { return };
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    for n in 3..40 {
        let mut spec = on_root(&root, &format!("c{n}"), "cat ../../../etc/hostname; ls -l /proc/self/fd");
        spec.process.workdir = Some(format!("/proc/self/fd/{n}").into());
        if let Ok((text, _)) = outcome(&runtime, &pod, spec).await {
            let host = fs::read_to_string("/etc/hostname").unwrap_or_default();
            assert!(
                host.trim().is_empty() || !text.contains(host.trim()),
                "fd {n} leads to the host: {text}"
            );
        }
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// The other half of CVE-2024-21626: descriptors of the runtime that a process inherits.
#[tokio::test]
async fn a_process_has_three_descriptors() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    // Listed by a child while PID 1 does nothing but wait for it.
    let (text, _) = outcome(&runtime, &pod, script_spec("init", "ls /proc/$$/fd; :")).await.expect("it runs");
    assert_eq!(text, "0\n1\n2", "PID 1");
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let output = runtime.sh(&container, "ls /proc/$$/fd").await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n", "an exec");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// CVE-2024-40635, CVE-2026-46680, moby#21436: users out of range, or numeric and absent, ran as root.
#[rstest]
#[case("4294967296")]
#[case("4294967295")]
#[case("-1")]
#[case("0x3e8")]
#[case("99999999999")]
#[case("1000:4294967296")]
#[case(" 0")]
#[case("nobody-of-that-name")]
#[case("www:nogroup-of-that-name")]
#[tokio::test]
async fn an_odd_user_is_refused_and_never_root(#[case] user: &str) {
    let world = world!();
    let Some(root) = busybox_root(&world) else { return };
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = on_root(&root, "c", "id -u");
    spec.process.user = Some(user.into());
    let refused = outcome(&runtime, &pod, spec).await.expect_err("refused");
    assert!(refused.contains("user") || refused.contains("group"), "{refused}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Case 70: without the primary group among the supplementary ones, a process could shed a denial for the group.
#[rstest]
#[case("33", &[], "33 44", &["44", "55"])]
#[case("www", &[], "33 44", &["44", "55"])]
#[case("www:web", &[77], "33 44", &["44", "55", "77"])]
#[case("1234", &[], "1234 0", &["0"])]
#[case("1234:5678", &[9], "1234 5678", &["9", "5678"])]
#[case("2147483648", &[], "2147483648 0", &["0"])]
#[tokio::test]
async fn users_and_groups(
    #[case] user: &str,
    #[case] groups: &[u32],
    #[case] ids: &str,
    #[case] supplementary: &[&str],
) {
    let world = world!();
    let Some(root) = busybox_root(&world) else { return };
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = on_root(&root, "c", "echo $(id -u) $(id -g); grep Groups: /proc/self/status");
    spec.process.user = Some(user.into());
    spec.process.groups = groups.to_vec();
    let (text, _) = outcome(&runtime, &pod, spec).await.expect("it runs");
    let (found, list) = text.split_once('\n').expect("two lines");
    assert_eq!(found, ids);
    let mut found: Vec<_> = list.split_whitespace().skip(1).collect();
    let mut expected = supplementary.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// CVE-2025-31133, -52565, -52881: symbolic links of an image sent the runtime's mounts and files to the host.
#[rstest]
#[case("dev")]
#[case("proc")]
#[case("sys")]
#[case("tmp")]
#[case("etc")]
#[tokio::test]
async fn a_root_with_symlinks_touches_nothing_outside(#[case] replaced: &str) {
    let world = world!();
    let Some(root) = busybox_root(&world) else { return };
    let canary = world.path().join("canary");
    fs::create_dir(&canary).expect("made");
    for file in ["ptmx", "null", "passwd"] {
        fs::write(canary.join(file), "canary").expect("written");
    }
    fs::set_permissions(&canary, fs::Permissions::from_mode(0o711)).expect("set");
    let _ = fs::remove_dir_all(root.join(replaced));
    symlink(
        Path::new("../../../../../..").join(canary.strip_prefix("/").expect("absolute")),
        root.join(replaced),
    )
    .expect("linked");
    let before = listing(&canary);
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = on_root(&root, "c", "echo x > /dev/null; touch /tmp/made /etc/made; true");
    spec.mounts.push(Mount::tmpfs("/tmp/deep/er", Some(1 << 20)));
    spec.process.workdir = Some("/tmp/work/dir".into());
    // Whether such an image runs is its own affair.
    let _ = outcome(&runtime, &pod, spec).await;
    runtime.remove_sandbox(&pod).await.expect("removed");
    assert_eq!(listing(&canary), before);
    world.finish(runtime).await;
}

fn listing(directory: &Path) -> Vec<(String, u32, String)> {
    let mut all: Vec<_> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("readable"))
        .map(|entry| {
            let mode = entry.metadata().expect("readable").permissions().mode();
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().to_string_lossy().into_owned(), mode, text)
        })
        .collect();
    all.push((".".into(), fs::metadata(directory).expect("readable").permissions().mode(), String::new()));
    all.sort();
    all
}

#[tokio::test]
async fn a_confined_container_is_confined() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "grep -E '^(CapEff|Seccomp|NoNewPrivs):' /proc/self/status | tr '\\t\\n' '  '; \
                  mount -t tmpfs x /mnt 2>/dev/null && echo MOUNTED; \
                  unshare -U true 2>/dev/null && echo UNSHARED; \
                  head -c1 /proc/kcore >/dev/null 2>&1 && [ -s /proc/kcore ] && echo KCORE; \
                  echo x > /proc/sys/kernel/domainname 2>/dev/null && echo SYSCTL; \
                  mknod /tmp/sda b 8 0 2>/dev/null && head -c1 /tmp/sda >/dev/null 2>&1 && echo DISK; true";
    let mut spec = script_spec("c", script);
    spec.security.new_privileges = NewPrivileges::Forbidden;
    let (text, _) = outcome(&runtime, &pod, spec).await.expect("it runs");
    assert!(text.contains("CapEff: 00000000a80425fb"), "{text}");
    assert!(text.contains("Seccomp: 2") && text.contains("NoNewPrivs: 1"), "{text}");
    for sign in ["MOUNTED", "UNSHARED", "KCORE", "SYSCTL", "DISK"] {
        assert!(!text.contains(sign), "{text}");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn settings_reach_the_process() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let source = world.path().join("data");
    fs::create_dir(&source).expect("made");
    fs::write(source.join("file"), "content").expect("written");
    let script = "ulimit -n; cat /data/file; echo; touch /data/x 2>/dev/null || echo ro-mount; \
                  touch /root-file 2>/dev/null || echo ro-root; touch /scratch/x && echo scratch; \
                  grep CapEff /proc/self/status | tr '\\t' ' '; cat /proc/self/oom_score_adj";
    let mut spec = script_spec("c", script);
    spec.rlimits.push(Rlimit { name: "NOFILE".into(), soft: 123, hard: 456 });
    spec.security.root = Access::ReadOnly;
    spec.security.capabilities_drop = vec!["ALL".into()];
    spec.security.capabilities_add = vec!["NET_ADMIN".into()];
    spec.oom_score_adj = Some(500);
    spec.mounts =
        vec![Mount::bind(source, "/data", Access::ReadOnly), Mount::tmpfs("/scratch", Some(1 << 20))];
    // A read-only root cannot be given new directories to mount on, so they are made on its own layer first.
    let (text, _) = outcome(&runtime, &pod, spec).await.expect("it runs");
    let lines: Vec<_> = text.lines().collect();
    let expected = ["123", "content", "ro-mount", "ro-root", "scratch", "CapEff: 0000000000001000", "500"];
    assert_eq!(lines, expected);
    assert!(!Path::new("/data").exists() && !Path::new("/scratch").exists(), "the host's root is untouched");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn limits_reach_the_cgroup() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "exec sleep 1000");
    spec.resources.memory_bytes = Some(64 << 20);
    spec.resources.pids = Some(17);
    spec.resources.cpu_time = Some(CpuTime::of_millis(500));
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    let stats = runtime.stats(&container).await.expect("measured");
    assert_eq!((stats.memory_limit_bytes, stats.pids_limit), (Some(64 << 20), Some(17)));
    assert_eq!(stats.pids, Some(1));
    let forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done 2>&1; wait";
    let output = runtime.sh(&container, forks).await;
    let text = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8_lossy(&text).contains("fork"), "the limit of tasks holds");
    let mut bad = script_spec("bad", "true");
    bad.resources.cpuset_cpus = Some("900".into());
    let error = outcome(&runtime, &pod, bad).await.expect_err("there is no such CPU");
    assert!(error.contains("cpuset"), "{error}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn privileged_is_what_it_says() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "mount -t tmpfs x /mnt && grep -c ' /mnt ' /proc/self/mountinfo");
    spec.security.privilege = Privilege::Privileged;
    let (text, code) = outcome(&runtime, &pod, spec).await.expect("it runs");
    assert_eq!((text.as_str(), code), ("1", 0));
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[rstest]
#[case("NET_ADMI")]
#[case("CAP_")]
#[tokio::test]
async fn an_unknown_capability_is_named(#[case] capability: &str) {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "true");
    spec.security.capabilities_add = vec![capability.into()];
    let error = outcome(&runtime, &pod, spec).await.expect_err("there is no such capability");
    assert!(error.contains(capability), "{error}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}
