//! A disk that is full, and then is not.

use std::fs;
use std::io::Write;
use std::path::Path;

use futures::executor::block_on;
use futures::future::join_all;
use mainstay_actors::ports::{EventQuery, Store};
use mainstay_messages::Error;
use mainstay_messages::event::Seq;
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_store::SqliteStore;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

use crate::samples::{options, sandbox, started};

/// Room for the database, its log and some commits, and for [`BALLAST_LENGTH`].
const DISK_SIZE: &std::ffi::CStr = c"size=2m,mode=0700";
/// What is taken from the store, and then given back, in bytes.
const BALLAST_LENGTH: usize = 1024 * 1024;

/// Mounts a small disk where only this thread and those that it starts see it. It goes away with the thread.
fn small_disk(at: &Path) -> rustix::io::Result<()> {
    // SAFETY: the thread leaves the mount namespace and the file system attributes that it shared with others;
    // it shares no descriptor table by this, and nobody else relies on this thread's view.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), DISK_SIZE)
}

fn commit(pid: u32) -> Commit {
    let mut record = sandbox(&format!("pod{pid}"));
    record.reason = Some("x".repeat(20_000));
    Commit { changes: vec![Change::PutSandbox(Box::new(record))], facts: vec![started("pod", "box", pid)] }
}

/// Says that the test on this thread is skipped, past the macros, whose output the harness swallows.
fn skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// The root file system of a node fills up. Writes must fail with a typed error, take no number and lose
/// nothing that was answered; reads must go on, a restart included: the pods that run have to be found again; and
/// when there is room again, the store must work again without a restart.
#[test]
fn a_full_disk_refuses_writes_and_heals() {
    if !rustix::process::geteuid().is_root() {
        skipped("mounting a small disk needs root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    match small_disk(directory.path()) {
        Ok(()) => {}
        Err(errno) => {
            skipped(&format!("a small disk cannot be mounted here: {errno}"));
            return;
        }
    }
    let ballast = directory.path().join("ballast");
    fs::write(&ballast, vec![0; BALLAST_LENGTH]).expect("room for it");
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path, options()).expect("opens").store;

    let mut written = 0;
    let failure = loop {
        match block_on(store.commit(commit(written + 1))) {
            Ok(committed) => {
                written += 1;
                assert_eq!(committed.last, Seq(u64::from(written)));
            }
            Err(error) => break error,
        }
    };
    let what = format!("store {}", path.display());
    let reason = "database or disk is full; make room on that disk and ask again";
    assert_eq!(failure, Error::unavailable(what, reason));
    assert!(written > 0);
    // A group too, and again and again.
    for _ in 0..3 {
        let answers = block_on(join_all((0..8).map(|n| store.commit(commit(1_000 + n)))));
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable { .. }))), "{answers:?}");
    }
    let loaded = block_on(store.load()).expect("reads go on");
    assert_eq!((loaded.sandboxes.len(), loaded.last), (written as usize, Seq(u64::from(written))));

    drop(store);
    let store = SqliteStore::open(&path, options()).expect("opens on a full disk").store;
    assert_eq!(block_on(store.load()).expect("reads go on").sandboxes.len(), written as usize);
    assert!(matches!(block_on(store.commit(commit(2_000))), Err(Error::Unavailable { .. })));

    fs::remove_file(&ballast).expect("removed");
    let healed = block_on(store.commit(commit(written + 1)));
    assert_eq!(healed, Ok(Committed { last: Seq(u64::from(written) + 1) }));
    drop(store);

    let store = SqliteStore::open(&path, options()).expect("opens").store;
    let page = block_on(store.events(EventQuery { after: Seq(0), limit: 10_000, subject: None }));
    let numbers: Vec<_> = page.expect("readable").events.iter().map(|event| event.seq.0).collect();
    assert_eq!(numbers, (1..=u64::from(written) + 1).collect::<Vec<_>>());
}
