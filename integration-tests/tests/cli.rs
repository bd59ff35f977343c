//! The `mainstay` command as its users run it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use mainstay_integration_tests::{World, peer, wait, world};
use rstest::rstest;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay-under-test");

fn mainstay(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    // A daemon of the machine must never be met by a test.
    command.args(arguments).env("MAINSTAY_SOCKET", "/nonexistent/mainstay.sock").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A daemon of this world, ended when dropped.
struct Daemon<'a> {
    world: &'a World,
    child: Child,
}

impl<'a> Daemon<'a> {
    async fn start(world: &'a World) -> Self {
        let config = world.path().join("config.toml");
        std::fs::write(&config, world.config().to_string()).expect("written");
        let child = mainstay(&["daemon", "--config", config.to_str().expect("text")])
            .env_remove("MAINSTAY_SOCKET")
            .stderr(std::fs::File::create(world.path().join("daemon.log")).expect("made"))
            .spawn()
            .expect("it starts");
        let daemon = Self { world, child };
        wait::until("the daemon answers", || daemon.run(&["ps"]).status.success().then_some(())).await;
        daemon
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = mainstay(arguments);
        command.env("MAINSTAY_SOCKET", self.world.path().join("state/admin.sock"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// The output of a command that has to succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.ok(&[&["--json"], arguments].concat());
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}"))
    }

    /// What a command says that has to fail.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the README promises first.
#[test]
fn the_first_command_of_the_readme() {
    if !peer::is_root() {
        return;
    }
    let output = mainstay(&["run", "--", "sh", "-c", "echo hello; exit 3"]).output().expect("it runs");
    assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), "", "nothing else is said");
}

#[rstest]
#[case(&["--userns", "auto"])]
#[case(&["--userns", "0:1500000000:65536"])]
#[case(&["--uidmap", "0:1500000000:65536"])]
fn root_of_a_user_namespace_is_nobody_in_particular_outside(#[case] flags: &[&str]) {
    if !peer::is_root() {
        return;
    }
    let volume = tempfile::tempdir().expect("made");
    std::fs::write(volume.path().join("file"), "").expect("written");
    let mounted = format!("{}:/volume", volume.path().display());
    let script = "id -u; stat -c %u /volume/file; cut -c 1-32 /proc/self/uid_map; exit 3";
    let rest = ["-v", &mounted, "--", "sh", "-c", script];
    let output = mainstay(&[&["run"], flags, &rest].concat()).output().expect("it runs");
    let (said, lines) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(3), "{said}");
    let words: Vec<&str> = lines.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[2], words[4]), ("0", "0", "0", "65536"), "{lines}");
    assert!(words[3].parse::<u32>().is_ok_and(|host| host >= 1_500_000_000), "{lines}");
}

#[rstest]
#[case(&["run", "--userns", "0:0:65536", "--", "true"], 125, "user_namespace.uids[0]")]
#[case(&["run", "--userns", "auto", "--network", "host", "--", "true"], 125, "network")]
#[case(&["run", "--userns", "auto", "-v", "/proc:/x", "--", "true"], 125, "noidmap")]
#[case(&["run", "--userns", "keep", "--", "true"], 2, "CONTAINER:HOST:SIZE")]
#[case(&["run", "--", "/nope"], 128, "/nope")]
#[case(&["run", "--rootfs", "/does/not/exist", "--", "true"], 128, "/does/not/exist")]
#[case(&["run", "--user", "4294967296", "--", "id"], 125, "user")]
#[case(&["run", "--memory", "12q", "--", "true"], 2, "12q")]
#[case(&["run", "--volume", "/nope-nope:/x", "--", "true"], 125, "/nope-nope")]
#[case(&["run", "--detach", "--", "true"], 125, "daemon")]
#[case(&["ps"], 1, "daemon")]
fn bad_input_gets_one_sentence(#[case] arguments: &[&str], #[case] code: i32, #[case] named: &str) {
    if !peer::is_root() {
        return;
    }
    let output = mainstay(arguments).output().expect("it runs");
    let said = text(&output.stderr);
    assert!(said.contains(named), "{said}");
    assert_eq!(output.status.code(), Some(code), "{said}");
}

