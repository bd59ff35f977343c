//! Synchronisation without a gap, in any order of events: whatever joins, fails, is late or goes, a plugin that is live
//! has heard of everything that is there, and of nothing twice since it was last told of all.
//!
//! cd#13901 and the conformance notes of containerd: a container that was created while a plugin was being told of what
//! there is, was never told to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_messages::SandboxId;
use mainstay_nri::hook::Object;
use mainstay_nri::name::PluginName;
use mainstay_nri::plugin::state::{self as plugin, Allowance, Call, CallId, Ending, Phase};
use mainstay_nri::policy::{Course, FailPolicy, Verdict, course};
use mainstay_nri::roster::state::{self as roster, Outcome};
use mainstay_nri::roster::{PluginId, Ticket};
use mainstay_nri_api::{Event, EventMask};
use proptest::prelude::*;

/// Plugins that there may be at once.
const PLUGINS_MAX: usize = 4;
const ALLOWANCE: Allowance = Allowance { parallel: 1, queue_max: 3, strikes_max: 3 };

/// A plugin, and what it has heard since it was last told of all.
struct Witness {
    state: plugin::State,
    events: EventMask,
    heard: BTreeSet<Object>,
    to_answer: Vec<CallId>,
    synchronising: bool,
    calls: BTreeMap<CallId, (usize, Call)>,
}

/// An event on its way from plugin to plugin.
struct Chain {
    event: Event,
    object: Object,
    ticket: Option<Ticket>,
    left: VecDeque<PluginId>,
    asked: Option<PluginId>,
    failed: bool,
}

#[derive(Default)]
struct World {
    roster: roster::State,
    plugins: BTreeMap<PluginId, Witness>,
    chains: BTreeMap<usize, Chain>,
    count: u64,
}

impl World {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn join(&mut self, events: EventMask) {
        if self.plugins.len() >= PLUGINS_MAX {
            return;
        }
        let id = PluginId(self.number());
        let name = PluginName::new(&format!("{:02}", id.0 % 7), &format!("p{}", id.0)).expect("good");
        self.roster.join(id, name).expect("no other of this name");
        let witness = Witness {
            state: plugin::State::new(events, ALLOWANCE),
            events,
            heard: BTreeSet::new(),
            to_answer: Vec::new(),
            synchronising: false,
            calls: BTreeMap::new(),
        };
        self.plugins.insert(id, witness);
        self.feed(id, plugin::Input::Joined);
    }

    fn begin(&mut self, event: Event, object: Object) {
        let entered = self.roster.enter(event, &object);
        let (ticket, left) = (entered.ticket, entered.roster.into());
        let chain = usize::try_from(self.number()).expect("small");
        self.chains.insert(chain, Chain { event, object, ticket, left, asked: None, failed: false });
        self.advance(chain);
    }

    fn advance(&mut self, id: usize) {
        let chain = self.chains.get_mut(&id).expect("it is under way");
        let next = if chain.failed { None } else { chain.left.pop_front() };
        let Some(next) = next else {
            let chain = self.chains.remove(&id).expect("it is under way");
            if let Some(ticket) = chain.ticket {
                let outcome = if chain.failed { Outcome::Failed } else { Outcome::Stands };
                let effects = self.roster.leave(ticket, outcome);
                self.follow(effects);
            }
            if chain.failed {
                self.begin(Event::REMOVE_POD_SANDBOX, chain.object);
            }
            return;
        };
        chain.asked = Some(next);
        let call = Call { event: chain.event, object: chain.object.clone(), ticket: chain.ticket };
        let number = CallId(self.number());
        match self.plugins.get_mut(&next) {
            Some(witness) => {
                witness.calls.insert(number, (id, call.clone()));
                self.feed(next, plugin::Input::Call(number, call));
            }
            None => self.advance(id),
        }
    }

    fn follow(&mut self, effects: Vec<roster::Effect>) {
        for effect in effects {
            match effect {
                roster::Effect::Gathered(id, objects) => self.feed(id, plugin::Input::Gathered(objects)),
                roster::Effect::Over(id, ticket) => self.feed(id, plugin::Input::Over(ticket)),
            }
        }
    }

    fn feed(&mut self, id: PluginId, input: plugin::Input) {
        let Some(witness) = self.plugins.get_mut(&id) else { return };
        for effect in witness.state.apply(input) {
            self.perform(id, effect);
        }
        if let Some(witness) = self.plugins.get(&id) {
            let running = witness.to_answer.len();
            assert!(running <= ALLOWANCE.parallel, "invariant 1");
            assert!(witness.state.waiting() <= ALLOWANCE.queue_max, "invariant 2");
        }
    }

