//! A deterministic simulation of router, sandboxes, containers and journal on a pretended host and store: in paused
//! time, with a seeded scheduler.
//!
//! What it does to them, as roughly as the seed has it (`stage`), and by chance at any step:
//!
//! | what | how |
//! |---|---|
//! | calls to the supervisor | late, also later than their callers wait; lost on the way there or back; failed before or after their work |
//! | reports of exits and of dead shims | late, in another order, lost and made again, made twice, of strangers |
//! | commits | late, also later than the actors wait; failed, as on a full disk; reads that fail |
//! | the world | the daemon is killed, shims are killed with and without a daemon that sees it, the machine is booted |
//! | actors | panic, are flooded, and have callers who leave |
//!
//! After every step `witness` and `clients` check the promises: one true terminal fact for each process and no container that
//! runs after it (P1, P2), a record before everything that exists (P3), what is recorded stays listed (P5), what readers see
//! was written (P6, P7), whoever is answered is told what is so, and whoever asks is answered. In the end all heals: then
//! host, store and directory agree, free names can be used, and when all is removed nothing is left (P4).
//!
//! ```console
//! $ cargo test -p mainstay-actors --test simulation                             # what CI runs
//! $ SIMULATION_SEED=4711 cargo test -p mainstay-actors --test simulation       # one seed, aloud
//! $ SIMULATION_SEEDS=100000 SIMULATION_FAULTS=20 cargo test -p mainstay-actors --test simulation \
//!       --config profile.dev.opt-level=2 -- --nocapture the_promises_hold        # the long run: minutes
//! ```
//!
//! `SIMULATION_FIRST` is the first seed of a run; `SIMULATION_FAULTS` is the number of seeds that may fail before it ends.
//! All that failed are listed, and each can be repeated alone.

mod chance;
mod chaos;
mod clients;
mod panics;
mod run;
mod stage;
mod sum;
mod witness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use run::run;
use stage::Aloud;
use sum::{Outcome, Sum};

/// Seeds when the environment does not say how many.
const SEEDS: u64 = 300;
/// Seeds that may fail before a run ends, when the environment does not say how many.
const FAULTS: usize = 1;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is not a number")))
}

/// Says which seeds failed and why, and of the first one what happened in it.
fn fail(faults: &BTreeMap<u64, Outcome>) -> ! {
    let words = |outcome: &Outcome| outcome.fault.clone().unwrap_or_default();
    let list: Vec<_> =
        faults.iter().map(|(seed, outcome)| format!("seed {seed}: {}", words(outcome))).collect();
    let Some((seed, Outcome { lines, .. })) = faults.first_key_value() else {
        panic!("no promise is broken")
    };
    panic!(
        "the end of what happened with seed {seed}:\n{}\n\n{}\nAgain: SIMULATION_SEED={seed} cargo test -p mainstay-actors --test simulation",
        lines.join("\n"),
        list.join("\n"),
    );
}

/// Runs these seeds on all processors, until so many have failed.
fn run_all(first: u64, last: u64, faults_max: usize) -> (Sum, BTreeMap<u64, Outcome>) {
    let next = AtomicU64::new(first);
    let faults = Mutex::new(BTreeMap::new());
    let work = || {
        let mut sum = Sum::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return sum;
            }
            let outcome = run(seed, Aloud::No);
            sum.add(&outcome.sum);
            if outcome.fault.is_some() {
                let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
                faults.insert(seed, outcome);
                if faults.len() >= faults_max {
                    next.store(last, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let sum = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = Sum::default();
        for worker in workers {
            match worker.join() {
                Ok(part) => sum.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sum
    });
    (sum, faults.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn the_promises_hold() {
    panics::watch();
    if let Some(seed) = from_environment("SIMULATION_SEED") {
        let outcome = run(seed, Aloud::Yes);
        if outcome.fault.is_some() {
            fail(&BTreeMap::from([(seed, outcome)]));
        }
        return;
    }
    let first = from_environment("SIMULATION_FIRST").unwrap_or(1);
    let last = first + from_environment("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let faults_max = from_environment("SIMULATION_FAULTS").and_then(|max| usize::try_from(max).ok());
    let began = Instant::now();
    let (sum, faults) = run_all(first, last, faults_max.unwrap_or(FAULTS));
    println!("seeds {first} to {} in {:.1} s: {sum:?}", last - 1, began.elapsed().as_secs_f64());
    if !faults.is_empty() {
        fail(&faults);
    }
    if last - first >= SEEDS {
        sum.invariant_all_kinds_of_trouble_happened();
    }
}

#[test]
fn the_same_seed_does_the_same() {
    panics::watch();
    for seed in 1..=20 {
        let (first, second) = (run(seed, Aloud::No), run(seed, Aloud::No));
        let differ = first.lines.iter().zip(&second.lines).find(|(one, other)| one != other);
        assert_eq!(first.hash, second.hash, "seed {seed}: {differ:?}");
        assert_eq!(first, second, "seed {seed}");
    }
}
