//! Real shims that a zygote forks: each must be what it would be if it had been executed.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
use mainstay_shim::SHIM_NAME;
use mainstay_shim::zygote::{
    ForkError, Forked, REQUEST_MAX_BYTES, ShimFiles, ZYGOTE_OPTION, await_ready, fork_shim, padding,
};
use mainstay_task_api::extension::{ExtensionClient, InfoRequest};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

struct Zygote {
    socket: OwnedFd,
    process: Child,
}

/// One shim and what it was given.
struct Shim {
    forked: Forked,
    words: Vec<String>,
    lifeline: OwnedFd,
    directory: tempfile::TempDir,
    cgroup: CgroupPath,
}

impl Zygote {
    /// None, with a message, for a user who cannot start containers.
    fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can start a shim");
            return None;
        }
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shim-under-test"));
        command.arg0(SHIM_NAME).args([ZYGOTE_OPTION, &theirs.as_raw_fd().to_string(), &padding()]);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        let theirs_number = theirs.as_raw_fd();
        // SAFETY: one system call on a descriptor that is open until after the start.
        unsafe {
            command.pre_exec(move || match libc::fcntl(theirs_number, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let process = command.spawn().expect("it starts");
        await_ready(socket.as_fd()).expect("ready");
        Some(Self { socket, process })
    }

    fn fork(&self, name: &str) -> Shim {
        let directory = tempfile::tempdir().expect("a directory");
        let cgroup = format!("/mainstay-zygote-test-{}-{name}", std::process::id());
        let words =
            ["mainstay-shim", "--sandbox", name, "--dir", &directory.path().to_string_lossy(), "--cgroup"];
        let words: Vec<String> = words.into_iter().chain([cgroup.as_str()]).map(str::to_owned).collect();
        let log = fs::File::create(directory.path().join("shim.log")).expect("made");
        let requests = UnixListener::bind(directory.path().join("shim.sock")).expect("bound");
        let streams = UnixListener::bind(directory.path().join("streams.sock")).expect("bound");
        let (read, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let files = ShimFiles {
            log: log.as_fd(),
            requests: requests.as_fd(),
            streams: streams.as_fd(),
            lifeline: Some(read.as_fd()),
        };
        let forked = fork_shim(self.socket.as_fd(), &words, &files).expect("forked");
        let cgroup = CgroupPath::parse(&cgroup).expect("a good path");
        Shim { forked, words, lifeline, directory, cgroup }
    }

    /// Lets it go, and waits for its end.
    fn end(mut self) -> ExitStatus {
        drop(self.socket);
        self.process.wait().expect("our child")
    }
}

impl Shim {
    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(format!("/proc/{}/{name}", self.forked.pid)).expect("it runs")
    }

    fn link(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.forked.pid);
        fs::read_link(path).expect("it runs").to_string_lossy().into_owned()
    }

    /// Asks it who it is; by then it is all that it becomes.
    async fn pid_by_its_own_account(&self) -> u32 {
        let address = format!("unix://{}", self.directory.path().join("shim.sock").display());
        let client = ttrpc::r#async::Client::connect(&address).await.expect("bound");
        let context = ttrpc::context::with_timeout(60_000_000_000);
        ExtensionClient::new(client).info(context, &InfoRequest::default()).await.expect("answered").pid
    }

    /// Cuts its lifeline, and waits for its end, as only its parent can.
    fn end(self) -> Option<i32> {
        drop(self.lifeline);
        let status = waitid(WaitId::PidFd(self.forked.pidfd.as_fd()), WaitIdOptions::EXITED);
        let _ = Cgroup::open(&Layout::detect().expect("cgroups"), &self.cgroup).remove();
        status.expect("it is our child").expect("waited for").exit_status()
    }
}

