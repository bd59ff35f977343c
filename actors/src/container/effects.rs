//! What a container wants to have done becomes calls to others; their answers become inputs. Every call has a
//! time-out of its own, named here.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorContext, ActorFutureExt, AsyncContext, Context};
use futures::FutureExt;
use mainstay_messages::event::{Event, Seq, What};
use mainstay_messages::router::{Child, Deregister, ExitReceipt, TaskKey};
use mainstay_messages::sandbox::AdmitContainer;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{
    CreateTask, DeleteTask, FreezeTask, MeasureTask, QueryTask, ReopenTaskLog, ResizeTask, SignalScope,
    SignalTask, StartExecTask, StartTask, UpdateTask,
};
use mainstay_messages::{ContainerId, Error, ExecId, Result, Signal, Timestamp};

use super::state::{Answer, Ask, Effect, ExecLore, Forward, Input, START_COMMAND, StartLore};
use super::{Container, Waiting};
use crate::call::{CallId, ask};
use crate::machine::{Wrote, feed, unrecorded};
use crate::ports::{EventFilter, EventQuery};
use crate::router::Routed;
use crate::world::World;

/// Time for the sandbox to admit a container, in milliseconds.
pub const ADMIT_TIMEOUT_MS: u64 = 15_000;
/// Time for the supervisor to tell plugins, make files and set up a process, in milliseconds: more than all of them have.
pub const CREATE_TIMEOUT_MS: u64 = 180_000;
/// Time for the supervisor to fill the volumes of an image besides, in milliseconds. It gives up sooner by itself when nothing moves.
pub const FILL_TIMEOUT_MS: u64 = 3_600_000;
/// Time for the supervisor to tell plugins and let a process run, in milliseconds: more than both have.
pub const START_TIMEOUT_MS: u64 = 60_000;
/// Time for the supervisor to start an exec, in milliseconds.
pub const EXEC_TIMEOUT_MS: u64 = 60_000;
/// Time for the supervisor to send a signal, in milliseconds.
pub const SIGNAL_TIMEOUT_MS: u64 = 15_000;
/// Time for the supervisor to delete a task, in milliseconds.
pub const DELETE_TIMEOUT_MS: u64 = 60_000;
/// Time for the supervisor to say what it knows of a process, in milliseconds.
pub const QUERY_TIMEOUT_MS: u64 = 10_000;
/// Time for the supervisor to tell plugins and change limits, in milliseconds: more than both have, for limits from before that
/// overtook it would be undone by it.
pub const UPDATE_TIMEOUT_MS: u64 = 60_000;
/// Time for what is passed on to the supervisor (measuring, resizing, opening a log), in milliseconds.
pub const FORWARD_TIMEOUT_MS: u64 = 15_000;
/// Time for the supervisor to freeze a container or to let it go on, in milliseconds: more than the shim gives itself.
pub const FREEZE_TIMEOUT_MS: u64 = 15_000;
/// Time for the router to strike a container off, in milliseconds.
const DEREGISTER_TIMEOUT_MS: u64 = 10_000;
/// Events that one look into the journal reads at once.
const SEARCH_PAGE_EVENTS: usize = 1_024;

