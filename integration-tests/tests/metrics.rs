//! Metrics of real daemons: a scrape says what has happened, is right to the letter, and waits for nobody.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay::exposition::Scrape;
use mainstay::faults::{FAULTS_DIRECTORY, HELD};
use mainstay::{
    AuditSettings, Config, ContainerId, MetricsFormat, MetricsSettings, Repair, SandboxId, SandboxSpec,
    Shutdown, What,
};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Shorthand, World, script_spec, wait, world};
use mainstay_messages::admin::Reference;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

fn socket(world: &World) -> PathBuf {
    world.path().join("state/metrics.sock")
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, accept: &str) -> (String, String) {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    (head.to_owned(), body.to_owned())
}

async fn scrape(world: &World) -> Scrape {
    let stream = UnixStream::connect(socket(world)).await.expect("connected");
    let (_, body) = wait::finish("a scrape", ask(stream, "text/plain")).await;
    Scrape::parse(&body, MetricsFormat::Prometheus).unwrap_or_else(|error| panic!("{error}\n{body}"))
}

/// Waits until a series has this value: the journal is counted when it is durable.
async fn until(world: &World, name: &str, labels: &[(&str, &str)], value: f64) {
    wait::until_async(&format!("{name} {labels:?} is {value}"), async || {
        scrape(world).await.value(name, labels) == Some(value)
    })
    .await;
}

fn set(world: &World, point: &str, fault: &str) {
    fs::write(world.path().join("faults").join(point), fault).expect("written");
}

