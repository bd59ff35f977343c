//! What systemd hears of a daemon.

use std::path::PathBuf;

use mainstay_integration_tests::{Daemon, wait, world};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixDatagram;

/// The time of the watchdog, in microseconds: short, so that there are several signs in it.
const WATCHDOG_US: u64 = 300_000;

#[tokio::test]
async fn systemd_hears_that_a_daemon_is_ready_alive_and_ending() {
    let world = world!();
    let path = world.path().join("notify");
    let systemd = UnixDatagram::bind(&path).expect("bound");
    let heard = async || {
        let mut bytes = [0; 4_096];
        let length =
            wait::finish("systemd hears something", systemd.recv(&mut bytes)).await.expect("received");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let environment = [("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", PathBuf::from(WATCHDOG_US.to_string()))];
    let mut daemon = Daemon::start_with(&world, &world.config(), &environment).await;
    let first = heard().await;
    assert!(first.starts_with("READY=1\n") && first.contains("STATUS=0 pods"), "{first:?}");
    for _ in 0..4 {
        assert_eq!(heard().await.trim_end(), "WATCHDOG=1");
    }
    let pid = Pid::from_raw(daemon.pid().cast_signed()).expect("a pid");
    kill_process(pid, Signal::TERM).expect("it runs");
    let last = wait::finish("it says that it ends", async {
        loop {
            let said = heard().await;
            if said.trim_end() != "WATCHDOG=1" {
                return said;
            }
        }
    });
    assert_eq!(last.await.trim_end(), "STOPPING=1");
    daemon.ended().await;
    drop(daemon);
    world.assert_nothing_left().await;
}
