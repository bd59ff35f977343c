//! A root with busybox in it, a default spec, and a caller that does what the shim does.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::OnceLock;

use mainstay_launch::{
    CallerEnd, CgroupEntry, ExecRequest, HostMounts, InitRequest, Io, LaunchError, Launching, OomScorePolicy,
    Reply, RootMount, Stdio, create, default_seccomp, exec,
};
use oci_spec::runtime::{Process, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::{Value, json};

pub const BUSYBOX: &str = "/bin/busybox";
/// A deadline that only a hang reaches.
const DEADLINE_S: i64 = 30;
/// The id of every container here.
pub const ID: &str = "box";
const APPLETS: [&str; 31] = [
    "sh", "ls", "cat", "echo", "id", "stty", "mount", "unshare", "chroot", "hostname", "readlink", "stat",
    "pwd", "true", "sleep", "grep", "mkdir", "touch", "env", "head", "kill", "ip", "tty", "mknod", "wc",
    "test", "umount", "rm", "chmod", "mv", "ln",
];

/// The mount name space that this process was born in.
static HOST_MOUNTS: OnceLock<fs::File> = OnceLock::new();

/// The mount name space of the host.
pub fn host_mounts() -> &'static fs::File {
    HOST_MOUNTS.get().expect("this process lives like the shim")
}

/// A mount name space of this process's own, as the shim has.
pub fn live_like_the_shim() {
    HOST_MOUNTS.get_or_init(|| fs::File::open("/proc/self/ns/mnt").unwrap());
    // SAFETY: this process has one thread, and shares its descriptor table with nobody.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).unwrap();
}

/// An image, a bundle, and the spec that a case changes.
pub struct World {
    dir: tempfile::TempDir,
    pub spec: Value,
    pub root: RootMount,
    /// The mount name space of the host, where it is another than this process's.
    pub host: Option<OwnedFd>,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub warnings: Vec<String>,
}

impl Ended {
    /// The output of a process that must have succeeded.
    #[track_caller]
    pub fn output(&self) -> &str {
        assert!(self.status.success(), "{self:?}");
        self.stdout.trim_end()
    }
}

/// A process that runs, and the caller's ends of its stdio.
pub struct Running {
    pub launching: Launching,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub terminal: Option<OwnedFd>,
    pub warnings: Vec<String>,
    _end: EndOnDrop,
}