#[test]
fn input_output_and_status_pass_through() {
    if !peer::is_root() {
        return;
    }
    let mut child = mainstay(&[
        "run",
        "-i",
        "--env",
        "A=b c",
        "--workdir",
        "/tmp",
        "--",
        "sh",
        "-c",
        "cat; echo $A; pwd >&2; exit 7",
    ])
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("it starts");
    let input = vec![b'x'; 300_000];
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("no panic").expect("all was taken");
    assert_eq!(output.stdout.len(), 300_004);
    assert!(output.stdout.ends_with(b"b c\n"));
    assert_eq!(text(&output.stderr), "/tmp\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn the_configuration_explains_itself() {
    let default = mainstay(&["config", "default"]).output().expect("it runs");
    assert!(default.status.success());
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("c.toml");
    let check = |content: &[u8]| {
        std::fs::write(&file, content).expect("written");
        mainstay(&["config", "check", file.to_str().expect("text")]).output().expect("it runs")
    };
    assert!(check(&default.stdout).status.success());
    let wrong = check(b"root_dir = \"/x\"\nstate_dri = \"/y\"\n");
    assert!(!wrong.status.success());
    let said = text(&wrong.stderr);
    assert!(
        said.contains("line 2") && said.contains("state_dri") && said.contains("\"state_dir\""),
        "{said}"
    );
}

#[tokio::test]
async fn a_day_with_the_daemon() {
    let world = world!();
    let daemon = Daemon::start(&world).await;
    let id = daemon.ok(&[
        "run",
        "-d",
        "--name",
        "web",
        "--",
        "sh",
        "-c",
        "echo one; echo two >&2; exec sleep 1000",
    ]);
    let id = id.trim();
    assert_eq!(id.len(), 32, "{id}");
    let ps = daemon.ok(&["ps"]);
    assert!(ps.contains(&id[..12]) && ps.contains("web") && ps.contains("running"), "{ps}");
    assert!(daemon.ok(&["pods"]).contains("web"));
    assert_eq!(daemon.ok(&["exec", "web", "--", "sh", "-c", "echo $((6*7))"]), "42\n");
    assert_eq!(daemon.run(&["exec", &id[..6], "--", "sh", "-c", "exit 9"]).status.code(), Some(9));
    wait::until("both lines are logged", || {
        let logs = daemon.run(&["logs", "web"]);
        (text(&logs.stdout) == "one\n" && text(&logs.stderr) == "two\n").then_some(())
    })
    .await;
    let inspected = daemon.json(&["inspect", "web"]);
    assert!(inspected.to_string().contains(id), "{inspected}");
    assert!(daemon.ok(&["stats", "web"]).contains("web"));
    let said = daemon.fails(&["stop", "wbe"]);
    assert!(said.contains("did you mean") && said.contains("web"), "{said}");
    daemon.ok(&["stop", "--timeout", "0", "web"]);
    assert_eq!(daemon.run(&["wait", "web"]).stdout, b"137\n");
    assert!(daemon.ok(&["ps", "-a"]).contains("exited"));
    let life = daemon.ok(&["explain", "web"]);
    for part in ["container recorded", "container started", "SIGKILL", "killed by"] {
        assert!(life.contains(part), "{part:?} is missing in:\n{life}");
    }
    assert!(life.lines().any(|line| line.contains("   bundle")), "each step of a saga is a row:\n{life}");
    let file = world.path().join("life.svg");
    assert_eq!(daemon.ok(&["explain", "web", "--svg", file.to_str().expect("text")]), "");
    let picture = std::fs::read_to_string(file).expect("drawn");
    assert!(picture.starts_with("<svg ") && picture.contains(">create-container<"), "{picture}");
    let events = daemon.ok(&["--json", "events"]);
    let count = events.lines().filter(|line| line.contains("container_exited")).count();
    assert_eq!(count, 1, "{events}");
    daemon.ok(&["rm", "-f", "web"]);
    assert!(!daemon.ok(&["ps", "-a"]).contains("web"));
    let life = daemon.ok(&["explain", id]);
    assert!(life.contains("container removed"), "what is gone can still be explained:\n{life}");
    for pod in daemon.json(&["pods"]).as_array().expect("a list") {
        let name = pod["record"]["id"].as_str().or(pod["id"].as_str()).expect("an id");
        daemon.ok(&["rm", "-f", name]);
    }
    let by_name = daemon.run(&["explain", "web"]);
    assert_eq!(
        (&*text(&by_name.stdout), &*text(&by_name.stderr)),
        (&*life, ""),
        "the only one that had the name"
    );
    daemon.ok(&["run", "--rm", "--name", "web", "--", "true"]);
    for name in ["web", "web/web"] {
        let newest = daemon.run(&["explain", name]);
        assert!(newest.status.success() && text(&newest.stdout) != life, "{newest:?}");
        let said = text(&newest.stderr);
        assert!(said.contains("is gone; the newest") && said.contains(&format!("before it {id}")), "{said}");
    }
    world.assert_nothing_left().await;
}

/// The runtime lets a repeated request join the first. So `run --name web` while a `web` ran was given the pod of
/// the one that ran, then refused its container's name, and then removed "its" pod: a name typed twice killed a
/// running container. And the same command twice with `--pod` and `--rm` removed the first one's container.
#[tokio::test]
async fn a_name_that_is_taken_harms_nobody() {
    let world = world!();
    let daemon = Daemon::start(&world).await;
    let id = daemon.ok(&["run", "-d", "--name", "web", "--", "sleep", "1000"]);
    for command in [["sleep", "1000"], ["echo", "other"]] {
        for ways in [&["run", "-d"][..], &["run"], &["run", "--rm"], &["create"]] {
            let said = daemon.fails(&[ways, &["--name", "web", "--"], &command].concat());
            assert!(said.contains("the pod name \"web\" is taken by"), "{said}");
        }
    }
    daemon.ok(&["pod", "run", "shared"]);
    let mine = ["--pod", "shared", "--name", "job", "--", "sleep", "1000"];
    daemon.ok(&[&["run", "-d"][..], &mine].concat());
    for ways in [&["run", "-d"][..], &["run", "--rm"], &["create"]] {
        let said = daemon.fails(&[ways, &mine].concat());
        assert!(said.contains("the container name \"job\" is taken by"), "{said}");
    }
    let running = daemon.ok(&["ps"]);
    assert!(running.contains(&id[..12]) && running.contains("job"), "{running}");
    daemon.ok(&["rm", "-f", "web", "shared"]);
    world.assert_nothing_left().await;
}

/// `mainstay stop wbb` printed `wbb` and ended with 0, as if it had stopped something: an unknown name counted as
/// one that is gone. Only a whole id shows that there was something once.
#[tokio::test]
async fn a_slip_of_the_pen_is_not_a_success() {
    let world = world!();
    let daemon = Daemon::start(&world).await;
    let id = daemon.ok(&["run", "-d", "--name", "web", "--", "sleep", "1000"]);
    let id = id.trim();
    for command in [&["stop"][..], &["pod", "stop"], &["rm"], &["kill"], &["wait"], &["explain"], &["attach"]]
    {
        for unknown in ["nobody", "ffffffff"] {
            let said = daemon.fails(&[command, &[unknown]].concat());
            assert!(said.contains(&format!("{unknown:?}")) && said.starts_with("mainstay: no "), "{said}");
        }
    }
    let said = daemon.fails(&["inspect", "nobody"]);
    assert_eq!(said, "mainstay: no pod or container \"nobody\"\n");
    daemon.ok(&["rm", "-f", "web"]);
    daemon.ok(&["stop", id]);
    world.assert_nothing_left().await;
}

/// The help of `inspect` named execs, and every exec was "no pod".
#[tokio::test]
async fn an_exec_can_be_inspected() {
    let world = world!();
    let daemon = Daemon::start(&world).await;
    daemon.ok(&["run", "-d", "--name", "web", "--", "sleep", "1000"]);
    assert_eq!(daemon.run(&["exec", "web", "--", "sh", "-c", "exit 9"]).status.code(), Some(9));
    let id = daemon.json(&["inspect", "web"])[0]["execs"][0]["id"].as_str().expect("an id").to_owned();
    let exec = daemon.ok(&["inspect", &id[..10]]);
    assert!(exec.contains("kind: exec") && exec.contains("code: 9"), "{exec}");
    daemon.ok(&["rm", "-f", "web"]);
    world.assert_nothing_left().await;
}

/// P5: kill -9 of the daemon leaves containers running, and the next one adopts them.
#[tokio::test]
async fn a_killed_daemon_is_followed_by_one_that_knows_everything() {
    let world = world!();
    let mut daemon = Daemon::start(&world).await;
    daemon.ok(&["run", "-d", "--name", "keeps", "--", "sleep", "1000"]);
    daemon.ok(&["run", "-d", "--name", "ends", "--", "sh", "-c", "sleep 0.5; exit 42"]);
    daemon.child.kill().expect("killed");
    daemon.child.wait().expect("dead");
    drop(daemon);
    let daemon = Daemon::start(&world).await;
    assert_eq!(daemon.ok(&["exec", "keeps", "--", "echo", "hi"]), "hi\n");
    assert_eq!(daemon.run(&["wait", "ends"]).stdout, b"42\n");
    daemon.ok(&["rm", "-f", "keeps", "ends"]);
    for pod in ["keeps", "ends"] {
        daemon.run(&["rm", "-f", pod]);
    }
    world.assert_nothing_left().await;
}

#[test]
fn completions_and_help_exist() {
    for shell in ["bash", "zsh", "fish"] {
        let output = mainstay(&["completion", shell]).output().expect("it runs");
        assert!(output.status.success() && text(&output.stdout).contains("mainstay"));
    }
    let help = text(&mainstay(&["--help"]).output().expect("it runs").stdout);
    for command in ["run", "ps", "exec", "logs", "events", "explain", "config", "daemon", "bench"] {
        assert!(help.contains(command), "{command} is missing in:\n{help}");
    }
    assert!(Path::new(PROGRAM).exists());
}
