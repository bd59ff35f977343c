//! The start of the runtime: everything that the store holds gets its actor at once; what became of the shims
//! is found out by each sandbox for itself, in parallel (P5).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use actix::{Context, Handler, Message};
use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use mainstay_messages::router::{Child, TaskKey};
use mainstay_messages::spec::{ContainerSpec, SandboxSpec};
use mainstay_messages::{ContainerId, SandboxId};

use super::Router;
use super::restart::adopt_by_query;
use super::state::NameKey;
use crate::ports::{Damaged, Loaded};
use crate::sandbox::state::HowDown;
use crate::{container, sandbox};

/// Where a container is listed whose row cannot be read, so that its sandbox is not known.
const UNKNOWN_SANDBOX: &str = "unknown";

/// Take over what the store holds. Answered when everything is listed; what became of it is found out after
/// that.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Recover {
    /// What the store holds.
    pub loaded: Loaded,
    /// Why the runtime was down: `Rebooted` when the boot id of the store's last run is not that of the machine.
    pub how: HowDown,
}

impl Handler<Recover> for Router {
    type Result = ();

    fn handle(&mut self, Recover { mut loaded, how }: Recover, ctx: &mut Context<Self>) {
        // A creation that was given up because the store was slow may have become durable all the same, and its name
        // may have been taken by another since. The name belongs to the one that was made, or to the newer one; the
        // other is undone.
        loaded.sandboxes.sort_by_key(|record| (record.is_half_made(), Reverse(record.created_at)));
        loaded.containers.sort_by_key(|record| (record.is_half_made(), Reverse(record.created_at)));
        let mut containers: HashMap<SandboxId, BTreeSet<ContainerId>> = HashMap::new();
        for record in &loaded.containers {
            containers.entry(record.sandbox.clone()).or_default().insert(record.id.clone());
        }
        let sandboxes: BTreeSet<SandboxId> =
            loaded.sandboxes.iter().map(|record| record.id.clone()).collect();
        // Containers first, so that their sandboxes find them.
        for mut record in loaded.containers {
            if how == HowDown::Rebooted {
                show_container_as_unknown(&mut record);
            }
            self.recover_container(record, &sandboxes, ctx);
        }
        for record in loaded.sandboxes {
            let of_it = containers.remove(&record.id).unwrap_or_default();
            self.recover_sandbox(record, of_it, how, ctx);
        }
        for damaged in loaded.damaged {
            self.list_damaged(&damaged, ctx);
        }
    }
}

impl Router {
    fn recover_sandbox(
        &mut self,
        record: SandboxRecord,
        containers: BTreeSet<ContainerId>,
        how: HowDown,
        ctx: &mut Context<Self>,
    ) {
        let name = NameKey::Sandbox(record.name().clone());
        self.registry.register(Child::Sandbox(record.id.clone()), Some(name), None);
        let machine = sandbox::state::State::recovered(record, containers, how);
        let link = self.start_sandbox(machine, 0, ctx);
        let request = sandbox::Request::Recover;
        link.addr.do_send(sandbox::Deliver { request, waiting: sandbox::Waiting::Nobody });
    }

    fn recover_container(
        &mut self,
        record: ContainerRecord,
        sandboxes: &BTreeSet<SandboxId>,
        ctx: &mut Context<Self>,
    ) {
        let (id, sandbox) = (record.id.clone(), record.sandbox.clone());
        let name = NameKey::Container(sandbox.clone(), record.name().clone());
        self.registry.register(Child::Container(id.clone()), Some(name), Some(sandbox.clone()));
        let link = self.start_container(container::state::State::recovered(record), 0, ctx);
        self.deliver_parked(&id);
        if !sandboxes.contains(&sandbox) {
            // No sandbox will tell it anything.
            let task = TaskKey { sandbox, container: id, exec: None };
            actix::spawn(adopt_by_query(self.world.clone(), link.addr, task));
        }
    }

    /// A row that cannot be read is listed as Unknown, under its id, and can be removed.
    fn list_damaged(&mut self, damaged: &Damaged, ctx: &mut Context<Self>) {
        let Damaged { kind, id, reason } = damaged;
        tracing::error!(%kind, id, reason, "a row of the store cannot be read");
        let Ok(name) = id.parse() else { return };
        let now = self.world.ports.clock.now();
        match (kind, id.parse::<SandboxId>(), id.parse::<ContainerId>(), UNKNOWN_SANDBOX.parse::<SandboxId>())
        {
            (Kind::Sandbox, Ok(id), ..) => {
                let mut record = SandboxRecord::intent(id.clone(), SandboxSpec::new(name), now);
                record.phase = SandboxPhase::Unknown;
                record.reason = Some(reason.clone());
                self.registry.register(Child::Sandbox(id), None, None);
                let machine = sandbox::state::State::recovered(record, BTreeSet::new(), HowDown::Restarted);
                let link = self.start_sandbox(machine, 0, ctx);
                let request = sandbox::Request::Recover;
                link.addr.do_send(sandbox::Deliver { request, waiting: sandbox::Waiting::Nobody });
            }
            (Kind::Container, _, Ok(id), Ok(sandbox)) => {
                let spec = ContainerSpec::new(name, [""; 0]);
                let mut record =
                    ContainerRecord::intent(id.clone(), sandbox.clone(), spec, PathBuf::new(), now);
                record.phase = ContainerPhase::Unknown;
                self.registry.register(Child::Container(id), None, Some(sandbox));
                self.start_container(container::state::State::damaged(record), 0, ctx);
            }
            _ => {}
        }
    }
}

/// Nothing of before a reboot runs, so nobody may be shown that it does, not even until it is written how it ended. In
/// memory alone: the store keeps what was last known.
fn show_container_as_unknown(record: &mut ContainerRecord) {
    match record.phase {
        ContainerPhase::Created
        | ContainerPhase::Starting
        | ContainerPhase::Running
        | ContainerPhase::Stopping => record.phase = ContainerPhase::Unknown,
        ContainerPhase::Creating
        | ContainerPhase::Exited
        | ContainerPhase::Removing
        | ContainerPhase::Unknown => {}
    }
}
