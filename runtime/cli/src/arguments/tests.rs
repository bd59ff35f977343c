//! Command lines, and the specs that they make.

use clap::CommandFactory;
use clap::error::ErrorKind;
use mainstay_messages::spec::{
    Access, BlockDeviceLimit, CpuTime, Device, HostEntry, HugepageLimit, IdMapping, IdMappings, IpcMode,
    Mount, NameLookup, Network, NewPrivileges, Owners, PidMode, Privilege, Rootfs, Seccomp, Stdin,
    SupplementaryGroups, Terminal, UserNamespace, WindowSize,
};
use mainstay_messages::{ContainerSpec, ExecSpec, SandboxSpec};
use rstest::rstest;

use super::parse::Variable;
use super::spec::Surroundings;
use super::*;

const WINDOW: WindowSize = WindowSize { rows: 40, columns: 120 };

fn parse_line(line: &str) -> Result<Command, clap::Error> {
    let words = std::iter::once("mainstay").chain(line.split_whitespace());
    Arguments::try_parse_from(words).map(|arguments| arguments.command)
}

fn name() -> Name {
    "quiet-otter".parse().expect("a good name")
}

fn surroundings(env: &[Variable]) -> Surroundings<'static> {
    Surroundings {
        environment: parse::environment(env.to_vec(), |key| (key == "OWN").then(|| "mine".to_owned())),
        window: WINDOW,
        absolute: &|path| std::path::Path::new("/here").join(path),
        seccomp_profile: Some("{}".to_owned()),
    }
}

fn run_specs(line: &str) -> (ContainerSpec, SandboxSpec) {
    match parse_line(&format!("run {line}")).expect("a good command line") {
        Command::Run(mut run) => {
            let words: Vec<_> = line.split_whitespace().collect();
            run.what.look_before_words(&words);
            let container = run.what.container_spec(name(), Stdin::Once, surroundings(&run.what.process.env));
            (container.expect("a good image name"), run.what.sandbox_spec(name()))
        }
        other => panic!("{other:?}"),
    }
}

fn expected(change: impl FnOnce(&mut ContainerSpec)) -> ContainerSpec {
    let mut spec = ContainerSpec::new(name(), ["cmd"]);
    change(&mut spec);
    spec
}

#[test]
fn the_command_tree_is_sound() {
    Arguments::command().debug_assert();
}

