//! Starts a real shim for a test and cleans up after it, also when the test panics.
//!
//! Owns: the shim's process, its directory, its cgroup, a root file system of busybox. Never: touches another
//! process or cgroup.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::cell::Cell;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupPath, Layout, Mode};
use mainstay_messages::{ContainerId, Exit};
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension::{self, ExtensionClient};
use mainstay_task_api::streams::{Frame, OnLag, OpenRequest, StdinUse, Streams};
use mainstay_task_api::task::{self, CreateTaskRequest, ExecProcessRequest, Mount};
use mainstay_task_api::task_v2::TaskClient;
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{MessageField, PROCESS_TYPE_URL};
use serde_json::{Value, json};
use ttrpc::context::Context;

/// How long anything may take before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(60);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// One shim.
pub struct Rig {
    pub directory: PathBuf,
    pub cgroup: CgroupPath,
    pub layout: Layout,
    pub task: TaskClient,
    pub extension: ExtensionClient,
    pub rootfs: PathBuf,
    pub lifeline: Option<OwnedFd>,
    base: tempfile::TempDir,
    shim: Child,
    next_id: Cell<u32>,
}

/// Whether the daemon holds a lifeline of the shim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lifeline {
    With,
    Without,
}

/// What makes the containers of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The shim itself.
    Own,
    Runc,
    Crun,
    /// containerd's shim for runc.
    ShimRunc,
}

/// That of the file that the tests are compiled in: `runc.rs` and `crun.rs` have the tests of `life_cycle.rs`.
pub fn runtime() -> Runtime {
    match env!("CARGO_CRATE_NAME") {
        "runc" => Runtime::Runc,
        "crun" => Runtime::Crun,
        "shim_runc" => Runtime::ShimRunc,
        _ => Runtime::Own,
    }
}

impl Runtime {
    /// Where it is, if it is another program.
    pub fn program(self) -> Option<PathBuf> {
        let name = match self {
            Self::Own => return None,
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::ShimRunc => "containerd-shim-runc-v2",
        };
        let places = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
        Some(places.into_iter().map(|place| Path::new(place).join(name)).find(|path| path.exists()))
            .map(|found| found.unwrap_or_else(|| PathBuf::from(name)))
    }
}

/// What a container of a test is like.
pub struct Plan<'a> {
    pub args: &'a [&'a str],
    pub terminal: bool,
    pub stdin: &'a str,
    /// Whether its output goes to a log.
    pub log: bool,
    /// Where the writable layer of an overlay is; without one the root is a bind mount.
    pub layer: Option<&'a Path>,
    /// Changes the spec.
    pub edit: &'a dyn Fn(&mut Value),
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { args: &["true"], terminal: false, stdin: "", log: true, layer: None, edit: &|_| {} }
    }
}

/// Whether this test can run here. Says why not.
pub fn possible() -> bool {
    possible_with(runtime())
}

/// The same, of a test that needs this runtime.
pub fn possible_with(runtime: Runtime) -> bool {
    let root = rustix::process::geteuid().is_root();
    let busybox = Path::new("/bin/busybox").exists();
    let required = std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_some();
    if let Some(program) = runtime.program().filter(|program| !program.is_absolute()) {
        assert!(!required, "{program:?} is missing (Debian package of the same name)");
        let _ = writeln!(std::io::stderr(), "skipped: {program:?} is not installed");
        return false;
    }
    if !root || !busybox {
        assert!(busybox || !required, "/bin/busybox is missing (Debian package busybox-static)");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Past the macros, whose output the harness swallows when a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "skipped {test}: needs root (have it: {root}) and a static /bin/busybox (have it: {busybox})"
        );
    }
    root && busybox
}

pub fn context() -> Context {
    ttrpc::context::with_timeout((2 * DEADLINE).as_nanos() as i64)
}

