//! What a sandbox wants to have done becomes calls to others; their answers become inputs. Every call has a
//! time-out of its own, named here.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorContext, ActorFutureExt, AsyncContext, Context, Recipient};
use futures::FutureExt;
use futures::future::join_all;
use mainstay_messages::container::{IfRunning, RemoveContainer, StopContainer};
use mainstay_messages::event::Subject;
use mainstay_messages::router::{Child, Deregister};
use mainstay_messages::spec::STOP_GRACE_DEFAULT_MS;
use mainstay_messages::supervisor::{AdoptShim, LaunchShim, MeasureShim, StopShim, UpdatePod};
use mainstay_messages::{ContainerId, Error, ProcessIdentity, Result};

use super::state::{Answer, Ask, Effect, Input};
use super::{Sandbox, Waiting};
use crate::call::{CallId, ask};
use crate::container::state::STOP_ANSWER_AFTER_KILL_MS;
use crate::machine::{Wrote, feed, unrecorded};
use crate::router::{AdoptContainer, Routed};

/// Time for the supervisor to start a shim, attach the pod to its network and tell plugins, in milliseconds: more than all of
/// them have.
pub const LAUNCH_TIMEOUT_MS: u64 = 150_000;
/// Time for the supervisor to find a shim again, in milliseconds.
pub const ADOPT_TIMEOUT_MS: u64 = 10_000;
/// Time for the supervisor to tell plugins, detach the pod and end its shim, in milliseconds: more than all of them have.
pub const STOP_SHIM_TIMEOUT_MS: u64 = 150_000;
/// Time for the supervisor to measure a pod, in milliseconds.
pub const MEASURE_TIMEOUT_MS: u64 = 15_000;
/// Time for the supervisor to ask plugins about other limits of a pod and to put them in force, in milliseconds: more than all
/// of them have.
pub const UPDATE_TIMEOUT_MS: u64 = 90_000;
/// Time beyond a container's grace and kill for it to answer a stop, in milliseconds. After that the shim is
/// ended, which ends the container for certain.
pub const STOP_SLACK_MS: u64 = 5_000;
/// Time for a container to be removed, in milliseconds.
pub const REMOVE_TIMEOUT_MS: u64 = 90_000;
/// Attempts to reach a container whose actor is being started again, or is full.
const REACH_ATTEMPTS_MAX: u32 = 8;
/// Time between such attempts, in milliseconds.
const REACH_RETRY_MS: u64 = 250;
/// Time for the router to strike a sandbox off, or to pass an adoption on, in milliseconds.
const ROUTER_TIMEOUT_MS: u64 = 10_000;

impl Sandbox {
    pub(super) fn perform_effect(&mut self, effect: Effect, wrote: &Wrote, ctx: &mut Context<Self>) {
        match effect {
            Effect::Answer { calls, answer } => self.answer(calls, &answer),
            Effect::Ask(ask) => self.ask(ask, ctx),
            Effect::Measure { call } => self.measure(call),
            Effect::Tell(told) => {
                for (container, knowledge) in told {
                    let message = Routed(AdoptContainer { container, knowledge });
                    let what = "the adoption of a container".to_owned();
                    let told = ask(self.links.adopt_container.clone(), message, what, ROUTER_TIMEOUT_MS);
                    actix::spawn(told.map(drop));
                }
            }
            Effect::Wake { after_ms, input } => {
                ctx.run_later(Duration::from_millis(after_ms), |act, ctx| feed(act, input, ctx));
            }
            Effect::Note(what) => self.world.note_now(Subject::sandbox(self.id()), what),
            Effect::Again(input) => self.driver.again(input),
            Effect::LaunchUnwritten => {
                if let Wrote::Failed(error) = wrote {
                    self.driver.again(Input::Launched(Err(error.clone())));
                }
            }
            Effect::Retire { runners, failure, content } => match wrote {
                Wrote::Durable => {
                    let failure = failure.unwrap_or_else(|| self.gone());
                    self.leave(vec![(runners, Err(failure)), (content, Ok(Answer::Done))], ctx);
                }
                Wrote::Failed(error) => {
                    self.answer(runners, &Err(failure.unwrap_or_else(|| error.clone())));
                    self.answer(content, &Err(unrecorded(error)));
                }
            },
            Effect::Abandon { calls } => {
                let answer = match wrote {
                    Wrote::Durable => Err(self.gone()),
                    Wrote::Failed(error) => Err(error.clone()),
                };
                self.leave(vec![(calls, answer)], ctx);
            }
        }
    }

    fn gone(&self) -> Error {
        Error::Terminating { kind: mainstay_messages::error::Kind::Sandbox, id: self.id().to_string() }
    }

    /// Gone from the view of readers, then from the router, then the callers hear of it: whoever hears of it
    /// can use the name again at once.
    fn leave(&mut self, answers: Vec<(Vec<CallId>, Result<Answer>)>, ctx: &mut Context<Self>) {
        let id = self.id().clone();
        self.world.publisher.sandbox_gone(&id);
        let struck = self.links.deregister.send(Deregister { child: Child::Sandbox(id) });
        let struck = tokio::time::timeout(Duration::from_millis(ROUTER_TIMEOUT_MS), struck);
        let left = wrap_future::<_, Self>(struck).map(move |_struck, act, ctx| {
            act.ticket.retire();
            answers.into_iter().for_each(|(calls, answer)| act.answer(calls, &answer));
            ctx.stop();
        });
        ctx.spawn(left);
    }