impl Container {
    pub(super) fn perform_effect(&mut self, effect: Effect, wrote: &Wrote, ctx: &mut Context<Self>) {
        match effect {
            Effect::Answer { calls, answer } => self.answer(calls, &answer),
            Effect::Confirm { calls } => self.answer(calls, &done(wrote)),
            Effect::Receipt { call } => {
                self.world.counters.delivered.add();
                let receipt = match wrote {
                    Wrote::Durable => ExitReceipt::Settled,
                    Wrote::Failed(_) => ExitReceipt::Pending,
                };
                self.answer(vec![call], &Ok(Answer::Receipt(receipt)));
            }
            Effect::Ask(ask) => self.ask(ask, ctx),
            Effect::Forward { call, what } => self.forward(call, what, ctx),
            Effect::Wake { after_ms, wake } => {
                ctx.run_later(Duration::from_millis(after_ms), |act, ctx| feed(act, Input::Woke(wake), ctx));
            }
            Effect::Note(what) => self.world.note_now(self.subject(None), what),
            Effect::Again(input) => self.driver.again(input),
            Effect::Retire { calls, failed } => {
                let failed = failed.map(|(makers, failure)| (makers, Err(failure)));
                let done = match wrote {
                    Wrote::Durable => Ok(Answer::Done),
                    Wrote::Failed(error) => Err(unrecorded(error)),
                };
                let answers: Vec<_> = [(calls, done)].into_iter().chain(failed).collect();
                match wrote {
                    Wrote::Durable => self.leave(answers, ctx),
                    Wrote::Failed(_) => {
                        answers.into_iter().for_each(|(calls, answer)| self.answer(calls, &answer));
                    }
                }
            }
            Effect::Abandon { calls, error } => {
                let answer = error.map_or_else(|| done(wrote), Err);
                self.leave(vec![(calls, answer)], ctx);
            }
        }
    }

    /// Gone from the view of readers, then from the router, then the callers hear of it: whoever hears of it
    /// can use the name again at once.
    fn leave(&mut self, answers: Vec<(Vec<CallId>, Result<Answer>)>, ctx: &mut Context<Self>) {
        for exec in self.driver.machine().execs().shown() {
            self.world.publisher.exec_gone(&exec.id);
        }
        let id = self.record().id.clone();
        self.world.publisher.container_gone(&id);
        let struck = self.links.deregister.send(Deregister { child: Child::Container(id) });
        let struck = tokio::time::timeout(Duration::from_millis(DEREGISTER_TIMEOUT_MS), struck);
        let left = wrap_future::<_, Self>(struck).map(move |_struck, act, ctx| {
            act.ticket.retire();
            answers.into_iter().for_each(|(calls, answer)| act.answer(calls, &answer));
            ctx.stop();
        });
        ctx.spawn(left);
    }

