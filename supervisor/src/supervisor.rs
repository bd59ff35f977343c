//! The supervisor: the actor that owns every shim process.
//!
//! Owns: which pods have a shim, and that at most one operation starts or ends a pod's shim at a time. Facts go to two
//! recipients that are given when it is made. Never: knows the store or the other actors, blocks its thread, or lets one
//! shim hold up another: every command becomes a task of its own, with deadlines; one that panics fails alone.
//!
//! ```text
//!        LaunchShim, AdoptShim          it runs
//!   (unknown) ────────────────► Beginning ────► Known ──StopShim──► Stopping ──ok──► (unknown)
//!         ▲                         │            ▲                     │
//!         └─────── failed, gone ────┘            └─────── failed ──────┘
//! ```
//!
//! A shim that died stays Known, so that its containers can still be asked about and removed, until StopShim.

mod audit;
mod commands;
mod plugins;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, Context, Handler, Recipient, ResponseActFuture, ResponseFuture, WrapFuture,
};
use futures::FutureExt;
use futures::future::{LocalBoxFuture, Shared};
use mainstay_messages::error::Kind;
use mainstay_messages::router::{Noted, ShimDied, TaskExited};
use mainstay_messages::supervisor::{AdoptShim, Adopted, LaunchShim, Launched, StopShim};
use mainstay_messages::{Error, Result, SandboxId, Timestamp};

use crate::adopt;
use crate::claim::Claim;
use crate::facts::Facts;
use crate::handlers::probe::PROBES_MS;
use crate::launch;
use crate::machine::{Machine, now};
use crate::network::PodNetworks;
use crate::saga::At;
use crate::settings::SupervisorSettings;
use crate::shim::Shim;
use crate::spawn;
use crate::stop;

pub use audit::LEAK_ENDED_MS;
pub use plugins::{PluginCame, WelcomePlugins};

/// The most messages from one sender that wait for the supervisor. It only hands them on.
pub const SUPERVISOR_MAILBOX_MAX: usize = 1_024;

/// The actor that owns every shim process.
pub struct ShimSupervisor {
    machine: Arc<Machine>,
    facts: Facts,
    pods: HashMap<SandboxId, Pod>,
}

/// A running operation whose outcome more than one waits for.
type Joined<T> = Shared<LocalBoxFuture<'static, Result<T>>>;

/// What a pod's shim is doing.
enum Pod {
    /// It is being launched, or looked for.
    Beginning { job: Joined<Option<Rc<Shim>>>, begun: Begun },
    /// There is one, dead or alive.
    Known(Rc<Shim>),
    /// It is being ended.
    Stopping { job: Joined<()>, since: Timestamp, shim: Option<Rc<Shim>> },
}

/// What the beginning of a shim is, and how far it is.
#[derive(Clone)]
struct Begun {
    operation: &'static str,
    step: At,
    since: Timestamp,
}

impl ShimSupervisor {
    /// One for settings that `claim` was taken with. The error is the first thing that is in the way.
    pub fn new(
        settings: SupervisorSettings,
        claim: Claim,
        networks: Arc<dyn PodNetworks>,
        task_exited: Recipient<TaskExited>,
        shim_died: Recipient<ShimDied>,
        noted: Recipient<Noted>,
    ) -> Result<Self> {
        let machine = Arc::new(Machine::new(settings, claim, networks, noted)?);
        let facts = Facts::new(Arc::clone(&machine), task_exited, shim_died);
        Ok(Self { machine, facts, pods: HashMap::new() })
    }

    /// The shim of a pod, dead or alive.
    fn shim(&self, sandbox: &SandboxId) -> Result<Rc<Shim>> {
        match self.pods.get(sandbox) {
            Some(Pod::Known(shim)) => Ok(Rc::clone(shim)),
            Some(Pod::Beginning { begun, .. }) => Err(begun.in_progress(sandbox)),
            Some(Pod::Stopping { .. }) => {
                Err(Error::Terminating { kind: Kind::Sandbox, id: sandbox.to_string() })
            }
            None => Err(Error::unavailable(format!("the shim of pod {sandbox}"), "it is not running")),
        }
    }

