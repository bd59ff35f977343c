//! Killed at any instant, the store has everything that it had acknowledged.
//!
//! The program starts itself as a child that commits as fast as it can and writes each acknowledged number to
//! a pipe; it kills the child with SIGKILL, at a moment that it does not choose with care, and opens the store
//! to look. Each commit carries one fact and changes two records, all marked with the number that the fact
//! will get, so that a lost, torn or doubled commit shows.

#[path = "store/samples.rs"]
mod samples;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use futures::executor::block_on;
use mainstay_actors::ports::{EventQuery, Store};
use mainstay_messages::Timestamp;
use mainstay_messages::event::{Seq, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_store::{Options, SqliteStore};

use samples::{container, options, sandbox, started};

/// Set in the child: the path of the store.
const CHILD: &str = "STORE_CRASH_CHILD";
/// How often the child is killed.
const ROUNDS: usize = 24;
/// Commits that the child has in flight.
const IN_FLIGHT: usize = 8;
/// Records that are written over and over.
const RECORDS: u64 = 50;
/// A short journal, so that trimming is under way too.
const EVENTS_KEPT: u64 = 400;

fn main() {
    match std::env::var_os(CHILD) {
        Some(path) => child(Path::new(&path)),
        None => parent(),
    }
}

fn open(path: &Path) -> SqliteStore {
    let opened = SqliteStore::open(path, Options { events_kept_max: EVENTS_KEPT, ..options() });
    let opened = opened.expect("a killed store opens");
    assert_eq!(opened.set_aside, None, "a killed store is sound");
    opened.store
}

/// The commit that will get the number `seq`.
fn commit(seq: u64) -> Commit {
    let slot = seq % RECORDS;
    let mut pod = sandbox(&format!("pod{slot}"));
    pod.reason = Some(seq.to_string());
    let mut inside = container(&format!("box{slot}"), &format!("pod{slot}"));
    inside.started_at = Some(Timestamp(seq));
    let fact = started(&format!("pod{slot}"), &format!("box{slot}"), seq as u32);
    Commit {
        changes: vec![Change::PutSandbox(Box::new(pod)), Change::PutContainer(Box::new(inside))],
        facts: vec![fact],
    }
}

fn child(path: &Path) {
    let store = open(path);
    let mut seq = block_on(store.load()).expect("readable").last.0;
    let mut in_flight = VecDeque::new();
    loop {
        while in_flight.len() < IN_FLIGHT {
            seq += 1;
            in_flight.push_back(store.commit(commit(seq)));
        }
        let Some(answer) = in_flight.pop_front() else { continue };
        let committed = block_on(answer).expect("written");
        // The pipe breaks when the parent has failed.
        if writeln!(std::io::stdout(), "{}", committed.last).is_err() {
            return;
        }
    }
}

fn parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        acknowledged = acknowledged.max(run_and_kill(&path, round * round * 3));
        check(&path, acknowledged);
    }
    println!("killed {ROUNDS} times, {acknowledged} commits acknowledged, none lost");
}

/// Runs a child until it has acknowledged `enough` commits, kills it, and answers the last number that it
/// acknowledged before it died.
fn run_and_kill(path: &Path, enough: usize) -> u64 {
    let program = std::env::current_exe().expect("known");
    let mut child =
        Command::new(program).env(CHILD, path).stdout(Stdio::piped()).spawn().expect("the child starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut last = lines.by_ref().take(enough).last();
    child.kill().expect("killed");
    child.wait().expect("reaped");
    // What it wrote between the last look and its death counts too; its last line may be cut short.
    last = lines.by_ref().last().or(last);
    last.map_or(0, |line| line.expect("readable").parse().expect("a number"))
}

fn check(path: &Path, acknowledged: u64) {
    let store = open(path);
    let loaded = block_on(store.load()).expect("readable");
    let last = loaded.last.0;
    assert!(last >= acknowledged, "{acknowledged} was acknowledged, the journal ends at {last}");
    assert_eq!(loaded.damaged, []);

    let page =
        block_on(store.events(EventQuery { after: Seq(0), limit: 10_000, subject: None })).expect("readable");
    let numbers: Vec<_> = page.events.iter().map(|event| event.seq.0).collect();
    assert_eq!(numbers, (page.first_kept.0..=last).collect::<Vec<_>>(), "the numbers are dense");
    assert!(
        page.first_kept.0 == 1 || last - page.first_kept.0 + 1 >= EVENTS_KEPT,
        "only what is too much is trimmed"
    );
    for event in &page.events {
        assert_eq!(event.what, What::ContainerStarted { pid: event.seq.0 as u32 });
    }
    for slot in 0..RECORDS.min(last) {
        // The newest number of this slot.
        let slot = (last - slot) % RECORDS;
        let newest = last - (last + RECORDS - slot) % RECORDS;
        let pod =
            block_on(store.load_sandbox(&format!("pod{slot}").parse().expect("good"))).expect("readable");
        let inside =
            block_on(store.load_container(&format!("box{slot}").parse().expect("good"))).expect("readable");
        assert_eq!(pod.and_then(|pod| pod.reason), Some(newest.to_string()));
        assert_eq!(inside.and_then(|inside| inside.started_at), Some(Timestamp(newest)));
    }
}
