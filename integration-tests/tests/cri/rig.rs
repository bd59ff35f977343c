//! A daemon on directories of its own, with clients of its CRI socket.

use std::path::{Path, PathBuf};

use mainstay::{Config, ImageSettings};
use mainstay_admin::Client;
use mainstay_cri_api::image_service_client::ImageServiceClient;
use mainstay_cri_api::runtime_service_client::RuntimeServiceClient;
use mainstay_integration_tests::{Daemon, World, wait};
use mainstay_messages::admin::Reference;
use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::{Channel, Endpoint};

/// The largest message that kubelet takes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// See the module. Killed, and cleared away, when dropped.
pub struct Rig {
    config: Config,
    channel: Channel,
    daemon: Daemon,
    // Last: it is cleared away when the daemon is dead.
    world: World,
}

/// A rig for this test, or an early return that says why there is none. `rig!(|config| …)` has another configuration.
#[macro_export]
macro_rules! rig {
    () => {
        $crate::rig!(|_| {})
    };
    ($change:expr) => {{
        let world = mainstay_integration_tests::world!();
        $crate::rig::Rig::start(world, $change).await
    }};
}

impl Rig {
    pub async fn start(world: World, change: impl FnOnce(&mut Config)) -> Self {
        // Without what the machine has set for its own registries.
        let images = ImageSettings {
            certs_dirs: Vec::new(),
            docker_config: Some("/nonexistent/config.json".into()),
            ..ImageSettings::default()
        };
        let mut config = Config { images, ..world.config() };
        change(&mut config);
        let daemon = Daemon::start_with(&world, &config, &[]).await;
        let channel = connect(&socket(&config)).await;
        Self { config, channel, daemon, world }
    }

    /// Kills the daemon and starts the next.
    pub async fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = Daemon::start_with(&self.world, &self.config, &[]).await;
        self.channel = connect(&socket(&self.config)).await;
    }

    /// Asks the daemon to end, and starts the next.
    pub async fn end_and_restart(&mut self) {
        let pid = i32::try_from(self.daemon.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("it runs");
        self.daemon.ended().await;
        self.restart().await;
    }

    pub fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX)
    }

    pub fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn daemon(&mut self) -> &mut Daemon {
        &mut self.daemon
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.config)
    }

    /// A client of the admin RPC, for what CRI does not show.
    pub async fn admin(&self) -> Client {
        Client::connect(self.daemon.socket()).await.expect("the daemon answers")
    }

    /// Removes the pods that there are, ends the daemon, and checks that nothing is left.
    pub async fn finish(self) {
        let admin = self.admin().await;
        for pod in admin.list_sandboxes().await.expect("listed") {
            let pod = Reference(pod.record.id.to_string());
            wait::finish("a pod is removed", admin.remove_sandbox(pod)).await.expect("removed");
        }
        let Self { daemon, world, .. } = self;
        drop(daemon);
        world.assert_nothing_left().await;
    }
}

fn socket(config: &Config) -> PathBuf {
    config.cri.socket_beside(&config.admin_socket).expect("CRI is served")
}

/// A connection of its own to a CRI socket.
pub async fn connect(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).expect("an address");
    wait::finish("the CRI socket answers", endpoint.connect()).await.expect("connected")
}
