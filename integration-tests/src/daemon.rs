//! A daemon of a world, as a process of its own that can be killed at any moment.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mainstay::Config;
use mainstay_admin::Client;

use crate::{World, wait};

/// A running daemon. Killed when dropped; its shims live on.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts one in a world and waits until it answers. What it logs is in `daemon.log` of the world.
    pub async fn start(world: &World, environment: &[(&str, PathBuf)]) -> Self {
        Self::start_with(world, &world.config(), environment).await
    }

    /// Starts one with a configuration of its own, whose directories are the world's.
    pub async fn start_with(world: &World, config: &Config, environment: &[(&str, PathBuf)]) -> Self {
        let mut daemon = Self::spawn(world, config, environment);
        loop {
            if let Ok(client) = Client::connect(&daemon.socket).await
                && client.version().await.is_ok()
            {
                return daemon;
            }
            assert!(!daemon.has_ended(), "the daemon has ended: {}", said(world));
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Starts one that cannot run, waits for its end, and answers what it said.
    pub async fn refusal(world: &World) -> String {
        let mut daemon = Self::spawn(world, &world.config(), &[]);
        daemon.ended().await;
        said(world)
    }

    fn spawn(world: &World, config: &Config, environment: &[(&str, PathBuf)]) -> Self {
        let file = world.path().join("config.toml");
        std::fs::write(&file, config.to_string()).expect("written");
        let log = world.path().join("daemon.log");
        let log = File::options().create(true).append(true).open(log).expect("made");
        let child = Command::new(world.program())
            .args(["daemon".as_ref(), "--config".as_ref(), file.as_os_str()])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self { child: child.expect("it starts"), socket: config.admin_socket.clone() }
    }

    /// The socket of its admin RPC.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_some()
    }

    /// Waits for the end of its process.
    pub async fn ended(&mut self) {
        wait::until("the daemon ends", || self.has_ended().then_some(())).await;
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

/// What the daemons of a world have logged.
fn said(world: &World) -> String {
    std::fs::read_to_string(world.path().join("daemon.log")).expect("readable")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