#[tokio::test]
async fn a_forked_shim_is_like_an_executed_one() {
    let Some(zygote) = Zygote::start() else { return };
    let shims = [zygote.fork("first"), zygote.fork("second")];
    for shim in &shims {
        let pid = shim.forked.pid.as_raw_pid();
        assert_eq!(shim.pid_by_its_own_account().await, pid.unsigned_abs());
        // It is found by its command line when all records are lost.
        let line: Vec<u8> = shim.words.iter().flat_map(|word| word.bytes().chain([0])).collect();
        let shown = shim.file("cmdline");
        assert_eq!(&shown[..line.len()], line);
        assert!(shown[line.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(shim.file("comm"), b"mainstay-shim\n");
        // A session and mounts of its own, and of its zygote and its sibling nothing but the memory.
        let stat = String::from_utf8(shim.file("stat")).expect("text");
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a stat").1.split_whitespace().collect();
        assert_eq!(fields[1], std::process::id().to_string(), "the parent");
        assert_eq!(fields[3], pid.to_string(), "the session");
        let open = descriptors(pid.unsigned_abs());
        let log = shim.directory.path().join("shim.log");
        assert_eq!(open.iter().filter(|target| Path::new(target) == log).count(), 2, "{open:?}");
        let zygotes = fs::read_link(format!("/proc/{}/fd/{}", zygote.process.id(), zygote_socket(&zygote)));
        let zygotes = zygotes.expect("it runs").to_string_lossy().into_owned();
        assert!(!open.contains(&zygotes), "{open:?}");
        // What this test has inherited, its children have.
        let inherited = descriptors(zygote.process.id());
        let pipes: Vec<_> =
            open.iter().filter(|target| target.starts_with("pipe:") && !inherited.contains(target)).collect();
        assert_eq!(pipes.len(), 1, "the lifeline: {open:?}");
    }
    assert_ne!(shims[0].link("ns/mnt"), shims[1].link("ns/mnt"));
    assert_eq!(zygote.end().code(), Some(0));
    for shim in shims {
        let pid = shim.forked.pid.as_raw_pid();
        assert_eq!(shim.pid_by_its_own_account().await, pid.unsigned_abs(), "it outlives its zygote");
        assert_eq!(shim.end(), Some(0));
    }
}

/// What the descriptors of a process lead to.
fn descriptors(pid: u32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    open.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned())).collect()
}

/// The number of its socket, which is an argument of it.
fn zygote_socket(zygote: &Zygote) -> String {
    let line = fs::read(format!("/proc/{}/cmdline", zygote.process.id())).expect("it runs");
    let word = line.split(|byte| *byte == 0).nth(2).expect("an option and its value");
    String::from_utf8_lossy(word).into_owned()
}

/// The room for a shim's command line is that of the zygote's: a longer one would be cut, and the shim never found again.
#[test]
fn what_does_not_fit_is_refused() {
    let Some(zygote) = Zygote::start() else { return };
    let null = fs::File::open("/dev/null").expect("there");
    let fd = null.as_fd();
    let files = ShimFiles { log: fd, requests: fd, streams: fd, lifeline: None };
    let words = [SHIM_NAME.to_owned(), "x".repeat(REQUEST_MAX_BYTES)];
    let refused = fork_shim(zygote.socket.as_fd(), &words, &files);
    assert!(matches!(refused, Err(ForkError::Refused { .. })), "{refused:?}");
    assert_eq!(zygote.fork("third").end(), Some(0));
    assert_eq!(zygote.end().code(), Some(0));
}

/// A zygote that is gone is told from one that was asked: only then a shim may be started in another way.
#[test]
fn one_that_is_gone_is_not_asked() {
    let Some(mut zygote) = Zygote::start() else { return };
    let shim = zygote.fork("fourth");
    zygote.process.kill().expect("ours");
    zygote.process.wait().expect("ours");
    let null = fs::File::open("/dev/null").expect("there");
    let fd = null.as_fd();
    let files = ShimFiles { log: fd, requests: fd, streams: fd, lifeline: None };
    let gone = fork_shim(zygote.socket.as_fd(), &shim.words, &files);
    assert!(matches!(gone, Err(ForkError::Gone(_))), "{gone:?}");
    pidfd_send_signal(&shim.forked.pidfd, Signal::KILL).expect("it runs");
    assert_eq!(shim.end(), None, "killed");
}
