//! An image of this machine's busybox, made without any other program, and requests for pods and containers of it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use mainstay_cri_api::{
    ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, ExecSyncRequest, ExecSyncResponse, ImageSpec, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    RunPodSandboxRequest, StartContainerRequest,
};
use mainstay_integration_tests::{peer, wait};
use mainstay_oci_image::{Digest, media};
use serde_json::json;

use crate::rig::Rig;

/// What the image is called.
pub const IMAGE: &str = "docker.io/library/cri-busybox:1";
/// Programs of busybox that the scripts of tests use.
const APPLETS: [&str; 16] = [
    "sh", "cat", "dd", "echo", "env", "hostname", "id", "ls", "printf", "pwd", "readlink", "sleep", "stat",
    "true", "false", "wc",
];

/// Imports the image; answers whether the machine has what it takes.
pub async fn import(rig: &Rig) -> bool {
    let Some(busybox) = peer::find("busybox", "busybox-static") else { return false };
    let layout = rig.world().path().join("busybox");
    make(&layout, &busybox);
    let mut command = tokio::process::Command::new(rig.world().program());
    command.arg("--socket").arg(&rig.config().admin_socket);
    command.args(["image", "import", "--name", IMAGE]).arg(&layout);
    let output = wait::finish("an image is imported", command.output()).await.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn make(layout: &Path, busybox: &Path) {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("made");
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).expect("written");
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let layer = layer(busybox);
    let config = json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "StopSignal": "SIGTERM"},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]},
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media::OCI_MANIFEST,
        "config": put(media::OCI_CONFIG, config.to_string().as_bytes()),
        "layers": [put(media::OCI_LAYER, &layer)],
    });
    let index = json!({
        "schemaVersion": 2,
        "manifests": [put(media::OCI_MANIFEST, manifest.to_string().as_bytes())],
    });
    fs::write(layout.join("index.json"), index.to_string()).expect("written");
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
}

fn layer(busybox: &Path) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let program = fs::read(busybox).expect("readable");
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(program.len() as u64);
    archive.append_data(&mut header, "bin/busybox", &program[..]).expect("an entry");
    for applet in APPLETS {
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        link.set_mode(0o777);
        archive.append_link(&mut link, format!("bin/{applet}"), "busybox").expect("an entry");
    }
    for (name, text) in
        [("etc/passwd", "root:x:0:0::/:/bin/sh\napp:x:1000:1001::/:/bin/sh\n"), ("etc/group", "root:x:0:\n")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes()).expect("an entry");
    }
    archive.into_inner().expect("an archive")
}

/// A pod without a network of its own, whose containers have their own processes: as most tests need it.
pub fn pod(rig: &Rig, name: &str) -> PodSandboxConfig {
    let mut namespaces = NamespaceOption::default();
    namespaces.set_network(NamespaceMode::Node);
    namespaces.set_pid(NamespaceMode::Container);
    let security_context =
        Some(LinuxSandboxSecurityContext { namespace_options: Some(namespaces), ..Default::default() });
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            namespace: "tests".to_owned(),
            attempt: 0,
        }),
        log_directory: rig.world().path().join("pod-logs").join(name).display().to_string(),
        labels: HashMap::from([("pod".to_owned(), name.to_owned())]),
        linux: Some(LinuxPodSandboxConfig { security_context, ..Default::default() }),
        ..Default::default()
    }
}

/// A container that runs a script.
pub fn script(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        image: Some(ImageSpec {
            image: IMAGE.to_owned(),
            user_specified_image: IMAGE.to_owned(),
            ..Default::default()
        }),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: format!("{name}/0.log"),
        labels: HashMap::from([("container".to_owned(), name.to_owned())]),
        ..Default::default()
    }
}

/// Shorthands for what most tests do.
impl Rig {
    pub async fn run_pod(&self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let mut runtime = self.runtime();
        let run = wait::finish("a pod runs", runtime.run_pod_sandbox(request)).await.expect("it runs");
        run.into_inner().pod_sandbox_id
    }

    pub async fn create(&self, pod: &str, config: &ContainerConfig) -> Result<String, tonic::Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.to_owned(),
            config: Some(config.clone()),
            sandbox_config: None,
        };
        let mut runtime = self.runtime();
        let made = wait::finish("a container is made", runtime.create_container(request)).await?;
        Ok(made.into_inner().container_id)
    }

    pub async fn run_container(&self, pod: &str, config: &ContainerConfig) -> String {
        let container_id = self.create(pod, config).await.expect("made");
        let request = StartContainerRequest { container_id: container_id.clone() };
        let mut runtime = self.runtime();
        wait::finish("a container starts", runtime.start_container(request)).await.expect("started");
        container_id
    }

    pub async fn container(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = self.runtime().container_status(request).await.expect("it is there");
        answer.into_inner().status.expect("given")
    }

    /// The status of a container once it has ended.
    pub async fn ended(&self, id: &str) -> ContainerStatus {
        wait::until_async("a container ends", async || {
            self.container(id).await.state() == ContainerState::ContainerExited
        })
        .await;
        self.container(id).await
    }

    pub async fn exec(
        &self,
        id: &str,
        script: &str,
        timeout: i64,
    ) -> Result<ExecSyncResponse, tonic::Status> {
        let cmd = ["sh", "-c", script].map(str::to_owned).to_vec();
        let request = ExecSyncRequest { container_id: id.to_owned(), cmd, timeout };
        let mut runtime = self.runtime();
        Ok(wait::finish("a command ends", runtime.exec_sync(request)).await?.into_inner())
    }

    pub async fn says(&self, id: &str, script: &str) -> String {
        let output = self.exec(id, script, 0).await.expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}