/// Waits for a condition.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Rig {
    pub async fn start() -> Self {
        Self::start_with(Lifeline::Without).await
    }

    pub async fn start_with(lifeline: Lifeline) -> Self {
        Self::start_behind(lifeline, Some(runtime())).await
    }

    /// With a pod whose containers this runtime makes, or without a pod.
    pub async fn start_behind(lifeline: Lifeline, runtime: Option<Runtime>) -> Self {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path().join("shim");
        std::fs::create_dir(&directory).expect("made");
        let rootfs = make_rootfs(&base.path().join("rootfs"));
        let (kind, count) = (module_path!().replace("::", "-"), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = format!("mainstay-shim-test-{kind}-{}-{count}", std::process::id());
        let cgroup = CgroupPath::parse(&format!("/{name}")).expect("a good path");
        let (lifeline_theirs, lifeline_ours) = match lifeline {
            Lifeline::Without => (None, None),
            Lifeline::With => {
                let (read, write) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
                (Some(read), Some(write))
            }
        };
        let shim = spawn(&directory, &cgroup, lifeline_theirs);
        let address = format!("unix://{}", directory.join("ttrpc.sock").display());
        let client = ttrpc::r#async::Client::connect(&address).await.expect("the shim's socket is bound");
        let rig = Self {
            directory,
            cgroup,
            layout: Layout::detect().expect("cgroups"),
            task: TaskClient::new(client.clone()),
            extension: ExtensionClient::new(client),
            rootfs,
            lifeline: lifeline_ours,
            base,
            shim,
            next_id: Cell::new(0),
        };
        if let Some(request) = runtime.and_then(|runtime| rig.pod_of(runtime)) {
            rig.extension.create_pod(context(), &request).await.expect("a pod behind the runtime");
        }
        rig
    }

    /// A pod whose containers this runtime makes, unless it is the shim itself.
    pub fn pod_of(&self, runtime: Runtime) -> Option<extension::CreatePodRequest> {
        let program = runtime.program()?;
        if runtime == Runtime::ShimRunc {
            return Some(shim_request(&program));
        }
        let v2 = self.layout.v2_mount_point().map(|place| place.join("cgroup.controllers"));
        let has_controllers =
            v2.is_some_and(|file| std::fs::read(file).is_ok_and(|listed| !listed.trim_ascii().is_empty()));
        if runtime == Runtime::Crun && self.layout.mode() == Mode::Hybrid && has_controllers {
            return Some(self.pod_request(&self.without_v2(&program), 0));
        }
        Some(self.pod_request(&program, 0))
    }

    /// A program that is the other one, but does not see the v2 tree: crun refuses to run beside one that has controllers.
    fn without_v2(&self, program: &Path) -> PathBuf {
        let tree = self.layout.v2_mount_point().expect("a v2 tree").display();
        let program = program.display();
        let text = format!(
            "#!/bin/sh\nexec unshare --mount sh -c 'umount {tree} && exec {program} \"$@\"' {program} \"$@\"\n"
        );
        self.script("crun", &text)
    }

    /// A program that is a script.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.base.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        path
    }

    /// A pod whose containers are run by a program, with a limit for its calls, or the shim's.
    pub fn pod_request(&self, program: &Path, call_ms: u32) -> extension::CreatePodRequest {
        let oci =
            extension::OciRuntime { program: program.display().to_string(), call_ms, ..Default::default() };
        let backend =
            extension::Backend { kind: Some(extension::backend::Kind::Oci(oci)), ..Default::default() };
        extension::CreatePodRequest { backend: MessageField::some(backend), ..Default::default() }
    }

    pub fn shim_pid(&self) -> u32 {
        self.shim.id()
    }

    /// A second connection, as a restarted daemon makes it.
    pub async fn connect_again(&self) -> ExtensionClient {
        let address = format!("unix://{}", self.directory.join("ttrpc.sock").display());
        ExtensionClient::new(ttrpc::r#async::Client::connect(&address).await.expect("bound"))
    }

    pub fn new_id(&self, kind: &str) -> String {
        self.next_id.set(self.next_id.get() + 1);
        format!("{kind}{}", self.next_id.get())
    }

    pub fn bundle(&self, id: &str) -> PathBuf {
        self.directory.join("c").join(id)
    }

    pub fn log_path(&self, id: &str) -> PathBuf {
        self.base.path().join("logs").join(format!("{id}.log"))
    }

    pub fn scratch(&self) -> &Path {
        self.base.path()
    }

    pub fn container_cgroup(&self, id: &str) -> Cgroup {
        Cgroup::open(&self.layout, &self.cgroup.child(id).expect("a good name"))
    }

    /// Writes a bundle and asks for the container.
    pub async fn try_create(&self, id: &str, plan: &Plan<'_>) -> ttrpc::Result<u32> {
        let bundle = self.bundle(id);
        std::fs::create_dir_all(&bundle).expect("made");
        let mut spec = spec(plan.args, plan.terminal);
        (plan.edit)(&mut spec);
        std::fs::write(bundle.join("config.json"), spec.to_string()).expect("written");
        let stdout =
            if plan.log { format!("cri-log://{}", self.log_path(id).display()) } else { String::new() };
        let root = root_mount(&self.rootfs, plan.layer);
        let request = CreateTaskRequest {
            id: id.to_owned(),
            bundle: bundle.display().to_string(),
            rootfs: vec![root],
            terminal: plan.terminal,
            stdin: plan.stdin.to_owned(),
            stdout,
            ..Default::default()
        };
        self.task.create(context(), &request).await.map(|answer| answer.pid)
    }

    pub async fn create(&self, plan: &Plan<'_>) -> String {
        let id = self.new_id("c");
        self.try_create(&id, plan).await.unwrap_or_else(|error| panic!("{error}\n{}", self.shim_log()));
        id
    }

    pub async fn run(&self, plan: &Plan<'_>) -> String {
        let id = self.create(plan).await;
        self.start_task(&id, "").await.unwrap_or_else(|error| panic!("{error}\n{}", self.shim_log()));
        id
    }

    /// A container that does nothing until it is killed.
    pub async fn run_idle(&self) -> String {
        self.run(&Plan { args: &["sleep", "100000"], ..Plan::default() }).await
    }

    pub async fn start_task(&self, id: &str, exec: &str) -> ttrpc::Result<u32> {
        let request = task::StartRequest { id: id.into(), exec_id: exec.into(), ..Default::default() };
        self.task.start(context(), &request).await.map(|answer| answer.pid)
    }

    pub async fn wait(&self, id: &str, exec: &str) -> u32 {
        let request = task::WaitRequest { id: id.into(), exec_id: exec.into(), ..Default::default() };
        self.task.wait(context(), &request).await.expect("an exit").exit_status
    }

    pub async fn kill(&self, id: &str, exec: &str, signal: u32) -> ttrpc::Result<()> {
        let request = task::KillRequest { id: id.into(), exec_id: exec.into(), signal, ..Default::default() };
        self.task.kill(context(), &request).await.map(drop)
    }

    pub async fn delete(&self, id: &str, exec: &str) -> ttrpc::Result<u32> {
        let request = task::DeleteRequest { id: id.into(), exec_id: exec.into(), ..Default::default() };
        self.task.delete(context(), &request).await.map(|answer| answer.exit_status)
    }

    pub async fn status(&self, id: &str) -> task::Status {
        let request = task::StateRequest { id: id.into(), ..Default::default() };
        self.task.state(context(), &request).await.expect("a state").status.enum_value_or_default()
    }

    pub async fn register_exec(
        &self,
        id: &str,
        args: &[&str],
        terminal: bool,
        stdin: &str,
    ) -> ttrpc::Result<String> {
        self.register_exec_with(id, args, terminal, [stdin, ""]).await
    }

    /// The same, with `stdin` and `stdout` of the request.
    pub async fn register_exec_with(
        &self,
        id: &str,
        args: &[&str],
        terminal: bool,
        [stdin, stdout]: [&str; 2],
    ) -> ttrpc::Result<String> {
        let exec = self.new_id("e");
        let mut process = spec(args, terminal)["process"].take();
        process["terminal"] = json!(terminal);
        let any = Any {
            type_url: PROCESS_TYPE_URL.to_owned(),
            value: process.to_string().into_bytes(),
            ..Default::default()
        };
        let request = ExecProcessRequest {
            id: id.to_owned(),
            exec_id: exec.clone(),
            terminal,
            stdin: stdin.to_owned(),
            stdout: stdout.to_owned(),
            spec: MessageField::some(any),
            ..Default::default()
        };
        self.task.exec(context(), &request).await.map(|_| exec)
    }

    pub async fn open(&self, id: &str, exec: &str, stdin: StdinUse, on_lag: OnLag) -> Streams {
        let key = ProcessKey::parse(id, exec).expect("good ids");
        let request = OpenRequest { container: key.container, exec: key.exec, stdin, on_lag };
        Streams::open(&self.directory.join("streams.sock"), &request).await.expect("an open stream")
    }

    /// Runs an exec to its end; its output and code.
    pub async fn exec(&self, id: &str, args: &[&str]) -> (Vec<u8>, u32) {
        let exec = self.register_exec(id, args, false, "").await.expect("registered");
        let mut streams = self.open(id, &exec, StdinUse::No, OnLag::Block).await;
        self.start_task(id, &exec).await.expect("started");
        let output = read_to_end(&mut streams).await;
        let code = self.wait(id, &exec).await;
        self.delete(id, &exec).await.expect("deleted");
        (output, code)
    }

    /// The exits that are not acknowledged.
    pub async fn next_exits(&self, acknowledged: &[ProcessKey]) -> Vec<(ProcessKey, Exit)> {
        next_exits(&self.extension, acknowledged, false).await
    }

    pub async fn stats(&self, id: &str) -> extension::StatsResponse {
        let request = extension::StatsRequest { container: id.into(), ..Default::default() };
        self.extension.stats(context(), &request).await.expect("numbers")
    }

    pub fn shim_log(&self) -> String {
        std::fs::read_to_string(self.base.path().join("shim.log")).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        self.shim.try_wait().expect("our child").is_some()
    }

    /// `kill -9` of the shim.
    pub fn kill_shim(&mut self) {
        self.shim.kill().expect("our child");
        self.shim.wait().expect("our child");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- shim.log\n{}---", self.shim_log());
        }
        // It may have ended by itself.
        let _ = self.shim.kill();
        let _ = self.shim.wait();
        let group = Cgroup::open(&self.layout, &self.cgroup);
        for _ in 0..200 {
            let _ = group.kill();
            if group.remove().is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub async fn next_exits(
    client: &ExtensionClient,
    acknowledged: &[ProcessKey],
    from_the_start: bool,
) -> Vec<(ProcessKey, Exit)> {
    let request = extension::NextExitsRequest {
        acknowledged: acknowledged.iter().map(Into::into).collect(),
        from_the_start,
        ..Default::default()
    };
    let answer = client.next_exits(context(), &request).await.expect("exits");
    let read = |exit: &extension::TaskExit| {
        let key = ProcessKey::try_from(exit.process.as_ref().expect("a key")).expect("good ids");
        (key, Exit::try_from(exit.exit.as_ref().expect("an exit")).expect("a good exit"))
    };
    answer.exits.iter().map(read).collect()
}

/// A pod whose containers a shim of runc's makes.
pub fn shim_request(program: &Path) -> extension::CreatePodRequest {
    let shim = extension::TaskShim {
        program: program.display().to_string(),
        options_type: "containerd.runc.v1.Options".to_owned(),
        ..Default::default()
    };
    let backend =
        extension::Backend { kind: Some(extension::backend::Kind::Shim(shim)), ..Default::default() };
    extension::CreatePodRequest { backend: MessageField::some(backend), ..Default::default() }
}

/// All output until the stream's end.
pub async fn read_to_end(streams: &mut Streams) -> Vec<u8> {
    let mut output = Vec::new();
    loop {
        match tokio::time::timeout(DEADLINE, streams.reader.next()).await.expect("in time").expect("a frame")
        {
            Frame::Stdout(bytes) | Frame::Stderr(bytes) => output.extend_from_slice(&bytes),
            Frame::End => return output,
            other => panic!("{other:?} is not for a client"),
        }
    }
}

pub fn container(id: &str) -> ContainerId {
    id.parse().expect("a good id")
}

/// Texts of a log's records of one stream, put together as LOGS.md says.
pub fn joined(log: &Path, stream: &str) -> Vec<u8> {
    let mut joined = Vec::new();
    for record in std::fs::read(log).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
        let record = record.strip_suffix(b"\n").expect("a whole record");
        let mut fields = record.splitn(4, |byte| *byte == b' ');
        let time = fields.next().expect("a time");
        assert!(time.len() == 30 && time.ends_with(b"Z"), "{}", String::from_utf8_lossy(record));
        let (name, tag, text) = (fields.next(), fields.next(), fields.next());
        if name == Some(stream.as_bytes()) {
            joined.extend_from_slice(text.expect("a text"));
            match tag {
                Some(b"F") => joined.push(b'\n'),
                tag => assert_eq!(tag, Some(&b"P"[..])),
            }
        }
    }
    joined
}

fn root_mount(rootfs: &Path, layer: Option<&Path>) -> Mount {
    let rootfs = rootfs.display();
    let Some(layer) = layer else {
        return Mount { type_: "bind".to_owned(), source: rootfs.to_string(), ..Default::default() };
    };
    let (upper, work) = (layer.join("upper"), layer.join("work"));
    std::fs::create_dir_all(&upper).expect("made");
    std::fs::create_dir_all(&work).expect("made");
    let options = vec![
        format!("lowerdir={rootfs}"),
        format!("upperdir={}", upper.display()),
        format!("workdir={}", work.display()),
    ];
    Mount { type_: "overlay".to_owned(), source: "overlay".to_owned(), options, ..Default::default() }
}

fn make_rootfs(path: &Path) -> PathBuf {
    for directory in ["bin", "dev", "proc", "sys", "tmp", "etc"] {
        std::fs::create_dir_all(path.join(directory)).expect("made");
    }
    std::fs::copy("/bin/busybox", path.join("bin/busybox")).expect("copied");
    for applet in [
        "sh", "true", "false", "sleep", "echo", "cat", "dd", "yes", "stty", "printf", "head", "kill", "seq",
        "env",
    ] {
        std::os::unix::fs::symlink("busybox", path.join("bin").join(applet)).expect("linked");
    }
    path.to_owned()
}

fn spec(args: &[&str], terminal: bool) -> Value {
    json!({
        "ociVersion": "1.1.0",
        "process": {
            "terminal": terminal,
            "user": { "uid": 0, "gid": 0 },
            "args": args,
            "env": ["PATH=/bin", "TERM=xterm"],
            "cwd": "/",
        },
        "root": { "path": "rootfs" },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
        ],
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" },
            ],
        },
    })
}

