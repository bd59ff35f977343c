//! What befalls the daemon, the shims and the disk.
//!
//! Owns: the daemon's process. Never: leaves anything stopped, down or full when it ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Disk, World};
use rustix::process::{Pid, Signal, kill_process};

use super::chance::Chance;
use super::life::Truth;

/// The longest pause between two blows, in milliseconds.
const PAUSE_MAX_MS: u64 = 1_500;
/// The longest time that something is stopped, down or full, in milliseconds.
const BLOW_MAX_MS: u64 = 2_500;

/// Room that the disk must have when it is not filled, in bytes. With less the journal itself has filled it, and nothing heals:
/// removals then wait for their records to be deleted until whoever asked for them loses patience.
const ROOM_MIN_BYTES: u64 = 4 << 20;

/// What can befall them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    KillDaemon,
    StopDaemon,
    KillShim,
    StopShim,
    FillDisk,
    KillDaemonOnFullDisk,
    KillBoth,
}

const BLOWS: [Blow; 7] = [
    Blow::KillDaemon,
    Blow::StopDaemon,
    Blow::KillShim,
    Blow::StopShim,
    Blow::FillDisk,
    Blow::KillDaemonOnFullDisk,
    Blow::KillBoth,
];

/// See the module.
pub struct Chaos<'a> {
    world: &'a World,
    disk: &'a Disk,
    truth: &'a Truth,
    daemon: Daemon,
    blows: BTreeMap<Blow, u64>,
}

impl<'a> Chaos<'a> {
    /// Starts the daemon.
    pub async fn begin(world: &'a World, disk: &'a Disk, truth: &'a Truth) -> Self {
        let daemon = Daemon::start(world, &[]).await;
        Self { world, disk, truth, daemon, blows: BTreeMap::new() }
    }

    pub fn socket(&self) -> PathBuf {
        self.daemon.socket().to_owned()
    }

    pub fn summary(&self) -> String {
        format!("{:?}", self.blows)
    }

    /// Strikes until it is time to end.
    pub async fn rage(&mut self, mut chance: Chance, until: Instant) {
        while Instant::now() < until {
            pause(&mut chance, PAUSE_MAX_MS).await;
            let blow = *chance.pick(&BLOWS).expect("there are some");
            self.strike(blow, &mut chance).await;
            *self.blows.entry(blow).or_default() += 1;
        }
    }

    async fn strike(&mut self, blow: Blow, chance: &mut Chance) {
        match blow {
            Blow::KillDaemon => self.down(chance).await,
            Blow::StopDaemon => {
                signal(self.daemon.pid(), Signal::STOP);
                pause(chance, BLOW_MAX_MS).await;
                signal(self.daemon.pid(), Signal::CONT);
            }
            Blow::KillShim => self.kill_shim(chance).await,
            Blow::StopShim => {
                let shims: Vec<u32> = self.world.ledger().shims.into_iter().collect();
                let Some(shim) = chance.pick(&shims) else { return };
                signal(*shim, Signal::STOP);
                pause(chance, BLOW_MAX_MS).await;
                signal(*shim, Signal::CONT);
            }
            Blow::FillDisk => {
                self.disk.fill();
                pause(chance, BLOW_MAX_MS).await;
                self.relieve();
            }
            Blow::KillDaemonOnFullDisk => {
                self.disk.fill();
                pause(chance, BLOW_MAX_MS).await;
                self.excuse_all().await;
                self.down(chance).await;
                self.relieve();
            }
            Blow::KillBoth => {
                self.kill_shim(chance).await;
                self.down(chance).await;
            }
        }
    }

    fn relieve(&self) {
        self.disk.relieve();
        let room = self.disk.room();
        assert!(room >= ROOM_MIN_BYTES, "the disk is too small for this soak: {room} bytes are left on it");
    }

    /// The daemon is killed, and starts after a while.
    async fn down(&mut self, chance: &mut Chance) {
        self.daemon.kill();
        pause(chance, BLOW_MAX_MS).await;
        self.daemon = Daemon::start(self.world, &[]).await;
    }

    async fn kill_shim(&self, chance: &mut Chance) {
        let shims: Vec<u32> = self.world.ledger().shims.into_iter().collect();
        let Some(shim) = chance.pick(&shims) else { return };
        let line = fs::read(format!("/proc/{shim}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let pods = self.world.path().join("state/p");
        let ids = fs::read_dir(pods).into_iter().flatten().flatten();
        let own = ids.filter(|pod| line.contains(&*pod.file_name().to_string_lossy()));
        let bundles: Vec<PathBuf> = own.map(|pod| pod.path().join("c")).collect();
        bundles.iter().for_each(|bundles| self.excuse(bundles));
        signal(*shim, Signal::KILL);
        // One more may have been made since the first look.
        bundles.iter().for_each(|bundles| self.excuse(bundles));
    }

    /// The end of every container that there is now may go unseen: its removal is done, and cannot be written down.
    async fn excuse_all(&self) {
        for pod in fs::read_dir(self.world.path().join("state/p")).into_iter().flatten().flatten() {
            self.excuse(&pod.path().join("c"));
        }
        // Those that are removed but for their record have no directory any more.
        if let Ok(client) = Client::connect(self.daemon.socket()).await
            && let Ok(listed) = client.list_containers().await
        {
            self.truth.excuse(listed.into_iter().map(|container| container.record.id.to_string()));
        }
    }

    fn excuse(&self, bundles: &std::path::Path) {
        let entries = fs::read_dir(bundles).into_iter().flatten().flatten();
        self.truth.excuse(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
}

async fn pause(chance: &mut Chance, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(chance.below(most_ms))).await;
}

/// Sends a signal to a process that was there a moment ago.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may just have ended.
        let _ = kill_process(pid, signal);
    }
}
