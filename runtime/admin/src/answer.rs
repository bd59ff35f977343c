//! Answers that are larger than a frame: a list goes in parts that the client joins again.
//!
//! A part is an answer of its own with some of the elements. An object goes as itself without its list,
//! followed by the list. Pure; parts are made one by one, so that only one of them exists twice.

use std::vec::IntoIter;

use mainstay_messages::admin::{ContainerStats, Object, Response};
use mainstay_messages::audit::Finding;
use mainstay_messages::codec::encode_body;
use mainstay_messages::event::Event;
use mainstay_messages::image::{Damage, Image};
use mainstay_messages::record::{ContainerSnapshot, ExecSnapshot, SandboxSnapshot};
use serde::Serialize;

/// A part ends before the element that would bring it above so many bytes. Far below the limit of a frame,
/// so that other answers get in between.
const PART_LENGTH: usize = 1024 * 1024;

/// Whether more parts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Follows,
    None,
}

/// The parts of an answer, in order; at least one.
pub(crate) struct Parts {
    next: Option<Response>,
    rest: Rest,
}

enum Rest {
    Nothing,
    Sandboxes(IntoIter<SandboxSnapshot>),
    Containers(IntoIter<ContainerSnapshot>),
    Execs(IntoIter<ExecSnapshot>),
    Stats(IntoIter<ContainerStats>),
    Events(IntoIter<Event>),
    Findings(IntoIter<Finding>),
    Images(IntoIter<Image>),
    Damages(IntoIter<Damage>),
}

/// Two parts that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch;

impl Parts {
    pub(crate) fn of(response: Response) -> Self {
        let (first, mut rest) = match response {
            Response::Sandboxes(list) => (None, Rest::Sandboxes(list.into_iter())),
            Response::Containers(list) => (None, Rest::Containers(list.into_iter())),
            Response::Stats(list) => (None, Rest::Stats(list.into_iter())),
            Response::Events(list) => (None, Rest::Events(list.into_iter())),
            Response::Findings(list) => (None, Rest::Findings(list.into_iter())),
            Response::Images(list) => (None, Rest::Images(list.into_iter())),
            Response::ImagesVerified(list) => (None, Rest::Damages(list.into_iter())),
            Response::Object(object) => match *object {
                Object::Sandbox { sandbox, containers } => (
                    Some(Response::Object(Box::new(Object::Sandbox { sandbox, containers: Vec::new() }))),
                    Rest::Containers(containers.into_iter()),
                ),
                Object::Container { container, execs } => (
                    Some(Response::Object(Box::new(Object::Container { container, execs: Vec::new() }))),
                    Rest::Execs(execs.into_iter()),
                ),
                exec @ Object::Exec(_) => (Some(Response::Object(Box::new(exec))), Rest::Nothing),
            },
            plain => (Some(plain), Rest::Nothing),
        };
        let next = first.or_else(|| rest.part());
        Self { next, rest }
    }

    pub(crate) fn next(&mut self) -> Option<(Response, More)> {
        let part = self.next.take()?;
        if !self.rest.is_empty() {
            self.next = self.rest.part();
        }
        Some((part, if self.next.is_some() { More::Follows } else { More::None }))
    }
}

impl Rest {
    /// The next part, also when it is empty.
    fn part(&mut self) -> Option<Response> {
        Some(match self {
            Self::Nothing => return None,
            Self::Sandboxes(list) => Response::Sandboxes(take(list)),
            Self::Containers(list) => Response::Containers(take(list)),
            Self::Execs(list) => Response::Object(Box::new(Object::Exec(list.next()?))),
            Self::Stats(list) => Response::Stats(take(list)),
            Self::Events(list) => Response::Events(take(list)),
            Self::Findings(list) => Response::Findings(take(list)),
            Self::Images(list) => Response::Images(take(list)),
            Self::Damages(list) => Response::ImagesVerified(take(list)),
        })
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Sandboxes(list) => list.as_slice().is_empty(),
            Self::Containers(list) => list.as_slice().is_empty(),
            Self::Execs(list) => list.as_slice().is_empty(),
            Self::Stats(list) => list.as_slice().is_empty(),
            Self::Events(list) => list.as_slice().is_empty(),
            Self::Findings(list) => list.as_slice().is_empty(),
            Self::Images(list) => list.as_slice().is_empty(),
            Self::Damages(list) => list.as_slice().is_empty(),
        }
    }
}

/// As many elements as fit, at least one of those that are there. One that cannot be encoded counts
/// nothing: that shows when the part is sealed.
fn take<T: Serialize>(list: &mut IntoIter<T>) -> Vec<T> {
    let mut length = 0;
    let fitting = list.as_slice().iter().take_while(|element| {
        let first = length == 0;
        length += encode_body(element).map_or(1, |bytes| bytes.len());
        first || length <= PART_LENGTH
    });
    let count = fitting.count();
    list.take(count).collect()
}

/// What a part is about, for the error when it does not fit into a frame.
pub(crate) fn describe(part: &Response) -> String {
    match part {
        Response::Sandboxes(list) => match list.first() {
            Some(sandbox) => format!("pod {}", sandbox.record.id),
            None => "the list of pods".to_owned(),
        },
        Response::Containers(list) => match list.first() {
            Some(container) => format!("container {}", container.record.id),
            None => "the list of containers".to_owned(),
        },
        Response::Object(object) => match &**object {
            Object::Sandbox { sandbox, .. } => format!("pod {}", sandbox.record.id),
            Object::Container { container, .. } => format!("container {}", container.record.id),
            Object::Exec(exec) => format!("exec {}", exec.id),
        },
        Response::Events(list) => match list.first() {
            Some(event) => format!("journal entry {}", event.seq),
            None => "the list of journal entries".to_owned(),
        },
        Response::Findings(list) => match list.first() {
            Some(finding) => format!("{} {}", finding.kind, finding.place),
            None => "the list of findings".to_owned(),
        },
        Response::Images(list) => match list.first() {
            Some(image) => format!("image {}", image.id),
            None => "the list of images".to_owned(),
        },
        _ => "the answer".to_owned(),
    }
}

/// Puts a further part to those that came before it.
pub(crate) fn join(so_far: &mut Response, part: Response) -> Result<(), Mismatch> {
    match (so_far, part) {
        (Response::Sandboxes(list), Response::Sandboxes(more)) => list.extend(more),
        (Response::Containers(list), Response::Containers(more)) => list.extend(more),
        (Response::Stats(list), Response::Stats(more)) => list.extend(more),
        (Response::Events(list), Response::Events(more)) => list.extend(more),
        (Response::Findings(list), Response::Findings(more)) => list.extend(more),
        (Response::Images(list), Response::Images(more)) => list.extend(more),
        (Response::ImagesVerified(list), Response::ImagesVerified(more)) => list.extend(more),
        (Response::Object(object), part) => match (&mut **object, part) {
            (Object::Sandbox { containers, .. }, Response::Containers(more)) => containers.extend(more),
            (Object::Container { execs, .. }, Response::Object(part)) => match *part {
                Object::Exec(exec) => execs.push(exec),
                _ => return Err(Mismatch),
            },
            _ => return Err(Mismatch),
        },
        _ => return Err(Mismatch),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
