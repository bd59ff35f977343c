//! A deterministic simulation of router, sandboxes, containers and journal on a pretended host and store: in paused
//! time, with a seeded scheduler that delays, loses, repeats and fails calls, reports and commits, kills shims,
//! makes actors panic, and crashes the daemon at any step. The promises are checked after every step.
//!
//! ```console
//! $ cargo test -p mainstay-actors --test simulation                             # what CI runs
//! $ SIMULATION_SEED=4711 cargo test -p mainstay-actors --test simulation       # one seed, aloud
//! $ SIMULATION_SEEDS=100000 cargo test --release -p mainstay-actors --test simulation
//! ```

mod chance;
mod chaos;
mod clients;
mod panics;
mod run;
mod stage;
mod sum;
mod witness;

use std::sync::atomic::{AtomicU64, Ordering};

use run::run;
use stage::Aloud;
use sum::{Outcome, Sum};

/// Seeds when the environment does not say how many.
const SEEDS: u64 = 300;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is not a number")))
}

fn fail(seed: u64, outcome: &Outcome) -> ! {
    let Outcome { fault, lines, .. } = outcome;
    let fault = fault.as_deref().unwrap_or("no promise is broken");
    panic!(
        "seed {seed}: {fault}\n\nThe end of what happened:\n{}\n\nseed {seed}: {fault}\nAgain: SIMULATION_SEED={seed} cargo test -p mainstay-actors --test simulation",
        lines.join("\n")
    );
}

#[test]
fn the_promises_hold() {
    panics::watch();
    if let Some(seed) = from_environment("SIMULATION_SEED") {
        let outcome = run(seed, Aloud::Yes);
        if outcome.fault.is_some() {
            fail(seed, &outcome);
        }
        return;
    }
    let first = from_environment("SIMULATION_FIRST").unwrap_or(1);
    let last = first + from_environment("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let sum = std::thread::scope(|scope| {
        let work = || {
            let mut sum = Sum::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= last {
                    return sum;
                }
                let outcome = run(seed, Aloud::No);
                if outcome.fault.is_some() {
                    next.store(last, Ordering::Relaxed);
                    fail(seed, &outcome);
                }
                sum.add(&outcome.sum);
            }
        };
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
    println!("seeds {first} to {}: {sum:?}", last - 1);
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
