//! A soak: random lives of pods and containers on a daemon and shims that are killed and stopped, and on a disk that fills up
//! again and again. At its end nothing may be left, the audit is clean, and the journal has told every end once and truly.
//!
//! | setting | |
//! |---|---|
//! | `MAINSTAY_SOAK_SECONDS` | how long it lasts; 20 when not set |
//! | `MAINSTAY_SOAK_SEED` | what its choices follow from; when not set another one each time, which is printed |
//!
//! The same seed makes the same choices, though not at the same moments.

mod chance;
mod chaos;
mod life;
mod verdict;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::{join, join_all};
use mainstay::Repair;
use mainstay_admin::Client;
use mainstay_integration_tests::{Disk, wait, world};

use chance::Chance;
use chaos::Chaos;
use life::{Persistence, Truth, again, live};

/// How long it lasts when nothing is set, in seconds.
const SECONDS_DEFAULT: u64 = 20;
/// How many lives go on at a time.
const WORKERS: u64 = 6;
/// Room for the layers, the logs and the store's own log, in mebibytes.
const DISK_MEBIBYTES: u64 = 48;
/// Room for what the journal grows by in a second, in kibibytes; about 80 were seen. Nothing of it is trimmed: all of it is read in
/// the end. With 48 MiB for everything a soak of ten minutes filled its own disk after seven, and nothing could heal.
const JOURNAL_KIBIBYTES_PER_SECOND: u64 = 256;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is not valid; expected a number")))
}

#[tokio::test]
async fn everything_survives_a_soak() {
    let world = world!();
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let seed = setting("MAINSTAY_SOAK_SEED").unwrap_or_else(clock);
    let seconds = setting("MAINSTAY_SOAK_SECONDS").unwrap_or(SECONDS_DEFAULT);
    println!("MAINSTAY_SOAK_SEED={seed} MAINSTAY_SOAK_SECONDS={seconds}");
    let mebibytes = DISK_MEBIBYTES + seconds * JOURNAL_KIBIBYTES_PER_SECOND / 1024;
    let (image, root) = (world.path().join("disk.img"), world.path().join("root"));
    let Some(disk) = Disk::mount(&image, &root, mebibytes) else { return };
    let until = Instant::now() + Duration::from_secs(seconds);

    let truth = Truth::default();
    let mut chaos = Chaos::begin(&world, &disk, &truth).await;
    let socket = chaos.socket();
    let workers = (0..WORKERS).map(|n| live(&socket, &truth, Chance::new(seed, n), until, n));
    let (lives, ()) = join(join_all(workers), chaos.rage(Chance::new(seed, WORKERS), until)).await;
    println!("{} lives; {}", lives.iter().sum::<u64>(), chaos.summary());
    println!("answers: {}", truth.summary());

    let client = Client::connect(&socket).await.expect("it listens");
    for pod in client.list_sandboxes().await.expect("listed") {
        let pod = pod.record.id.to_string();
        let removed = again(&socket, Persistence::UntilDone, &truth, async |client| {
            client.remove_sandbox(mainstay_messages::admin::Reference(pod.clone())).await
        });
        removed.await;
    }
    wait::until_async("the audit is clean", async || {
        let findings = wait::finish("an audit", client.audit(Repair::No)).await.expect("it looks");
        findings.is_empty()
    })
    .await;
    verdict::check(&client, &truth).await;
    world.assert_nothing_left().await;
}
