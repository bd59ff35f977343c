//! What is found at the path, and what becomes of it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::executor::block_on;
use mainstay_actors::ports::{EventQuery, Store};
use mainstay_messages::Error;
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Seq, Subject};
use mainstay_messages::journal::{Change, Commit};
use mainstay_store::{Options, SqliteStore, StoreError};
use rstest::rstest;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::samples::{container, options, sandbox, started};

/// Enough for a journal of many pages.
const EVENTS: u32 = 3_000;

/// A store with a pod, a container and a journal, closed.
fn written() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path, options()).expect("opens").store;
    let commit = Commit {
        changes: vec![
            Change::PutSandbox(Box::new(sandbox("pod"))),
            Change::PutContainer(Box::new(container("box", "pod"))),
        ],
        facts: (1..=EVENTS).map(|pid| started("pod", "box", pid)).collect(),
    };
    block_on(store.commit(commit)).expect("written");
    drop(store);
    (directory, path)
}

fn sql(path: &Path, statements: &str) {
    Connection::open(path).expect("opens").execute_batch(statements).expect("runs");
}

fn refused(path: &Path) -> StoreError {
    SqliteStore::open(path, options()).expect_err("must be refused")
}

/// Overwrites the root page of a table.
fn scribble_over(path: &Path, table: &str) {
    let connection = Connection::open(path).expect("opens");
    let page: u64 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [table], |row| row.get::<_, i64>(0))
        .expect("there")
        .cast_unsigned();
    connection.close().expect("closed");
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.write_all_at(&[0x5a; 4_096], (page - 1) * 4_096).expect("written");
}

