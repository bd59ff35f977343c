//! A small internet with room for leases. Nothing of it is in the machine's own namespace, and all of it goes with the last
//! descriptor of it.

#![allow(dead_code, unused_imports, reason = "each test program uses a part")]

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_messages::SandboxId;
use mainstay_network::{Network, PortMapping, Protocol, Settings};
use mainstay_network_testing::Internet;
pub use mainstay_network_testing::{HOST_V4, HOST_V6, Namespace, OUTSIDE_V4, OUTSIDE_V6};

/// How long something may take before a test gives up, in milliseconds.
pub const PATIENCE_MS: u64 = 20_000;
/// Time between two looks at a condition, in milliseconds.
const POLL_MS: u64 = 10;

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
        let Internet { host, outside } = Internet::make();
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
        let left: Vec<_> = names.filter(|name| name != ".lock").collect();
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
