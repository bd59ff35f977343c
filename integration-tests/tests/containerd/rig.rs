//! A containerd of a test's own, and `ctr` as its client.
//!
//! Owns: its process, directories, namespace and shims; all of them are gone when it is dropped. Never: touches another
//! containerd: the address, which is in the command line of every shim, is this one's alone.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay_integration_tests::ledger::cgroup_tops;
use mainstay_integration_tests::{peer, wait};
use mainstay_oci_image::Digest;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The runtime under test, as clients name it.
pub const RUNTIME: &str = "io.containerd.mainstay.v2";
/// What containerd looks for in its PATH.
pub const SHIM: &str = "containerd-shim-mainstay-v2";
/// The image that there is.
pub const IMAGE: &str = "docker.io/test/busybox:latest";
/// What is in its `/bin`.
const APPLETS: [&str; 13] =
    ["sh", "cat", "dd", "echo", "false", "head", "id", "seq", "sleep", "stty", "tail", "true", "wc"];

static COUNT: AtomicU32 = AtomicU32::new(0);

/// One containerd.
pub struct Containerd {
    directory: TempDir,
    ctr: PathBuf,
    program: PathBuf,
    namespace: String,
    daemon: Child,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Containerd {
    /// Starts one with an image; none where that cannot be.
    pub async fn start() -> Option<Self> {
        if !peer::is_root() {
            return None;
        }
        let program = peer::find("containerd", "containerd")?;
        let ctr = peer::find("ctr", "containerd")?;
        let busybox = peer::find("busybox", "busybox-static")?;
        let directory = tempfile::Builder::new().prefix("mst-").tempdir().expect("a directory");
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).expect("made");
        symlink(env!("CARGO_BIN_EXE_mainstay-under-test"), bin.join(SHIM)).expect("linked");
        // As /var/run is: a bundle is named with the link in its path, and the shim's working directory is without. What it
        // had mounted was looked for on the host then, and the root was empty.
        fs::create_dir(directory.path().join("run")).expect("made");
        symlink("run", directory.path().join("state")).expect("linked");
        fs::write(directory.path().join("config.toml"), config(directory.path())).expect("written");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("mst-{}-{number}", std::process::id());
        let daemon = spawn(&program, directory.path());
        let containerd = Self { directory, ctr, program, namespace, daemon };
        containerd.is_up().await;
        let archive = containerd.path().join("image.tar");
        fs::write(&archive, image(&busybox)).expect("written");
        containerd.done(&["image", "import", &archive.display().to_string()]).await;
        Some(containerd)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Its address.
    pub fn address(&self) -> String {
        self.path().join("c.sock").display().to_string()
    }

    /// Where the bundle of a container is.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.path().join("state/io.containerd.runtime.v2.task").join(&self.namespace).join(id)
    }

