//! `events` and `explain`: what happened, in order.

use std::process::ExitCode;

use futures::FutureExt;
use mainstay_admin::Client;
use mainstay_messages::Error;
use mainstay_messages::admin::{Follow, Item, OutputStream, Reference, StreamRequest};
use mainstay_messages::event::{Bearer, Event};
use serde_json::json;

use crate::arguments::{EventsArguments, ExplainArguments, Format};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::life::svg::picture;
use crate::life::{self, who};
use crate::output::{Console, tell};
use crate::table::{Align, Table, printable};
use crate::view::{self, EventView};
use crate::words::offset_ms;

/// Room for the numbers and for the objects of `events`, which cannot know how wide the next one is.
const SEQ_WIDTH: usize = 6;
const SUBJECT_WIDTH: usize = 22;
/// Before a step of a saga.
const STEP_INDENT: &str = "  ";

/// `mainstay events`
pub(super) async fn events(context: &Context, arguments: EventsArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let request = StreamRequest::Events {
        after: arguments.since,
        follow: if arguments.follow { Follow::Yes } else { Follow::No },
        object: arguments.object,
    };
    let mut stream = client.open(request).await?;
    let mut console = Console::new();
    loop {
        // As with logs: what is there is written together.
        let item = match stream.next().now_or_never() {
            Some(item) => item,
            None => {
                console.flush().map_err(Failure::Output)?;
                stream.next().await
            }
        };
        let line = match (item, context.format()) {
            (Some(Item::Event(event)), Format::Text) => event_line(&event),
            (Some(Item::Event(event)), Format::Json) => view::line(&EventView::from(&event)),
            (Some(Item::Lagged { from, to }), Format::Text) => {
                tell(format!("entries {from} to {to} are no longer kept"));
                continue;
            }
            (Some(Item::Lagged { from, to }), Format::Json) => {
                view::line(&json!({ "lagged": { "from": from.0, "to": to.0 } }))
            }
            (Some(_), _) => continue,
            (None, _) => break,
        };
        console.print(OutputStream::Stdout, line.as_bytes()).map_err(Failure::Output)?;
    }
    console.flush().map_err(Failure::Output)?;
    stream.end().await?;
    Ok(ExitCode::SUCCESS)
}

/// `mainstay explain`
pub(super) async fn explain(context: &Context, arguments: ExplainArguments) -> Result<ExitCode> {
    let name = arguments.object.0.clone();
    let client = context.daemon().await?;
    let events = match client.explain(arguments.object.clone()).await {
        Err(not_found @ Error::NotFound { .. }) => {
            client.explain(gone(&client, arguments.object, not_found).await?).await?
        }
        explained => explained?,
    };
    if let Some(file) = arguments.svg {
        let picture = picture(&format!("The life of {name}"), &life::rows(&events));
        let wrong = |error: std::io::Error| Failure::File {
            path: file.clone(),
            line: None,
            reason: error.to_string(),
        };
        std::fs::write(&file, picture).map_err(wrong)?;
        return Ok(ExitCode::SUCCESS);
    }
    let views: Vec<_> = events.iter().map(EventView::from).collect();
    super::print(context.format(), || table(&events), &views)
}

/// What is gone and had this name: the newest container, or the newest pod when no container had it.
async fn gone(client: &Client, name: Reference, not_found: Error) -> Result<Reference> {
    // What cannot be a name was meant for an id.
    let bearers = match client.who_had(name.clone()).await {
        Err(Error::InvalidArgument { .. }) => Vec::new(),
        bearers => bearers?,
    };
    let ids = namesakes(&bearers);
    let Some((newest, others)) = ids.split_first() else { return Err(not_found.into()) };
    if !others.is_empty() {
        let (name, others) = (printable(&name.0), others.join(", "));
        tell(format!("{name} is gone; the newest that had this name is {newest}, and before it {others}"));
    }
    Ok(Reference(newest.clone()))
}

/// The ids of the containers among them, or of the pods when there is no container, in their order.
fn namesakes(bearers: &[Bearer]) -> Vec<String> {
    let subjects = || bearers.iter().map(|bearer| &bearer.subject);
    let containers: Vec<_> =
        subjects().filter_map(|subject| Some(subject.container.as_ref()?.to_string())).collect();
    if !containers.is_empty() {
        return containers;
    }
    subjects().filter_map(|subject| Some(subject.sandbox.as_ref()?.to_string())).collect()
}

fn event_line(event: &Event) -> String {
    let what = printable(&event.what.to_string());
    format!("{:>SEQ_WIDTH$}  {}  {:<SUBJECT_WIDTH$}  {what}\n", event.seq.0, event.at, who(&event.subject))
}

/// A life as a table, with the time since its beginning and how long each thing lasted, in milliseconds.
fn table(events: &[Event]) -> String {
    let rows = life::rows(events);
    let Some(first) = rows.first() else { return "nothing is known of it any more\n".to_owned() };
    let columns =
        [("+MS", Align::Right), ("TOOK", Align::Right), ("WHO", Align::Left), ("WHAT", Align::Left)];
    let mut table = Table::new(columns);
    for row in &rows {
        let offset = offset_ms(row.start.nanos_since(first.start));
        let took = row.took().map(|took| offset_ms(took).trim_start_matches('+').to_owned());
        let indent = if row.is_step() { STEP_INDENT } else { "" };
        let text = format!("{indent}{}", row.text);
        table.row([offset, took.unwrap_or_default(), row.who.clone(), text]);
    }
    format!("since {}\n{table}", first.start)
}

#[cfg(test)]
mod tests {
    use mainstay_messages::event::{Seq, Subject, What};
    use mainstay_messages::{ContainerId, SandboxId, Timestamp};

    use super::*;

    fn events() -> [Event; 3] {
        let (pod, container) = (SandboxId::from_random([0xaa; 16]), ContainerId::from_random([0xbb; 16]));
        let event = |seq, at, subject, what| Event { seq: Seq(seq), at: Timestamp(at), subject, what };
        [
            event(7, 1_000_000_000, Subject::sandbox(&pod), What::SandboxCreated),
            event(8, 1_012_345_678, Subject::container(&pod, &container), What::ContainerStarted { pid: 42 }),
            event(
                9,
                2_500_000_000,
                Subject::container(&pod, &container),
                What::ContainerUnknown { reason: "\u{1b}[2J".into() },
            ),
        ]
    }

    #[test]
    fn a_life_has_offsets_from_its_beginning() {
        let expected = "\
since 1970-01-01T00:00:01.000000000Z
      +MS       TOOK   WHO                      WHAT
   +0.000              pod aaaaaaaaaaaa         pod recorded
  +12.345   1487.654   container bbbbbbbbbbbb   container started, pid 42
+1500.000              container bbbbbbbbbbbb   container lost: \\u{1b}[2J
";
        assert_eq!(table(&events()), expected);
    }

    #[test]
    fn an_event_is_a_line() {
        let line = event_line(&events()[2]);
        let expected =
            "     9  1970-01-01T00:00:02.500000000Z  container bbbbbbbbbbbb  container lost: \\u{1b}[2J\n";
        assert_eq!(line, expected);
    }
}
