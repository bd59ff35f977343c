//! Writing and reading back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::join_all;
use mainstay_actors::ports::{EventFilter, EventPage, EventQuery, Store};
use mainstay_messages::event::{Fact, Seq, Subject, What};
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_messages::{Error, Timestamp};
use mainstay_store::{EVENTS_KEPT_MIN, Options, SqliteStore, TRIM_STEP_EVENTS};
use rstest::rstest;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::samples::{container, options, sandbox, started};

/// How long a condition may take that holds at once on a machine with nothing else to do.
const DEADLINE: Duration = Duration::from_secs(60);

fn fresh(options: Options) -> (TempDir, SqliteStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), options);
    (directory, store)
}

fn open(directory: &Path, options: Options) -> SqliteStore {
    let opened = SqliteStore::open(directory.join("store.db"), options).expect("opens");
    assert_eq!(opened.set_aside, None);
    opened.store
}

/// What `sqlite3` would be to the store: another program that has the file open.
fn outsider(directory: &Path) -> Connection {
    Connection::open(directory.join("store.db")).expect("opens")
}

fn fact(pid: u32) -> Commit {
    Commit { changes: vec![], facts: vec![started("pod", "box", pid)] }
}

fn all(store: &SqliteStore) -> EventPage {
    block_on(store.events(EventQuery { after: Seq(0), limit: usize::MAX, subject: None })).expect("readable")
}