async fn struck(world: &World) -> (Daemon, Client) {
    let faults = world.path().join("faults");
    fs::create_dir(&faults).expect("made");
    let daemon = Daemon::start(world, &[(FAULTS_DIRECTORY, faults)]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    (daemon, client)
}

fn pod(name: &str) -> SandboxSpec {
    SandboxSpec::new(name.parse().expect("a name"))
}

/// Ends a daemon and what it has left.
async fn finish(world: World, daemon: Daemon) {
    drop(daemon);
    let runtime = world.start().await;
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_life_is_counted() {
    let world = world!();
    let daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    let before = scrape(&world).await;
    for zero in
        ["mainstay_exits_delivered_total", "mainstay_leaked_shims", "mainstay_exit_latency_seconds_count"]
    {
        assert_eq!(before.value(zero, &[]), Some(0.0), "{zero}");
    }
    client.run_sandbox(pod("p")).await.expect("it runs");
    let spec = script_spec("c", "echo hello; exit 3");
    client.create_container(Reference("p".to_owned()), spec).await.expect("created");
    client.start_container(Reference("p/c".to_owned())).await.expect("started");
    assert_eq!(client.wait(Reference("p/c".to_owned())).await.expect("it ends").code(), 3);
    let ended = [("process", "container"), ("outcome", "error")];
    until(&world, "mainstay_process_exits_total", &ended, 1.0).await;
    let after = scrape(&world).await;
    let one =
        |name: &str, labels: &[(&str, &str)]| assert_eq!(after.value(name, labels), Some(1.0), "{name}");
    one("mainstay_saga_runs_total", &[("saga", "run-pod"), ("outcome", "done")]);
    one("mainstay_saga_runs_total", &[("saga", "create-container"), ("outcome", "done")]);
    let step = [("saga", "run-pod"), ("step", "shim"), ("way", "act")];
    one("mainstay_saga_step_duration_seconds_count", &step);
    one("mainstay_sandboxes", &[("phase", "ready")]);
    one("mainstay_containers", &[("phase", "exited")]);
    one("mainstay_process_starts_total", &[("process", "container")]);
    one("mainstay_exits_delivered_total", &[]);
    one("mainstay_exit_latency_seconds_count", &[]);
    one("mainstay_shim_starts_total", &[]);
    one("mainstay_sandboxes_ready_total", &[]);
    one("mainstay_journal_subscribers", &[]);
    let entries = after.value("mainstay_journal_entries_total", &[]).expect("it is there");
    assert!(entries >= 6.0, "{entries}");
    assert!(after.value("mainstay_journal_entry_bytes_total", &[]).expect("it is there") > 10.0 * entries);
    client.remove_sandbox(Reference("p".to_owned())).await.expect("removed");
    until(&world, "mainstay_sandboxes", &[("phase", "ready")], 0.0).await;
    let torn_down = [("saga", "run-pod"), ("outcome", "complete")];
    wait::until_async("it was torn down", async || {
        scrape(&world).await.value("mainstay_saga_teardowns_total", &torn_down) >= Some(1.0)
    })
    .await;
    finish(world, daemon).await;
}

#[tokio::test]
async fn a_failed_run_is_counted_by_its_step_and_so_is_what_was_undone() {
    let world = world!();
    let (daemon, client) = struck(&world).await;
    set(&world, "run-pod.namespaces.after", "fail");
    client.run_sandbox(pod("p")).await.expect_err("a test wants it to fail");
    until(&world, "mainstay_saga_failures_total", &[("saga", "run-pod"), ("step", "namespaces")], 1.0).await;
    let compensations = |outcome| [("saga", "run-pod"), ("outcome", outcome)];
    until(&world, "mainstay_saga_compensations_total", &compensations("complete"), 1.0).await;
    until(&world, "mainstay_saga_undos_pending", &[], 0.0).await;
    // An undo that fails is tried again, and what is left is known until it works.
    set(&world, "run-pod.namespaces.after", "fail");
    set(&world, "run-pod.cgroup.undo.before", "fail 2");
    client.run_sandbox(pod("q")).await.expect_err("a test wants it to fail");
    until(&world, "mainstay_saga_compensations_total", &compensations("incomplete"), 1.0).await;
    let undo = [("saga", "run-pod"), ("step", "cgroup"), ("outcome", "failed")];
    until(&world, "mainstay_saga_undos_total", &undo, 2.0).await;
    until(&world, "mainstay_saga_undos_pending", &[], 0.0).await;
    assert_eq!(client.list_sandboxes().await.expect("listed"), []);
    finish(world, daemon).await;
}

/// P6: whoever scrapes learns most when something hangs.
#[tokio::test]
async fn a_scrape_waits_for_nobody() {
    let world = world!();
    let (daemon, client) = struck(&world).await;
    let point = "run-pod.cgroup.before";
    set(&world, point, "hang");
    let run = tokio::spawn(async move { client.run_sandbox(pod("p")).await });
    let held = world.path().join("faults").join(format!("{point}{HELD}"));
    wait::until("the run hangs", || held.exists().then_some(())).await;
    assert_eq!(scrape(&world).await.value("mainstay_sandboxes", &[("phase", "starting")]), Some(1.0));
    fs::remove_file(held).expect("there");
    wait::finish("the run", run).await.expect("no panic").expect("it runs");
    finish(world, daemon).await;
}

/// The store has lost a container that runs on in a pod that it knows: its end has nobody to go to.
#[tokio::test]
async fn an_exit_that_nobody_claims_is_counted_as_parked_and_then_as_unclaimed() {
    let world = world!();
    let runtime = world.start().await;
    let kept = runtime.pod("p").await;
    let container = runtime.started(&kept, "c", "exec sleep 1000").await;
    let process = runtime.container(&container).expect("listed").record.process.clone().expect("it runs");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    lose(&world, &kept, &container);
    let daemon = Daemon::start(&world, &[]).await;
    until(&world, "mainstay_sandboxes", &[("phase", "ready")], 1.0).await;
    assert_eq!(scrape(&world).await.value("mainstay_exits_parked_total", &[]), Some(0.0));
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::KILL).expect("it ran");
    until(&world, "mainstay_exits_parked_total", &[], 1.0).await;
    until(&world, "mainstay_exits_unclaimed_total", &[], 1.0).await;
    assert_eq!(scrape(&world).await.value("mainstay_exits_delivered_total", &[]), Some(0.0));
    drop(daemon);
    let runtime = world.start().await;
    runtime.remove_sandbox(&kept).await.expect("removed");
    // Its layer and its log, which no record names.
    runtime.audit(Repair::Yes).await.expect("looked at");
    world.finish(runtime).await;
}

/// Takes the records of a container away, in the store and beside it.
fn lose(world: &World, pod: &SandboxId, container: &ContainerId) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(world.path().join(format!("root/store.db{suffix}")));
    }
    let bundle = world.path().join(format!("state/p/{pod}/c/{container}"));
    for entry in fs::read_dir(bundle).expect("a bundle").flatten() {
        if entry.file_name().to_string_lossy().starts_with("container") {
            fs::remove_file(entry.path()).expect("its record");
        }
    }
}

/// A daemon in this process, whose configuration a test may choose.
struct Inside {
    stop: oneshot::Sender<()>,
    daemon: tokio::task::JoinHandle<mainstay::Result<()>>,
    client: Client,
}

impl Inside {
    async fn start(config: Config) -> Self {
        let socket = config.admin_socket.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let daemon = tokio::spawn(mainstay::daemon::run(config, Vec::new(), shutdown));
        wait::until_async("the daemon answers", async || match Client::connect(&socket).await {
            Ok(client) => client.version().await.is_ok(),
            Err(_) => false,
        })
        .await;
        let client = Client::connect(&socket).await.expect("connected");
        Self { stop, daemon, client }
    }

