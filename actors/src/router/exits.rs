//! The exits that the supervisor reports: what [`super::state::Exits`] decides is done here.

use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context, Handler};
use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::Commit;
use mainstay_messages::router::{Child, ExitReceipt, TaskExited, TaskKey};
use mainstay_messages::supervisor::QueryTask;
use mainstay_messages::{ContainerId, Error, Exit};

use super::state::{Fate, Repetition, Verdict};
use super::{QUERY_TIMEOUT_MS, Router, Watch};
use crate::call::{Handover, Reply, ask};
use crate::container;

/// Time between looks at parked exits, in milliseconds.
const PARK_CHECK_MS: u64 = 1_000;

impl Handler<TaskExited> for Router {
    type Result = Handover<ExitReceipt>;

    fn handle(&mut self, TaskExited { task, exit }: TaskExited, ctx: &mut Context<Self>) -> Self::Result {
        if let Some(link) = self.containers.get(&task.container) {
            let addr = link.addr.clone();
            return Handover::pass(move |to| addr.do_send(exit_call(task, exit, Some(Reply::new(to, None)))));
        }
        if self.registry.life(&Child::Container(task.container.clone())).is_some() {
            // Its actor is being started again.
            return Handover::answer(ExitReceipt::Pending);
        }
        let subject = subject_of(&task);
        let counters = &self.world.counters;
        match self.exits.take(task, exit, self.world.now().mono_ms) {
            Fate::Parked(repetition) => {
                if repetition == Repetition::First {
                    counters.parked.add();
                    self.world.note_now(subject, What::ExitParked);
                }
                self.watch_parked(ctx);
                Handover::answer(ExitReceipt::Pending)
            }
            Fate::NoRoom { ask } => {
                ask.into_iter().for_each(|oldest| self.ask_about(oldest, ctx));
                Handover::answer(ExitReceipt::Pending)
            }
            Fate::Absorbed(repetition, why) => {
                counters.absorbed.add();
                if repetition == Repetition::First {
                    self.world.note_now(subject, What::ExitAbsorbed { reason: why.to_owned() });
                }
                Handover::answer(ExitReceipt::Settled)
            }
        }
    }
}

impl Router {
    /// Exits that came before the container was registered reach it now.
    pub(super) fn deliver_parked(&mut self, id: &ContainerId) {
        let Some(link) = self.containers.get(id) else { return };
        for (task, exit) in self.exits.claim(id) {
            self.world.note_now(subject_of(&task), What::ExitDelivered);
            link.addr.do_send(exit_call(task, exit, None));
        }
    }

    /// Asks the supervisor about a parked exit.
    fn ask_about(&mut self, task: TaskKey, ctx: &mut Context<Self>) {
        let what = format!("what is known of container {} of pod {}", task.container, task.sandbox);
        let query = QueryTask { task: task.clone() };
        let asked = ask(self.world.supervisor.query_task.clone(), query, what, QUERY_TIMEOUT_MS);
        let answered = wrap_future::<_, Self>(asked).map(move |answer, act, ctx| {
            let now_ms = act.world.now().mono_ms;
            if let Verdict::Unclaimed(exit) = act.exits.answered(&task, &answer, now_ms) {
                act.write_unclaimed(task, exit, ctx);
            }
        });
        ctx.spawn(answered);
    }

    /// Only when the fact is durable does the shim hear that it may forget the exit.
    fn write_unclaimed(&mut self, task: TaskKey, exit: Exit, ctx: &mut Context<Self>) {
        tracing::warn!(container = %task.container, sandbox = %task.sandbox, %exit, "nobody claims this exit");
        let at = self.world.ports.clock.now();
        let fact = Fact { at, subject: subject_of(&task), what: What::ExitUnclaimed { exit } };
        let commit = Commit { changes: Vec::new(), facts: vec![fact] };
        // Nobody waits for it, and one that is given up and becomes durable after all would be written twice: the
        // answer is awaited, however long it takes.
        let written = wrap_future::<_, Self>(self.world.journal.send(commit));
        let ended = written.map(move |answer, act, _ctx| {
            let result = answer.unwrap_or_else(|error| Err(Error::unavailable("the journal", error)));
            let now_ms = act.world.now().mono_ms;
            act.exits.written(&task, &result, now_ms);
            if result.is_ok() {
                act.world.counters.unclaimed.add();
            }
        });
        ctx.spawn(ended);
    }

    fn watch_parked(&mut self, ctx: &mut Context<Self>) {
        if self.watch == Watch::Set {
            return;
        }
        self.watch = Watch::Set;
        ctx.run_later(Duration::from_millis(PARK_CHECK_MS), |act, ctx| {
            act.watch = Watch::Off;
            let due = act.exits.due(act.world.now().mono_ms);
            due.into_iter().for_each(|task| act.ask_about(task, ctx));
            if act.exits.is_waiting() {
                act.watch_parked(ctx);
            }
        });
    }
}

fn exit_call(task: TaskKey, exit: Exit, reply: Option<Reply<ExitReceipt>>) -> container::Deliver {
    let request = container::Request::Exit(task.exec.clone(), exit);
    let reply = reply.unwrap_or_else(|| Reply::new(None, None));
    container::Deliver { request, waiting: container::Waiting::Receipt(reply, task.exec) }
}

fn subject_of(task: &TaskKey) -> Subject {
    Subject {
        sandbox: Some(task.sandbox.clone()),
        container: Some(task.container.clone()),
        exec: task.exec.clone(),
    }
}
