//! Measures how long a default container takes: from the call of `create` to `Ready`, to the exec, and to its exit.
//!
//! `cargo run --release -p mainstay-launch --example start_time -- [RUNS]`, as root, with a static busybox.

use std::time::{Duration, Instant};

use mainstay_launch::{CgroupEntry, Reply};

// The example uses a part of what the tests need.
#[allow(dead_code)]
#[path = "../tests/launch/world.rs"]
mod world;

const RUNS_DEFAULT: usize = 200;

fn main() {
    let runs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(RUNS_DEFAULT);
    world::live_like_the_shim();
    let (mut ready, mut running, mut ended) = (vec![], vec![], vec![]);
    let mut exec_running = vec![];
    for _ in 0..runs {
        let mut world = world::World::new();
        world.args(&["/bin/busybox", "true"]);
        let start = Instant::now();
        let mut container = world.create(world::WantedIo::Pipes, CgroupEntry::default()).unwrap();
        ready.push(start.elapsed());
        container.launching.release().unwrap();
        let reply = world::wait_reply(&mut container.launching).unwrap();
        running.push(start.elapsed());
        assert!(matches!(reply, Reply::Running), "{reply:?}");
        assert!(container.wait().status.success());
        ended.push(start.elapsed());

        let mut sleeper = world::World::new();
        let container = sleeper.args(&["/bin/sleep", "1000"]).start(world::WantedIo::Pipes).unwrap();
        let start = Instant::now();
        let change = serde_json::json!({ "args": ["/bin/busybox", "true"] });
        let exec = sleeper.start_exec(&container, None, change, world::WantedIo::Pipes).unwrap();
        exec_running.push(start.elapsed());
        exec.wait();
        container.kill();
    }
    for (what, mut times) in [
        ("ready", ready),
        ("program executed", running),
        ("program ended", ended),
        ("exec: program executed", exec_running),
    ] {
        times.sort();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        println!("{what:24} median {:>9} p90 {:>9}", show(at(50)), show(at(90)));
    }
}

fn show(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
