//! One event on its way from plugin to plugin.
//!
//! Owns: the turn of the pod, the announcement, what is told to the journal, and that the policy of each plugin is applied.
//! Never: merges what plugins answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mainstay_messages::event::{HookCall, HookOutcome, Subject, What};
use mainstay_messages::router::Noted;
use mainstay_messages::{Error, Result};
use mainstay_nri_api::Event;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::hook::{Bearing, Object, bearing};
use crate::line::{Reply, Request};
use crate::name::PluginName;
use crate::nri::Nri;
use crate::plugin::state::{Call, Input};
use crate::plugin::{Ask, Feed, Heard};
use crate::policy::{Course, Verdict, course};
use crate::roster::state::Outcome;
use crate::roster::{Enter, Leave, Seat, Ticket};

/// Time beyond its deadlines for the actor of a plugin to say what came of a call, in milliseconds.
const ASK_SLACK_MS: u64 = 1_000;

/// See the module.
pub(crate) struct Round {
    nri: Nri,
    event: Event,
    object: Object,
    ticket: Option<Ticket>,
    calls: Vec<HookCall>,
    /// Those that know the object, as far as they were asked.
    acquainted: BTreeSet<PluginName>,
    end: Instant,
    _turn: OwnedMutexGuard<()>,
}

impl Round {
    /// Waits for the turn of the pod. The answer names those who are to be asked, in their order.
    pub(crate) async fn begin(nri: &Nri, event: Event, object: Object) -> Result<(Self, Vec<Seat>)> {
        let turn = nri.turns().take(object.pod()).await;
        let entered = nri.roster().send(Enter { event, object: object.clone() }).await;
        let entry = entered
            .map_err(|error| Error::unavailable("the plugins", error))?
            .map_err(|missing| failed(event, &missing, "it is required, and it is not connected"))?;
        // One that did not ask for the event has to know of the object all the same, to be told of its end.
        let concerned = |seat: &Seat| bearing(event) != Bearing::Concerns || seat.events.contains(event);
        let seats = entry.seats.into_iter().filter(concerned).collect();
        Ok((Self::new(nri, event, object, entry.ticket, turn), seats))
    }

    /// For one plugin alone, which may have to be made acquainted with the object first.
    pub(crate) async fn private(nri: &Nri, event: Event, object: Object, seat: &Seat) -> Self {
        let turn = nri.turns().take(object.pod()).await;
        seat.addr.do_send(Feed(Input::Acquaint([object.clone()].into())));
        Self::new(nri, event, object, None, turn)
    }

    fn new(
        nri: &Nri,
        event: Event,
        object: Object,
        ticket: Option<Ticket>,
        turn: OwnedMutexGuard<()>,
    ) -> Self {
        let (calls, acquainted) = (Vec::new(), BTreeSet::new());
        let end = Instant::now() + Duration::from_millis(nri.settings().event_timeout_ms);
        Self { nri: nri.clone(), event, object, ticket, calls, acquainted, end, _turn: turn }
    }

    /// Those that know the object, as far as they were asked.
    pub(crate) fn acquainted(&self) -> &BTreeSet<PluginName> {
        &self.acquainted
    }

    /// Asks one plugin. None when the request goes on without its answer.
    pub(crate) async fn ask(&mut self, seat: &Seat, request: Request) -> Result<Option<Reply>> {
        let event = request.event();
        let Heard { verdict, reply, took } = self.hear(seat, request).await;
        self.note(seat, &verdict, took);
        if verdict != Verdict::Unknown {
            self.acquainted.insert(seat.name.clone());
        }
        match course(seat.policy, event, &verdict) {
            Course::On => Ok(reply),
            Course::OnNoted(reason) => {
                tracing::warn!(plugin = %seat.name, hook = event.name(), object = %self.object, reason, "it goes on");
                Ok(None)
            }
            Course::Fails(reason) => Err(failed(event, &seat.name, &reason)),
        }
    }

    async fn hear(&self, seat: &Seat, request: Request) -> Heard {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (event, object, ticket) = (request.event(), self.object.clone(), self.ticket);
            seat.addr.do_send(Feed(Input::Skipped(Call { event, object, ticket })));
            return missed("those before it took all the time that there is for this event");
        }
        let (answer, heard) = oneshot::channel();
        let deadlines = self.nri.settings().deadlines(&seat.name);
        seat.addr.do_send(Ask { object: self.object.clone(), ticket: self.ticket, request, answer });
        let limit = Duration::from_millis(deadlines.turn_ms + deadlines.request_ms + ASK_SLACK_MS);
        match tokio::time::timeout(limit.min(left), heard).await {
            Ok(Ok(heard)) => heard,
            Ok(Err(_)) => missed("it is gone"),
            // It has the call, and is waited for no longer.
            Err(_) => missed("there is no more time for this event"),
        }
    }

    fn note(&mut self, seat: &Seat, verdict: &Verdict, took: Duration) {
        let (outcome, trouble) = match verdict {
            Verdict::NotAsked | Verdict::Unknown => return,
            Verdict::Answered => (HookOutcome::Answered, None),
            Verdict::Refused(reason) => (HookOutcome::Refused, Some(reason.clone())),
            Verdict::Missed(reason) => (HookOutcome::Missed, Some(reason.clone())),
        };
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.calls.push(HookCall { plugin: seat.name.to_string(), outcome, took_us, trouble });
    }

    /// It is over: what was announced stands, or it has failed. A round that is dropped has failed.
    pub(crate) fn end<T>(mut self, result: Result<T>) -> Result<T> {
        self.leave(if result.is_ok() { Outcome::Stands } else { Outcome::Failed });
        result
    }

    fn leave(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            self.nri.roster().do_send(Leave { ticket, outcome });
        }
        if self.calls.is_empty() {
            return;
        }
        let subject = match &self.object {
            Object::Pod(pod) => Subject::sandbox(pod),
            Object::Container(pod, container) => Subject::container(pod, container),
        };
        let calls = std::mem::take(&mut self.calls);
        let what = What::HookCalled { hook: self.event.name().to_owned(), calls };
        self.nri.journal().do_send(Noted { subject, what });
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.leave(Outcome::Failed);
    }
}

/// The error of a request that a plugin has stopped.
pub(crate) fn failed(event: Event, plugin: &PluginName, reason: &str) -> Error {
    Error::HookFailed { hook: event.name().to_owned(), plugin: plugin.to_string(), reason: reason.to_owned() }
}

fn missed(reason: &str) -> Heard {
    Heard { verdict: Verdict::Missed(reason.to_owned()), reply: None, took: Duration::ZERO }
}