#[test]
fn a_second_daemon_is_told_who_is_first() {
    let (_directory, path) = written();
    let first = SqliteStore::open(&path, options()).expect("opens").store;
    let error = refused(&path);
    assert!(
        matches!(error, StoreError::Locked { holder: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    first.close();
    SqliteStore::open(&path, options()).expect("the lock is free again");
}

#[test]
fn a_store_of_the_first_schema_is_brought_up() {
    let (_directory, path) = written();
    sql(&path, "DROP TABLE names; PRAGMA user_version = 1");
    let store = SqliteStore::open(&path, options()).expect("opens").store;
    let bearers = |name: &str| block_on(store.bearers(&name.parse().expect("a name"))).expect("readable");
    assert_eq!(bearers("name-pod")[0].subject, Subject::sandbox(&"pod".parse().expect("an id")));
    assert_eq!(bearers("name-box")[0].subject.container, Some("box".parse().expect("an id")));
    assert!(bearers("other").is_empty());
    let query = EventQuery { after: Seq(0), limit: 1, subject: None };
    assert_eq!(block_on(store.events(query)).expect("readable").last, Seq(EVENTS.into()));
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (_directory, path) = written();
    sql(&path, "PRAGMA user_version = 99");
    let before = fs::read(&path).expect("readable");
    let error = refused(&path);
    assert!(matches!(error, StoreError::NewerSchema { found: 99, known: 2, .. }), "{error}");
    assert_eq!(fs::read(&path).expect("readable"), before);
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    sql(&path, "CREATE TABLE theirs (x)");
    let before = fs::read(&path).expect("readable");
    assert!(matches!(refused(&path), StoreError::Foreign { application_id: 0, .. }));
    assert_eq!(fs::read(&path).expect("readable"), before);
}

#[test]
fn a_missing_directory_is_named() {
    let error = refused(Path::new("/nonexistent/directory/store.db"));
    assert!(error.to_string().contains("/nonexistent/directory/store.db"), "{error}");
}

#[test]
fn only_the_owner_can_read_it() {
    let (directory, path) = written();
    let store = SqliteStore::open(&path, options()).expect("opens").store;
    block_on(store.commit(Commit::default())).expect("written");
    for entry in fs::read_dir(directory.path()).expect("readable") {
        let entry = entry.expect("readable");
        let mode = entry.metadata().expect("readable").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

fn garbage(path: &Path) {
    fs::write(path, b"this was never a database".repeat(1_000)).expect("written");
}

fn cut_short(path: &Path) {
    File::options().write(true).open(path).and_then(|file| file.set_len(8_192)).expect("cut");
}

fn no_table(path: &Path) {
    sql(path, "DROP TABLE containers");
}

fn no_state(path: &Path) {
    sql(path, "DELETE FROM state");
}

fn damaged_records(path: &Path) {
    scribble_over(path, "containers");
}

fn log_without_database(path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::rename(path, log).expect("renamed");
}

/// A store that cannot be used must cost nobody the daemon, and nobody the evidence: it is kept under another
/// name, and the numbers of its journal do not come again.
#[rstest]
#[case::garbage(garbage)]
#[case::cut_short(cut_short)]
#[case::no_table(no_table)]
#[case::no_state(no_state)]
#[case::damaged_records(damaged_records)]
#[case::log_without_database(log_without_database)]
fn a_damaged_store_is_set_aside(#[case] damage: fn(&Path)) {
    let (_directory, path) = written();
    damage(&path);
    let whole: Vec<_> = contents(&path);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;

    let opened = SqliteStore::open(&path, options()).expect("opens all the same");
    let aside = opened.set_aside.expect("it was damaged");
    assert!(contents(&aside).iter().any(|kept| whole.contains(kept)), "its content is kept as it was");
    let loaded = block_on(opened.store.load()).expect("readable");
    assert_eq!((loaded.sandboxes, loaded.containers, loaded.boot_id), (vec![], vec![], None));
    assert!(loaded.last.0 >= began);
    let committed =
        block_on(opened.store.commit(Commit { changes: vec![], facts: vec![started("a", "b", 1)] }));
    assert_eq!(committed.expect("written").last, loaded.last.next());
    let page = block_on(opened.store.events(EventQuery { after: Seq(0), limit: 9, subject: None }));
    assert_eq!(page.expect("readable").first_kept, loaded.last.next());
    drop(opened.store);

    let again = SqliteStore::open(&path, options()).expect("opens");
    assert_eq!(again.set_aside, None);
}

/// The contents of a database file and of its log, as far as they are there.
fn contents(path: &Path) -> Vec<Vec<u8>> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    [path.as_os_str(), &log].into_iter().filter_map(|file| fs::read(file).ok()).collect()
}

/// Checking all of a long journal takes seconds, so it is done only when there is a reason: the machine went
/// down with the store open, or the last run saw damage.
#[rstest]
#[case::closed("closed", "another boot", false)]
#[case::killed("open", crate::samples::BOOT, false)]
#[case::power_cut("open", "another boot", true)]
#[case::damage_was_seen("suspect", crate::samples::BOOT, true)]
fn the_journal_is_checked_when_in_doubt(#[case] condition: &str, #[case] boot: &str, #[case] checked: bool) {
    let (_directory, path) = written();
    sql(&path, &format!("UPDATE state SET condition = '{condition}'"));
    // An index: nothing at the start needs it.
    scribble_over(&path, "events_by_container");
    let opened = SqliteStore::open(&path, Options::new(boot)).expect("opens");
    assert_eq!(opened.set_aside.is_some(), checked);
}

/// Damage that is met while running is an error of that one request, and makes the next start check everything.
#[test]
fn damage_that_is_met_is_remembered() {
    let (_directory, path) = written();
    scribble_over(&path, "events_by_container");
    let opened = SqliteStore::open(&path, options()).expect("opens");
    let fact = Commit { changes: vec![], facts: vec![started("pod", "box", 1)] };
    assert!(matches!(block_on(opened.store.commit(fact)), Err(Error::Unavailable { .. })));
    let change = Commit { changes: vec![Change::DeleteSandbox("pod".parse().expect("good"))], facts: vec![] };
    assert!(block_on(opened.store.commit(change)).is_ok(), "what does not touch the damage goes on");
    drop(opened.store);
    assert!(SqliteStore::open(&path, options()).expect("opens").set_aside.is_some());
}

/// containerd skipped what it could not load, and left its processes running with nobody to know of them. Here
/// a record that cannot be read is named.
#[test]
fn a_damaged_record_is_reported() {
    let (_directory, path) = written();
    sql(
        &path,
        "UPDATE containers SET body = '{\"id\":' WHERE id = 'box';
         INSERT INTO sandboxes SELECT 'twin', name, phase, created_at, body FROM sandboxes;
         INSERT INTO sandboxes SELECT 'b/ad', name, phase, created_at, CAST(x'ff00' AS TEXT) FROM sandboxes LIMIT 1;
         UPDATE events SET body = '{\"from_the_future\":{}}' WHERE seq = 2",
    );
    let store = SqliteStore::open(&path, options()).expect("opens").store;
    let loaded = block_on(store.load()).expect("readable");
    assert_eq!(loaded.sandboxes, [sandbox("pod")]);
    let mut damaged: Vec<_> = loaded.damaged.iter().map(|row| (row.kind, row.id.as_str())).collect();
    damaged.sort_by_key(|(_, id)| *id);
    assert_eq!(damaged, [(Kind::Sandbox, "b/ad"), (Kind::Container, "box"), (Kind::Sandbox, "twin")]);
    let id = "box".parse().expect("good");
    assert!(matches!(block_on(store.load_container(&id)), Err(Error::Internal { .. })));

    // An event that cannot be read leaves a visible gap and stops nobody.
    let page =
        block_on(store.events(EventQuery { after: Seq(0), limit: 2, subject: None })).expect("readable");
    assert_eq!(page.events.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [1, 3]);
}