    /// The cgroup that all of its containers are in.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.namespace)
    }

    /// A command of `ctr`.
    pub fn ctr(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.ctr);
        command.args(["-a", &self.address(), "-n", &self.namespace]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Does something with `ctr`, to its end.
    pub async fn say(&self, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::from(self.ctr(arguments));
        let output = command.kill_on_drop(true).output();
        let output = wait::finish(&format!("ctr {arguments:?} ends"), output).await.expect("it runs");
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The same, where it must go well; what it has printed.
    pub async fn done(&self, arguments: &[&str]) -> String {
        let said = self.say(arguments).await;
        assert_eq!(said.code, 0, "ctr {arguments:?}: {}\n{}", said.err, self.log());
        said.out
    }

    /// Runs a container in the foreground.
    pub async fn run(&self, options: &[&str], id: &str, command: &[&str]) -> Said {
        self.say(&[&["run", "--rm", "--runtime", RUNTIME], options, &[IMAGE, id], command].concat()).await
    }

    /// Runs one in the background.
    pub async fn run_detached(&self, options: &[&str], id: &str, command: &[&str]) {
        let words = [&["run", "-d", "--runtime", RUNTIME], options, &[IMAGE, id], command].concat();
        self.done(&words).await;
    }

    /// What `ctr task ls` says of a container: its process id and status.
    pub async fn task(&self, id: &str) -> Option<(u32, String)> {
        let listed = self.done(&["task", "ls"]).await;
        listed.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [name, pid, status] if name == id => Some((pid.parse().ok()?, status.to_owned())),
                _ => None,
            }
        })
    }

    /// Waits until a container has a status.
    pub async fn has_status(&self, id: &str, status: &str) {
        let is_so = async || self.task(id).await.is_some_and(|(_, is)| is == status);
        wait::until_async(&format!("{id} is {status}\n{}", self.log()), is_so).await;
    }

    /// Kills a container and deletes it; the code that it is said to have ended with.
    pub async fn end(&self, id: &str) -> i32 {
        self.done(&["task", "kill", "-s", "SIGKILL", id]).await;
        self.has_status(id, "STOPPED").await;
        let code = self.say(&["task", "delete", id]).await.code;
        self.done(&["container", "rm", id]).await;
        code
    }

    /// Begins to write down the events, and waits until they come.
    pub async fn events(&self) -> Events {
        let file = self.path().join(format!("events-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let out = File::create(&file).expect("made");
        let child = self.ctr(&["events"]).stdout(out).stderr(Stdio::null()).spawn().expect("it runs");
        let events = Events { child, file };
        // It says nothing when it begins: things happen until it has seen one.
        wait::until_async("events come", async || {
            self.done(&["namespaces", "label", &self.namespace, "seen=yes"]).await;
            events.text().contains("/namespaces/update")
        })
        .await;
        events
    }

    /// `kill -9`, something that happens while there is none, and a new one in its place.
    pub async fn restart_after(&mut self, meanwhile: impl FnOnce()) {
        self.daemon.kill().expect("our child");
        self.daemon.wait().expect("our child");
        meanwhile();
        self.daemon = spawn(&self.program, self.directory.path());
        self.is_up().await;
    }

    async fn is_up(&self) {
        wait::until_async("containerd answers", async || self.say(&["version"]).await.code == 0).await;
    }

    /// The process ids of its shims.
    pub fn shims(&self) -> Vec<Pid> {
        shims_of(&self.address())
    }

    /// The socket of the shim that a container has.
    pub fn socket(&self, id: &str) -> PathBuf {
        let address = fs::read_to_string(self.bundle(id).join("address")).expect("there is a shim");
        address.strip_prefix("unix://").expect("a unix socket").into()
    }

    /// Waits until there is nothing of any container: no shim, no cgroup but their common one, no mount, no bundle.
    pub async fn is_bare(&self) {
        let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let directory = self.path().display().to_string();
        let bundles =
            || fs::read_dir(self.bundle("x").parent().expect("it has one")).map_or(0, Iterator::count);
        let groups = || cgroup_tops(&self.cgroup()).iter().map(|top| groups_below(top)).sum::<usize>();
        let left = || {
            let mounts = mounts().lines().filter(|line| line.contains(&directory)).count();
            (self.shims().len(), groups(), mounts, bundles())
        };
        let mut last = None;
        wait::until("nothing is left", || {
            let now = left();
            if last.replace(now) != Some(now) {
                // Shown when the test fails.
                println!("left: (shims, cgroups, mounts, bundles) = {now:?}");
            }
            (now == (0, 0, 0, 0)).then_some(())
        })
        .await;
    }

    /// What it has logged, with its shims.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.path().join("containerd.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        for shim in self.shims() {
            let _ = kill_process(shim, Signal::KILL);
        }
        let bundles = fs::read_dir(self.bundle("x").parent().expect("it has one")).into_iter().flatten();
        for bundle in bundles.flatten() {
            if let Ok(address) = fs::read_to_string(bundle.path().join("address")) {
                let _ = fs::remove_file(address.trim_start_matches("unix://"));
            }
        }
        clear_cgroup(&self.cgroup());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().filter(|line| line.contains(&self.path().display().to_string())) {
            if let Some(place) = line.split(' ').nth(4) {
                let _ = unmount(place, UnmountFlags::DETACH);
            }
        }
    }
}