#[rstest]
#[case("-- cmd", expected(|_| ()))]
#[case("-- cmd -x --json --", expected(|s| s.process.command = ["cmd", "-x", "--json", "--"].map(Into::into).into()))]
#[case("-e A=1 -e OWN -e NOT -- cmd", expected(|s| {
    s.process.env = [("A", "1"), ("OWN", "mine")].map(|(k, v)| (k.into(), v.into())).into();
}))]
#[case("-w /srv -u 1000:100 --group-add 7 -- cmd", expected(|s| {
    s.process.workdir = Some("/srv".into());
    s.process.user = Some("1000:100".into());
    s.process.groups = vec![7];
}))]
#[case("-it -- cmd", expected(|s| {
    s.stdin = Stdin::Once;
    s.process.terminal = Terminal::Tty(WINDOW);
}))]
#[case("--memory 64m --cpus 1.5 --cpu-shares 512 --cpuset-cpus 0-1 --cpuset-mems 0 --pids-limit 32 -- cmd", expected(|s| {
    s.resources.memory_bytes = Some(64 << 20);
    s.resources.cpu_time = Some(CpuTime::of_millis(1_500));
    s.resources.cpu_shares = Some(512);
    s.resources.cpuset_cpus = Some("0-1".into());
    s.resources.cpuset_mems = Some("0".into());
    s.resources.pids = Some(32);
}))]
#[case("--rootfs img --read-only -- cmd", expected(|s| {
    s.rootfs = Rootfs::CopyOnWrite { path: "/here/img".into() };
    s.security.root = Access::ReadOnly;
}))]
#[case("--rootfs-rw /img -- cmd", expected(|s| s.rootfs = Rootfs::Directory { path: "/img".into() }))]
#[case("-v data:/data:ro --tmpfs /tmp:size=1m -- cmd", expected(|s| {
    s.mounts = vec![
        mainstay_messages::spec::Mount::tmpfs("/tmp", Some(1 << 20)),
        mainstay_messages::spec::Mount::bind("/here/data", "/data", Access::ReadOnly),
    ];
}))]
#[case("-v /a:/b:ro,noidmap -v /a:/c:idmap -- cmd", expected(|s| {
    let kept = Mount { owners: Owners::Host, ..Mount::bind("/a", "/b", Access::ReadOnly) };
    s.mounts = vec![kept, Mount::bind("/a", "/c", Access::ReadWrite)];
}))]
#[case("--privileged --cap-add net_admin --cap-drop ALL -- cmd", expected(|s| {
    s.security.privilege = Privilege::Privileged;
    s.security.capabilities_add = vec!["NET_ADMIN".into()];
    s.security.capabilities_drop = vec!["ALL".into()];
}))]
#[case("--security-opt seccomp=unconfined --security-opt no-new-privileges -- cmd", expected(|s| {
    s.security.seccomp = Seccomp::Unconfined;
    s.security.new_privileges = NewPrivileges::Forbidden;
}))]
#[case("--ulimit nofile=10:20 --oom-score-adj -500 --stop-signal INT --stop-timeout 1.5 -l a=b -- cmd", expected(|s| {
    s.rlimits = vec![mainstay_messages::spec::Rlimit { name: "NOFILE".into(), soft: 10, hard: 20 }];
    s.oom_score_adj = Some(-500);
    s.stop_signal = Some(Signal(2));
    s.stop_grace_ms = Some(1_500);
    s.labels = [("a".to_owned(), "b".to_owned())].into();
}))]
#[case("--memory 8m --memory-swap unlimited --memory-reservation 4m --hugepages 2MB=4m -- cmd", expected(|s| {
    s.resources.memory_bytes = Some(8 << 20);
    s.resources.memory_swap_bytes = Some(u64::MAX);
    s.resources.memory_reservation_bytes = Some(4 << 20);
    s.resources.hugepages = vec![HugepageLimit { page_size: "2MB".into(), bytes: 4 << 20 }];
}))]
#[case("--blkio-weight 50 --device-read-bps /dev/a:1m --device-write-iops /dev/b:7 --device-read-iops /dev/a:9 -- cmd", expected(|s| {
    s.resources.block_io.weight = Some(50);
    s.resources.block_io.devices = vec![
        BlockDeviceLimit { read_bps: Some(1 << 20), read_iops: Some(9), ..BlockDeviceLimit::new("/dev/a") },
        BlockDeviceLimit { write_iops: Some(7), ..BlockDeviceLimit::new("/dev/b") },
    ];
}))]
#[case("--device /dev/fuse:rw --security-opt seccomp=profile.json --supplementary-groups strict -- cmd", expected(|s| {
    s.devices = vec![Device { path: "/dev/fuse".into(), target: None, access: "rw".into() }];
    s.security.seccomp = Seccomp::Profile { json: "{}".into() };
    s.security.supplementary_groups = SupplementaryGroups::Strict;
}))]
fn run_makes_the_spec(#[case] line: &str, #[case] spec: ContainerSpec) {
    assert_eq!(run_specs(line).0, spec);
    assert_eq!(spec.check(), Ok(()));
}

#[rstest]
#[case("cmd", Network::Default, PidMode::Container, None)]
#[case("--network host --pid host --hostname box cmd", Network::Host, PidMode::Host, Some("box"))]
#[case("--network none --pid pod cmd", Network::None, PidMode::Pod, None)]
fn run_makes_a_pod_of_its_own(
    #[case] line: &str,
    #[case] network: Network,
    #[case] pid: PidMode,
    #[case] hostname: Option<&str>,
) {
    let hostname = hostname.map(Into::into);
    assert_eq!(run_specs(line).1, SandboxSpec { network, pid, hostname, ..SandboxSpec::new(name()) });
}

