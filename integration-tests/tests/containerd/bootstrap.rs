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
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::rig::{SHIM, clear_cgroup, shims_of};

/// A bundle, and the shim's program under the name that makes it one.
struct Bundle {
    directory: TempDir,
    program: PathBuf,
}

impl Drop for Bundle {
    fn drop(&mut self) {
        for shim in shims_of(&self.address()) {
            // It may have ended.
            let _ = kill_process(shim, Signal::KILL);
        }
        if let Ok(address) = fs::read_to_string(self.directory.path().join("address")) {
            let _ = fs::remove_file(address.trim_start_matches("unix://"));
        }
        clear_cgroup(&self.cgroup());
    }
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

    fn address(&self) -> String {
        self.directory.path().join("c.sock").display().to_string()
    }

    /// Above that of its container.
    fn cgroup(&self) -> String {
        let name = self.directory.path().file_name().expect("it has one").to_string_lossy();
        format!("/{}", name.replace('.', "-"))
    }

    async fn ask(&self, arguments: &[&str], input: &[u8], environment: &[(&str, &str)]) -> Output {
        let address = self.address();
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
        // containerd asks so for the shim of each bundle that it finds at its start.
        let request = ConnectRequest { id: "web".to_owned(), ..Default::default() };
        let unknown = client.connect(context(), &request).await.expect("a shim without containers answers");
        assert_eq!((unknown.task_pid, unknown.shim_pid > 0), (0, true));
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

/// A whole life by version 3, on a root that is a read-only bind: the kernel makes a bind read-only in a second step, which has to
/// meet the mount and not what lies below it.
#[tokio::test]
async fn version_three_runs_a_container_on_a_read_only_bind() {
    let Some(bundle) = Bundle::new() else { return };
    let Some(busybox) = peer::find("busybox", "busybox-static") else { return };
    let root = bundle.directory.path().join("plain");
    fs::create_dir_all(root.join("bin")).expect("made");
    fs::create_dir(root.join("dev")).expect("made");
    fs::copy(busybox, root.join("bin/busybox")).expect("copied");
    let script = "echo in; echo > /written || exit 4";
    let spec = serde_json::json!({
        "ociVersion": "1.1.0",
        "process": {
            "args": ["/bin/busybox", "sh", "-c", script], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"],
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}],
        "linux": {
            "cgroupsPath": format!("{}/web", bundle.cgroup()),
            "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
        },
    });
    fs::write(bundle.directory.path().join("config.json"), spec.to_string()).expect("written");
    let answer = bundle.ask(&["start"], b"", &[("MAX_SHIM_VERSION", "3")]).await;
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let address = answer["address"].as_str().expect("an address").to_owned();
    let client = TaskClient::new(ttrpc::r#async::Client::connect(&address).await.expect("it listens"));
    let context = || ttrpc::context::with_timeout(60_000_000_000);
    let log = bundle.directory.path().join("web.log");
    let create = task::CreateTaskRequest {
        id: "web".to_owned(),
        bundle: bundle.directory.path().display().to_string(),
        rootfs: vec![task::Mount {
            type_: "bind".to_owned(),
            source: root.display().to_string(),
            options: vec!["rbind".to_owned(), "ro".to_owned()],
            ..Default::default()
        }],
        stdout: format!("file://{}", log.display()),
        ..Default::default()
    };
    client.create(context(), &create).await.expect("created");
    let id = || "web".to_owned();
    client.start(context(), &task::StartRequest { id: id(), ..Default::default() }).await.expect("started");
    let exit =
        client.wait(context(), &task::WaitRequest { id: id(), ..Default::default() }).await.expect("an exit");
    let text = fs::read_to_string(&log).expect("a log");
    assert_eq!(exit.exit_status, 4, "{text}");
    assert!(text.starts_with("in\n"), "{text}");
    client.delete(context(), &task::DeleteRequest { id: id(), ..Default::default() }).await.expect("deleted");
    assert!(!root.join("written").exists());
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