    fn ask(&mut self, what: Ask, ctx: &mut Context<Self>) {
        let supervisor = &self.world.supervisor;
        let record = self.record();
        let (id, sandbox) = (record.id.clone(), record.sandbox.clone());
        let whom = format!("container {id} of pod {sandbox}");
        match what {
            Ask::Admit => {
                let message = Routed(AdmitContainer { sandbox, container: id });
                let asked = ask(
                    self.links.admit.clone(),
                    message,
                    format!("the admission of {whom}"),
                    ADMIT_TIMEOUT_MS,
                );
                self.later(asked.map(Input::Admitted), ctx);
            }
            Ask::Create => match self.world.publisher.directory().sandbox(&sandbox) {
                Some(pod) => {
                    let message = CreateTask { record: record.clone(), sandbox: pod.record.clone() };
                    let to = supervisor.create_task.clone();
                    let filling = if record.spec.rootfs.volumes().is_empty() { 0 } else { FILL_TIMEOUT_MS };
                    let limit_ms = CREATE_TIMEOUT_MS + filling;
                    let asked = ask(to, message, format!("the creation of {whom}"), limit_ms);
                    self.later(asked.map(Input::TaskCreated), ctx);
                }
                None => {
                    let gone = Err(Error::not_found(mainstay_messages::error::Kind::Sandbox, &sandbox));
                    self.later(std::future::ready(Input::TaskCreated(gone)), ctx);
                }
            },
            Ask::Start => {
                let message = StartTask { sandbox, container: id };
                let asked = ask(
                    supervisor.start_task.clone(),
                    message,
                    format!("the start of {whom}"),
                    START_TIMEOUT_MS,
                );
                self.later(asked.map(Input::TaskStarted), ctx);
            }
            Ask::Signal { exec, signal, scope, cause } => {
                let of_exec = exec.is_some() && signal == Signal::KILL;
                let task = TaskKey { sandbox, container: id, exec };
                let sent = signal_task(self.world.clone(), task, signal, scope, cause);
                match of_exec {
                    true => self.later(sent.map(|_sent| Input::ExecKilled), ctx),
                    false => drop(actix::spawn(sent.map(drop))),
                }
            }
            Ask::Delete => {
                let message = DeleteTask { sandbox, container: id };
                let to = supervisor.delete_task.clone();
                let asked = ask(to, message, format!("the deletion of {whom}"), DELETE_TIMEOUT_MS);
                self.later(asked.map(Input::TaskDeleted), ctx);
            }
            Ask::Exec { id: exec, spec } => {
                let message =
                    StartExecTask { sandbox, container: record.clone(), exec: exec.clone(), spec: *spec };
                let what = format!("the start of exec {exec} in {whom}");
                let asked = ask(supervisor.start_exec.clone(), message, what, EXEC_TIMEOUT_MS);
                self.later(
                    asked.map(|result| Input::ExecStarted(exec, result.map(|started| started.pid))),
                    ctx,
                );
            }
            Ask::Query { exec } => {
                let task = TaskKey { sandbox, container: id, exec: exec.clone() };
                let what = format!("what is known of {whom}");
                let asked = ask(supervisor.query_task.clone(), QueryTask { task }, what, QUERY_TIMEOUT_MS);
                self.later(asked.map(|result| Input::Queried(exec, result)), ctx);
            }
            Ask::Freeze(to) => {
                let message = FreezeTask { sandbox, container: id, to };
                let what = format!("the freezer of {whom}");
                let asked = ask(supervisor.freeze_task.clone(), message, what, FREEZE_TIMEOUT_MS);
                self.later(asked.map(move |result| Input::Frozen(to, result)), ctx);
            }
            Ask::Update(limits, consult) => {
                let (wanted, before) = (Resources::clone(&limits), record.limits().clone());
                let message = UpdateTask { sandbox, container: id, limits: wanted, before, consult };
                let what = format!("the change of limits of {whom}");
                let asked = ask(supervisor.update_task.clone(), message, what, UPDATE_TIMEOUT_MS);
                self.later(asked.map(move |result| Input::Updated(limits, result)), ctx);
            }
            Ask::Look => {
                let task = TaskKey { sandbox, container: id, exec: None };
                let what = format!("what is known of {whom}");
                let asked = ask(supervisor.query_task.clone(), QueryTask { task }, what, QUERY_TIMEOUT_MS);
                self.later(asked.map(Input::Looked), ctx);
            }
            Ask::SearchJournal => {
                self.later(search_journal(self.world.clone(), id).map(Input::JournalSearched), ctx);
            }
        }
    }

    /// Runs beside the actor; what comes out is an input.
    fn later(&self, work: impl Future<Output = Input> + 'static, ctx: &mut Context<Self>) {
        ctx.spawn(wrap_future::<_, Self>(work).map(|input, act, ctx| feed(act, input, ctx)));
    }

    fn forward(&mut self, call: CallId, what: Forward, ctx: &mut Context<Self>) {
        let Some(waiting) = self.calls.remove(&call) else { return };
        let supervisor = self.world.supervisor.clone();
        let record = self.record();
        let (container, sandbox) = (record.id.clone(), record.sandbox.clone());
        let whom = format!("container {container} of pod {sandbox}");
        match what {
            Forward::Signal { exec, signal } => {
                let of_exec = exec.is_some() && signal == Signal::KILL;
                let task = TaskKey { sandbox, container, exec };
                let sent = signal_task(self.world.clone(), task, signal, SignalScope::Process, "kill");
                match of_exec {
                    true => self.later(pass(sent, waiting).map(|()| Input::ExecKilled), ctx),
                    false => drop(actix::spawn(pass(sent, waiting))),
                }
            }
            Forward::Resize { exec, size } => {
                let message = ResizeTask { task: TaskKey { sandbox, container, exec }, size };
                let what = format!("resizing a terminal of {whom}");
                actix::spawn(pass(ask(supervisor.resize_task, message, what, FORWARD_TIMEOUT_MS), waiting));
            }
            Forward::ReopenLog => {
                let what = format!("reopening the log of {whom}");
                let message = ReopenTaskLog { sandbox, container };
                actix::spawn(pass(ask(supervisor.reopen_log, message, what, FORWARD_TIMEOUT_MS), waiting));
            }
            Forward::Measure => {
                let what = format!("measuring {whom}");
                let asked = ask(
                    supervisor.measure_task,
                    MeasureTask { sandbox, container },
                    what,
                    FORWARD_TIMEOUT_MS,
                );
                actix::spawn(async move {
                    let stats = asked.await;
                    match waiting {
                        Waiting::Stats(reply) => reply.send(stats),
                        other => other
                            .fail(Error::internal("a container actor", "the answer does not fit the call")),
                    }
                });
            }
        }
    }
}