fn pids(page: &EventPage) -> Vec<u32> {
    page.events
        .iter()
        .map(|event| match event.what {
            What::ContainerStarted { pid } => pid,
            ref other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn a_fresh_store_is_empty() {
    let (_directory, store) = fresh(options());
    let loaded = block_on(store.load()).expect("readable");
    assert_eq!((loaded.sandboxes, loaded.containers, loaded.damaged), (vec![], vec![], vec![]));
    assert_eq!((loaded.last, loaded.boot_id), (Seq(0), None));
    assert_eq!(all(&store), EventPage { events: vec![], first_kept: Seq(1), last: Seq(0) });
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let (directory, store) = fresh(options());
    let commit = Commit {
        changes: vec![
            Change::PutSandbox(Box::new(sandbox("pod"))),
            Change::PutContainer(Box::new(container("box", "pod"))),
        ],
        facts: vec![started("pod", "box", 1), started("pod", "box", 2)],
    };
    assert_eq!(block_on(store.commit(commit)), Ok(Committed { last: Seq(2) }));
    drop(store);

    let store = open(directory.path(), Options::new("another boot"));
    let loaded = block_on(store.load()).expect("readable");
    assert_eq!(loaded.sandboxes, [sandbox("pod")]);
    assert_eq!(loaded.containers, [container("box", "pod")]);
    assert_eq!(loaded.last, Seq(2));
    assert_eq!(loaded.boot_id.as_deref(), Some(crate::samples::BOOT));
    assert_eq!(pids(&all(&store)), [1, 2]);
    let id = "box".parse().expect("good");
    assert_eq!(block_on(store.load_container(&id)), Ok(Some(container("box", "pod"))));
    let id = "nobody".parse().expect("good");
    assert_eq!(block_on(store.load_sandbox(&id)), Ok(None));
}

#[test]
fn a_put_replaces_and_a_delete_of_nothing_is_fine() {
    let (_directory, store) = fresh(options());
    let mut changed = sandbox("pod");
    changed.reason = Some("because".into());
    let commit = Commit {
        changes: vec![
            Change::PutSandbox(Box::new(sandbox("pod"))),
            Change::PutSandbox(Box::new(changed.clone())),
            Change::DeleteContainer("nobody".parse().expect("good")),
        ],
        facts: vec![],
    };
    assert_eq!(block_on(store.commit(commit)), Ok(Committed { last: Seq(0) }));
    assert_eq!(block_on(store.load()).expect("readable").sandboxes, [changed]);
}

#[test]
fn commits_are_written_in_the_order_of_the_calls_polled_or_not() {
    let (_directory, store) = fresh(options());
    let mut answers: Vec<_> = (1..=300).map(|pid| store.commit(fact(pid))).collect();
    // The odd ones are given up by their caller, the others are polled last to first.
    answers.reverse();
    for (index, answer) in answers.into_iter().enumerate() {
        let seq = 300 - index as u64;
        if seq.is_multiple_of(2) {
            assert_eq!(block_on(answer), Ok(Committed { last: Seq(seq) }));
        }
    }
    assert_eq!(pids(&all(&store)), (1..=300).collect::<Vec<_>>());
}

#[rstest]
#[case::all(None, 0, 9, &[1, 2, 3, 4])]
#[case::limited(None, 1, 2, &[2, 3])]
#[case::nothing_asked(None, 0, 0, &[])]
#[case::beyond_the_end(None, u64::MAX, 9, &[])]
#[case::of_a_pod(Some(EventFilter::Sandbox("a".parse().expect("good"))), 0, 9, &[1, 2, 4])]
#[case::of_a_container(Some(EventFilter::Container("a1".parse().expect("good"))), 1, 9, &[4])]
#[case::of_nobody(Some(EventFilter::Container("a".parse().expect("good"))), 0, 9, &[])]
fn events_are_found(
    #[case] subject: Option<EventFilter>,
    #[case] after: u64,
    #[case] limit: usize,
    #[case] expected: &[u32],
) {
    let (_directory, store) = fresh(options());
    let facts =
        vec![started("a", "a1", 1), started("a", "a2", 2), started("b", "b1", 3), started("a", "a1", 4)];
    block_on(store.commit(Commit { changes: vec![], facts })).expect("written");
    let page = block_on(store.events(EventQuery { after: Seq(after), limit, subject })).expect("readable");
    assert_eq!(pids(&page), expected);
    assert_eq!((page.first_kept, page.last), (Seq(1), Seq(4)));
}

/// An event about nobody, with all that JSON has to escape.
#[test]
fn any_event_comes_back_as_it_was() {
    let (_directory, store) = fresh(options());
    let fact = Fact {
        at: Timestamp(i64::MAX as u64),
        subject: Subject { sandbox: None, container: None, exec: Some("e".parse().expect("good")) },
        what: What::Commanded { command: "ru\"n".into(), detail: "\0 \n \\ ' é \u{10ffff}".into() },
    };
    block_on(store.commit(Commit { changes: vec![], facts: vec![fact.clone()] })).expect("written");
    assert_eq!(all(&store).events, [fact.numbered(Seq(1))]);
}

/// On a broken node there is `sqlite3` and little else.
#[test]
fn people_can_read_it_while_it_is_in_use() {
    let (directory, store) = fresh(options());
    let mut fact = started("pod", "box", 7);
    fact.at = Timestamp(1_700_000_000_250_000_000);
    let change = Change::PutContainer(Box::new(container("box", "pod")));
    block_on(store.commit(Commit { changes: vec![change], facts: vec![fact] })).expect("written");
    let row: String = outsider(directory.path())
        .query_row(
            "SELECT time || ' ' || kind || ' ' || (history.body ->> '$.container_started.pid') || ' '
                 || phase || ' ' || (containers.body ->> '$.spec.process.command[0]')
             FROM history JOIN containers ON id = container",
            (),
            |row| row.get(0),
        )
        .expect("readable");
    assert_eq!(row, "2023-11-14T22:13:20.250Z container_started 7 creating sleep");
}

#[test]
fn what_cannot_be_encoded_is_refused_by_name() {
    let (_directory, store) = fresh(options());
    let mut late = sandbox("pod");
    late.created_at = Timestamp(u64::MAX);
    let mut crooked = container("box", "pod");
    crooked.log_path = OsStr::from_bytes(b"/log/\xff").into();
    for (change, field) in [
        (Change::PutSandbox(Box::new(late)), "created_at"),
        (Change::PutContainer(Box::new(crooked)), "container record"),
    ] {
        let commit = Commit { changes: vec![change], facts: vec![started("pod", "box", 1)] };
        match block_on(store.commit(commit)) {
            Err(Error::InvalidArgument { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(all(&store).last, Seq(0));
}

/// Commits that happen to be queued together share a transaction. One that the database refuses must not take
/// its neighbours along, nor leave a hole in the numbers.
#[test]
fn a_bad_commit_does_not_fail_its_neighbours() {
    let (directory, store) = fresh(options());
    let outsider = outsider(directory.path());
    outsider
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON sandboxes WHEN new.id = 'bad'
             BEGIN SELECT raise(ABORT, 'refused'); END;
             BEGIN IMMEDIATE",
        )
        .expect("locked");
    let bad = Commit {
        changes: vec![
            Change::PutSandbox(Box::new(sandbox("half"))),
            Change::PutSandbox(Box::new(sandbox("bad"))),
        ],
        facts: vec![started("bad", "box", 66)],
    };
    // The writer waits for the lock, so these are grouped.
    let answers = [fact(1), fact(2), bad, fact(3), fact(4)].map(|commit| store.commit(commit));
    outsider.execute_batch("COMMIT").expect("unlocked");
    let answers = block_on(join_all(answers));
    assert!(
        matches!(&answers[2], Err(Error::Unavailable { what, .. }) if what.starts_with("store /")),
        "{answers:?}"
    );
    let numbers: Vec<_> = answers.iter().flatten().map(|committed| committed.last.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(pids(&all(&store)), [1, 2, 3, 4]);
    assert_eq!(block_on(store.load()).expect("readable").sandboxes, []);
}

/// While the writer is stuck, reads answer, callers get a typed refusal once the queue is full, and nothing
/// that was taken is lost.
#[test]
fn a_stuck_writer_stops_neither_reads_nor_callers() {
    let (directory, store) = fresh(Options { commit_queue_max: 4, busy_timeout_ms: 600_000, ..options() });
    block_on(store.commit(fact(1))).expect("written");
    let outsider = outsider(directory.path());
    outsider.execute_batch("BEGIN IMMEDIATE").expect("locked");

    let mut taken = Vec::new();
    let refusal = (2..10_000).find_map(|pid| {
        use futures::FutureExt;
        let mut answer = store.commit(fact(pid));
        match (&mut answer).now_or_never() {
            Some(refusal) => Some(refusal),
            None => {
                taken.push(answer);
                None
            }
        }
    });
    assert_eq!(refusal, Some(Err(Error::ResourceExhausted { what: "store writer queue".into(), limit: 4 })));
    assert_eq!(pids(&all(&store)), [1]);

    outsider.execute_batch("COMMIT").expect("unlocked");
    let answers = block_on(join_all(taken));
    let numbers: Vec<_> = answers.into_iter().map(|answer| answer.expect("written").last.0).collect();
    assert_eq!(numbers, (2..2 + numbers.len() as u64).collect::<Vec<_>>());
}

/// Somebody leaves a `sqlite3` shell open in a transaction: writes fail with a clear error, and work again
/// when it is gone.
#[test]
fn a_locked_database_is_an_error_for_as_long_as_it_is_locked() {
    let (directory, store) = fresh(Options { busy_timeout_ms: 1, ..options() });
    let outsider = outsider(directory.path());
    outsider.execute_batch("BEGIN IMMEDIATE").expect("locked");
    match block_on(store.commit(fact(1))) {
        Err(Error::Unavailable { what, reason }) => {
            assert!(what.starts_with("store /"), "{what}");
            assert_eq!(reason, "database is locked");
        }
        other => panic!("{other:?}"),
    }
    outsider.execute_batch("COMMIT").expect("unlocked");
    assert_eq!(block_on(store.commit(fact(2))), Ok(Committed { last: Seq(1) }));
}

#[test]
fn trimming_keeps_the_newest_and_never_reuses_a_number() {
    let written = 10 + 3 * TRIM_STEP_EVENTS;
    let (directory, store) = fresh(Options { events_kept_max: 10, ..options() });
    for pid in 1..=written {
        block_on(store.commit(fact(pid as u32))).expect("written");
    }
    let began = Instant::now();
    while all(&store).events.len() as u64 >= 10 + TRIM_STEP_EVENTS {
        assert!(began.elapsed() < DEADLINE, "never trimmed");
        std::thread::yield_now();
    }
    let page = all(&store);
    assert_eq!((page.first_kept.0, page.last.0), (written - 9, written));
    assert_eq!(page.events.len(), 10);
    drop(store);

    // Even when nothing is left.
    outsider(directory.path()).execute_batch("DELETE FROM events").expect("deleted");
    let store = open(directory.path(), options());
    assert_eq!(all(&store), EventPage { events: vec![], first_kept: Seq(written + 1), last: Seq(written) });
    assert_eq!(block_on(store.commit(fact(1))), Ok(Committed { last: Seq(written + 1) }));
}

/// A million entries are 300 MB and more: who runs many short containers on a small disk had a store that filled it.
#[test]
fn the_journal_stays_within_its_bytes() {
    const BYTES_MAX: u64 = 1024 * 1024;
    const COMMITS: u64 = 40_000;
    let (directory, store) = fresh(Options { bytes_max: BYTES_MAX, ..options() });
    let mut largest = 0;
    for first in (1..=COMMITS).step_by(500) {
        let commits: Vec<_> = (first..first + 500).map(|pid| store.commit(fact(pid as u32))).collect();
        assert!(block_on(join_all(commits)).iter().all(Result::is_ok));
        largest = largest.max(in_use(directory.path()));
    }
    let began = Instant::now();
    // Up to a step of events more, as it is measured once for each.
    while in_use(directory.path()) > BYTES_MAX + BYTES_MAX / 8 {
        assert!(began.elapsed() < DEADLINE, "never trimmed");
        std::thread::yield_now();
    }
    assert!(largest < 2 * BYTES_MAX, "{largest} bytes were in use at a time");
    let page = all(&store);
    let kept = page.last.0 - page.first_kept.0 + 1;
    assert!((EVENTS_KEPT_MIN..COMMITS / 2).contains(&kept), "{kept} events are kept");
    assert_eq!(page.last.0, COMMITS);
    drop(store);
    let file = directory.path().join("store.db").metadata().expect("there").len();
    assert!(file < 2 * BYTES_MAX, "{file} bytes");
}

/// The records alone take more than the journal and they may: whoever follows it can resume all the same.
#[test]
fn the_newest_entries_stay_whatever_they_take() {
    let written = EVENTS_KEPT_MIN + 4 * TRIM_STEP_EVENTS;
    let (_directory, store) = fresh(Options { bytes_max: 1, ..options() });
    for first in (1..=written).step_by(64) {
        let commits: Vec<_> = (first..first + 64).map(|pid| store.commit(fact(pid as u32))).collect();
        assert!(block_on(join_all(commits)).iter().all(Result::is_ok));
    }
    let kept = |page: &EventPage| page.last.0 - page.first_kept.0 + 1;
    let began = Instant::now();
    while kept(&all(&store)) >= EVENTS_KEPT_MIN + TRIM_STEP_EVENTS {
        assert!(began.elapsed() < DEADLINE, "never trimmed");
        std::thread::yield_now();
    }
    assert!(kept(&all(&store)) >= EVENTS_KEPT_MIN);
}

/// Bytes of the database that are in use.
fn in_use(directory: &Path) -> u64 {
    let number = "SELECT (page_count - freelist_count) * page_size
                  FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    let bytes: i64 = outsider(directory).query_row(number, (), |row| row.get(0)).expect("a number");
    bytes.cast_unsigned()
}

/// Whoever was woken for `web` has its name, and not the id that it had.
#[test]
fn a_name_leads_to_those_that_had_it_until_the_journal_has_nothing_of_them() {
    let (directory, store) = fresh(Options { events_kept_max: 10, ..options() });
    let name = "web".parse().expect("a name");
    let named = |id: &str, at| {
        let mut record = container(id, "pod");
        (record.spec.name, record.created_at) = ("web".parse().expect("a name"), Timestamp(at));
        Change::PutContainer(Box::new(record))
    };
    let commit = |changes| block_on(store.commit(Commit { changes, facts: vec![] })).expect("written");
    let ids = |store: &SqliteStore| -> Vec<String> {
        let bearers = block_on(store.bearers(&name)).expect("readable");
        bearers.iter().map(|bearer| bearer.subject.container.as_ref().expect("one").to_string()).collect()
    };
    commit(vec![named("old", 1), named("lives", 2)]);
    commit(vec![Change::DeleteContainer("old".parse().expect("an id"))]);
    commit(vec![named("new", 3)]);
    assert_eq!(ids(&store), ["new", "lives", "old"]);
    for pid in 0..10 + TRIM_STEP_EVENTS {
        block_on(store.commit(fact(pid as u32))).expect("written");
    }
    commit(vec![Change::DeleteContainer("new".parse().expect("an id"))]);
    let began = Instant::now();
    while ids(&store).contains(&"old".to_owned()) {
        assert!(began.elapsed() < DEADLINE, "never forgotten");
        std::thread::yield_now();
    }
    assert_eq!(ids(&store), ["new", "lives"], "of one the journal may have something, the other is there");
    drop(store);
    assert_eq!(ids(&open(directory.path(), options())), ["new", "lives"]);
}

#[test]
fn closing_writes_what_is_queued_and_then_refuses() {
    let (directory, store) = fresh(options());
    let answers: Vec<_> = (1..=500).map(|pid| store.commit(fact(pid))).collect();
    store.close();
    assert!(block_on(join_all(answers)).iter().all(Result::is_ok));
    let closed = Err(Error::unavailable("store", "it is closed"));
    assert_eq!(block_on(store.commit(fact(501))), closed);
    assert_eq!(block_on(store.load()).map(drop), closed.map(|_: Committed| ()));
    // The lock is given back, and the log is folded in.
    assert_eq!(directory.path().join("store.db-wal").metadata().expect("there").len(), 0);
    assert_eq!(all(&open(directory.path(), options())).last, Seq(500));
}
