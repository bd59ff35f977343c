//! Who reads events, and how far they have come.
//!
//! ```text
//!            open               left                 events_resume_ms later
//!  (nothing) ────► reading ───────────► away ──────────────────────────────► (nothing)
//!                     ▲                   │ open
//!                     └───────────────────┘
//! ```
//!
//! A page belongs to a process. Another process of the same program and user takes it over once it was left: it is the same client, started
//! again. While it is read, the other one gets a page of its own, which begins where the first one has come. Of several streams of one
//! process, the last one counts that was opened.
//!
//! All of it is in memory; `keeping` writes down what the next daemon has to know.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay::{SandboxId, Seq};
use tokio::sync::Notify;
use tonic::Request;
use tonic::transport::server::UdsConnectInfo;

use super::keeping::Reader;
use crate::limits::EVENT_CLIENTS_MAX;

/// Who reads events: a program of a user, and which process of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    user: Option<u32>,
    program: Program,
    process: Option<i32>,
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
    place: Mutex<Place>,
    /// Told when it has come further.
    changed: Arc<Notify>,
}

/// What a client has: both halves belong to the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    position: Seq,
    /// Pods of which it was said that they have ended.
    ended: HashSet<SandboxId>,
}

/// What a message changes in the pods of which it was said that they have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The message says that it has ended.
    Ended(SandboxId),
    /// Nothing more comes of it.
    Gone(SandboxId),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    pages: Mutex<HashMap<Client, Page>>,
    begun: Instant,
    changed: Arc<Notify>,
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
        Self { user: peer.map(|peer| peer.uid()), program: process.map_or(Program::Unknown, file), process }
    }

    /// Whether the other one may be the same client, started again.
    fn is_program_of(&self, other: &Self) -> bool {
        (self.user, &self.program) == (other.user, &other.program)
    }
}

impl Change {
    pub(super) fn apply(self, ended: &mut HashSet<SandboxId>) {
        match self {
            Self::Ended(pod) => {
                ended.insert(pod);
            }
            Self::Gone(pod) => {
                ended.remove(&pod);
            }
        }
    }
}

impl Track {
    fn new(place: Place, changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(place), changed: Arc::clone(changed) })
    }

    /// The client has all up to here, and knows of this change.
    pub(super) fn has(&self, position: Seq, change: Option<Change>) {
        let mut place = self.lock();
        place.position = place.position.max(position);
        if let Some(change) = change {
            change.apply(&mut place.ended);
        }
        self.changed.notify_one();
    }

    /// The pods of which the client was told that they have ended.
    pub(super) fn ended(&self) -> HashSet<SandboxId> {
        self.lock().ended.clone()
    }

    /// The newest entry of which the client has all.
    pub(super) fn position(&self) -> Seq {
        self.lock().position
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        // Nothing panics while it is held, so that a poisoned lock holds a sound place.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn at(position: Seq) -> Self {
        Self { position, ended: HashSet::new() }
    }
}

impl Default for Book {
    fn default() -> Self {
        Self { pages: Mutex::default(), begun: Instant::now(), changed: Arc::default() }
    }
}

impl Book {
    /// A book in which those have a page that had come somewhere with the daemon before; they have just left.
    pub(super) fn of(readers: Vec<Reader>) -> Self {
        let book = Self::default();
        let pages = readers.into_iter().map(|reader| {
            let Reader { user, program, position, ended } = reader;
            let place = Place { position, ended: ended.into_iter().collect() };
            let client = Client { user, program: Program::File(program), process: None };
            (client, Page { track: Track::new(place, &book.changed), left_at: Some(book.begun) })
        });
        *book.pages() = pages.collect();
        book
    }

    /// What is to be known of its clients later: of those that a program's file tells from others.
    pub(super) fn readers(&self) -> Vec<Reader> {
        let pages = self.pages();
        // Two processes of one program are one reader then: nothing is left out for the one that has not come so far.
        let mut readers: HashMap<(Option<u32>, &PathBuf), Place> = HashMap::new();
        for (client, page) in pages.iter() {
            let Program::File(program) = &client.program else { continue };
            let place = page.track.lock().clone();
            let known = readers.entry((client.user, program)).or_insert_with(|| place.clone());
            if place.position < known.position {
                *known = place;
            }
        }
        let reader = |((user, program), place): ((Option<u32>, &PathBuf), Place)| Reader {
            user,
            program: program.clone(),
            position: place.position,
            ended: place.ended.into_iter().collect(),
        };
        readers.into_iter().map(reader).collect()
    }