fn spawn(directory: &Path, cgroup: &CgroupPath, lifeline: Option<OwnedFd>) -> Child {
    let listen = UnixListener::bind(directory.join("ttrpc.sock")).expect("bound");
    let streams = UnixListener::bind(directory.join("streams.sock")).expect("bound");
    let log = std::fs::File::options()
        .append(true)
        .create(true)
        .open(directory.parent().expect("a base").join("shim.log"))
        .expect("opened");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shim-under-test"));
    command.arg0("mainstay-shim").current_dir("/").stdin(Stdio::null());
    command.stdout(log.try_clone().expect("duplicated")).stderr(log);
    command.args(["--sandbox", "pod", "--listen-fd", "3", "--streams-fd", "4", "--dir"]).arg(directory);
    command.arg("--cgroup").arg(cgroup.to_string());
    if lifeline.is_some() {
        command.args(["--lifeline-fd", "5"]);
    }
    let fds =
        [Some(listen.as_raw_fd()), Some(streams.as_raw_fd()), lifeline.as_ref().map(AsRawFd::as_raw_fd)];
    // SAFETY: between fork and exec only dup and dup2 are called, on descriptors that live until after the spawn.
    unsafe {
        command.pre_exec(move || {
            // First out of the way of 3, 4 and 5.
            let mut high = [None; 3];
            for (place, fd) in high.iter_mut().zip(fds) {
                if let Some(fd) = fd {
                    *place = Some(libc::fcntl(fd, libc::F_DUPFD, 64));
                }
            }
            for (target, fd) in (3..).zip(high) {
                if let Some(fd) = fd {
                    if libc::dup2(fd, target) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                    libc::close(fd);
                }
            }
            Ok(())
        });
    }
    command.spawn().expect("the shim starts")
}
