//! One simulation: a world, a daemon that comes and goes, clients, and chance.
//!
//! ```text
//!  up: step, look, step, look …  ─ crash ─► down: time passes, processes end ─ restart ─► up …
//!                                └ done ──► all heals ─► all agree ─► all is removed ─► nothing is left
//! ```
//!
//! Every daemon lives in a task set of its own, which is dropped when it crashes: at that instant nothing of it runs
//! any more. Time is tokio's, paused from the first moment on, so that it passes only when nobody has anything to do.

mod workload;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use mainstay_actors::fakes::FakeWorld;
use mainstay_actors::ports::Store;
use mainstay_actors::{Core, HowDown, Item, Recover, Subscription};
use mainstay_messages::Result;
use mainstay_messages::event::Seq;
use mainstay_messages::record::{ContainerPhase, SandboxPhase};
use tokio::task::LocalSet;

use crate::chaos::Chaos;
use crate::clients::{Clients, Patience, Wish};
use crate::promise;
use crate::stage::{Aloud, Stage, Turn};
use crate::sum::{Outcome, Sum};
use crate::witness::Witness;
use workload::program;

/// Steps of one simulation.
const STEPS_MAX: u64 = 160;
/// Time after which all has healed, in milliseconds: a call that hung is given up, every retry had its turn.
const HEALED_MS: u64 = 1_200_000;
/// The longest time from the start of the actors until they take over what the store holds, in milliseconds: shorter than
/// exits are parked.
const RECOVERY_LATE_MAX_MS: u64 = 5_000;
/// Pods and containers have so many different names.
const NAMES: u64 = 3;

/// How the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Crashed(HowDown),
    Done,
}

struct Simulation {
    stage: Stage,
    world: FakeWorld,
    witness: Rc<RefCell<Witness>>,
    clients: Clients,
    steps_left: u64,
    read: Seq,
    sum: Sum,
}

/// Runs one seed.
pub fn run(seed: u64, aloud: Aloud) -> Outcome {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio.expect("a runtime").block_on(async {
        let stage = Stage::new(seed, aloud);
        let mut simulation = Simulation::new(stage.clone());
        simulation.play().await;
        let (ends, unknown_ends) = simulation.witness.borrow().ends();
        let sum = Sum { calls: simulation.clients.calls(), ends, unknown_ends, ..simulation.sum };
        Outcome { hash: stage.hash(), fault: stage.fault(), lines: stage.lines(), sum }
    })
}

impl Simulation {
    fn new(stage: Stage) -> Self {
        let world = FakeWorld::new();
        let steps_left = stage.roll(|chance| chance.pick(20..STEPS_MAX));
        for name in 0..NAMES {
            world.host.set_program(&format!("c{name}"), stage.roll(program));
        }
        world.host.set_exec_program(stage.roll(program));
        Chaos::begin(&stage, &world.host, &world.store);
        let witness = Rc::new(RefCell::new(Witness::new(stage.clone(), &world)));
        let clients = Clients::new(Rc::clone(&witness));
        Self { stage, world, witness, clients, steps_left, read: Seq(0), sum: Sum::default() }
    }

    async fn play(&mut self) {
        let mut how = HowDown::Restarted;
        loop {
            let daemon = LocalSet::new();
            let ended = daemon.run_until(self.daemon(how)).await;
            let Ended::Crashed(next) = ended else { break };
            self.world = self.world.clone().crash();
            drop(daemon);
            self.down(next).await;
            how = next;
        }
        if let Some(panic) = crate::panics::take() {
            self.stage.broken(format!("P2: {panic}"));
        }
    }

    /// The time between two daemons.
    async fn down(&mut self, how: HowDown) {
        self.sum.crashes += 1;
        let weather = self.stage.weather();
        self.clients.daemon_ended();
        self.witness.borrow_mut().daemon_ended(&self.world);
        if how == HowDown::Rebooted {
            self.sum.reboots += 1;
            self.world.host.reboot();
        }
        if self.stage.roll(|chance| chance.happens(10 * weather.shim_dies)) {
            self.kill_a_shim_unseen();
        }
        let ms = self.stage.roll(|chance| chance.time_ms(30_000));
        self.stage.note(format_args!("crash: {how:?}, down for {ms} ms"));
        pass(ms).await;
    }

    /// The life of one daemon.
    async fn daemon(&mut self, how: HowDown) -> Ended {
        let core = loop {
            match self.restart(how).await {
                Ok(core) => break core,
                Err(_) => pass(1_000).await,
            }
        };
        let mut subscription = core.events.subscribe(self.read);
        while self.steps_left > 0 && self.stage.fault().is_none() {
            self.steps_left -= 1;
            self.sum.steps += 1;
            if let Some(ended) = self.step(&core) {
                self.count(&core);
                return ended;
            }
            self.breathe().await;
            self.look(&core, &mut subscription);
        }
        if self.stage.fault().is_none() {
            self.heal(&core, &mut subscription).await;
        }
        self.count(&core);
        Ended::Done
    }

    /// Starts a daemon on what is left. Exits may be reported before it has taken over what the store holds.
    async fn restart(&self, how: HowDown) -> Result<Core> {
        if self.stage.roll(|chance| chance.happens(70)) {
            return self.world.restart(how).await;
        }
        let loaded = self.world.store.load().await?;
        let core = self.world.start();
        pass(self.stage.roll(|chance| chance.time_ms(RECOVERY_LATE_MAX_MS))).await;
        core.router.do_send(Recover { loaded, how });
        Ok(core)
    }

