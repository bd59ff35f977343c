//! The fault shim itself: without a plan it is a shim as others are, and by its plan it is not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mainstay_integration_tests::wait;
use mainstay_shim_testing::Place;
use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::BootstrapResult;
use mainstay_task_api::events::{Events, ForwardRequest, TaskExit, create_events};
use mainstay_task_api::sandbox::{PingRequest, SandboxClient};
use mainstay_task_api::task::{
    CreateTaskRequest, DeleteRequest, KillRequest, PauseRequest, ShutdownRequest, StartRequest, WaitRequest,
};
use mainstay_task_api::task_v2::TaskClient;
use mainstay_task_api::task_v3::TaskClient as TaskClientV3;
use mainstay_task_api::well_known_types::empty::Empty;
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;
use ttrpc::r#async::{Client, Server, TtrpcContext};
use ttrpc::context::{Context, with_timeout};
use ttrpc::{Code, Error};

const PROGRAM: &str = env!("CARGO_BIN_EXE_containerd-shim-fault-v2");
/// How long a call may take that is not to hang, in nanoseconds.
const CALL_NS: i64 = 30_000_000_000;
/// How long a call is waited for that hangs, in nanoseconds.
const HANGS_NS: i64 = 200_000_000;

struct Stage {
    // Before the directory: its shims end first.
    place: Place,
    directory: TempDir,
}

/// The topic of an event, and the event.
type Told = (String, Vec<u8>);

/// What came to the events' address.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Told>>>);

#[async_trait]
impl Events for Heard {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        let envelope = request.envelope.unwrap_or_default();
        let event = envelope.event.unwrap_or_default().value;
        self.0.lock().expect("no panic").push((envelope.topic, event));
        Ok(Empty::new())
    }
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("mst-").tempdir().expect("a directory");
        let place = Place::make(&directory.path().join("fault"), Path::new(PROGRAM));
        Self { place, directory }
    }

    fn bundle(&self, id: &str, script: &str) -> PathBuf {
        let bundle = self.directory.path().join(id);
        std::fs::create_dir_all(&bundle).expect("made");
        let spec =
            json!({"process": {"args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"}});
        std::fs::write(bundle.join("config.json"), spec.to_string()).expect("written");
        bundle
    }

    fn events(&self) -> String {
        format!("unix://{}", self.directory.path().join("events.sock").display())
    }

    fn command(&self, id: &str, command: &str) -> Output {
        Command::new(self.place.program())
            .args([
                "-namespace",
                "test",
                "-address",
                "/nowhere",
                "-publish-binary",
                "/nothing",
                "-id",
                id,
                command,
            ])
            .env("TTRPC_ADDRESS", self.events())
            .current_dir(self.directory.path().join(id))
            .stdin(Stdio::null())
            .output()
            .expect("it runs")
    }

    async fn connect(&self, id: &str) -> Client {
        let output = self.command(id, "start");
        assert!(output.status.success(), "{output:?}");
        Client::connect(&String::from_utf8(output.stdout).expect("an address")).await.expect("it serves")
    }
}

fn context() -> Context {
    with_timeout(CALL_NS)
}

fn code(error: &Error) -> Code {
    match error {
        Error::RpcStatus(status) => status.code(),
        other => panic!("no status: {other}"),
    }
}

fn create(id: &str, bundle: &Path, stdout: &Path) -> CreateTaskRequest {
    CreateTaskRequest {
        id: id.into(),
        bundle: bundle.to_string_lossy().into_owned(),
        stdout: format!("file://{}", stdout.display()),
        ..Default::default()
    }
}

fn start(id: &str) -> StartRequest {
    StartRequest { id: id.into(), ..Default::default() }
}