#[test]
fn run_says_what_of_the_pod_is_somebody_elses() {
    let spec = run_specs("--ipc host --cgroup-parent jobs-1.slice cmd").1;
    assert_eq!(spec.ipc, IpcMode::Host);
    let parent = spec.cgroup_parent.expect("given").to_string();
    assert_eq!(parent, "/jobs.slice/jobs-1.slice");
}

#[rstest]
#[case("cmd", UserNamespace::Host)]
#[case("--userns host cmd", UserNamespace::Host)]
#[case("--userns auto cmd", UserNamespace::Auto)]
#[case("--userns 0:5:6 cmd", UserNamespace::Mapped(IdMappings::both([range(0, 5, 6)])))]
#[case("--uidmap 0:5:6 cmd", UserNamespace::Mapped(IdMappings::both([range(0, 5, 6)])))]
#[case("--gidmap 0:5:6 --gidmap 6:20:1 cmd", UserNamespace::Mapped(IdMappings::both([range(0, 5, 6), range(6, 20, 1)])))]
#[case("--gidmap 0:5:6 --uidmap 0:9:1 cmd", UserNamespace::Mapped(IdMappings { uids: vec![range(0, 9, 1)], gids: vec![range(0, 5, 6)] }))]
fn run_says_whose_ids_the_pod_has(#[case] line: &str, #[case] namespace: UserNamespace) {
    let spec = run_specs(line).1;
    assert_eq!(spec.check(), Ok(()));
    assert_eq!(spec.user_namespace, namespace);
}

fn range(container: u32, host: u32, size: u32) -> IdMapping {
    IdMapping { container, host, size }
}

#[test]
fn run_says_how_the_pod_looks_up_names() {
    let line = "--sysctl net.core.somaxconn=9 --dns 10.0.0.1 --dns-search a.b --dns-option ndots:2 --add-host db:10.0.0.7 cmd";
    let spec = run_specs(line).1;
    assert_eq!(spec.sysctls, [("net.core.somaxconn".to_owned(), "9".to_owned())].into());
    let names = NameLookup {
        servers: vec!["10.0.0.1".parse().expect("good")],
        searches: vec!["a.b".into()],
        options: vec!["ndots:2".into()],
        hosts: vec![HostEntry { name: "db".into(), address: "10.0.0.7".parse().expect("good") }],
    };
    assert_eq!((spec.names.clone(), spec.check()), (names, Ok(())));
}

#[rstest]
#[case("exec -it -u www-data web sh -c id")]
#[case("exec -it -u www-data web -- sh -c id")]
#[case("exec -it -u www-data -- web sh -c id")]
fn exec_makes_the_spec(#[case] line: &str) {
    let Command::Exec(exec) = parse_line(line).expect("good") else {
        panic!("not an exec");
    };
    let mut spec = ExecSpec::new(["sh", "-c", "id"]);
    spec.stdin = Stdin::Once;
    spec.process.user = Some("www-data".into());
    spec.process.terminal = Terminal::Tty(WINDOW);
    assert_eq!(exec.exec_spec(surroundings(&[])), spec);
    assert_eq!(exec.container, Reference("web".into()));
}

