//! The writer: the one thread that changes the database.
//!
//! It owns the writing connection, the numbers of the journal and the store's lock; how much of the journal is kept is
//! decided in `trim`.
//!
//! ```text
//!            ┌──────────────── queue empty, nothing to trim ──── waits
//!            ▼                                                     │ job
//!   drain up to COMMIT_GROUP_MAX ◄─────────────────────────────────┘
//!            │ one transaction, one savepoint for each commit
//!            ▼
//!   answer in order ──► trim one step, if due ──► (from the top)
//! ```
//!
//! A commit that fails by itself is rolled back to its savepoint and takes no numbers. A transaction that fails
//! as a whole (disk full, say) is tried again commit by commit, so that what fits is written. After a failure
//! the connection stays as it is: the next group tries anew, and succeeds when the disk does.
//!
//! Never reads records, never gives up because of an error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, TryRecvError};
use futures::channel::oneshot;
use mainstay_messages::Result;
use mainstay_messages::event::Seq;
use mainstay_messages::journal::Committed;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::{is_damage, unavailable};
use crate::lock::StoreLock;
use crate::names;
use crate::row::{FactRow, RowChange, Rows};
use crate::trim::{Keep, Trim};

/// The most commits that are written in one transaction.
pub const COMMIT_GROUP_MAX: usize = 256;

/// What has been written since the store was opened.
#[derive(Debug, Default)]
pub struct Written {
    commits: AtomicU64,
    transactions: AtomicU64,
    write_us: AtomicU64,
    facts: AtomicU64,
    fact_bytes: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
}

/// A write that failed, after which none has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// When the last one failed.
    pub at: Instant,
    /// Why.
    pub reason: String,
}

/// A commit and whoever waits for it.
pub(crate) struct Job {
    pub(crate) rows: Rows,
    pub(crate) answer: oneshot::Sender<Result<Committed>>,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    connection: Connection,
    /// Number of the last fact that was written.
    last: u64,
    trim: Trim,
    health: Health,
    mark: Mark,
    damage: DamageSeen,
    written: Arc<Written>,
    /// Held as long as the connection may write.
    _lock: StoreLock,
}

/// Whether the last write succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Sound,
    Failing,
}

/// Whether the file says that it is in use, and in which run of the machine.
///
/// That is written together with the first commit, not at the start: a full disk must not keep the runtime from
/// starting, and until there is a commit nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    Due { boot_id: String },
    Made,
}

/// Set by whoever sees damage in the file, so that the next start checks all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DamageSeen(Arc<AtomicBool>);

/// The next thing to do.
enum Next {
    Write(Job),
    Trim,
    End,
}

impl Written {
    /// Commits.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Transactions that they were written in.
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Time that these took, in microseconds.
    pub fn write_us(&self) -> u64 {
        self.write_us.load(Ordering::Relaxed)
    }

    /// Facts.
    pub fn facts(&self) -> u64 {
        self.facts.load(Ordering::Relaxed)
    }

    /// Length of their bodies, in bytes.
    pub fn fact_bytes(&self) -> u64 {
        self.fact_bytes.load(Ordering::Relaxed)
    }

    /// What is wrong, as far as the last write tells: there may have been none since.
    pub fn trouble(&self) -> Option<Trouble> {
        // The lock guards one assignment.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn add_facts(&self, facts: &[FactRow]) {
        let bytes: usize = facts.iter().map(|fact| fact.body.len()).sum();
        self.facts.fetch_add(facts.len() as u64, Ordering::Relaxed);
        self.fact_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn add(&self, commits: usize, begun: Instant) {
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.write_us.fetch_add(took_us, Ordering::Relaxed);
    }
}

impl DamageSeen {
    /// Remembers the error if it means damage.
    pub(crate) fn note(&self, error: &rusqlite::Error) {
        if is_damage(error) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Takes over the writing connection of a store whose last fact has the number `last`, in the machine's run
    /// `boot_id`.
    pub(crate) fn new(
        connection: Connection,
        lock: StoreLock,
        last: u64,
        boot_id: String,
        keep: Keep,
        damage: DamageSeen,
        written: Arc<Written>,
    ) -> rusqlite::Result<Self> {
        let trim = Trim::new(&connection, keep, last)?;
        Ok(Self {
            connection,
            last,
            trim,
            health: Health::Sound,
            mark: Mark::Due { boot_id },
            damage,
            written,
            _lock: lock,
        })
    }

    /// Works until the queue is disconnected and empty.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        let mut group = Vec::with_capacity(COMMIT_GROUP_MAX);
        loop {
            match self.next(jobs) {
                Next::End => break,
                Next::Trim => self.trim(),
                Next::Write(job) => {
                    group.push(job);
                    group.extend(jobs.try_iter().take(COMMIT_GROUP_MAX - 1));
                    self.write(&mut group);
                    if self.is_trim_due() {
                        self.trim();
                    }
                }
            }
        }
        self.close();
    }

    fn next(&self, jobs: &Receiver<Job>) -> Next {
        if !self.is_trim_due() {
            return jobs.recv().map_or(Next::End, Next::Write);
        }
        match jobs.try_recv() {
            Ok(job) => Next::Write(job),
            Err(TryRecvError::Empty) => Next::Trim,
            Err(TryRecvError::Disconnected) => Next::End,
        }
    }

