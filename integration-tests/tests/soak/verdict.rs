//! What the journal must say in the end.

use std::collections::{BTreeMap, BTreeSet};

use mainstay::{Exit, ExitStatus, Follow, Seq, What};
use mainstay_admin::Client;
use mainstay_integration_tests::wait;
use mainstay_messages::admin::{Item, StreamRequest};

use super::life::Truth;

/// Every container that ran has one end, and it is the true one; clients were told the same; nothing is numbered twice.
pub async fn check(client: &Client, truth: &Truth) {
    let request = StreamRequest::Events { after: Seq(0), follow: Follow::No, object: None };
    let mut stream = client.open(request).await.expect("opened");
    let mut last = Seq(0);
    let mut started = BTreeSet::new();
    let mut ends: BTreeMap<String, Vec<Exit>> = BTreeMap::new();
    while let Some(item) = wait::finish("an event", stream.next()).await {
        let Item::Event(event) = item else { continue };
        assert_eq!(event.seq, last.next(), "the numbers of the journal rise by one");
        last = event.seq;
        let Some(container) = event.subject.container.map(|id| id.to_string()) else { continue };
        match event.what {
            What::ContainerStarted { .. } => drop(started.insert(container)),
            What::ContainerExited { exit } => ends.entry(container).or_default().push(exit),
            _ => {}
        }
    }
    println!("{} events, {} containers ran, {} ends", last.0, started.len(), ends.len());
    for container in &started {
        assert!(ends.contains_key(container), "container {container} ran and has no end");
    }
    for (container, exits) in &ends {
        let [exit] = &exits[..] else { panic!("container {container} has more than one end: {exits:?}") };
        assert!(is_true(truth, container, exit, started.contains(container)), "{container}: {exit}");
        if let Some(told) = truth.told().get(container) {
            assert_eq!(*told, exit.code(), "container {container}: a client was told something else");
        }
    }
}

/// Whether a container may have ended so.
fn is_true(truth: &Truth, container: &str, exit: &Exit, ran: bool) -> bool {
    match &exit.status {
        // The answer to its creation may have been lost with the daemon; then nobody knows its program.
        ExitStatus::Exited { code } => truth.program(container).is_none_or(|own| own == Some(*code)),
        ExitStatus::Signaled { signal } => [9, 15].contains(signal),
        ExitStatus::StartError { .. } => !ran,
        ExitStatus::Unknown { .. } => truth.is_excused(container),
    }
}
