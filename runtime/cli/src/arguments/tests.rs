//! Command lines, and the specs that they make.

use clap::CommandFactory;
use clap::error::ErrorKind;
use mainstay_messages::spec::{
    Access, MountSource, Network, NewPrivileges, PidMode, Privilege, Rootfs, Seccomp, Stdin, Terminal,
    WindowSize,
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
    }
}

fn run_specs(line: &str) -> (ContainerSpec, SandboxSpec) {
    match parse_line(&format!("run {line}")).expect("a good command line") {
        Command::Run(run) => (
            run.what.container_spec(name(), Stdin::Once, surroundings(&run.what.process.env)),
            run.what.sandbox_spec(name()),
        ),
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
#[case("cmd", expected(|_| ()))]
#[case("-- cmd", expected(|_| ()))]
#[case("cmd -x --json --", expected(|s| s.process.command = ["cmd", "-x", "--json", "--"].map(Into::into).into()))]
#[case("-e A=1 -e OWN -e NOT cmd", expected(|s| {
    s.process.env = [("A", "1"), ("OWN", "mine")].map(|(k, v)| (k.into(), v.into())).into();
}))]
#[case("-w /srv -u 1000:100 --group-add 7 cmd", expected(|s| {
    s.process.workdir = Some("/srv".into());
    s.process.user = Some("1000:100".into());
    s.process.groups = vec![7];
}))]
#[case("-it cmd", expected(|s| {
    s.stdin = Stdin::Once;
    s.process.terminal = Terminal::Tty(WINDOW);
}))]
#[case("--memory 64m --cpus 1.5 --cpu-shares 512 --cpuset-cpus 0-1 --cpuset-mems 0 --pids-limit 32 cmd", expected(|s| {
    s.resources.memory_bytes = Some(64 << 20);
    s.resources.cpu_millis = Some(1_500);
    s.resources.cpu_shares = Some(512);
    s.resources.cpuset_cpus = Some("0-1".into());
    s.resources.cpuset_mems = Some("0".into());
    s.resources.pids = Some(32);
}))]
#[case("--rootfs img --read-only cmd", expected(|s| {
    s.rootfs = Rootfs::CopyOnWrite { path: "/here/img".into() };
    s.security.root = Access::ReadOnly;
}))]
#[case("--rootfs-rw /img cmd", expected(|s| s.rootfs = Rootfs::Directory { path: "/img".into() }))]
#[case("-v data:/data:ro --tmpfs /tmp:size=1m cmd", expected(|s| {
    s.mounts = vec![
        mainstay_messages::spec::Mount {
            target: "/tmp".into(),
            source: MountSource::Tmpfs { size_bytes: Some(1 << 20) },
            access: Access::ReadWrite,
        },
        mainstay_messages::spec::Mount {
            target: "/data".into(),
            source: MountSource::Bind { path: "/here/data".into() },
            access: Access::ReadOnly,
        },
    ];
}))]
#[case("--privileged --cap-add net_admin --cap-drop ALL cmd", expected(|s| {
    s.security.privilege = Privilege::Privileged;
    s.security.capabilities_add = vec!["NET_ADMIN".into()];
    s.security.capabilities_drop = vec!["ALL".into()];
}))]
#[case("--security-opt seccomp=unconfined --security-opt no-new-privileges cmd", expected(|s| {
    s.security.seccomp = Seccomp::Unconfined;
    s.security.new_privileges = NewPrivileges::Forbidden;
}))]
#[case("--ulimit nofile=10:20 --oom-score-adj -500 --stop-signal INT --stop-timeout 1.5 -l a=b cmd", expected(|s| {
    s.rlimits = vec![mainstay_messages::spec::Rlimit { name: "NOFILE".into(), soft: 10, hard: 20 }];
    s.oom_score_adj = Some(-500);
    s.stop_signal = Some(Signal(2));
    s.stop_grace_ms = Some(1_500);
    s.labels = [("a".to_owned(), "b".to_owned())].into();
}))]
fn run_makes_the_spec(#[case] line: &str, #[case] spec: ContainerSpec) {
    assert_eq!(run_specs(line).0, spec);
    assert_eq!(spec.check(), Ok(()));
}

#[rstest]
#[case("cmd", Network::Private, PidMode::Container, None)]
#[case("--network host --pid host --hostname box cmd", Network::Host, PidMode::Host, Some("box"))]
#[case("--network none --pid pod cmd", Network::Private, PidMode::Pod, None)]
fn run_makes_a_pod_of_its_own(
    #[case] line: &str,
    #[case] network: Network,
    #[case] pid: PidMode,
    #[case] hostname: Option<&str>,
) {
    let hostname = hostname.map(Into::into);
    assert_eq!(run_specs(line).1, SandboxSpec { network, pid, hostname, ..SandboxSpec::new(name()) });
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