    async fn end(self) {
        self.stop.send(()).expect("it runs");
        wait::finish("the daemon ends", self.daemon).await.expect("no panic").expect("a good end");
    }
}

#[tokio::test]
async fn the_background_audit_shows_what_it_finds_and_tells_it_once() {
    let world = world!();
    let audit = AuditSettings { interval_ms: 50 };
    let inside = Inside::start(Config { audit, ..world.config() }).await;
    let rounds = || async { scrape(&world).await.value("mainstay_audits_total", &[("outcome", "done")]) };
    // It may be more by the time that somebody looks.
    wait::until_async("an audit", async || rounds().await.is_some_and(|rounds| rounds >= 1.0)).await;
    let run = inside.client.run_sandbox(pod("p")).await.expect("it runs");
    wait::until_async("both count the shim", async || {
        let scrape = scrape(&world).await;
        ["records", "kernel"]
            .iter()
            .all(|source| scrape.value("mainstay_running_shims", &[("source", source)]) == Some(1.0))
    })
    .await;
    let layer = world.path().join("root/layers/0123");
    fs::create_dir(&layer).expect("made");
    let found = [("deviation", "leak"), ("kind", "layer")];
    until(&world, "mainstay_audit_findings", &found, 1.0).await;
    let first = rounds().await.expect("it is there");
    wait::until_async("two more rounds", async || rounds().await.expect("it is there") >= first + 2.0).await;
    until(&world, "mainstay_audit_new_findings_total", &found, 1.0).await;
    assert!(layer.exists(), "the background repairs nothing");
    let life = inside.client.explain(Reference("0123".to_owned())).await.expect("a container that was found");
    let told = life.iter().filter(|event| matches!(event.what, What::AuditFound { .. }));
    assert_eq!(told.count(), 1, "{life:#?}");
    fs::remove_dir(&layer).expect("there");
    until(&world, "mainstay_audit_findings", &found, 0.0).await;
    inside.client.remove_sandbox(Reference(run.to_string())).await.expect("removed");
    inside.end().await;
    assert!(!socket(&world).exists(), "the socket goes with the daemon");
}

#[tokio::test]
async fn the_socket_is_for_its_owner_and_a_port_is_where_it_is_asked_for() {
    let world = world!();
    // A port that is free now: another process could take it before the daemon does, and then the test says so.
    let free = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = free.local_addr().expect("it has one");
    drop(free);
    let metrics = MetricsSettings { listen: Some(address), ..MetricsSettings::default() };
    let inside = Inside::start(Config { metrics, ..world.config() }).await;
    wait::until("it is served", || socket(&world).exists().then_some(())).await;
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&socket(&world)), 0o600);
    assert_eq!(mode(socket(&world).parent().expect("a directory")), 0o700);
    let open = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let stream = TcpStream::connect(address).await.expect("connected");
    let (head, body) = wait::finish("a scrape", ask(stream, open)).await;
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    Scrape::parse(&body, MetricsFormat::OpenMetrics).unwrap_or_else(|error| panic!("{error}\n{body}"));
    inside.end().await;
}

#[tokio::test]
async fn no_metrics_are_served_where_none_are_wanted_and_the_command_prints_them() {
    let world = world!();
    let metrics = MetricsSettings { socket: Some("".into()), ..MetricsSettings::default() };
    let inside = Inside::start(Config { metrics, ..world.config() }).await;
    let run = |arguments: &'static [&'static str]| {
        let mut command = Command::new(world.program());
        command.args(arguments).env("MAINSTAY_SOCKET", world.config().admin_socket);
        tokio::task::spawn_blocking(move || {
            let output = command.output().expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("text")
        })
    };
    let text = run(&["metrics"]).await.expect("no panic");
    let plain = Scrape::parse(&text, MetricsFormat::Prometheus).expect("right");
    assert_eq!(plain.value("mainstay_build_info", &[("version", mainstay::VERSION)]), Some(1.0));
    let open = run(&["metrics", "--openmetrics"]).await.expect("no panic");
    Scrape::parse(&open, MetricsFormat::OpenMetrics).expect("right");
    let json = run(&["metrics", "--json"]).await.expect("no panic");
    let json: serde_json::Value = serde_json::from_str(&json).expect("a document");
    let series = json.as_array().expect("a list").iter().find(|it| it["name"] == "mainstay_leaked_shims");
    assert_eq!(series.expect("it is there")["value"], 0.0);
    assert!(!socket(&world).exists());
    inside.end().await;
}
