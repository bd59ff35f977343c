//! A child whose actor panicked is started again from the store and the shim's answer (P9).

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, Addr, AsyncContext, Context, Handler};
use mainstay_messages::event::{Subject, What};
use mainstay_messages::journal::Commit;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use mainstay_messages::router::{Child, ChildLost, TaskKey};
use mainstay_messages::supervisor::{QueryTask, TaskKnowledge};
use mainstay_messages::{ContainerId, Result, SandboxId};

use super::{QUERY_TIMEOUT_MS, Router};
use crate::call::ask;
use crate::container::state::Knowledge;
use crate::container::{self, Container};
use crate::machine::backoff_ms;
use crate::router::state::Loss;
use crate::sandbox;
use crate::sandbox::state::HowDown;
use crate::world::World;

/// Time from a failed attempt to read a record, or to ask about a task, to the next one, in milliseconds;
/// doubled after each.
const RETRY_MS: u64 = 1_000;
/// The longest time between such attempts, in milliseconds.
const RETRY_MAX_MS: u64 = 30_000;

impl Handler<ChildLost> for Router {
    type Result = ();

    fn handle(&mut self, ChildLost { child, generation }: ChildLost, ctx: &mut Context<Self>) {
        match self.registry.lost(&child, generation, self.world.now().mono_ms) {
            Loss::Stale => {}
            Loss::Restart { count } => self.restart(child, count, ctx),
            Loss::Rest { for_ms } => {
                tracing::error!(
                    ?child,
                    for_ms,
                    "this actor fails again and again; it is left alone for a while"
                );
                self.unlink(&child);
                self.show_as_unknown(&child);
                ctx.run_later(Duration::from_millis(for_ms), move |act, ctx| {
                    let now_ms = act.world.now().mono_ms;
                    if let Some(count) = act.registry.rested(&child, now_ms) {
                        act.restart(child, count, ctx);
                    }
                });
            }
        }
    }
}

impl Router {
    fn restart(&mut self, child: Child, count: u32, ctx: &mut Context<Self>) {
        self.unlink(&child);
        self.world.counters.restarts.add();
        let (subject, actor) = match &child {
            Child::Sandbox(id) => (Subject::sandbox(id), "sandbox"),
            Child::Container(id) => {
                let sandbox = self.registry.sandbox_of(&child).cloned();
                (Subject { sandbox, container: Some(id.clone()), exec: None }, "container")
            }
        };
        tracing::error!(?child, count, "an actor panicked; it is started again");
        self.world.note_now(subject, What::ActorRestarted { actor: actor.to_owned(), count });
        match child {
            Child::Sandbox(id) => self.reload_sandbox(id, ctx),
            Child::Container(id) => self.reload_container(id, ctx),
        }
    }

    fn reload_sandbox(&mut self, id: SandboxId, ctx: &mut Context<Self>) {
        let store = Arc::clone(&self.world.ports.store);
        let key = id.clone();
        let loaded = load(self.world.clone(), move || store.load_sandbox(&key));
        ctx.spawn(wrap_future::<_, Self>(loaded).map(move |record, act, ctx| match record {
            Some(record) => act.sandbox_again(record, ctx),
            None => act.never_was(&Child::Sandbox(id)),
        }));
    }

    fn reload_container(&mut self, id: ContainerId, ctx: &mut Context<Self>) {
        let store = Arc::clone(&self.world.ports.store);
        let key = id.clone();
        let loaded = load(self.world.clone(), move || store.load_container(&key));
        ctx.spawn(wrap_future::<_, Self>(loaded).map(move |record, act, ctx| match record {
            Some(record) => act.container_again(record, ctx),
            None => act.never_was(&Child::Container(id)),
        }));
    }

    fn sandbox_again(&mut self, record: SandboxRecord, ctx: &mut Context<Self>) {
        let Some(generation) = self.registry.runs_again(&Child::Sandbox(record.id.clone())) else { return };
        let containers = self.registry.containers_of(&record.id).into_iter().collect();
        let machine = sandbox::state::State::recovered(record, containers, HowDown::ActorLost);
        let link = self.start_sandbox(machine, generation, ctx);
        let request = sandbox::Request::Recover;
        link.addr.do_send(sandbox::Deliver { request, waiting: sandbox::Waiting::Nobody });
    }

