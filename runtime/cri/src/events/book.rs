//! Who reads events, and how far they have come.
//!
//! ```text
//!            open               left                 events_resume_ms later
//!  (nothing) ────► reading ───────────► away ──────────────────────────────► (nothing)
//!                     ▲                   │ open
//!                     └───────────────────┘
//! ```
//!
//! Of several streams of one client, the last one counts that was opened.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay::{SandboxId, Seq};
use tonic::Request;
use tonic::transport::server::UdsConnectInfo;

use crate::limits::EVENT_CLIENTS_MAX;

/// Who reads events: a program of a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    user: Option<u32>,
    program: Program,
}

/// What a client is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Program {
    /// Its file: the same after it was started again.
    File(PathBuf),
    /// Its process, where the file cannot be found out.
    Process(i32),
    Unknown,
}

/// How far one stream has come.
#[derive(Debug)]
pub(crate) struct Track {
    position: AtomicU64,
    /// Pods of which it was said that they have ended.
    pub(super) ended: Mutex<HashSet<SandboxId>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    pages: Mutex<HashMap<Client, Page>>,
    begun: Instant,
}

#[derive(Debug)]
struct Page {
    track: Arc<Track>,
    /// When its last stream ended; none while it reads.
    left_at: Option<Instant>,
}

impl Client {
    /// Who makes a call.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let process = peer.and_then(|peer| peer.pid());
        let file =
            |pid| std::fs::read_link(format!("/proc/{pid}/exe")).map_or(Program::Process(pid), Program::File);
        Self { user: peer.map(|peer| peer.uid()), program: process.map_or(Program::Unknown, file) }
    }
}

impl Track {
    fn new(position: Seq, ended: HashSet<SandboxId>) -> Arc<Self> {
        Arc::new(Self { position: AtomicU64::new(position.0), ended: Mutex::new(ended) })
    }

    /// The client has all up to here.
    pub(super) fn has(&self, position: Seq) {
        self.position.fetch_max(position.0, Ordering::Relaxed);
    }

    fn position(&self) -> Seq {
        Seq(self.position.load(Ordering::Relaxed))
    }

    pub(super) fn ended(&self) -> MutexGuard<'_, HashSet<SandboxId>> {
        // Each change of the set is one call, so that a poisoned lock holds a sound set.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Book {
    fn default() -> Self {
        Self { pages: Mutex::default(), begun: Instant::now() }
    }
}

impl Book {
    /// A client opens a stream: after which entry it begins. `last` is the newest one, `began` the newest one from before this
    /// program began.
    pub(super) fn open(&self, client: &Client, resume: Duration, last: Seq, began: Seq) -> (Seq, Arc<Track>) {
        let now = Instant::now();
        let mut pages = self.pages();
        pages.retain(|_, page| page.left_at.is_none_or(|at| now.duration_since(at) < resume));
        let track = match pages.get(client) {
            Some(Page { track, .. }) => Track::new(track.position(), track.ended().clone()),
            None if now.duration_since(self.begun) < resume => Track::new(began, HashSet::new()),
            None => Track::new(last, HashSet::new()),
        };
        make_room(&mut pages);
        pages.insert(client.clone(), Page { track: Arc::clone(&track), left_at: None });
        (track.position(), track)
    }

    /// A stream has ended.
    pub(super) fn left(&self, client: &Client, track: &Arc<Track>) {
        if let Some(page) = self.pages().get_mut(client)
            && Arc::ptr_eq(&page.track, track)
        {
            page.left_at = Some(Instant::now());
        }
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<Client, Page>> {
        // Each change of the map is one call, so that a poisoned lock holds a sound map.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of too many clients, the one that has been away for longest is forgotten.
fn make_room(pages: &mut HashMap<Client, Page>) {
    while pages.len() >= EVENT_CLIENTS_MAX {
        let away = pages.iter().filter_map(|(client, page)| Some((page.left_at?, client)));
        let Some((_, longest)) = away.min_by_key(|(at, _)| *at) else { return };
        let longest = longest.clone();
        pages.remove(&longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESUME: Duration = Duration::from_secs(60);

    fn client(number: i32) -> Client {
        Client { user: Some(0), program: Program::Process(number) }
    }

    fn book() -> Book {
        let begun = Instant::now().checked_sub(2 * RESUME).expect("a machine that runs for a while");
        Book { begun, ..Book::default() }
    }

    #[test]
    fn a_client_that_comes_back_goes_on_and_a_new_one_begins_now() {
        let book = book();
        let (after, track) = book.open(&client(1), RESUME, Seq(10), Seq(3));
        assert_eq!(after, Seq(10));
        track.has(Seq(12));
        track.has(Seq(11));
        book.left(&client(1), &track);
        assert_eq!(book.open(&client(2), RESUME, Seq(20), Seq(3)).0, Seq(20));
        let (after, again) = book.open(&client(1), RESUME, Seq(20), Seq(3));
        assert_eq!(after, Seq(12));
        // Its first stream was given up before that was noticed.
        book.left(&client(1), &track);
        again.has(Seq(15));
        assert_eq!(book.open(&client(1), RESUME, Seq(20), Seq(3)).0, Seq(15));
    }

    #[test]
    fn a_client_that_was_away_for_too_long_begins_now() {
        let book = book();
        let (_, track) = book.open(&client(1), RESUME, Seq(10), Seq(3));
        book.left(&client(1), &track);
        assert_eq!(book.open(&client(1), Duration::ZERO, Seq(20), Seq(3)).0, Seq(20));
    }

    #[test]
    fn soon_after_the_start_nobody_has_missed_anything() {
        let book = Book::default();
        assert_eq!(book.open(&client(1), RESUME, Seq(10), Seq(3)).0, Seq(3));
    }

    #[test]
    fn of_too_many_clients_those_who_are_away_are_forgotten_first() {
        let book = book();
        let number = |number: usize| i32::try_from(number).expect("small");
        let (_, away) = book.open(&client(0), RESUME, Seq(1), Seq(0));
        for other in 1..EVENT_CLIENTS_MAX {
            book.open(&client(number(other)), RESUME, Seq(1), Seq(0));
        }
        book.left(&client(0), &away);
        book.open(&client(number(EVENT_CLIENTS_MAX)), RESUME, Seq(1), Seq(0));
        let pages = book.pages();
        assert!(pages.len() <= EVENT_CLIENTS_MAX && !pages.contains_key(&client(0)));
    }
}
