//! What happens in a simulation: what clients ask for, and what befalls processes, shims and actors.

use mainstay_actors::Core;
use mainstay_actors::container::{CONTAINER_INBOX_MAX, CONTAINER_INBOX_RESERVED};
use mainstay_actors::fakes::{OnSignal, Program};
use mainstay_messages::container::IfRunning;
use mainstay_messages::process::OomVerdict;
use mainstay_messages::router::TaskKey;
use mainstay_messages::{ContainerId, Exit, ExitStatus, SandboxId, Signal, Timestamp};

use super::{NAMES, Simulation};
use crate::chance::Chance;
use crate::clients::{Patience, Wish};

/// The longest grace that a client gives, in milliseconds.
const GRACE_MAX_MS: u64 = 60_000;
/// Calls to one container at once that are more than its inbox holds.
const FLOOD: usize = CONTAINER_INBOX_MAX + CONTAINER_INBOX_RESERVED + 8;

impl Simulation {
    pub(super) fn ask(&mut self, core: &Core) {
        let wish = self.stage.roll(|chance| self.wish(chance));
        let vanish = self.stage.weather().vanish;
        let patience = self.stage.roll(|chance| match chance.happens(vanish) {
            true => Patience::Ms(chance.time_ms(20_000)),
            false => Patience::Endless,
        });
        self.clients.ask(core, wish, patience);
    }

    fn wish(&self, chance: &mut Chance) -> Wish {
        let known = self.clients.known.borrow();
        // Rather the newest ones, but also what is long gone.
        let newest =
            |count: usize, chance: &mut Chance| if chance.happens(85) { count.saturating_sub(4) } else { 0 };
        let from = newest(known.pods.len(), chance);
        let pod = chance.one(&known.pods[from..]).cloned();
        let from = newest(known.containers.len(), chance);
        let container = chance.one(&known.containers[from..]).map(|(_, id)| id.clone());
        let exec = chance.one(&known.execs).cloned();
        let name = chance.pick(0..NAMES);
        let variant = u64::from(chance.happens(10));
        let grace = match chance.pick(0..4) {
            0 => None,
            1 => Some(0),
            _ => Some(chance.time_ms(GRACE_MAX_MS)),
        };
        let signal = *chance.one(&[Signal::TERM, Signal::KILL, Signal(10)]).unwrap_or(&Signal::TERM);
        let running = if chance.happens(70) { IfRunning::Kill } else { IfRunning::Refuse };
        match (chance.pick(0..100), pod, container, exec) {
            (12..32, Some(pod), ..) => Wish::Create { pod, name: format!("c{name}"), variant },
            (32..52, _, Some(container), _) => Wish::Start(container),
            (52..60, _, Some(container), _) => Wish::Stop(container, grace),
            (60..64, _, Some(container), _) => Wish::Kill(container, signal),
            (64..72, _, Some(container), _) => Wish::Remove(container, running),
            (72..79, _, Some(container), _) => Wish::Exec(container),
            (79..81, .., Some((container, exec))) => Wish::KillExec(container, exec, signal),
            (81..83, _, Some(container), _) => Wish::Pause(container),
            (83..84, _, Some(container), _) => Wish::Resume(container),
            (84..85, _, Some(container), _) => Wish::Update(container, 10 + variant),
            (85..87, _, Some(container), _) => Wish::ReopenLog(container),
            (87..90, _, Some(container), _) => Wish::Measure(container),
            (90..91, Some(pod), ..) => Wish::MeasurePod(pod),
            (91..94, Some(pod), ..) => Wish::StopPod(pod, grace),
            (94..98, Some(pod), ..) => Wish::RemovePod(pod),
            _ => Wish::Run { name: format!("p{name}"), variant },
        }
    }

    pub(super) fn end_a_process(&self) {
        let running = self.world.host.containers();
        if let Some((_, container, _)) = self.stage.roll(|chance| chance.one(&running).cloned()) {
            let code = self.code();
            self.stage.note(format_args!("{container} ends with {code}"));
            self.world.host.end_task(&container, code);
        }
    }

    fn code(&self) -> u8 {
        self.stage.roll(|chance| u8::try_from(chance.pick(0..256)).unwrap_or_default())
    }

    pub(super) fn kill_a_shim(&mut self) {
        let pods = self.world.host.pods();
        if let Some(pod) = self.stage.roll(|chance| chance.one(&pods).cloned()) {
            self.stage.note(format_args!("the shim of {pod} dies"));
            self.world.host.kill_shim(&pod);
            self.sum.dead_shims += 1;
        }
    }

    /// A shim dies while the daemon is down.
    pub(super) fn kill_a_shim_unseen(&mut self) {
        let pods = self.world.host.pods();
        if let Some(pod) = self.stage.roll(|chance| chance.one(&pods).cloned()) {
            self.stage.note(format_args!("the shim of {pod} dies, and nobody sees it"));
            self.world.host.kill_shim_unseen(&pod);
            self.sum.dead_shims += 1;
        }
    }

    /// An exit of somebody whom nobody knows.
    pub(super) fn report_a_stranger(&self) {
        let number = self.stage.roll(|chance| chance.pick(0..1_000));
        let id = |kind: &str| format!("stranger-{kind}-{number}");
        let sandbox: SandboxId = id("pod").parse().expect("an id");
        let container: ContainerId = id("container").parse().expect("an id");
        let exit = Exit {
            status: ExitStatus::Exited { code: self.code() },
            at: Timestamp(1),
            oom: OomVerdict::NotKilled,
        };
        self.stage.note(format_args!("{container} is reported"));
        self.world.host.report(TaskKey { sandbox, container, exec: None }, exit);
    }

    pub(super) fn poison(&mut self, core: &Core) {
        let (pods, containers) = (core.directory.sandboxes(), core.directory.containers(None));
        let wish = self.stage.roll(|chance| match chance.happens(30) {
            true => chance.one(&pods).map(|shown| Wish::PoisonPod(shown.record.id.clone())),
            false => chance.one(&containers).map(|shown| Wish::PoisonContainer(shown.record.id.clone())),
        });
        if let Some(wish) = wish {
            self.clients.ask(core, wish, Patience::Endless);
        }
    }

    /// More calls than an inbox holds.
    pub(super) fn flood(&mut self, core: &Core) {
        let containers = core.directory.containers(None);
        let Some(shown) = self.stage.roll(|chance| chance.one(&containers).cloned()) else { return };
        let id = &shown.record.id;
        let room = FLOOD.saturating_sub(self.clients.waiting_for(id));
        (0..room).for_each(|_| self.clients.ask(core, Wish::Measure(id.clone()), Patience::Ms(10_000)));
    }
}

/// What a process does.
pub(super) fn program(chance: &mut Chance) -> Program {
    let code = |chance: &mut Chance| u8::try_from(chance.pick(0..256)).unwrap_or_default();
    let runs = match chance.happens(50) {
        true => Some((chance.time_ms(60_000), code(chance))),
        false => None,
    };
    let on_term = match chance.pick(0..3) {
        0 => OnSignal::Ignores,
        1 => OnSignal::Exits(chance.time_ms(20_000), code(chance)),
        _ => OnSignal::Dies(chance.time_ms(50)),
    };
    // A process in an uninterruptible sleep takes its time.
    let on_kill = OnSignal::Dies(if chance.happens(80) { 1 } else { chance.time_ms(40_000) });
    Program { runs, on_term, on_kill }
}