/// The answer of those whose wish is done when it is durable.
fn done(wrote: &Wrote) -> Result<Answer> {
    match wrote {
        Wrote::Durable => Ok(Answer::Done),
        Wrote::Failed(error) => Err(error.clone()),
    }
}

/// Passes an answer on.
async fn pass(asked: impl Future<Output = Result<()>>, waiting: Waiting) {
    match asked.await {
        Ok(()) => waiting.done(),
        Err(error) => waiting.fail(error),
    }
}

/// Sends a signal and notes that it was sent.
async fn signal_task(
    world: World,
    task: TaskKey,
    signal: Signal,
    scope: SignalScope,
    cause: &'static str,
) -> Result<()> {
    let subject = mainstay_messages::event::Subject {
        sandbox: Some(task.sandbox.clone()),
        container: Some(task.container.clone()),
        exec: task.exec.clone(),
    };
    let what = format!("sending {signal} to container {} of pod {}", task.container, task.sandbox);
    let message = SignalTask { task, signal, scope };
    let sent = ask(world.supervisor.signal_task.clone(), message, what, SIGNAL_TIMEOUT_MS).await;
    match &sent {
        Ok(()) => world.note_now(subject, What::Signalled { signal, cause: cause.to_owned() }),
        Err(error) => tracing::warn!(%error, %signal, cause, "a signal could not be sent"),
    }
    sent
}

/// Reads all that the journal says about a container's processes.
async fn search_journal(world: World, container: ContainerId) -> Result<ExecLore> {
    let mut open: BTreeMap<ExecId, (Timestamp, Option<u32>)> = BTreeMap::new();
    let mut lore = ExecLore::default();
    let mut after = Seq(0);
    loop {
        let subject = Some(EventFilter::Container(container.clone()));
        let query = EventQuery { after, limit: SEARCH_PAGE_EVENTS, subject };
        let page = world.ports.store.events(query).await?;
        let Some(last) = page.events.last() else { break };
        after = last.seq;
        page.events.into_iter().for_each(|event| learn(event, &mut open, &mut lore));
    }
    lore.open = open.into_iter().map(|(id, (at, pid))| (id, at, pid)).collect();
    Ok(lore)
}

fn learn(event: Event, open: &mut BTreeMap<ExecId, (Timestamp, Option<u32>)>, lore: &mut ExecLore) {
    let Some(id) = event.subject.exec else {
        match &event.what {
            What::Commanded { command, .. } if command == START_COMMAND => lore.start = StartLore::Told,
            // A row that cannot be read may be that of one whose end was written down.
            What::ContainerExited { .. } => lore.start = StartLore::NotTold,
            _ => {}
        }
        return;
    };
    match event.what {
        What::Commanded { .. } => {
            open.insert(id, (event.at, None));
        }
        What::ExecStarted { pid } => {
            open.insert(id, (event.at, Some(pid)));
        }
        What::ExecExited { .. } => {
            open.remove(&id);
            lore.ended.push(id);
        }
        _ => {}
    }
}