    /// Does something with the shim of a pod.
    fn with_shim<T: 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        sandbox: &SandboxId,
        work: impl FnOnce(Rc<Shim>) -> F,
    ) -> ResponseFuture<Result<T>> {
        match self.shim(sandbox) {
            Ok(shim) => Box::pin(guarded(work(shim))),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    /// A pod's shim begins to be known.
    fn begin(
        &mut self,
        sandbox: &SandboxId,
        (operation, step): (&'static str, At),
        work: impl Future<Output = Result<Option<Rc<Shim>>>> + 'static,
    ) -> Joined<Option<Rc<Shim>>> {
        let job = joined(work);
        let begun = Begun { operation, step, since: now() };
        self.pods.insert(sandbox.clone(), Pod::Beginning { job: job.clone(), begun });
        job
    }

    /// A beginning has ended. A stop may have taken the pod over meanwhile, or another beginning.
    fn begun(&mut self, sandbox: &SandboxId, outcome: &Result<Option<Rc<Shim>>>) {
        if let Some(Pod::Beginning { job, .. }) = self.pods.get(sandbox)
            && job.peek().is_some()
        {
            match outcome {
                Ok(Some(shim)) => drop(self.pods.insert(sandbox.clone(), Pod::Known(Rc::clone(shim)))),
                Ok(None) | Err(_) => drop(self.pods.remove(sandbox)),
            }
        }
    }
}

impl fmt::Debug for ShimSupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShimSupervisor").field("pods", &self.pods.len()).finish_non_exhaustive()
    }
}

impl Actor for ShimSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(SUPERVISOR_MAILBOX_MAX);
        // So that the first pod does not wait for the sealed copy of the program, and what is begun from it.
        let machine = Arc::clone(&self.machine);
        actix::spawn(async move {
            let warm = |machine: &Machine| {
                spawn::warm(machine);
                Ok(())
            };
            if let Err(error) = machine.blocking("the start of the zygote", warm).await {
                tracing::warn!(%error, "the first pod will take longer");
            }
        });
        let machine = Arc::clone(&self.machine);
        actix::spawn(async move {
            let look = |machine: &Machine| {
                for (handler, error) in machine.settings.handlers.without_shim() {
                    tracing::warn!(%handler, %error, "pods of this handler are refused until that is mended");
                }
                for (handler, program) in machine.settings.handlers.programs() {
                    machine.runtimes.look(handler.as_str(), &program, &machine.layout);
                }
                Ok(())
            };
            let limit_ms = PROBES_MS * (1 + machine.settings.handlers.programs().count() as u64);
            if let Err(error) = machine.blocking_within("looking at the runtimes", limit_ms, look).await {
                tracing::warn!(%error, "the first pod of a handler will take longer");
            }
        });
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        for pod in self.pods.values() {
            if let Pod::Known(shim) = pod {
                shim.let_go();
            }
        }
    }
}

impl Handler<LaunchShim> for ShimSupervisor {
    type Result = ResponseActFuture<Self, Result<Launched>>;

    fn handle(&mut self, message: LaunchShim, _: &mut Self::Context) -> Self::Result {
        let sandbox = message.record.id.clone();
        let job = match self.pods.get(&sandbox) {
            None => {
                let at = At::begin("wait for its turn");
                let parts = (Arc::clone(&self.machine), self.facts.clone());
                let launch = launch::launch(parts, message.record, at.clone());
                self.begin(&sandbox, ("launch", at), launch.map(|launched| launched.map(Some)))
            }
            // The same step again: what it is to bring about is there, or under way.
            Some(Pod::Known(shim)) => ready(shim.alive().map(|()| Some(Rc::clone(shim)))),
            Some(Pod::Beginning { job, .. }) => job.clone(),
            Some(Pod::Stopping { since, .. }) => {
                ready(Err(in_progress(&sandbox, "stop", "end of the shim", *since)))
            }
        };
        Box::pin(job.into_actor(self).map(move |outcome, supervisor, _| {
            supervisor.begun(&sandbox, &outcome);
            match outcome? {
                Some(shim) => Ok(Launched { shim: shim.record.clone(), network: shim.network() }),
                None => Err(Error::unavailable(format!("the shim of pod {sandbox}"), "it is gone")),
            }
        }))
    }
}

