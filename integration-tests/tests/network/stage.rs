//! A world whose runtime is on a host of its own.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay::{Config, Network, PortMapping, Protocol, Runtime, SandboxSnapshot, SandboxSpec, Shutdown};
use mainstay_integration_tests::net::{Internet, Namespace};
use mainstay_integration_tests::{World, peer, wait};

/// The world, and the internet around it.
pub struct Stage {
    pub world: World,
    pub internet: Internet,
}

impl Stage {
    /// Enters the host with this thread. None where that cannot be done; then it was said.
    pub fn enter(world: World) -> Option<Self> {
        peer::find("ip", "iproute2").map(|_| Self { world, internet: Internet::enter() })
    }

    /// The configuration: pods have the built-in network, with both families; CNI looks below the world.
    pub fn config(&self) -> Config {
        let mut config = self.world.config();
        let network = &mut config.network;
        network.default = Network::Builtin;
        network.ipv6 = Some("fd00:89::/64".parse().expect("a range"));
        network.cni_conf_dir = self.path("cni/conf");
        network.cni_plugin_dirs = vec![self.path("cni/bin"), "/usr/lib/cni".into()];
        network.cni_cache_dir = self.path("cni/cache");
        config
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.world.path().join(name)
    }

    pub async fn start(&self) -> Runtime {
        Runtime::start(self.config()).await.expect("the runtime starts")
    }

    /// Removes all pods and sees that nothing is left, of any network.
    pub async fn finish(self, runtime: Runtime) {
        for pod in runtime.sandboxes() {
            wait::finish("a pod is removed", runtime.remove_sandbox(&pod.record.id)).await.expect("removed");
        }
        self.assert_no_network_left().await;
        runtime.close(Shutdown::StopContainers).await.expect("closed");
        let links = self.internet.links();
        assert!(
            !links.contains(&"mainstay0".to_owned()),
            "the bridge goes with a runtime without pods: {links:?}"
        );
        assert!(!self.internet.rules().contains("mainstay"), "and so does the table");
        self.world.assert_nothing_left().await;
    }

    /// No lease, record, name, link or rule of a pod is left.
    pub async fn assert_no_network_left(&self) {
        for directory in ["root/network", "root/cni", "state/netns", "cni/cache/results"] {
            assert_eq!(files(&self.path(directory)), Vec::<String>::new(), "{directory}");
        }
        // The kernel takes its time with the links of a namespace that is gone.
        wait::until("no link of a pod is left", || {
            let links = self.internet.links();
            let is_hosts = |link: &String| ["lo", "up0", "mainstay0", "cni9"].contains(&link.as_str());
            links.iter().all(is_hosts).then_some(())
        })
        .await;
        let rules = self.internet.rules();
        assert!(!rules.contains("dnat ip"), "{rules}");
    }
}

/// What is in a directory, but for what is there as long as it is in use.
pub fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// A pod of this name.
pub fn spec(name: &str, change: impl FnOnce(&mut SandboxSpec)) -> SandboxSpec {
    let mut spec = SandboxSpec::new(name.parse().expect("a name"));
    change(&mut spec);
    spec
}

pub fn port(protocol: Protocol, host_port: u16, pod_port: u16) -> PortMapping {
    PortMapping { protocol, host_ip: None, host_port, pod_port }
}

/// A pod that runs, as readers see it.
pub async fn run(runtime: &Runtime, spec: SandboxSpec) -> std::sync::Arc<SandboxSnapshot> {
    let id = wait::finish("a pod runs", runtime.run_sandbox(spec)).await.expect("a pod runs");
    runtime.sandbox(&id).expect("there")
}

/// The addresses of a pod.
pub fn addresses(pod: &SandboxSnapshot) -> Vec<String> {
    pod.record.network.iter().flat_map(|network| &network.ips).map(|address| address.ip.to_string()).collect()
}

/// The namespace of a pod, by the name that tools know.
pub fn inside(pod: &SandboxSnapshot) -> Namespace {
    Namespace::open(&pod.record.network.as_ref().expect("it has a network").namespace)
}

/// A stage for this test, or an early return that says why there is none.
#[macro_export]
macro_rules! stage {
    () => {
        match $crate::stage::Stage::enter(mainstay_integration_tests::world!()) {
            Some(stage) => stage,
            None => return,
        }
    };
}
