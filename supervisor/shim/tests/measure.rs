//! Numbers for people, not checks:
//! `cargo test --release -p mainstay-shim --test measure -- --ignored --nocapture --test-threads 1`

mod rig;

use std::time::{Duration, Instant};

use mainstay_task_api::streams::{Frame, OnLag, StdinUse};
use rig::{Plan, Rig, possible};

fn private_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("alive");
    let private = text.lines().filter(|line| line.starts_with("Private_"));
    private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test]
#[ignore = "prints numbers"]
async fn private_memory() {
    if !possible() {
        return;
    }
    // Two shims: what one shares with the other is not private.
    let (rig, other) = (Rig::start().await, Rig::start().await);
    println!("idle, no container: {} KiB", private_kib(rig.shim_pid()));
    let id = rig.run_idle().await;
    other.run_idle().await;
    println!("idle, one container: {} KiB", private_kib(rig.shim_pid()));
    for _ in 0..200 {
        rig.exec(&id, &["true"]).await;
    }
    println!("after 200 execs: {} KiB", private_kib(rig.shim_pid()));
}

#[tokio::test]
#[ignore = "prints numbers"]
async fn time_to_running() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let mut created = Vec::new();
    let mut started = Vec::new();
    let mut execs = Vec::new();
    for _ in 0..100 {
        let begin = Instant::now();
        let id = rig.create(&Plan::default()).await;
        created.push(begin.elapsed());
        let begin = Instant::now();
        rig.start_task(&id, "").await.expect("started");
        started.push(begin.elapsed());
        rig.wait(&id, "").await;
        rig.delete(&id, "").await.expect("deleted");
    }
    let id = rig.run_idle().await;
    for _ in 0..100 {
        let begin = Instant::now();
        rig.exec(&id, &["true"]).await;
        execs.push(begin.elapsed());
    }
    println!("create {:?}, start {:?}, whole exec {:?}", median(created), median(started), median(execs));
}

#[tokio::test]
#[ignore = "prints numbers"]
async fn output_rate() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig
        .register_exec(&id, &["dd", "if=/dev/zero", "bs=64k", "count=16384"], false, "")
        .await
        .expect("new");
    let mut streams = rig.open(&id, &exec, StdinUse::No, OnLag::Block).await;
    let begin = Instant::now();
    rig.start_task(&id, &exec).await.expect("started");
    let mut sum = 0;
    loop {
        match streams.reader.next().await.expect("a frame") {
            Frame::Stdout(bytes) => sum += bytes.len(),
            Frame::Stderr(_) => {}
            _ => break,
        }
    }
    println!("stream: {} MB/s", sum as f64 / 1e6 / begin.elapsed().as_secs_f64());
    let before = private_kib(rig.shim_pid());
    let script = "line=$(printf '%0100d' 0); yes $line | head -c 300000000";
    let id = rig.create(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    let begin = Instant::now();
    rig.start_task(&id, "").await.expect("started");
    rig.wait(&id, "").await;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "log, lines of 100 bytes: {} MB/s; {before} KiB became {}",
        300.0 / seconds,
        private_kib(rig.shim_pid())
    );
    assert_eq!(rig.stats(&id).await.stats.log_bytes_lost, 0);
}