    fn ask(&mut self, what: Ask, ctx: &mut Context<Self>) {
        let machine = self.driver.machine();
        let record = machine.record();
        let sandbox = record.id.clone();
        let containers: Vec<ContainerId> = machine.containers().iter().cloned().collect();
        let supervisor = &self.world.supervisor;
        match what {
            Ask::Launch => {
                let message = LaunchShim { record: record.clone() };
                let what = format!("the start of the shim of pod {sandbox}");
                let asked = ask(supervisor.launch_shim.clone(), message, what, LAUNCH_TIMEOUT_MS);
                self.later(asked.map(Input::Launched), ctx);
            }
            Ask::Adopt => {
                let open = self.without_exit(containers);
                let processes = self.processes_of(&open);
                let message = AdoptShim { record: record.clone(), containers: open, processes };
                let what = format!("the adoption of the shim of pod {sandbox}");
                let asked = ask(supervisor.adopt_shim.clone(), message, what, ADOPT_TIMEOUT_MS);
                self.later(asked.map(Input::Adopted), ctx);
            }
            Ask::StopShim => {
                let end = machine.pod_end();
                let what = format!("the end of the shim of pod {sandbox}");
                let asked =
                    ask(supervisor.stop_shim.clone(), StopShim { sandbox, end }, what, STOP_SHIM_TIMEOUT_MS);
                self.later(asked.map(Input::ShimStopped), ctx);
            }
            Ask::StopContainers { grace_ms } => {
                let stops: Vec<_> =
                    containers.into_iter().map(|id| self.stop_container(id, grace_ms)).collect();
                self.later(join_all(stops).map(|_| Input::ContainersStopped), ctx);
            }
            Ask::Update(wanted, consult) => {
                let (limits, plan) = *wanted;
                let message = UpdatePod { record: record.clone(), limits, plan, consult };
                let what = format!("the change of limits of pod {sandbox}");
                let asked = ask(supervisor.update_pod.clone(), message, what, UPDATE_TIMEOUT_MS);
                self.later(asked.map(Input::Updated), ctx);
            }
            Ask::RemoveContainers => {
                let to = &self.links.remove_container;
                let removals: Vec<_> =
                    containers.into_iter().map(|id| remove_container(to.clone(), id)).collect();
                let removed = join_all(removals).map(|results| results.into_iter().collect::<Result<()>>());
                self.later(removed.map(Input::ContainersRemoved), ctx);
            }
        }
    }

    /// Runs beside the actor; what comes out is an input.
    fn later(&self, work: impl Future<Output = Input> + 'static, ctx: &mut Context<Self>) {
        ctx.spawn(wrap_future::<_, Self>(work).map(|input, act, ctx| feed(act, input, ctx)));
    }

    fn without_exit(&self, containers: Vec<ContainerId>) -> Vec<ContainerId> {
        let directory = self.world.publisher.directory();
        let open = |id: &ContainerId| directory.container(id).is_none_or(|shown| shown.record.exit.is_none());
        containers.into_iter().filter(open).collect()
    }

    fn processes_of(&self, containers: &[ContainerId]) -> BTreeMap<ContainerId, ProcessIdentity> {
        let directory = self.world.publisher.directory();
        let process = |id: &ContainerId| Some((id.clone(), directory.container(id)?.record.process.clone()?));
        containers.iter().filter_map(process).collect()
    }

    /// Waits for a container's end no longer than its grace and its kill may take.
    fn stop_container(&self, id: ContainerId, grace_ms: Option<u64>) -> impl Future<Output = ()> + use<> {
        let to = self.links.stop_container.clone();
        let own =
            self.world.publisher.directory().container(&id).and_then(|shown| shown.record.spec.stop_grace_ms);
        let grace = grace_ms.or(own).unwrap_or(STOP_GRACE_DEFAULT_MS);
        let limit_ms = grace.saturating_add(STOP_ANSWER_AFTER_KILL_MS + STOP_SLACK_MS);
        async move {
            let stop = Routed(StopContainer { container: id.clone(), signal: None, grace_ms });
            let what = format!("the end of container {id}");
            if let Err(error) = reach(to, stop, what, limit_ms).await {
                tracing::warn!(container = %id, %error, "it did not stop in time; ending the shim ends it");
            }
        }
    }

    fn measure(&mut self, call: CallId) {
        let Some(waiting) = self.calls.remove(&call) else { return };
        let sandbox = self.id().clone();
        let what = format!("measuring pod {sandbox}");
        let to = self.world.supervisor.measure_shim.clone();
        actix::spawn(async move {
            let stats = ask(to, MeasureShim { sandbox }, what, MEASURE_TIMEOUT_MS).await;
            match waiting {
                Waiting::Stats(reply) => reply.send(stats),
                other => other.fail(Error::internal("a sandbox actor", "the answer does not fit the call")),
            }
        });
    }
}

async fn remove_container(to: Recipient<Routed<RemoveContainer>>, id: ContainerId) -> Result<()> {
    let what = format!("the removal of container {id}");
    reach(to, Routed(RemoveContainer { container: id, running: IfRunning::Kill }), what, REMOVE_TIMEOUT_MS)
        .await
}

/// Asks a container; tries again while its actor is being started again or has no room.
async fn reach<M>(to: Recipient<Routed<M>>, message: Routed<M>, what: String, limit_ms: u64) -> Result<()>
where
    M: Clone + Send + 'static,
    Routed<M>: actix::Message<Result = Result<()>> + Clone,
{
    let mut attempt = 1;
    loop {
        let result = ask(to.clone(), message.clone(), what.clone(), limit_ms).await;
        let passing = matches!(result, Err(Error::Internal { .. } | Error::ResourceExhausted { .. }));
        if !passing || attempt >= REACH_ATTEMPTS_MAX {
            return result;
        }
        attempt += 1;
        tokio::time::sleep(Duration::from_millis(REACH_RETRY_MS)).await;
    }
}