/// The process ids of the shims of a containerd with this address.
pub fn shims_of(address: &str) -> Vec<Pid> {
    let is_one = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(SHIM) && line.contains(address)
    };
    let all = fs::read_dir("/proc").expect("there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one);
    pids.filter_map(Pid::from_raw).collect()
}

/// Kills what is in the cgroups of a test, and removes them, for a bounded time.
pub fn clear_cgroup(cgroup: &str) {
    for _ in 0..200 {
        if cgroup_tops(cgroup).iter().filter(|top| !clear(top)).count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Events, as `ctr` prints them.
pub struct Events {
    child: Child,
    file: PathBuf,
}

impl Events {
    pub fn text(&self) -> String {
        fs::read_to_string(&self.file).expect("readable")
    }

    /// The topics of tasks that were told of a container, in their order.
    pub fn of(&self, id: &str) -> Vec<String> {
        let named = format!("\"container_id\":\"{id}\"");
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(&named));
        let topics =
            lines.filter_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix("/tasks/")));
        topics.map(str::to_owned).collect()
    }

    /// Waits for the last of these, and compares all of them.
    pub async fn are(&self, id: &str, expected: &[&str]) {
        wait::until("the events come", || (self.of(id).len() >= expected.len()).then_some(())).await;
        assert_eq!(self.of(id), expected, "{}", self.text());
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It may have ended with its containerd.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(directory: &Path) -> String {
    let directory = directory.display();
    let off = [
        "grpc.v1.cri",
        // It makes directories in /opt.
        "internal.v1.opt",
        "snapshotter.v1.aufs",
        "snapshotter.v1.btrfs",
        "snapshotter.v1.devmapper",
        "snapshotter.v1.zfs",
    ];
    let off = off.map(|plugin| format!("\"io.containerd.{plugin}\"")).join(", ");
    format!(
        "version = 2\nroot = \"{directory}/root\"\nstate = \"{directory}/state\"\ndisabled_plugins = [{off}]\n\
         [grpc]\naddress = \"{directory}/c.sock\"\n"
    )
}

fn spawn(program: &Path, directory: &Path) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("containerd.log")).expect("made");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}:/usr/sbin:/sbin", directory.join("bin").display());
    let mut command = Command::new(program);
    command.arg("-c").arg(directory.join("config.toml")).env("PATH", path).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts")
}

/// An archive as `docker save` writes it, of one layer with busybox in it.
fn image(busybox: &Path) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        layer.append_data(&mut header, directory, &[][..]).expect("in memory");
    }
    layer.append_path_with_name(busybox, "bin/busybox").expect("readable");
    for applet in APPLETS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox").expect("in memory");
    }
    let layer = layer.into_inner().expect("in memory");
    let config = serde_json::json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]},
    });
    let manifest = serde_json::json!([
        {"Config": "config.json", "RepoTags": ["test/busybox:latest"], "Layers": ["layer.tar"]},
    ]);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("config.json", config.to_string().into_bytes()),
        ("manifest.json", manifest.to_string().into_bytes()),
        ("layer.tar", layer),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes.as_slice()).expect("in memory");
    }
    archive.into_inner().expect("in memory")
}

fn groups_below(directory: &Path) -> usize {
    let children = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    children.filter(|path| path.is_dir()).map(|path| 1 + groups_below(&path)).sum()
}

/// Kills what is in a cgroup and removes it; whether it is gone.
fn clear(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        clear(&entry.path());
    }
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in procs.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        // In the cgroup of a container of this test: nobody else's.
        let _ = kill_process(pid, Signal::KILL);
    }
    fs::remove_dir(group).is_ok()
}
