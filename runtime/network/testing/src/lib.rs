//! What the tests of networks share: a small internet in network namespaces, with a host, the world outside of it, and what pods
//! have.
//!
//! A test runs something inside of the host, or enters it with its thread; what it starts from there, a runtime or a daemon, is in
//! it too. Nothing of it is in the machine's own namespace, and all of it goes with the last process and descriptor of it, also
//! when the test fails.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// How long something may take before a test gives up, in milliseconds.
pub const PATIENCE_MS: u64 = 60_000;
/// How long a test waits for a packet that should not arrive, in milliseconds.
const REFUSAL_MS: u64 = 700;
/// How often a server looks whether it is to end, in milliseconds.
const POLL_MS: u64 = 10;
/// The most bytes of a datagram of a test.
const DATAGRAM_BYTES_MAX: usize = 256;

/// The host's address towards the outside.
pub const HOST_V4: &str = "192.0.2.1";
/// The address of someone outside.
pub const OUTSIDE_V4: &str = "192.0.2.2";
/// The same for IPv6.
pub const HOST_V6: &str = "2001:db8::1";
/// The same for IPv6.
pub const OUTSIDE_V6: &str = "2001:db8::2";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(File);

/// A host with a link to the outside.
#[derive(Debug)]
pub struct Internet {
    /// The host.
    pub host: Namespace,
    /// The outside.
    pub outside: Namespace,
}

/// Something that answers, until it is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Internet {
    /// Makes one and enters its host with this thread.
    pub fn enter() -> Self {
        let made = Self::make();
        move_into_link_name_space(made.host.fd(), Some(LinkNameSpaceType::Network)).expect("entered");
        made
    }

    /// Makes one.
    pub fn make() -> Self {
        let (host, outside) = (Namespace::make(), Namespace::make());
        host.ip("link set lo up");
        host.ip(&format!("link add up0 type veth peer name out0 netns {}", outside.path()));
        for (namespace, link, v4, v6) in
            [(&host, "up0", HOST_V4, HOST_V6), (&outside, "out0", OUTSIDE_V4, OUTSIDE_V6)]
        {
            namespace.ip(&format!("addr add {v4}/24 dev {link}"));
            namespace.ip(&format!("addr add {v6}/64 dev {link} nodad"));
            namespace.ip(&format!("link set {link} up"));
        }
        Self { host, outside }
    }

    /// The links of the host.
    pub fn links(&self) -> Vec<String> {
        let text = self.host.ip("-o link show");
        text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned())).collect()
    }

    /// The rules of the host's firewall, in the words of nft; empty where that is not installed.
    pub fn rules(&self) -> String {
        self.host.run(|| {
            let output = Command::new("nft").args(["list", "ruleset"]).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
        })
    }
}

impl Namespace {
    /// A new one.
    pub fn make() -> Self {
        let made = thread::spawn(|| {
            // SAFETY: a new network namespace leaves this thread's descriptors, memory and files as they are.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may make a network namespace");
            File::open("/proc/thread-self/ns/net").expect("there")
        });
        Self(made.join().expect("made"))
    }

    /// One that has a name.
    pub fn open(path: &Path) -> Self {
        Self(File::open(path).expect("a namespace of this name"))
    }

    /// What holds it.
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

    /// A server that answers each connection with the address that it sees.
    pub fn serve(&self, address: &str) -> Server {
        let address: SocketAddr = address.parse().expect("an address");
        let listener = self.run(|| TcpListener::bind(address).expect("a free port"));
        listener.set_nonblocking(true).expect("a socket");
        Server::start(move || match listener.accept() {
            Ok((mut stream, peer)) => drop(write!(stream, "{}", peer.ip())),
            Err(_) => thread::sleep(Duration::from_millis(POLL_MS)),
        })
    }

    /// The same for datagrams.
    pub fn serve_udp(&self, address: &str) -> Server {
        let address: SocketAddr = address.parse().expect("an address");
        let socket = self.run(|| UdpSocket::bind(address).expect("a free port"));
        socket.set_read_timeout(Some(Duration::from_millis(POLL_MS))).expect("a socket");
        Server::start(move || {
            if let Ok((_, peer)) = socket.recv_from(&mut [0; DATAGRAM_BYTES_MAX]) {
                let _ = socket.send_to(peer.ip().to_string().as_bytes(), peer);
            }
        })
    }

    /// Calls a server; the address that it saw, or none when there is no way.
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

    /// A socket for datagrams.
    pub fn udp(&self, address: &str) -> UdpSocket {
        let address: SocketAddr = address.parse().expect("an address");
        let socket = self.run(|| UdpSocket::bind(address).expect("a free port"));
        socket.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).expect("a socket");
        socket
    }

    /// Sends a datagram to a server; the address that it saw.
    pub fn call_udp(&self, address: &str) -> Option<IpAddr> {
        let address: SocketAddr = address.parse().expect("an address");
        self.run(|| {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).expect("a free port");
            socket.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).expect("a socket");
            socket.send_to(b"who am I", address).ok()?;
            let mut text = [0; DATAGRAM_BYTES_MAX];
            let length = socket.recv(&mut text).ok()?;
            std::str::from_utf8(&text[..length]).ok()?.parse().ok()
        })
    }
}

impl Server {
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                turn();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the server panicked");
    }
}