    /// Writes a group and answers each of its commits, in order.
    fn write(&mut self, group: &mut Vec<Job>) {
        let begun = Instant::now();
        match self.transact(group) {
            Ok(outcomes) => {
                self.written.add(group.len(), begun);
                self.healed();
                for (job, outcome) in group.drain(..).zip(outcomes) {
                    if outcome.is_ok() {
                        self.written.add_facts(&job.rows.facts);
                    }
                    job.answer(outcome);
                }
            }
            Err(error) if group.len() == 1 => {
                self.failed(&error);
                for job in group.drain(..) {
                    job.answer(Err(unavailable(&self.connection, &error)));
                }
            }
            Err(error) => {
                tracing::debug!(%error, commits = group.len(), "a group failed as a whole; its commits are tried one by one");
                for job in group.drain(..) {
                    self.write(&mut vec![job]);
                }
            }
        }
    }

    /// Writes a group in one transaction. The outer error means that nothing of it was written.
    fn transact(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Result<Committed>>> {
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut last = self.last;
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group {
            let savepoint = transaction.savepoint()?;
            match apply(&savepoint, &job.rows, last) {
                Ok(reached) => {
                    savepoint.commit()?;
                    last = reached;
                    outcomes.push(Ok(Committed { last: Seq(last) }));
                }
                // SQLite gave up the whole transaction: nothing of the group is left in it.
                Err(error) if savepoint.is_autocommit() => return Err(error),
                Err(error) => {
                    savepoint.finish()?;
                    self.damage.note(&error);
                    tracing::warn!(%error, "a commit was refused by the database");
                    outcomes.push(Err(unavailable(&transaction, &error)));
                }
            }
        }
        if let Mark::Due { boot_id } = &self.mark {
            transaction.execute("UPDATE state SET condition = 'open', boot_id = ?1", [boot_id])?;
        }
        if last != self.last {
            set_last(&transaction, last)?;
        }
        transaction.commit()?;
        self.mark = Mark::Made;
        self.last = last;
        self.trim.written(&self.connection, last);
        Ok(outcomes)
    }

    fn is_trim_due(&self) -> bool {
        // After a failure, trimming waits for a write to succeed, so that it is not tried in a loop.
        self.health == Health::Sound && self.trim.is_due(self.last)
    }

    /// Deletes the oldest events, one step.
    fn trim(&mut self) {
        if let Err(error) = self.trim.step(&self.connection, self.last) {
            self.failed(&error);
        }
    }

    fn healed(&mut self) {
        if self.health == Health::Failing {
            tracing::info!("the store can be written again");
            self.health = Health::Sound;
            self.written.set_trouble(None);
        }
    }

    fn failed(&mut self, error: &rusqlite::Error) {
        if self.health == Health::Sound {
            tracing::error!(%error, "the store cannot be written; changes are refused until it can");
            self.health = Health::Failing;
        }
        self.written.set_trouble(Some(Trouble { at: Instant::now(), reason: error.to_string() }));
        self.damage.note(error);
    }

    /// Leaves the file so that the next start knows what to expect of it, with the log folded in.
    fn close(self) {
        let condition = if self.damage.is_set() { "suspect" } else { "closed" };
        let closed = self
            .connection
            .execute("UPDATE state SET condition = ?1", [condition])
            .and_then(|_| self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())))
            .and_then(|()| self.connection.close().map_err(|(_, error)| error));
        if let Err(error) = closed {
            tracing::warn!(%error, "the store was not closed cleanly; nothing is lost by that");
        }
    }
}

impl Job {
    fn answer(self, outcome: Result<Committed>) {
        // Whoever asked may have gone; what was written stays written.
        let _ = self.answer.send(outcome);
    }
}

/// Writes one commit and answers the number of its last fact.
fn apply(transaction: &Connection, rows: &Rows, mut last: u64) -> rusqlite::Result<u64> {
    for change in &rows.changes {
        apply_change(transaction, change)?;
        names::follow(transaction, change, last + rows.facts.len() as u64)?;
    }
    if rows.facts.is_empty() {
        return Ok(last);
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO events (seq, at, sandbox, container, exec, kind, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for FactRow { at, subject, kind, body } in &rows.facts {
        last += 1;
        insert.execute((
            last.cast_signed(),
            at,
            subject.sandbox.as_ref().map(|id| id.as_str()),
            subject.container.as_ref().map(|id| id.as_str()),
            subject.exec.as_ref().map(|id| id.as_str()),
            kind,
            body,
        ))?;
    }
    Ok(last)
}

fn apply_change(transaction: &Connection, change: &RowChange) -> rusqlite::Result<()> {
    match change {
        RowChange::PutSandbox(row) => transaction
            .prepare_cached(
                "INSERT INTO sandboxes (id, name, phase, created_at, body) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET name = ?2, phase = ?3, created_at = ?4, body = ?5",
            )?
            .execute((row.id.as_str(), &row.name, row.phase, row.created_at, &row.body))?,
        RowChange::PutContainer(row) => transaction
            .prepare_cached(
                "INSERT INTO containers (id, name, sandbox, phase, created_at, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (id) DO UPDATE SET name = ?2, sandbox = ?3, phase = ?4, created_at = ?5, body = ?6",
            )?
            .execute((row.id.as_str(), &row.name, row.sandbox.as_str(), row.phase, row.created_at, &row.body))?,
        RowChange::DeleteSandbox(id) => {
            transaction.prepare_cached("DELETE FROM sandboxes WHERE id = ?1")?.execute([id.as_str()])?
        }
        RowChange::DeleteContainer(id) => {
            transaction.prepare_cached("DELETE FROM containers WHERE id = ?1")?.execute([id.as_str()])?
        }
    };
    Ok(())
}

fn set_last(transaction: &Transaction<'_>, last: u64) -> rusqlite::Result<()> {
    transaction.prepare_cached("UPDATE state SET last_seq = ?1")?.execute([last.cast_signed()]).map(drop)
}
