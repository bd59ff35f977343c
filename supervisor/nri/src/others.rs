//! What plugins want of containers that are there already.
//!
//! Owns: that it is done through the runtime, as a caller would have it done, and that nobody waits for it who is being
//! asked about something else: the other container may be waiting for this plugin. Never: decides whether it may be done.

use std::sync::Arc;

use mainstay_messages::spec::Resources;
use mainstay_messages::{ContainerId, Error};
use mainstay_nri_api::{ContainerEviction, ContainerUpdate};

use crate::adjust::{Change, Changed, Eviction, Failure, OtherUpdate};
use crate::line::Node;
use crate::name::PluginName;

/// Begins what plugins have wanted beside what they were asked about. What fails is logged, and fails nothing else.
pub(crate) fn begin(node: &Arc<dyn Node>, updates: Vec<OtherUpdate>, evictions: Vec<Eviction>) {
    if updates.is_empty() && evictions.is_empty() {
        return;
    }
    let node = Arc::clone(node);
    actix::spawn(async move { drop(all(&node, updates, evictions).await) });
}

/// Does what a plugin wants by itself. The answer is the containers of which it was not done and should have been; the error
/// says what is wrong with all of it. Evictions are begun, and not waited for.
pub(crate) async fn carry_out(
    node: &Arc<dyn Node>,
    plugin: &PluginName,
    updates: &[ContainerUpdate],
    evictions: &[ContainerEviction],
) -> Result<Vec<ContainerId>, String> {
    let mut change = Change::others();
    let applied = change.apply(&plugin.to_string(), Changed { updates, evictions });
    let merged = applied.and_then(|()| change.finish()).map_err(|error| error.to_string());
    match merged {
        Ok(merged) => Ok(all(node, merged.others, merged.evictions).await),
        Err(error) => {
            tracing::warn!(%plugin, error, "what it wants cannot be done");
            Err(error)
        }
    }
}

async fn all(node: &Arc<dyn Node>, updates: Vec<OtherUpdate>, evictions: Vec<Eviction>) -> Vec<ContainerId> {
    let mut failed = Vec::new();
    for OtherUpdate { container, limits, failure } in updates {
        if let Err(error) = update(node, container.clone(), limits).await {
            tracing::warn!(%container, %error, "a plugin's change of its limits was not done");
            if failure == Failure::Counts {
                failed.push(container);
            }
        }
    }
    for eviction in evictions {
        // It may take its whole grace to end, or wait for what this very plugin is being asked about.
        actix::spawn(evict(Arc::clone(node), eviction));
    }
    failed
}

async fn evict(node: Arc<dyn Node>, eviction: Eviction) {
    let Eviction { container, reason, plugin } = &eviction;
    tracing::warn!(%container, plugin, reason, "a plugin wants it stopped");
    let container = container.clone();
    if let Err(error) = node.evict(eviction).await {
        tracing::warn!(%container, %error, "it was not stopped");
    }
}

async fn update(node: &Arc<dyn Node>, container: ContainerId, limits: Resources) -> Result<(), Error> {
    node.update(container, limits).await
}
