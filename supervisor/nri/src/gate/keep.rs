//! Plugins that are installed on the machine: started with the runtime, and started again when they end.
//!
//! ```text
//!   (installed) ─► started ─► admitted ─► its connection ends ─► its process ends, or is ended ─┐
//!        ▲                                                                                      │
//!        └────────────────────────── a pause that grows ────────────────────────────────────────┘
//! ```
//!
//! Owns: that each of them has one process at most. Never: stops trying.

use std::time::{Duration, Instant};

use mainstay_messages::error::chain;

use crate::gate::Gate;
use crate::preinstalled::{Preinstalled, launch, scan};

impl Gate {
    /// Starts those that are installed, each kept by a task of its own.
    pub(super) async fn start_installed(self) {
        let directory = self.nri.settings().plugin_dir.clone();
        if directory.as_os_str().is_empty() {
            return;
        }
        let place = directory.display().to_string();
        let found = match tokio::task::spawn_blocking(move || scan(&directory)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return tracing::warn!(place, %error, "no plugin is started"),
            Err(error) => return tracing::warn!(place, %error, "no plugin is started"),
        };
        for ignored in found.ignored {
            tracing::warn!(path = %ignored.path.display(), reason = ignored.reason, "it is not started as a plugin");
        }
        for plugin in found.plugins {
            actix::spawn(self.clone().keep(plugin));
        }
    }

    async fn keep(self, plugin: Preinstalled) {
        loop {
            match launch(&plugin).await {
                Ok((accepted, process)) => {
                    let pid = process.pid();
                    if let Err(error) = self.admit(accepted).await {
                        tracing::warn!(plugin = %plugin.name, pid, error, "it was not admitted");
                    }
                    let end = process.stop().await;
                    tracing::warn!(plugin = %plugin.name, pid, %end, "a plugin has ended and is started again");
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(plugin = %plugin.name, error, "a plugin could not be started");
                }
            }
            if let Some(pause) = self.pause(&plugin) {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// How long to wait before it is started again: it has begun already when it was given up.
    fn pause(&self, plugin: &Preinstalled) -> Option<Duration> {
        let (mut pauses, now) = (self.pauses.borrow_mut(), Instant::now());
        if pauses.left(&plugin.name, now).is_none() {
            pauses.begin(plugin.name.clone(), now);
        }
        pauses.left(&plugin.name, now)
    }
}