    fn container_again(&mut self, record: ContainerRecord, ctx: &mut Context<Self>) {
        let Some(generation) = self.registry.runs_again(&Child::Container(record.id.clone())) else { return };
        let (id, sandbox) = (record.id.clone(), record.sandbox.clone());
        let shown =
            self.world.publisher.directory().container(&id).and_then(|shown| shown.record.exit.clone());
        let unwritten = shown.filter(|_| record.exit.is_none());
        let link = self.start_container(container::state::State::recovered(record), generation, ctx);
        if let Some(exit) = unwritten {
            // Readers have seen it, and the store had not taken it: it holds all the same.
            let request = container::Request::Exit(None, exit);
            let waiting = container::Waiting::Nobody;
            link.addr.do_send(container::Deliver { request, waiting });
        }
        let task = TaskKey { sandbox, container: id, exec: None };
        actix::spawn(adopt_by_query(self.world.clone(), link.addr, task));
    }

    /// The store does not know it: it had not come to be.
    fn never_was(&mut self, child: &Child) {
        match child {
            Child::Sandbox(id) => self.world.publisher.sandbox_gone(id),
            Child::Container(id) => self.world.publisher.container_gone(id),
        }
        self.strike(child);
    }

    fn unlink(&mut self, child: &Child) {
        match child {
            Child::Sandbox(id) => drop(self.sandboxes.remove(id)),
            Child::Container(id) => drop(self.containers.remove(id)),
        }
    }

    fn show_as_unknown(&self, child: &Child) {
        let publisher = &self.world.publisher;
        match child {
            Child::Sandbox(id) => {
                if let Some(shown) = publisher.directory().sandbox(id) {
                    let mut shown = (*shown).clone();
                    shown.record.phase = SandboxPhase::Unknown;
                    shown.record.reason = Some("its actor fails again and again".to_owned());
                    publisher.sandbox(shown);
                }
            }
            Child::Container(id) => {
                if let Some(shown) = publisher.directory().container(id) {
                    let mut shown = (*shown).clone();
                    shown.record.phase = ContainerPhase::Unknown;
                    publisher.container(shown);
                }
            }
        }
    }
}

/// Reads a record; tries until the store answers.
async fn load<T>(
    world: World,
    read: impl Fn() -> futures::future::BoxFuture<'static, Result<Option<T>>>,
) -> Option<T> {
    // The actor that is lost may have a commit under way. Commits keep their order, so when this one, which writes
    // nothing, is answered in whatever way, the record is as that actor left it.
    let answered = world.journal.send(Commit::default()).await;
    tracing::debug!(?answered, "the commits of a lost actor are over");
    let mut failures = 0;
    loop {
        match read().await {
            Ok(record) => return record,
            Err(error) => tracing::warn!(%error, "a record cannot be read; trying again"),
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms(RETRY_MS, RETRY_MAX_MS, failures))).await;
        failures = failures.saturating_add(1);
    }
}

/// Tells a container what its shim knows of its task; asks until there is an answer, or the container is gone.
pub(super) async fn adopt_by_query(world: World, container: Addr<Container>, task: TaskKey) {
    let mut failures = 0;
    while container.connected() {
        let what = format!("what is known of container {} of pod {}", task.container, task.sandbox);
        let query = QueryTask { task: task.clone() };
        let answer = ask(world.supervisor.query_task.clone(), query, what, QUERY_TIMEOUT_MS).await;
        let answered = answer.is_ok();
        let knowledge = match answer {
            Ok(TaskKnowledge::Known(task)) => Knowledge::Task(task),
            Ok(TaskKnowledge::NotKnown) => Knowledge::NotKnown(UnknownReason::NotKnownToShim),
            Ok(TaskKnowledge::ShimGone) => Knowledge::ShimGone(UnknownReason::ShimDied),
            Err(error) => Knowledge::Unreachable(error.to_string()),
        };
        let request = container::Request::Adopt(knowledge);
        container.do_send(container::Deliver { request, waiting: container::Waiting::Nobody });
        if answered {
            return;
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms(RETRY_MS, RETRY_MAX_MS, failures))).await;
        failures = failures.saturating_add(1);
    }
}
