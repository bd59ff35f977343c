//! What a client does: one life of a pod after the other, each request until it is done or was refused for good.
//!
//! Owns: what is known of each container beside the journal. Never: accepts an answer that no client should get.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join;
use mainstay::{Error, SandboxSpec};
use mainstay_admin::Client;
use mainstay_integration_tests::{script_spec, wait};
use mainstay_messages::admin::{IfRunning, Reference};

use super::chance::Chance;

/// Time between two attempts, in milliseconds.
const AGAIN_MS: u64 = 20;
/// How long a request is repeated at most, in milliseconds.
const DONE_MS: u64 = 120_000;
/// What programs end with; no signal shows as one of these.
const CODES: u64 = 100;

/// What is known beside the journal.
#[derive(Debug, Default)]
pub struct Truth {
    /// What each container's program ends with; none when it runs until it is killed.
    programs: RefCell<BTreeMap<String, Option<u8>>>,
    /// Containers whose end may have gone unseen, because their shim was killed, or the daemon while the store was full.
    excused: RefCell<BTreeSet<String>>,
    /// Ends that clients were told.
    told: RefCell<BTreeMap<String, u32>>,
    answers: RefCell<BTreeMap<&'static str, u64>>,
}

impl Truth {
    pub fn program(&self, container: &str) -> Option<Option<u8>> {
        self.programs.borrow().get(container).copied()
    }

    pub fn excuse(&self, containers: impl IntoIterator<Item = String>) {
        self.excused.borrow_mut().extend(containers);
    }

    pub fn is_excused(&self, container: &str) -> bool {
        self.excused.borrow().contains(container)
    }

    pub fn told(&self) -> BTreeMap<String, u32> {
        self.told.borrow().clone()
    }

    pub fn summary(&self) -> String {
        format!("{:?}, {} ends told", self.answers.borrow(), self.told.borrow().len())
    }

    fn count(&self, answer: &'static str) {
        *self.answers.borrow_mut().entry(answer).or_default() += 1;
    }
}

/// How often a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Until it is done.
    UntilDone,
    /// Until it is done or refused for what has become of the object meanwhile.
    UntilRefused,
}

/// Makes a request again and again. None when it was refused.
pub async fn again<T>(
    socket: &Path,
    persistence: Persistence,
    truth: &Truth,
    ask: impl AsyncFn(&Client) -> mainstay::Result<T>,
) -> Option<T> {
    let end = Instant::now() + Duration::from_millis(DONE_MS);
    loop {
        let answer = match Client::connect(socket).await {
            Ok(client) => wait::finish("an answer", ask(&client)).await,
            Err(error) => Err(error),
        };
        let error = match answer {
            Ok(value) => {
                truth.count("done");
                return Some(value);
            }
            Err(error) => error,
        };
        match &error {
            Error::Unavailable { .. } => truth.count("unavailable"),
            Error::DeadlineExceeded { .. } => truth.count("late"),
            Error::InProgress { .. } | Error::Terminating { .. } => truth.count("in progress"),
            Error::NotFound { .. } | Error::WrongPhase { .. } | Error::NameTaken { .. }
                if persistence == Persistence::UntilRefused =>
            {
                truth.count("refused");
                return None;
            }
            Error::StartFailed { .. } if persistence == Persistence::UntilRefused => {
                truth.count("not started");
                return None;
            }
            other => panic!("no client should be told: {other:?}"),
        }
        if Instant::now() >= end {
            tell(socket, &error).await;
            panic!("still not done: {error}");
        }
        tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
    }
}

/// Says what is known of the object that a request could not be done for.
async fn tell(socket: &Path, error: &Error) {
    let id = match error {
        Error::InProgress { id, .. } | Error::Terminating { id, .. } => id,
        _ => return,
    };
    if let Ok(client) = Client::connect(socket).await {
        let (shown, life) =
            join(client.inspect(Reference(id.clone())), client.explain(Reference(id.clone()))).await;
        println!("{shown:#?}");
        for event in life.unwrap_or_default() {
            println!("{} {}", event.at, event.what);
        }
    }
    let log = socket.ancestors().nth(2).map(|world| world.join("daemon.log"));
    let log = log.and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
    log.lines().filter(|line| line.contains(id)).for_each(|line| println!("{line}"));
}

/// Lives until it is time to end; answers how many lives that were.
pub async fn live(socket: &Path, truth: &Truth, mut chance: Chance, until: Instant, worker: u64) -> u64 {
    let mut lives = 0;
    while Instant::now() < until {
        one_life(socket, truth, &mut chance, &format!("w{worker}")).await;
        lives += 1;
    }
    lives
}

async fn one_life(socket: &Path, truth: &Truth, chance: &mut Chance, pod: &str) {
    use Persistence::{UntilDone, UntilRefused};
    let reference = || Reference(pod.to_owned());
    let spec = || SandboxSpec::new(pod.parse().expect("a good name"));
    again(socket, UntilRefused, truth, async |client| client.run_sandbox(spec()).await).await;
    for n in 0..chance.below(3) {
        let (script, code) = program(chance);
        let name = format!("c{n}");
        let made = again(socket, UntilRefused, truth, async |client| {
            client.create_container(reference(), script_spec(&name, &script)).await
        });
        let Some(id) = made.await.map(|id| id.to_string()) else { break };
        truth.programs.borrow_mut().insert(id.clone(), code);
        let container = || Reference(id.clone());
        if chance.below(10) > 0 {
            again(socket, UntilRefused, truth, async |client| client.start_container(container()).await)
                .await;
        }
        match chance.below(4) {
            0 if code.is_some() => {
                let waited =
                    again(socket, UntilRefused, truth, async |client| client.wait(container()).await);
                // One that was never started, or that was stopped with its pod, has another end or none.
                if let Ok(Some(exit)) = tokio::time::timeout(Duration::from_secs(2), waited).await {
                    truth.told.borrow_mut().insert(id.clone(), exit.code());
                }
            }
            1 => {
                again(socket, UntilRefused, truth, async |client| {
                    client.stop_container(container(), None, Some(0)).await
                })
                .await;
            }
            2 => {
                again(socket, UntilRefused, truth, async |client| {
                    client.remove_container(container(), IfRunning::Kill).await
                })
                .await;
            }
            _ => {}
        }
    }
    if chance.below(2) == 0 {
        again(socket, UntilRefused, truth, async |client| client.stop_sandbox(reference(), Some(0)).await)
            .await;
    }
    again(socket, UntilDone, truth, async |client| match client.remove_sandbox(reference()).await {
        Err(Error::NotFound { .. }) => Ok(()),
        other => other,
    })
    .await;
}

/// A program, and the code that it ends with by itself.
fn program(chance: &mut Chance) -> (String, Option<u8>) {
    let code = chance.below(CODES) as u8;
    match chance.below(5) {
        0 => ("exec sleep 1000".to_owned(), None),
        1 => ("trap '' TERM; while :; do sleep 1; done".to_owned(), None),
        2 => (format!("sleep 0.{}; exit {code}", chance.below(9)), Some(code)),
        3 => (format!("yes 'a line of a log' | head -c 300000; exit {code}"), Some(code)),
        _ => (format!("exit {code}"), Some(code)),
    }
}