/// Ends a process that a failing case leaves behind.
pub struct EndOnDrop(OwnedFd);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // It has ended already in a case that passes.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::Builder::new().prefix("mainstay-launch-").tempdir().unwrap();
        let image = dir.path().join("image");
        for path in ["bin", "etc", "tmp", "proc", "sys", "dev", "data"] {
            fs::create_dir_all(image.join(path)).unwrap();
        }
        for path in ["upper", "work", "bundle"] {
            fs::create_dir(dir.path().join(path)).unwrap();
        }
        fs::copy(BUSYBOX, image.join("bin/busybox")).unwrap();
        for applet in APPLETS {
            symlink("busybox", image.join("bin").join(applet)).unwrap();
        }
        fs::write(
            image.join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n",
        )
        .unwrap();
        fs::write(image.join("etc/group"), "root:x:0:\nusers:x:100:app\n").unwrap();
        let root = RootMount::Overlay {
            lower: vec![image],
            upper: dir.path().join("upper"),
            work: dir.path().join("work"),
        };
        World { dir, spec: default_spec(), root, host: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path in the image's layer.
    pub fn image(&self, name: &str) -> PathBuf {
        self.path("image").join(name)
    }

    pub fn args(&mut self, args: &[&str]) -> &mut World {
        self.spec["process"]["args"] = json!(args);
        self
    }

    pub fn shell(&mut self, script: &str) -> &mut World {
        self.args(&["/bin/sh", "-c", script])
    }

    pub fn user(&mut self, user: &str) -> &mut World {
        self.spec["annotations"]["dev.mainstay.user"] = json!(user);
        self
    }

    pub fn add_mount(&mut self, mount: Value) -> &mut World {
        self.spec["mounts"].as_array_mut().unwrap().push(mount);
        self
    }

    pub fn parsed(&self) -> Spec {
        serde_json::from_value(self.spec.clone()).unwrap()
    }

    /// Creates the container and waits until it is ready, without releasing it.
    pub fn create(&self, io: WantedIo, cgroup: CgroupEntry<'_>) -> Result<Running, LaunchError> {
        self.create_with(io, cgroup, |_| panic!("nothing is to be done on the host"))
    }

    /// The same, with what is to be done on the host before the root is entered.
    pub fn create_with(
        &self,
        io: WantedIo,
        cgroup: CgroupEntry<'_>,
        environment: impl FnOnce(Pid),
    ) -> Result<Running, LaunchError> {
        let spec = self.parsed();
        let bundle = self.path("bundle");
        let host_mounts = self.host.as_ref().map(|host| HostMounts { namespace: host.as_fd(), own: &bundle });
        let launch = |io| {
            let oom_score = OomScorePolicy::Clamp;
            create(InitRequest {
                id: ID,
                spec: &spec,
                bundle: &bundle,
                root: &self.root,
                host_mounts,
                io,
                cgroup,
                oom_score,
                caller_end: CallerEnd::Survived,
            })
        };
        start(io, launch, environment)
    }

    /// Creates and releases the container.
    pub fn start(&self, io: WantedIo) -> Result<Running, LaunchError> {
        let mut running = self.create(io, CgroupEntry::default())?;
        running.launching.release().unwrap();
        match wait_reply(&mut running.launching)? {
            Reply::Running => Ok(running),
            Reply::Failed(error) => {
                reap(&running.launching);
                Err(error)
            }
            Reply::Ready { .. } | Reply::Environment => panic!("ready twice"),
        }
    }

    /// Runs the container to its end.
    pub fn run(&self) -> Result<Ended, LaunchError> {
        Ok(self.start(WantedIo::Pipes)?.wait())
    }

    /// Executes a process in a container of this world, to its end.
    pub fn exec(&self, container: &Running, user: Option<&str>, change: Value) -> Result<Ended, LaunchError> {
        Ok(self.start_exec(container, user, change, WantedIo::Pipes)?.wait())
    }

    pub fn start_exec(
        &self,
        container: &Running,
        user: Option<&str>,
        change: Value,
        io: WantedIo,
    ) -> Result<Running, LaunchError> {
        let spec = self.parsed();
        let mut process = self.spec["process"].clone();
        for (key, value) in change.as_object().unwrap() {
            process[key] = value.clone();
        }
        let process: Process = serde_json::from_value(process).unwrap();
        let target = container.launching.pidfd.as_fd();
        let cgroup = CgroupEntry::default();
        let oom_score = OomScorePolicy::Clamp;
        let launch = |io| {
            let caller_end = CallerEnd::Survived;
            exec(ExecRequest {
                process: &process,
                user,
                spec: &spec,
                target,
                io,
                cgroup,
                oom_score,
                caller_end,
            })
        };
        let mut running = start(io, launch, |_| panic!("an exec has nothing to do on the host"))?;
        match wait_reply(&mut running.launching)? {
            Reply::Running => Ok(running),
            Reply::Failed(error) => {
                reap(&running.launching);
                Err(error)
            }
            Reply::Ready { .. } | Reply::Environment => panic!("ready twice"),
        }
    }
}

/// What stdio a case wants.
#[derive(Clone, Copy)]
pub enum WantedIo {
    Pipes,
    Terminal(mainstay_launch::WindowSize),
}