#[rstest]
#[case("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)]
#[case("frobnicate", ErrorKind::InvalidSubcommand)]
#[case("run", ErrorKind::MissingRequiredArgument)]
#[case("run --memory 64x cmd", ErrorKind::ValueValidation)]
#[case("run --pod p --hostname h cmd", ErrorKind::ArgumentConflict)]
#[case("run --pod p --network host cmd", ErrorKind::ArgumentConflict)]
#[case("run --detach --rm cmd", ErrorKind::ArgumentConflict)]
#[case("run --detach --embedded cmd", ErrorKind::ArgumentConflict)]
#[case("run --pod p --embedded cmd", ErrorKind::ArgumentConflict)]
#[case("run --rootfs a --rootfs-rw b cmd", ErrorKind::ArgumentConflict)]
#[case("run --name a/b cmd", ErrorKind::ValueValidation)]
#[case("run --network bridge cmd", ErrorKind::InvalidValue)]
#[case("exec web", ErrorKind::MissingRequiredArgument)]
#[case("update --memory 1g", ErrorKind::MissingRequiredArgument)]
#[case("run --pid-of c cmd", ErrorKind::MissingRequiredArgument)]
#[case("run --device fuse cmd", ErrorKind::ValueValidation)]
#[case("run --dns x cmd", ErrorKind::ValueValidation)]
#[case("run --dns 10.0.0.1%eth0 cmd", ErrorKind::ValueValidation)]
#[case("stop", ErrorKind::MissingRequiredArgument)]
#[case("kill -s BLA web", ErrorKind::ValueValidation)]
#[case("events --since x", ErrorKind::ValueValidation)]
#[case("logs --since yesterday web", ErrorKind::ValueValidation)]
#[case("completion tcsh", ErrorKind::InvalidValue)]
fn refuses(#[case] line: &str, #[case] kind: ErrorKind) {
    assert_eq!(parse_line(line).expect_err("not a command line").kind(), kind);
}

#[rstest]
#[case("daemon")]
#[case("pods -q --json")]
#[case("ps -a")]
#[case("inspect a b")]
#[case("create --pod p cmd")]
#[case("start a")]
#[case("stop -t 3 -s INT a b")]
#[case("stop --timeout 500ms a")]
#[case("stop --time 3 a")]
#[case("kill a")]
#[case("pause a b")]
#[case("resume a")]
#[case("unpause a")]
#[case("update --memory unlimited --cpus -1 a b")]
#[case("create --pod p --pid-of c cmd")]
#[case("rm -f a b")]
#[case("pod run web --memory 1g")]
#[case("pod stop -t 0 web")]
#[case("pod rm -f web")]
#[case("attach --no-stdin a")]
#[case("logs -f -n 10 --since 10m -t a")]
#[case("stats -f")]
#[case("wait a")]
#[case("events --since 7 --follow web")]
#[case("explain web")]
#[case("config default")]
#[case("config check /etc/x.toml")]
#[case("completion bash")]
#[case("version --socket /x")]
fn takes(#[case] line: &str) {
    parse_line(line).expect("a good command line");
}

#[rstest]
#[case("run --memory 64x cmd", "64m")]
#[case("run -v /a cmd", "/srv/data:/data:ro")]
#[case("kill -s BLA web", "TERM")]
fn errors_say_what_is_right(#[case] line: &str, #[case] part: &str) {
    let error = parse_line(line).expect_err("wrong").to_string();
    assert!(error.contains(part), "{error}");
}

/// What stands behind `--`, or beside a root that is a directory, is run there; else the first word is an image.
#[rstest]
#[case("busybox", Some("busybox"), "")]
#[case("-it busybox sh -c x", Some("busybox"), "sh -c x")]
#[case("busybox -d --json", Some("busybox"), "-d --json")]
#[case("--name box busybox sh -- -c", Some("busybox"), "sh -- -c")]
#[case("busybox -- sh", Some("busybox"), "-- sh")]
#[case("-- busybox sh", None, "busybox sh")]
#[case("-d -- sh -- -c", None, "sh -- -c")]
#[case("--rootfs /srv ls -l", None, "ls -l")]
#[case("--rootfs-rw /srv -- ls", None, "ls")]
fn images_and_commands(#[case] line: &str, #[case] image: Option<&str>, #[case] command: &str) {
    let (container, _) = run_specs(line);
    assert_eq!(container.image().map(|root| root.image.as_str()), image);
    assert_eq!(container.process.command.join(" "), command);
}

#[test]
fn entrypoints() {
    let entrypoint = |line: &str| run_specs(line).0.image().and_then(|root| root.entrypoint.clone());
    assert_eq!(entrypoint("busybox ls"), None);
    assert_eq!(entrypoint("--entrypoint cat busybox"), Some(vec!["cat".to_owned()]));
    assert_eq!(entrypoint("--entrypoint= busybox cat"), Some(Vec::new()));
}
