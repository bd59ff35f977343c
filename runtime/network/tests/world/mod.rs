//! A small internet in network namespaces: a host, the world outside of it, and pods. Nothing of it is in the machine's own
//! namespace, and all of it goes with the last descriptor of it.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_messages::SandboxId;
use mainstay_network::{Network, PortMapping, Protocol, Settings};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// How long something may take before a test gives up, in milliseconds.
pub const PATIENCE_MS: u64 = 20_000;
/// How long a test waits for a packet that should not arrive, in milliseconds.
const REFUSAL_MS: u64 = 700;
/// Time between two looks at a condition, in milliseconds.
const POLL_MS: u64 = 10;

/// The host's address towards the outside.
pub const HOST_V4: &str = "192.0.2.1";
/// The address of someone outside.
pub const OUTSIDE_V4: &str = "192.0.2.2";
/// The same for IPv6.
pub const HOST_V6: &str = "2001:db8::1";
/// The same for IPv6.
pub const OUTSIDE_V6: &str = "2001:db8::2";

/// A network namespace.
pub struct Namespace(File);

impl Namespace {
    pub fn new() -> Self {
        let made = thread::spawn(|| {
            // SAFETY: a new network namespace leaves this thread's descriptors, memory and files as they are.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may make a network namespace");
            File::open("/proc/thread-self/ns/net").expect("there")
        });
        Self(made.join().expect("made"))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A path by which another process finds it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs something inside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.fd(), Some(LinkNameSpaceType::Network)).expect("entered");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What `ip` says inside.
    pub fn ip(&self, arguments: &str) -> String {
        self.run(|| {
            let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "ip {arguments}: {error}");
            String::from_utf8(output.stdout).expect("text")
        })
    }

    /// A server that answers each connection with the address that it sees, until it is dropped.
    pub fn serve(&self, address: &str) -> Server {
        let address: SocketAddr = address.parse().expect("an address");
        let listener = self.run(|| TcpListener::bind(address).expect("a free port"));
        listener.set_nonblocking(true).expect("a socket");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            while let Err(std::sync::mpsc::TryRecvError::Empty) = stopped.try_recv() {
                match listener.accept() {
                    Ok((mut stream, peer)) => drop(write!(stream, "{}", peer.ip())),
                    Err(_) => thread::sleep(Duration::from_millis(POLL_MS)),
                }
            }
        });
        Server { stop: Some(stop), thread: Some(thread) }
    }

    /// Calls a server of `serve`; the address that it saw, or none when there is no way.
    pub fn call(&self, address: &str) -> Option<IpAddr> {
        self.call_within(address, PATIENCE_MS)
    }

    /// The same for a call that should fail.
    pub fn cannot_call(&self, address: &str) -> bool {
        self.call_within(address, REFUSAL_MS).is_none()
    }

    fn call_within(&self, address: &str, patience_ms: u64) -> Option<IpAddr> {
        let address: SocketAddr = address.parse().expect("an address");
        self.run(|| {
            let patience = Duration::from_millis(patience_ms);
            let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
            stream.set_read_timeout(Some(patience)).expect("a socket");
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            text.parse().ok()
        })
    }

    pub fn udp(&self, address: &str) -> UdpSocket {
        let socket = self.run(|| UdpSocket::bind(address).expect("a free port"));
        socket.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).expect("a socket");
        socket
    }
}

/// A server that ends with this.
pub struct Server {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the server panicked");
    }
}

/// A host with a link to the outside, and room for leases.
pub struct World {
    pub host: Namespace,
    pub outside: Namespace,
    pub directory: tempfile::TempDir,
}

impl World {
    /// None where the tests cannot be made; then it was said.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
            assert!(
                std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_none(),
                "ip (Debian package iproute2) is not there"
            );
            let thread = thread::current();
            let test = thread.name().unwrap_or("a test");
            let _ = writeln!(std::io::stderr(), "skipped {test}: needs root and the program ip (iproute2)");
            return None;
        }
        let (host, outside) = (Namespace::new(), Namespace::new());
        host.ip("link set lo up");
        host.ip(&format!("link add up0 type veth peer name out0 netns {}", outside.path()));
        for (namespace, link, v4, v6) in
            [(&host, "up0", HOST_V4, HOST_V6), (&outside, "out0", OUTSIDE_V4, OUTSIDE_V6)]
        {
            namespace.ip(&format!("addr add {v4}/24 dev {link}"));
            namespace.ip(&format!("addr add {v6}/64 dev {link} nodad"));
            namespace.ip(&format!("link set {link} up"));
        }
        Some(Self { host, outside, directory: tempfile::tempdir().expect("a directory") })
    }

    pub fn settings(&self) -> Settings {
        let ipv6 = Some("fd00:89::/64".parse().expect("a range"));
        Settings { ipv6, ..Settings::new(self.directory.path().join("leases")) }
    }

    pub fn open(&self) -> Network {
        self.open_with(self.settings()).expect("the network opens")
    }

    pub fn open_with(&self, settings: Settings) -> Result<Network, mainstay_network::NetworkError> {
        self.host.run(|| Network::open(settings))
    }

    /// Everything that the host has: links, addresses, routes, in the words of `ip`.
    pub fn links(&self) -> Vec<String> {
        let text = self.host.ip("-o link show");
        text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned())).collect()
    }

    /// Nothing of any pod is left, in the kernel or in a file.
    pub fn assert_empty(&self, network: &Network) {
        let holdings = network.list().expect("listed");
        assert!(holdings.leases.is_empty() && holdings.links.is_empty(), "{holdings:?}");
        assert!(holdings.rules.is_empty() && holdings.strangers.is_empty(), "{holdings:?}");
        assert!(holdings.unreadable.is_empty(), "{holdings:?}");
        let links = self.links();
        assert_eq!(links, ["lo", "up0", "mainstay0"], "only what was there before, and the bridge");
        let files = std::fs::read_dir(self.directory.path().join("leases")).expect("readable");
        let names = files.map(|file| file.expect("readable").file_name());
        let left: Vec<_> = names.filter(|name| name != ".lock" && name != ".new").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

pub fn pod(name: &str) -> SandboxId {
    name.parse().expect("an id")
}

pub fn mapping(protocol: Protocol, host_port: u16, pod_port: u16) -> PortMapping {
    PortMapping { protocol, host_ip: None, host_port, pod_port }
}

/// Looks until the condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_millis(PATIENCE_MS);
    while !condition() {
        assert!(Instant::now() < deadline, "waited {PATIENCE_MS} ms in vain: {what}");
        thread::sleep(Duration::from_millis(POLL_MS));
    }
}
