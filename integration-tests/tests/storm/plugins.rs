//! Plugins that do wrong at random: two that stay, one that comes and goes, and one that the runtime starts.
//!
//! Owns: which fault strikes which call of which plugin.

use std::cell::RefCell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mainstay::{Config, PluginState, Runtime};
use mainstay_integration_tests::wait;
use mainstay_nri_plugin::faults::{Fault, Faults};
use mainstay_nri_plugin::{Adjusted, Door, Identity, Options, Plugin, Result as Answer, api, run};
use tokio::task::JoinHandle;

use super::chance::Chance;

/// The one without whose answer nothing is done.
pub const CLOSED: &str = "20-closed";
/// The one that the runtime starts.
const INSTALLED: &str = "40-installed";
/// All of them.
const ALL: [&str; 4] = ["10-open", CLOSED, "30-visitor", INSTALLED];
/// Time for a plugin that was given up to come again, in milliseconds: it is kept away for a minute at most.
const LIVE_MS: u64 = 120_000;
/// Answers too late by so much, in milliseconds.
const LATE_MS: u64 = 300;
/// How often a plugin that is cut off tries to come again, in milliseconds.
const AGAIN_MS: u64 = 50;

const CALLS: [&str; 12] = [
    "RunPodSandbox",
    "UpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "ValidateContainerAdjustment",
    "StartContainer",
    "UpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "Synchronize",
    "Configure",
];

/// A plugin that has the container before stopped with every seventh that is created.
#[derive(Default)]
struct Erratic(Mutex<(u32, Option<String>)>);

/// How many containers are created for each that is evicted.
const CREATED_PER_EVICTION: u32 = 7;

#[mainstay_nri_plugin::async_trait]
impl Plugin for Erratic {
    fn events(&self) -> api::EventMask {
        api::EventMask::ALL
    }

    async fn create_container(&self, _: api::PodSandbox, container: api::Container) -> Answer<Adjusted> {
        let mut kept = self.0.lock().expect("sound");
        kept.0 += 1;
        let before = kept.1.replace(container.id).filter(|_| kept.0.is_multiple_of(CREATED_PER_EVICTION));
        let reason = "every seventh".to_owned();
        let evict =
            before.map(|container_id| api::ContainerEviction { container_id, reason, ..Default::default() });
        Ok(Adjusted { evict: evict.into_iter().collect(), ..Default::default() })
    }
}

/// See the module.
pub struct Plugins {
    stubs: Vec<Faults>,
    staying: Vec<JoinHandle<()>>,
    visitor: RefCell<Option<JoinHandle<()>>>,
    config: Config,
}

impl Drop for Plugins {
    fn drop(&mut self) {
        self.staying.iter().chain(self.visitor.borrow().iter()).for_each(JoinHandle::abort);
    }
}

/// Puts the one that the runtime starts where it finds it.
pub fn install(config: &Config) {
    for directory in [&config.nri.plugin_dir, &config.nri.plugin_config_dir] {
        std::fs::create_dir_all(directory).expect("made");
    }
    let program = config.nri.plugin_dir.join(INSTALLED);
    std::fs::copy(env!("CARGO_BIN_EXE_mainstay-plugin-under-test"), program).expect("copied");
}

fn plan(config: &Config, text: &str) {
    let path = config.nri.plugin_config_dir.join(format!("{INSTALLED}.conf"));
    std::fs::write(path, text).expect("written");
}

/// One that comes again whenever it is cut off or refused.
fn begin(config: &Config, (index, name): (&'static str, &'static str), faults: &Faults) -> JoinHandle<()> {
    let (socket, faults) = (config.nri.socket.clone(), faults.clone());
    tokio::spawn(async move {
        loop {
            let mut options = Options::new(Identity::new(index, name), Door::Socket(socket.clone()));
            options.faults = faults.clone();
            // Why it was cut off is what this test is about.
            let _ = run(Erratic::default(), options).await;
            tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
        }
    })
}

impl Plugins {
    pub fn begin(config: &Config) -> Self {
        let stubs: Vec<Faults> = (0..3).map(|_| Faults::default()).collect();
        let staying =
            vec![begin(config, ("10", "open"), &stubs[0]), begin(config, ("20", "closed"), &stubs[1])];
        let visitor = RefCell::new(Some(begin(config, ("30", "visitor"), &stubs[2])));
        Self { stubs, staying, visitor, config: config.clone() }
    }

    /// All are there and know all there is.
    pub async fn are_live(&self, runtime: &Runtime) {
        let end = Instant::now() + Duration::from_millis(LIVE_MS);
        loop {
            let shown = wait::finish("plugins are listed", runtime.plugins()).await.expect("listed");
            let is_live = |name: &&str| {
                shown.iter().any(|plugin| plugin.name == **name && plugin.state == PluginState::Live)
            };
            if ALL.iter().all(is_live) {
                return;
            }
            assert!(Instant::now() < end, "not all plugins came again: {shown:?}");
            tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
        }
    }

    /// Something goes wrong with one of them, now or when it is asked next.
    pub fn strike(&self, chance: &mut Chance) {
        let call = *chance.pick(&CALLS).expect("there are some");
        let fault = match chance.below(8) {
            0 => Fault::Hang,
            1 => Fault::Die,
            2 => Fault::Garbage,
            3 => Fault::Noise,
            4 => Fault::Late(Duration::from_millis(LATE_MS)),
            5 => Fault::Flood(50),
            6 => Fault::Frames(1_000),
            _ => Fault::Refuse("at random".to_owned()),
        };
        match chance.below(10) {
            0 => self.visit(),
            // Read when it is started the next time.
            1 => plan(
                &self.config,
                &format!("{call}*1={}\n", if chance.below(2) == 0 { "die" } else { "hang" }),
            ),
            number => {
                let stub = &self.stubs[(number % 3) as usize];
                // Those that were set and never met are no longer wanted.
                stub.clear();
                stub.set(call, fault, Some(1));
            }
        }
    }

    /// The visitor goes, or comes.
    fn visit(&self) {
        let mut visitor = self.visitor.borrow_mut();
        *visitor = match visitor.take() {
            Some(task) => {
                task.abort();
                None
            }
            None => Some(begin(&self.config, ("30", "visitor"), &self.stubs[2])),
        };
    }

    /// Nothing goes wrong with them any more.
    pub fn behave(&self, config: &Config) {
        self.stubs.iter().for_each(Faults::clear);
        plan(config, "");
        if self.visitor.borrow().is_none() {
            self.visit();
        }
    }
}
