//! What can be set about plugins.
//!
//! Owns: names, defaults and checks. Never: opens a socket or starts a process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_nri_api::SOCKET_DEFAULT;
use serde::{Deserialize, Serialize};

use crate::name::PluginName;
use crate::plugin::state::Allowance;
use crate::policy::FailPolicy;

/// Time for a plugin to answer a request, in milliseconds.
pub const REQUEST_DEFAULT_MS: u64 = 2_000;
/// Time for a request to wait for its turn with a plugin that is busy, in milliseconds. After that the plugin has missed it.
pub const TURN_DEFAULT_MS: u64 = 2_000;
/// Time for an event to be told to all plugins, in milliseconds, whatever is set for each of them. Those whose turn does not
/// come in it have missed it.
pub const EVENT_DEFAULT_MS: u64 = 10_000;
/// The most that can be set for that: what waits for plugins has deadlines too, and is not told of this setting.
pub const EVENT_MAX_MS: u64 = 20_000;
/// Time for a plugin to register and to be configured, in milliseconds.
pub const REGISTRATION_DEFAULT_MS: u64 = 5_000;
/// Time for a plugin to take one part of what there is, in milliseconds. It has as much for each part.
pub const SYNCHRONIZE_DEFAULT_MS: u64 = 2_000;
/// Failures in a row after which a plugin is disconnected, or started again.
pub const STRIKES_DEFAULT: u32 = 3;
/// Requests that a plugin has at once: plugins that were written for other runtimes count on one.
pub const PARALLEL_DEFAULT: usize = 1;
/// Requests that may wait for one plugin.
pub const QUEUE_DEFAULT: usize = 256;
/// Where plugins are looked for that the runtime starts.
pub const PLUGIN_DIR_DEFAULT: &str = "/opt/nri/plugins";
/// Where their configuration is looked for.
pub const PLUGIN_CONFIG_DIR_DEFAULT: &str = "/etc/nri/conf.d";

/// Plugins that watch and change pods and containers by the Node Resource Interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NriSettings {
    /// Whether there are any.
    pub enable: bool,
    /// The socket on which plugins connect that nobody has to start; none when empty.
    pub socket: PathBuf,
    /// Plugins that are started with the runtime; none when empty.
    pub plugin_dir: PathBuf,
    /// What is said to plugins: `NN-NAME.conf`, or else `NAME.conf`.
    pub plugin_config_dir: PathBuf,
    /// [`REQUEST_DEFAULT_MS`]
    pub request_timeout_ms: u64,
    /// [`TURN_DEFAULT_MS`]
    pub turn_timeout_ms: u64,
    /// [`EVENT_DEFAULT_MS`]
    pub event_timeout_ms: u64,
    /// [`REGISTRATION_DEFAULT_MS`]
    pub registration_timeout_ms: u64,
    /// [`SYNCHRONIZE_DEFAULT_MS`]
    pub synchronize_timeout_ms: u64,
    /// [`STRIKES_DEFAULT`]
    pub strikes_max: u32,
    /// [`PARALLEL_DEFAULT`]
    pub parallel_max: usize,
    /// [`QUEUE_DEFAULT`]
    pub queue_max: usize,
    /// What becomes of a request that a plugin does not answer, where `plugins` says nothing else.
    pub fail: FailPolicy,
    /// Plugins without which no pod and no container is made, as in `10-policy`.
    pub required: Vec<PluginName>,
    /// Of single plugins, by name as in `10-policy`.
    pub plugins: BTreeMap<PluginName, PluginSettings>,
}

/// What is set for one plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginSettings {
    /// What becomes of a request that it does not answer.
    pub fail: Option<FailPolicy>,
    /// Time for it to answer a request, in milliseconds.
    pub request_timeout_ms: Option<u64>,
    /// Requests that it may have at once.
    pub parallel_max: Option<usize>,
}

/// How long a plugin is waited for, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For an answer.
    pub request_ms: u64,
    /// For its turn.
    pub turn_ms: u64,
}

impl Default for NriSettings {
    fn default() -> Self {
        Self {
            enable: true,
            socket: SOCKET_DEFAULT.into(),
            plugin_dir: PLUGIN_DIR_DEFAULT.into(),
            plugin_config_dir: PLUGIN_CONFIG_DIR_DEFAULT.into(),
            request_timeout_ms: REQUEST_DEFAULT_MS,
            turn_timeout_ms: TURN_DEFAULT_MS,
            event_timeout_ms: EVENT_DEFAULT_MS,
            registration_timeout_ms: REGISTRATION_DEFAULT_MS,
            synchronize_timeout_ms: SYNCHRONIZE_DEFAULT_MS,
            strikes_max: STRIKES_DEFAULT,
            parallel_max: PARALLEL_DEFAULT,
            queue_max: QUEUE_DEFAULT,
            fail: FailPolicy::default(),
            required: Vec::new(),
            plugins: BTreeMap::new(),
        }
    }
}

impl NriSettings {
    /// What cannot be right: the key, its value, and what would be.
    pub fn fault(&self) -> Option<(String, String, String)> {
        let event_ms = self.event_timeout_ms;
        if event_ms > EVENT_MAX_MS {
            let expected = format!("at most {EVENT_MAX_MS}: what waits for plugins waits no longer");
            return Some(("event_timeout_ms".to_owned(), event_ms.to_string(), expected));
        }
        let own = self.plugins.iter().filter_map(|(name, plugin)| {
            Some((format!("plugins.{name}.request_timeout_ms"), plugin.request_timeout_ms?))
        });
        let all = std::iter::once(("request_timeout_ms".to_owned(), self.request_timeout_ms)).chain(own);
        let (key, value) = all.into_iter().find(|(_, request_ms)| *request_ms > event_ms)?;
        Some((key, value.to_string(), format!("at most nri.event_timeout_ms, which is {event_ms}")))
    }

    fn of(&self, plugin: &PluginName) -> PluginSettings {
        self.plugins.get(plugin).copied().unwrap_or_default()
    }

    /// What becomes of a request that a plugin does not answer. Without a required one nothing is done.
    pub fn policy(&self, plugin: &PluginName) -> FailPolicy {
        let own = self.of(plugin).fail;
        let required = self.required.contains(plugin).then_some(FailPolicy::Closed);
        own.or(required).unwrap_or(self.fail)
    }

    /// How long a plugin is waited for.
    pub fn deadlines(&self, plugin: &PluginName) -> Deadlines {
        let request_ms = self.of(plugin).request_timeout_ms.unwrap_or(self.request_timeout_ms);
        Deadlines { request_ms, turn_ms: self.turn_timeout_ms }
    }

    /// How much a plugin may have, and be forgiven.
    pub fn allowance(&self, plugin: &PluginName) -> Allowance {
        let parallel = self.of(plugin).parallel_max.unwrap_or(self.parallel_max).max(1);
        Allowance { parallel, queue_max: self.queue_max, strikes_max: self.strikes_max }
    }
}