    fn look(&mut self, core: &Core, subscription: &mut Subscription) {
        self.witness.borrow_mut().look(core);
        self.clients.invariant_nobody_waits_for_ever();
        self.clients.known.borrow_mut().read(core);
        while let Some(Ok(item)) = subscription.next().now_or_never() {
            match item {
                Item::Event(event) => {
                    let next = self.read.next();
                    promise!(
                        self.stage,
                        event.seq == next,
                        "a subscriber saw {} after {}",
                        event.seq,
                        self.read
                    );
                    self.read = event.seq;
                }
                Item::Lagged { from, to } => self.stage.broken(format!("lagged from {from} to {to}")),
            }
        }
    }

    fn count(&mut self, core: &Core) {
        let counters = &core.counters;
        self.sum.restarted_actors += counters.restarts.get();
        self.sum.parked += counters.parked.get();
        self.sum.unclaimed += counters.unclaimed.get();
        self.sum.refused += counters.refused.get();
        self.sum.failed_commits += counters.failed_commits.get();
    }

    /// Something happens, or nothing.
    fn step(&mut self, core: &Core) -> Option<Ended> {
        let weather = self.stage.weather();
        let roll = |percent| self.stage.roll(|chance| chance.happens(percent));
        if roll(weather.crash) {
            let how = if roll(weather.reboot) { HowDown::Rebooted } else { HowDown::Restarted };
            return Some(Ended::Crashed(how));
        }
        match self.stage.roll(|chance| chance.pick(0..100)) {
            0..60 => self.ask(core),
            60..68 => self.end_a_process(),
            68..72 if roll(10 * weather.shim_dies) => self.kill_a_shim(),
            72..74 => self.report_a_stranger(),
            74..80 if roll(10 * weather.poison) => self.poison(core),
            80..81 if roll(40) => self.flood(core),
            81..88 => {
                let turn = if roll(50) { Turn::Calm } else { Turn::Rough };
                self.stage.turn(turn);
                self.stage.note(format_args!("weather: {turn:?}"));
            }
            _ => {}
        }
        None
    }

    /// Time passes: sometimes none, so that the next thing happens in the middle of the last one.
    async fn breathe(&self) {
        match self.stage.roll(|chance| chance.pick(0..100)) {
            0..40 => {
                for _ in 0..self.stage.roll(|chance| chance.pick(0..16)) {
                    tokio::task::yield_now().await;
                }
            }
            40..70 => pass(self.stage.roll(|chance| chance.pick(1..40))).await,
            70..95 => pass(self.stage.roll(|chance| chance.time_ms(4_000))).await,
            _ => pass(self.stage.roll(|chance| chance.time_ms(90_000))).await,
        }
    }

    /// All goes well from now on: everything comes to rest, can be removed, and leaves nothing.
    async fn heal(&mut self, core: &Core, subscription: &mut Subscription) {
        self.stage.note(format_args!("all heals"));
        self.stage.turn(Turn::Calm);
        self.world.host.behave();
        self.world.store.behave();
        pass(HEALED_MS).await;
        self.look(core, subscription);
        self.clients.invariant_nobody_waits();
        self.witness.borrow_mut().all_agree(core);
        self.every_free_name_can_be_used(core, subscription).await;
        for shown in core.directory.sandboxes() {
            self.clients.ask(core, Wish::RemovePod(shown.record.id.clone()), Patience::Endless);
        }
        pass(HEALED_MS).await;
        self.look(core, subscription);
        self.witness.borrow_mut().nothing_is_left(core);
        for name in 0..NAMES {
            let wish = Wish::Run { name: format!("p{name}"), variant: 0 };
            self.clients.ask(core, wish, Patience::Endless);
        }
        pass(1_000).await;
        self.look(core, subscription);
        self.clients.invariant_nobody_waits();
        let free = core.directory.sandboxes().len();
        promise!(self.stage, Ok(free) == usize::try_from(NAMES), "of {NAMES} names {free} are free");
        let last = self.world.store.last();
        promise!(self.stage, self.read == last, "a subscriber saw all up to {}, of {last}", self.read);
    }
}

impl Simulation {
    /// A name that no container of a pod has can be given to a new one.
    async fn every_free_name_can_be_used(&mut self, core: &Core, subscription: &mut Subscription) {
        let mut wanted = Vec::new();
        for pod in core.directory.sandboxes() {
            if pod.record.phase != SandboxPhase::Ready {
                continue;
            }
            let taken: Vec<String> = core
                .directory
                .containers(Some(&pod.record.id))
                .iter()
                .map(|shown| shown.record.name().to_string())
                .collect();
            let free = (0..NAMES).map(|name| format!("c{name}")).filter(|name| !taken.contains(name));
            wanted.extend(free.map(|name| (pod.record.id.clone(), name)));
        }
        for (pod, name) in &wanted {
            let wish = Wish::Create { pod: pod.clone(), name: name.clone(), variant: 0 };
            self.clients.ask(core, wish, Patience::Endless);
        }
        pass(1_000).await;
        self.look(core, subscription);
        self.clients.invariant_nobody_waits();
        for (pod, name) in wanted {
            let made = core.directory.containers(Some(&pod)).iter().any(|shown| {
                shown.record.name().as_str() == name && shown.record.phase == ContainerPhase::Created
            });
            promise!(self.stage, made, "P4: the free name {name} of pod {pod} cannot be used");
        }
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