    /// Told when a client has come further.
    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// A client opens a stream: after which entry it begins. `last` is the newest one, `began` the newest one from before this
    /// program began.
    pub(super) fn open(&self, client: &Client, resume: Duration, last: Seq, began: Seq) -> (Seq, Arc<Track>) {
        let now = Instant::now();
        let mut pages = self.pages();
        pages.retain(|_, page| page.left_at.is_none_or(|at| now.duration_since(at) < resume));
        let track = match before(&pages, client) {
            Some((owner, page)) => {
                let track = Track::new(page.track.lock().clone(), &self.changed);
                if page.left_at.is_some() {
                    let owner = owner.clone();
                    pages.remove(&owner);
                }
                track
            }
            None if now.duration_since(self.begun) < resume => Track::new(Place::at(began), &self.changed),
            None => Track::new(Place::at(last), &self.changed),
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

/// Where a client goes on: on its own page, else on the one that was left last by its program, else beside one that is read.
fn before<'a>(pages: &'a HashMap<Client, Page>, client: &Client) -> Option<(&'a Client, &'a Page)> {
    let of_program = || pages.iter().filter(|(other, _)| other.is_program_of(client));
    pages.get_key_value(client).or_else(|| of_program().max_by_key(|(_, page)| page.left_at))
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
        Client { user: Some(0), program: Program::Process(number), process: Some(number) }
    }

    fn kubelet(process: i32) -> Client {
        Client { user: Some(0), program: Program::File("/usr/bin/kubelet".into()), process: Some(process) }
    }

    fn pod() -> SandboxId {
        SandboxId::from_random([7; 16])
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
        track.has(Seq(12), None);
        track.has(Seq(11), None);
        book.left(&client(1), &track);
        assert_eq!(book.open(&client(2), RESUME, Seq(20), Seq(3)).0, Seq(20));
        let (after, again) = book.open(&client(1), RESUME, Seq(20), Seq(3));
        assert_eq!(after, Seq(12));
        // Its first stream was given up before that was noticed.
        book.left(&client(1), &track);
        again.has(Seq(15), None);
        assert_eq!(book.open(&client(1), RESUME, Seq(20), Seq(3)).0, Seq(15));
    }

    /// A program that was started again is another process, and the same client.
    #[test]
    fn a_program_that_was_started_again_takes_over_the_page_that_it_has_left() {
        let book = book();
        let (_, track) = book.open(&kubelet(1), RESUME, Seq(10), Seq(3));
        track.has(Seq(12), None);
        book.left(&kubelet(1), &track);
        assert_eq!(book.open(&kubelet(2), RESUME, Seq(20), Seq(3)).0, Seq(12));
        assert_eq!(book.pages().keys().collect::<Vec<_>>(), [&kubelet(2)]);
    }

    /// Two processes of one program shared one place: the second one took the page while the first one read, and when both came back
    /// one of them had what the other one had read.
    #[test]
    fn two_processes_of_one_program_that_read_at_once_have_a_page_each() {
        let book = book();
        let (_, first) = book.open(&kubelet(1), RESUME, Seq(10), Seq(3));
        first.has(Seq(11), None);
        let (after, second) = book.open(&kubelet(2), RESUME, Seq(20), Seq(3));
        assert_eq!(after, Seq(11), "it may be the first one, started again before that was noticed");
        second.has(Seq(30), None);
        first.has(Seq(15), None);
        book.left(&kubelet(2), &second);
        book.left(&kubelet(1), &first);
        assert_eq!(book.open(&kubelet(1), RESUME, Seq(40), Seq(3)).0, Seq(15));
        assert_eq!(book.open(&kubelet(2), RESUME, Seq(40), Seq(3)).0, Seq(30));
    }

    #[test]
    fn what_was_said_of_a_pod_is_known_when_its_client_comes_back() {
        let (book, pod) = (book(), pod());
        let (_, track) = book.open(&client(1), RESUME, Seq(10), Seq(3));
        track.has(Seq(11), Some(Change::Ended(pod.clone())));
        let (_, again) = book.open(&client(1), RESUME, Seq(20), Seq(3));
        assert_eq!(again.ended(), HashSet::from([pod.clone()]));
        again.has(Seq(12), Some(Change::Gone(pod)));
        assert_eq!(again.ended(), HashSet::new());
    }

    #[test]
    fn a_client_that_was_away_for_too_long_begins_now() {
        let book = book();
        let (_, track) = book.open(&client(1), RESUME, Seq(10), Seq(3));
        book.left(&client(1), &track);
        assert_eq!(book.open(&client(1), Duration::ZERO, Seq(20), Seq(3)).0, Seq(20));
    }

    /// The place of a client ended with the daemon: events that it had not read by then were never told.
    #[test]
    fn a_client_goes_on_with_the_next_daemon_where_it_was() {
        let (before, pod) = (book(), pod());
        let (_, first) = before.open(&kubelet(1), RESUME, Seq(10), Seq(3));
        let (_, second) = before.open(&kubelet(2), RESUME, Seq(10), Seq(3));
        before.open(&client(3), RESUME, Seq(10), Seq(3));
        first.has(Seq(30), None);
        second.has(Seq(12), Some(Change::Ended(pod.clone())));
        let next = Book::of(before.readers());
        let (after, track) = next.open(&kubelet(7), RESUME, Seq(40), Seq(35));
        assert_eq!((after, track.ended()), (Seq(12), HashSet::from([pod])), "nothing is left out");
        assert_eq!(next.open(&client(3), RESUME, Seq(40), Seq(35)).0, Seq(35), "nobody knows it again");
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
