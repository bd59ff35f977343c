//! A runtime with plugins, and plugins that note what they are told and fail as they are told to.

use std::sync::Arc;

use mainstay::{
    Config, HookOutcome, PluginState, PluginStatus, Runtime, SandboxId, SandboxSpec, Subject, What,
};
use mainstay_integration_tests::{World, wait};
use mainstay_nri_plugin::faults::{Faults, Obedient};
use mainstay_nri_plugin::{Door, Identity, Options, Plugin, api, run};
use tokio::task::JoinHandle;

/// A deadline for tests in which it passes, in milliseconds: long enough for a plugin that does answer, on a slow machine too.
pub const LATE_MS: u64 = 1_500;
/// A deadline where it does not matter who keeps it, in milliseconds.
pub const SHORT_MS: u64 = 200;

/// A plugin that runs in this test, and what it was told.
pub struct Stub {
    pub faults: Faults,
    task: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    /// Connects, and again when it is cut off.
    pub fn start(config: &Config, index: &str, name: &str) -> Self {
        Self::with(config, index, name, Obedient, Faults::default())
    }

    pub fn with(config: &Config, index: &str, name: &str, plugin: impl Plugin, faults: Faults) -> Self {
        let mut options = Options::new(Identity::new(index, name), Door::Socket(config.nri.socket.clone()));
        options.faults = faults.clone();
        let task = tokio::spawn(async move { drop(run(plugin, options).await) });
        Self { faults, task }
    }

    /// What it was told of an object, in order.
    pub fn heard(&self, id: &str) -> Vec<&'static str> {
        let about = |told: &&mainstay_nri_plugin::faults::Told| match told.container.as_str() {
            "" => told.pod == id,
            container => container == id,
        };
        self.faults.told().iter().filter(about).map(|told| told.call).collect()
    }

    /// How often it was told.
    pub fn count(&self, call: &str) -> usize {
        self.faults.told().iter().filter(|told| told.call == call).count()
    }

    /// The pods of which it was told that they run, in order.
    pub fn pods(&self) -> Vec<String> {
        let told = self.faults.told();
        told.iter().filter(|told| told.call == "RunPodSandbox").map(|told| told.pod.clone()).collect()
    }
}

/// A configuration with plugins.
pub fn with_plugins(world: &World, change: impl FnOnce(&mut Config)) -> Config {
    let mut config = world.config();
    config.nri.enable = true;
    change(&mut config);
    config
}

pub async fn start(config: &Config) -> Runtime {
    Runtime::start(config.clone()).await.expect("the runtime starts")
}

pub async fn status(runtime: &Runtime, plugin: &str) -> Option<PluginStatus> {
    let plugins = runtime.plugins().await.expect("listed");
    plugins.into_iter().find(|shown| shown.name == plugin)
}

pub async fn live(runtime: &Runtime, plugin: &str) {
    let what = format!("plugin {plugin} is live");
    wait::until_async(&what, async || {
        status(runtime, plugin).await.is_some_and(|shown| shown.state == PluginState::Live)
    })
    .await;
}

pub fn spec(name: &str) -> SandboxSpec {
    SandboxSpec::new(name.parse().expect("a good name"))
}

pub async fn hooks(runtime: &Runtime, pod: &SandboxId) -> Vec<(String, Vec<HookOutcome>)> {
    let events = runtime.explain(Subject::Sandbox(pod.clone())).await.expect("explained");
    let hooks = events.into_iter().filter_map(|event| match event.what {
        What::HookCalled { hook, calls } => Some((hook, calls.iter().map(|call| call.outcome).collect())),
        _ => None,
    });
    hooks.collect()
}

/// A plugin that keeps what it is told at first.
#[derive(Clone, Default)]
pub struct Late(Arc<std::sync::Mutex<(Vec<String>, Vec<String>)>>);

impl Late {
    pub fn pods(&self) -> Vec<String> {
        self.0.lock().expect("sound").0.clone()
    }

    pub fn containers(&self) -> Vec<String> {
        self.0.lock().expect("sound").1.clone()
    }
}

#[mainstay_nri_plugin::async_trait]
impl Plugin for Late {
    fn events(&self) -> api::EventMask {
        api::EventMask::ALL
    }

    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> mainstay_nri_plugin::Result<Vec<api::ContainerUpdate>> {
        let mut kept = self.0.lock().expect("sound");
        kept.0.extend(pods.into_iter().map(|pod| pod.id));
        kept.1.extend(containers.into_iter().map(|container| container.id));
        drop(kept);
        Ok(Vec::new())
    }
}