#[tokio::test]
async fn without_a_plan_it_is_a_shim_as_others_are() {
    let stage = Stage::new();
    let heard = Heard::default();
    let mut server = Server::new()
        .bind(&stage.events())
        .expect("bound")
        .register_service(create_events(Arc::new(heard.clone())));
    server.start().await.expect("it serves");
    let bundle = stage.bundle("c", "echo hello; exit 7");
    let task = TaskClient::new(stage.connect("c").await);
    let log = stage.directory.path().join("log");
    let made = task.create(context(), &create("c", &bundle, &log)).await.expect("created");
    assert!(Path::new(&format!("/proc/{}", made.pid)).exists());
    let started = task.start(context(), &start("c")).await.expect("started");
    assert_eq!(started.pid, made.pid);
    let waited = task.wait(context(), &WaitRequest { id: "c".into(), ..Default::default() }).await;
    assert_eq!(waited.expect("it ends").exit_status, 7);
    assert_eq!(std::fs::read(&log).expect("a log"), b"hello\n");
    let pause = task.pause(context(), &PauseRequest { id: "c".into(), ..Default::default() }).await;
    assert_eq!(code(&pause.expect_err("not offered")), Code::UNIMPLEMENTED);
    let deleted = task.delete(context(), &DeleteRequest { id: "c".into(), ..Default::default() }).await;
    assert_eq!(deleted.expect("deleted").exit_status, 7);
    wait::until("all events came", || (heard.0.lock().expect("no panic").len() >= 4).then_some(())).await;
    let events = heard.0.lock().expect("no panic").clone();
    let topics: Vec<_> = events.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(topics, ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"], "in this order");
    let exit = TaskExit::parse_from_bytes(&events[2].1).expect("an exit");
    assert_eq!((exit.container_id.as_str(), exit.exit_status, exit.pid), ("c", 7, made.pid));
    task.shutdown(context(), &ShutdownRequest { id: "c".into(), ..Default::default() })
        .await
        .expect("it ends");
    let socket = stage.place.program().with_file_name("s-c");
    wait::until("its socket is gone", || (!socket.exists()).then_some(())).await;
    let asked = ["start c", "Create c", "Start c", "Wait c", "Pause c", "Delete c", "Shutdown c"];
    assert_eq!(stage.place.calls(), asked);
    server.shutdown().await.expect("it ends");
}

#[rstest]
#[case("json", "v3")]
#[case("protobuf", "v3")]
#[case("protobuf", "v2")]
#[tokio::test]
async fn start_answers_in_each_form(#[case] form: &str, #[case] version: &str) {
    let stage = Stage::new();
    stage.place.plan(&[&format!("start={form}"), &format!("task={version}"), "sandbox=yes"]);
    stage.bundle("c", "true");
    let output = stage.command("c", "start");
    let (said, address) = if form == "json" {
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (answer["version"].as_i64(), answer["address"].as_str().expect("an address").to_owned())
    } else {
        let answer = BootstrapResult::parse_from_bytes(&output.stdout).expect("protobuf");
        (Some(answer.version.into()), answer.address)
    };
    assert_eq!(said, Some(if version == "v3" { 3 } else { 2 }));
    let client = Client::connect(&address).await.expect("it serves");
    let (v2, v3) = (TaskClient::new(client.clone()), TaskClientV3::new(client.clone()));
    let unknown = WaitRequest { id: "nobody".into(), ..Default::default() };
    let codes = (
        code(&v2.wait(context(), &unknown).await.expect_err("nobody")),
        code(&v3.wait(context(), &unknown).await.expect_err("nobody")),
    );
    let expected = match version {
        "v3" => (Code::UNIMPLEMENTED, Code::NOT_FOUND),
        _ => (Code::NOT_FOUND, Code::UNIMPLEMENTED),
    };
    assert_eq!(codes, expected);
    SandboxClient::new(client)
        .ping_sandbox(context(), &PingRequest::new())
        .await
        .expect("the sandbox API is there");
}

#[tokio::test]
async fn calls_meet_the_faults_of_the_plan() {
    let stage = Stage::new();
    let bundle = stage.bundle("c", "sleep 1000");
    let task = TaskClient::new(stage.connect("c").await);
    let log = stage.directory.path().join("log");
    stage.place.plan(&["Create=refuse:no room"]);
    let refused = task.create(context(), &create("c", &bundle, &log)).await.expect_err("refused");
    assert!(refused.to_string().contains("no room"), "{refused}");
    stage.place.plan(&["Create=pid:1"]);
    assert_eq!(task.create(context(), &create("c", &bundle, &log)).await.expect("created").pid, 1);
    stage.place.plan(&["Start=twice"]);
    task.start(context(), &start("c")).await.expect("started");
    stage.place.plan(&["Kill=hang"]);
    let kill = KillRequest { id: "c".into(), signal: 9, all: true, ..Default::default() };
    task.kill(with_timeout(HANGS_NS), &kill).await.expect_err("it hangs");
    stage.place.plan(&["Kill=garbage"]);
    task.kill(context(), &kill).await.expect_err("no answer can be made of it");
    let waited = task.wait(context(), &WaitRequest { id: "c".into(), ..Default::default() }).await;
    assert_eq!(waited.expect("it was done all the same").exit_status, 137);
    stage.place.plan(&["Delete=die"]);
    let request = DeleteRequest { id: "c".into(), ..Default::default() };
    task.delete(context(), &request).await.expect_err("it has died");
    let output = stage.command("c", "delete");
    assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
}

#[rstest]
#[case("start=exit:3", Some(3))]
#[case("start=nothing", Some(0))]
#[case("start=rubbish", Some(0))]
#[case("params=required", Some(1))]
#[tokio::test]
async fn start_fails_as_the_plan_says(#[case] plan: &str, #[case] status: Option<i32>) {
    let stage = Stage::new();
    stage.place.plan(&[plan]);
    stage.bundle("c", "true");
    let output = stage.command("c", "start");
    assert_eq!(output.status.code(), status, "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("unix://"));
}