    fn perform(&mut self, id: PluginId, effect: plugin::Effect) {
        let Some(witness) = self.plugins.get_mut(&id) else { return };
        match effect {
            plugin::Effect::Gather(passed) => {
                let effects = self.roster.gather(id, &passed);
                self.follow(effects);
            }
            plugin::Effect::Synchronise(objects) => {
                witness.heard = objects;
                witness.synchronising = true;
            }
            plugin::Effect::Send(call) => {
                assert_eq!(*witness.state.phase(), Phase::Live, "invariant 1");
                let (_, Call { event, object, .. }) = &witness.calls[&call];
                assert!(witness.events.contains(*event), "it asked for it");
                match *event {
                    Event::RUN_POD_SANDBOX => {
                        assert!(witness.heard.insert(object.clone()), "twice: {object}")
                    }
                    // It may have heard of it in an earlier life: then it is not in what it was told last.
                    Event::REMOVE_POD_SANDBOX => drop(witness.heard.remove(object)),
                    _ => {}
                }
                witness.to_answer.push(call);
            }
            plugin::Effect::Answer(call, verdict) => {
                witness.to_answer.retain(|other| *other != call);
                let (chain, call) = witness.calls.remove(&call).expect("invariant 4: one verdict");
                self.answered(chain, &call, &verdict);
            }
            plugin::Effect::Close(_) => {
                let witness = self.plugins.remove(&id).expect("it was there");
                self.roster.left(id);
                for (chain, call) in witness.calls.into_values() {
                    self.answered(chain, &call, &Verdict::Missed("gone".to_owned()));
                }
            }
            plugin::Effect::Struck(..) | plugin::Effect::Live => {}
        }
    }

    fn answered(&mut self, chain: usize, call: &Call, verdict: &Verdict) {
        if let Course::Fails(_) = course(FailPolicy::Open, call.event, verdict) {
            self.chains.get_mut(&chain).expect("it is under way").failed = true;
        }
        self.advance(chain);
    }

    fn act(&mut self, action: u8, choice: usize) {
        let pick = |len: usize| if len == 0 { None } else { Some(choice % len) };
        match action {
            0..=3 => {
                let pod = Object::Pod(SandboxId::from_random(u128::from(self.number()).to_be_bytes()));
                self.begin(Event::RUN_POD_SANDBOX, pod);
            }
            4 | 5 => {
                let Some(at) = pick(self.roster.present().len()) else { return };
                let object = self.roster.present().iter().nth(at).expect("in range").clone();
                self.begin(Event::REMOVE_POD_SANDBOX, object);
            }
            6..=11 => {
                let busy: Vec<_> = self
                    .plugins
                    .iter()
                    .filter(|(_, it)| !it.to_answer.is_empty())
                    .map(|(id, _)| *id)
                    .collect();
                let Some(at) = pick(busy.len()) else { return };
                let call = self.plugins[&busy[at]].to_answer[0];
                let ending = match action {
                    6 => Ending::Silent("late".to_owned()),
                    7 => Ending::Refused("no".to_owned()),
                    _ => Ending::Answered,
                };
                self.plugins.get_mut(&busy[at]).expect("there").to_answer.remove(0);
                self.feed(busy[at], plugin::Input::Ended(call, ending));
            }
            12..=14 => {
                let busy: Vec<_> =
                    self.plugins.iter().filter(|(_, it)| it.synchronising).map(|(id, _)| *id).collect();
                let Some(at) = pick(busy.len()) else { return };
                self.plugins.get_mut(&busy[at]).expect("there").synchronising = false;
                let ending = if action == 12 { Ending::Silent("late".to_owned()) } else { Ending::Answered };
                self.feed(busy[at], plugin::Input::Synchronised(ending));
            }
            15 | 16 => {
                let waiting: Vec<_> = self
                    .plugins
                    .iter()
                    .flat_map(|(id, it)| it.calls.keys().map(|call| (*id, *call)))
                    .collect();
                let Some(at) = pick(waiting.len()) else { return };
                self.feed(waiting[at].0, plugin::Input::WaitedLong(waiting[at].1));
            }
            17 => {
                let Some(at) = pick(self.plugins.len()) else { return };
                let id = *self.plugins.keys().nth(at).expect("in range");
                self.feed(id, plugin::Input::Close("it went".to_owned()));
            }
            18 => self.join(EventMask::ALL.without(Event::RUN_POD_SANDBOX)),
            _ => self.join(EventMask::ALL),
        }
    }

    /// Everybody answers until nothing is under way.
    fn settle(&mut self) {
        for round in 0.. {
            let busy = self.plugins.values().any(|it| !it.to_answer.is_empty() || it.synchronising);
            if !busy {
                break;
            }
            assert!(round < 10_000, "it does not come to rest");
            self.act(8, round);
            self.act(14, round);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 4096, ..ProptestConfig::default() })]
    #[test]
    fn a_live_plugin_has_heard_of_all_and_of_nothing_twice(
        actions in proptest::collection::vec((0_u8..21, 0_usize..64), 0..200)
    ) {
        let mut world = World::default();
        for (action, choice) in actions {
            world.act(action, choice);
        }
        world.settle();
        prop_assert!(world.chains.is_empty(), "every request came to an end");
        for witness in world.plugins.values() {
            prop_assert_eq!(witness.state.phase(), &Phase::Live);
            if witness.events == EventMask::ALL {
                prop_assert_eq!(&witness.heard, world.roster.present());
            }
        }
    }
}
