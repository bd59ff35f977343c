//! The shim as newer containerds start it, of which Debian has none: what they give on standard input and in the environment,
//! and version 3 of the Task API.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use mainstay_integration_tests::{peer, wait};
use mainstay_task_api::bootstrap::{BootstrapParams, BootstrapResult};
use mainstay_task_api::introspection::RuntimeInfo;
use mainstay_task_api::task::{ConnectRequest, ShutdownRequest};
use mainstay_task_api::task_v3::TaskClient;
use mainstay_task_api::{Message, task};
use tempfile::TempDir;

use crate::rig::SHIM;

/// A bundle, and the shim's program under the name that makes it one.
struct Bundle {
    directory: TempDir,
    program: PathBuf,
}

impl Bundle {
    fn new() -> Option<Self> {
        if !peer::is_root() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("mst-").tempdir().expect("a directory");
        let program = directory.path().join(SHIM);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mainstay-under-test"), &program).expect("linked");
        fs::write(directory.path().join("config.json"), r#"{"ociVersion":"1.1.0"}"#).expect("written");
        Some(Self { directory, program })
    }

    async fn ask(&self, arguments: &[&str], input: &[u8], environment: &[(&str, &str)]) -> Output {
        let address = self.directory.path().display().to_string();
        let mut command = Command::new(&self.program);
        command.args(["-namespace", "default", "-address", &address, "-id", "web"]).args(arguments);
        command.current_dir(self.directory.path()).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        child.stdin.take().expect("a pipe").write_all(input).expect("taken");
        let output = tokio::task::spawn_blocking(|| child.wait_with_output());
        wait::finish("it answers", output).await.expect("no panic").expect("our child")
    }

    /// Asks the shim at an address who it is, and ends it.
    async fn end_shim(&self, address: &str) {
        let client = ttrpc::r#async::Client::connect(address).await.expect("it listens");
        let client = TaskClient::new(client);
        let context = || ttrpc::context::with_timeout(60_000_000_000);
        let unknown =
            client.connect(context(), &ConnectRequest { id: "web".to_owned(), ..Default::default() }).await;
        assert!(
            matches!(unknown, Err(ttrpc::Error::RpcStatus(status)) if status.code() == ttrpc::Code::NOT_FOUND)
        );
        let state = client.state(context(), &task::StateRequest::default()).await;
        assert!(state.is_err(), "an empty id is nobody's");
        client.shutdown(context(), &ShutdownRequest::default()).await.expect("it has no containers");
        let path = PathBuf::from(address.trim_start_matches("unix://"));
        wait::until("it is gone", || (!path.exists()).then_some(())).await;
    }
}

#[tokio::test]
async fn each_way_to_be_started_gets_its_answer() {
    let Some(bundle) = Bundle::new() else { return };
    let plain = bundle.ask(&["start"], b"", &[("MAX_SHIM_VERSION", "2")]).await;
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    let address = String::from_utf8(plain.stdout).expect("an address");
    assert!(address.starts_with("unix:///run/containerd/s/"), "{address}");
    assert_eq!(fs::read_to_string(bundle.directory.path().join("address")).expect("written"), address);

    let json = bundle.ask(&["start"], b"", &[("MAX_SHIM_VERSION", "3")]).await;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["version"], &json["address"]), (&3.into(), &address.as_str().into()), "the same shim");

    let params = BootstrapParams {
        instance_id: "web".to_owned(),
        namespace: "default".to_owned(),
        ..BootstrapParams::default()
    };
    let result = bundle.ask(&["start"], &params.write_to_bytes().expect("small"), &[]).await;
    let result = BootstrapResult::parse_from_bytes(&result.stdout).expect("a result");
    assert_eq!((result.version, result.protocol.as_str(), &result.address), (3, "ttrpc", &address));
    bundle.end_shim(&address).await;
}

#[tokio::test]
async fn it_says_what_it_is_and_what_is_wrong() {
    let Some(bundle) = Bundle::new() else { return };
    let version = bundle.ask(&["-v"], b"", &[]).await;
    assert!(String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")), "{version:?}");
    let info = bundle.ask(&["-info"], b"", &[]).await;
    let info = RuntimeInfo::parse_from_bytes(&info.stdout).expect("an answer");
    assert_eq!(info.name, "io.containerd.mainstay.v2");
    let wrong = bundle.ask(&["restart"], b"", &[]).await;
    assert_eq!(wrong.status.code(), Some(1));
    let sentence = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(sentence.contains("restart") && sentence.lines().count() == 1, "{sentence}");
    fs::write(bundle.directory.path().join("config.json"), "nonsense").expect("written");
    let wrong = bundle.ask(&["start"], b"", &[]).await;
    assert!(
        !wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("config.json"),
        "{wrong:?}"
    );
}