fn start(
    wanted: WantedIo,
    launch: impl FnOnce(Io) -> Result<Launching, LaunchError>,
    environment: impl FnOnce(Pid),
) -> Result<Running, LaunchError> {
    let (stdout, child_stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let io = match wanted {
        WantedIo::Pipes => Io::Pipes(Stdio {
            stdin: fs::File::open("/dev/null").unwrap().into(),
            stdout: child_stdout,
            stderr: child_stderr,
        }),
        WantedIo::Terminal(size) => {
            drop((child_stdout, child_stderr));
            Io::Terminal { size: Some(size) }
        }
    };
    let mut launching = launch(io)?;
    let end = EndOnDrop(launching.pidfd.try_clone().unwrap());
    let mut reply = wait_reply(&mut launching)?;
    if matches!(reply, Reply::Environment) {
        environment(launching.pid);
        launching.proceed().unwrap();
        reply = wait_reply(&mut launching)?;
    }
    match reply {
        Reply::Ready { terminal, warnings } => {
            Ok(Running { launching, stdout, stderr, terminal, warnings, _end: end })
        }
        Reply::Failed(error) => {
            reap(&launching);
            Err(error)
        }
        Reply::Running | Reply::Environment => panic!("running before ready"),
    }
}

pub fn wait_reply(launching: &mut Launching) -> Result<Reply, LaunchError> {
    loop {
        if let Some(reply) = launching.try_reply()? {
            return Ok(reply);
        }
        let mut fds = [PollFd::from_borrowed_fd(launching.control(), PollFlags::IN)];
        let deadline = Timespec { tv_sec: DEADLINE_S, tv_nsec: 0 };
        assert_ne!(poll(&mut fds, Some(&deadline)).unwrap(), 0, "the child hangs");
    }
}

/// Waits for the end of a launch, which must come.
pub fn reap(launching: &Launching) -> ExitStatus {
    let mut fds = [PollFd::new(&launching.pidfd, PollFlags::IN)];
    let deadline = Timespec { tv_sec: DEADLINE_S, tv_nsec: 0 };
    assert_ne!(poll(&mut fds, Some(&deadline)).unwrap(), 0, "the process hangs");
    let status = waitid(WaitId::PidFd(launching.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
    let raw = status.exit_status().map(|code| code << 8).or(status.terminating_signal()).unwrap();
    ExitStatus::from_raw(raw)
}

impl Running {
    pub fn pid(&self) -> Pid {
        self.launching.pid
    }

    pub fn wait(self) -> Ended {
        let status = reap(&self.launching);
        let read = |fd: OwnedFd| {
            let mut text = Vec::new();
            fs::File::from(fd).read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        };
        Ended { status, stdout: read(self.stdout), stderr: read(self.stderr), warnings: self.warnings }
    }

    pub fn kill(self) -> ExitStatus {
        pidfd_send_signal(&self.launching.pidfd, Signal::KILL).unwrap();
        reap(&self.launching)
    }

    /// Reads all that a terminal's process writes until it hangs up.
    pub fn wait_terminal(self) -> (ExitStatus, String) {
        let status = reap(&self.launching);
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        let mut master = fs::File::from(self.terminal.unwrap());
        // EIO is how a terminal says that its other end is closed.
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        (status, String::from_utf8_lossy(&text).replace('\r', ""))
    }
}

/// A value of /proc of a process.
pub fn status_line(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

/// A directory of the host that must stay as it is.
pub fn canary(world: &World) -> PathBuf {
    let canary = world.path("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("secret"), "host").unwrap();
    canary
}

#[track_caller]
pub fn assert_untouched(canary: &Path) {
    let names: Vec<_> = fs::read_dir(canary).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(fs::read_to_string(canary.join("secret")).unwrap(), "host");
}

pub const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

fn default_spec() -> Value {
    let capabilities = DEFAULT_CAPABILITIES;
    let parsed = serde_json::from_value(json!(capabilities)).unwrap();
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": "rootfs" },
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 512, "hard": 1024 }],
            "noNewPrivileges": true,
        },
        "annotations": {},
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
            { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
              "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
            { "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] },
            { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
              "options": ["nosuid", "noexec", "nodev", "relatime", "ro"] },
        ],
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "cgroup" },
            ],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/acpi", "/proc/scsi", "/sys/firmware",
                            "/nowhere"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": default_seccomp(&parsed),
        },
    })
}