impl Handler<AdoptShim> for ShimSupervisor {
    type Result = ResponseActFuture<Self, Result<Adopted>>;

    fn handle(&mut self, message: AdoptShim, _: &mut Self::Context) -> Self::Result {
        let AdoptShim { record, containers, processes } = message;
        let sandbox = record.id.clone();
        let job = match self.pods.get(&sandbox) {
            None => {
                let work =
                    adopt::adopt(Arc::clone(&self.machine), self.facts.clone(), record, containers.clone());
                self.begin(&sandbox, ("adopt", At::begin("search for the shim")), work)
            }
            Some(_) => ready(self.shim(&sandbox).map(Some)),
        };
        let adopted = job.into_actor(self).map(move |outcome, supervisor, _| {
            supervisor.begun(&sandbox, &outcome);
            outcome
        });
        Box::pin(adopted.then(move |outcome, supervisor, _| {
            async move {
                match outcome? {
                    Some(shim) => {
                        guarded(async move { adopt::ask(&shim, &containers, processes).await }).await
                    }
                    None => Ok(Adopted::Gone),
                }
            }
            .into_actor(supervisor)
        }))
    }
}

impl Handler<StopShim> for ShimSupervisor {
    type Result = ResponseActFuture<Self, Result<()>>;

    fn handle(&mut self, message: StopShim, _: &mut Self::Context) -> Self::Result {
        let StopShim { sandbox, end } = message;
        let machine = Arc::clone(&self.machine);
        let pod = sandbox.clone();
        let (job, since, shim): (Joined<()>, _, _) = match self.pods.remove(&sandbox) {
            None => (joined(async move { stop::sweep(&machine, &pod, end).await }), now(), None),
            Some(Pod::Known(shim)) => (joined(stop::stop(Rc::clone(&shim), end)), now(), Some(shim)),
            Some(Pod::Stopping { job, since, shim }) => (job, since, shim),
            Some(Pod::Beginning { job, .. }) => {
                let stop = async move {
                    match job.await {
                        Ok(Some(shim)) => stop::stop(shim, end).await,
                        Ok(None) | Err(_) => stop::sweep(&machine, &pod, end).await,
                    }
                };
                (joined(stop), now(), None)
            }
        };
        self.pods.insert(sandbox.clone(), Pod::Stopping { job: job.clone(), since, shim });
        Box::pin(job.into_actor(self).map(move |outcome, supervisor, _| {
            // Of those who waited for the same job the first one is here; the others find nothing to do.
            let over = matches!(supervisor.pods.get(&sandbox), Some(Pod::Stopping { job, .. }) if job.peek().is_some());
            if over
                && let Some(Pod::Stopping { shim: Some(shim), .. }) = supervisor.pods.remove(&sandbox)
                && outcome.is_err()
            {
                supervisor.pods.insert(sandbox, Pod::Known(shim));
            }
            outcome
        }))
    }
}

/// Runs work as a task of its own. One that panics is an error of this work, and of nothing else.
async fn guarded<T: 'static>(work: impl Future<Output = Result<T>> + 'static) -> Result<T> {
    actix::spawn(work).await.unwrap_or_else(|error| Err(Error::internal("the supervisor", error)))
}

/// Guarded work whose outcome more than one may wait for.
fn joined<T: Clone + 'static>(work: impl Future<Output = Result<T>> + 'static) -> Joined<T> {
    guarded(work).boxed_local().shared()
}

fn ready<T: Clone + 'static>(outcome: Result<T>) -> Joined<T> {
    std::future::ready(outcome).boxed_local().shared()
}

impl Begun {
    fn in_progress(&self, sandbox: &SandboxId) -> Error {
        in_progress(sandbox, self.operation, self.step.now(), self.since)
    }
}

fn in_progress(sandbox: &SandboxId, operation: &str, step: &str, since: Timestamp) -> Error {
    let (operation, step) = (operation.to_owned(), step.to_owned());
    Error::InProgress { id: sandbox.to_string(), operation, step, since }
}
