//! How plugins come, and come again.
//!
//! ```text
//!  the socket ──► registers ──► configured ──► on the roster ──► what it asks for by itself
//!                     │
//!                     └ given up just now: refused, until its pause is over
//! ```
//!
//! Owns: the socket, the plugins that are installed, each handshake on its own, and the pauses of plugins that were given up. Never: calls a plugin that has
//! joined. A plugin that hangs in its handshake holds up nobody.

mod keep;
mod pauses;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_messages::error::chain;
use mainstay_nri_api::ContainerUpdate;

use crate::line::Line;
use crate::link::{Accepted, Configuration, HandshakeError, Link, Listener, Updates};
use crate::name::PluginName;
use crate::nri::Nri;
use crate::others;
use crate::preinstalled::config_of;
use crate::wire::Wire;
use pauses::Pauses;

/// Time between two attempts to accept when the machine refuses, in milliseconds.
const ACCEPT_AGAIN_MS: u64 = 100;
/// What this runtime calls itself towards plugins.
const RUNTIME_NAME: &str = "mainstay";

/// See the module. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Gate {
    nri: Nri,
    pauses: Rc<RefCell<Pauses>>,
}

impl Gate {
    /// Opens it: plugins can connect from now on, and those that are installed are started. A socket that cannot be had, because another runtime has it say, is logged
    /// and done without: pods run on, and a required plugin that cannot come says so when one is made.
    pub fn open(nri: Nri) -> Self {
        let gate = Self { nri, pauses: Rc::default() };
        let socket = gate.nri.settings().socket.clone();
        if !socket.as_os_str().is_empty() {
            match Listener::bind(&socket) {
                Ok(listener) => drop(actix::spawn(gate.clone().serve(listener))),
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "plugins cannot connect");
                }
            }
        }
        actix::spawn(gate.clone().start_installed());
        gate
    }

    /// A plugin was given up because it failed too often.
    pub fn gave_up(&self, plugin: &PluginName) {
        self.pauses.borrow_mut().begin(plugin.clone(), Instant::now());
    }

    async fn serve(self, listener: Listener) {
        loop {
            match listener.accept().await {
                Ok(accepted) => drop(actix::spawn(self.clone().welcome(accepted))),
                Err(error) => {
                    tracing::warn!(%error, "a plugin could not connect");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_AGAIN_MS)).await;
                }
            }
        }
    }

    async fn welcome(self, accepted: Accepted) {
        let peer = accepted.peer();
        if let Err(error) = self.admit(accepted).await {
            tracing::warn!(pid = peer.pid, error, "a plugin was not admitted");
        }
    }

    async fn admit(&self, accepted: Accepted) -> Result<(), String> {
        let limit = Duration::from_millis(self.nri.settings().registration_timeout_ms);
        let said = |error: HandshakeError| chain(&error);
        let registered = accepted.register(limit).await.map_err(said)?;
        let name = registered.name().clone();
        if let Some(left) = self.pauses.borrow_mut().left(&name, Instant::now()) {
            let left_ms = left.as_millis();
            return Err(format!("plugin {name} was given up just now; it may come again in {left_ms} ms"));
        }
        let configuration = self.configuration(&name)?;
        let (link, updates) = registered.configure(configuration, limit).await.map_err(said)?;
        let part = Duration::from_millis(self.nri.settings().synchronize_timeout_ms);
        let line = Arc::new(Wire { link: link.clone(), part });
        if let Err(refusal) = self.nri.join(name.clone(), Arc::clone(&line) as Arc<dyn Line>).await {
            link.close(refusal.clone());
            return Err(refusal);
        }
        drop(line);
        self.clone().hear(name, link, updates).await;
        Ok(())
    }

    /// What a plugin is told when it is configured.
    fn configuration(&self, name: &PluginName) -> Result<Configuration, String> {
        let settings = self.nri.settings();
        Ok(Configuration {
            config: config_of(&settings.plugin_config_dir, name).map_err(|error| chain(&error))?,
            runtime_name: RUNTIME_NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            registration_timeout: Duration::from_millis(settings.registration_timeout_ms),
            request_timeout: Duration::from_millis(settings.deadlines(name).request_ms),
        })
    }

    /// Does what a plugin asks for by itself, one request after the other, until it is gone.
    async fn hear(self, name: PluginName, link: Link, mut updates: Updates) {
        let closing = link.closing();
        drop(link);
        loop {
            let asked = tokio::select! {
                asked = updates.next() => asked,
                _ = closing.closed() => None,
            };
            let Some(asked) = asked else { return };
            let (update, evict) = (asked.request.update.clone(), asked.request.evict.clone());
            match others::carry_out(self.nri.node(), &name, &update, &evict).await {
                Ok(failed) => {
                    let is_failed =
                        |update: &ContainerUpdate| failed.iter().any(|id| id.as_str() == update.container_id);
                    asked.done(update.into_iter().filter(is_failed).collect());
                }
                Err(reason) => asked.refuse(reason),
            }
        }
    }
}
