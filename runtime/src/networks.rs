//! The networks of pods behind the supervisor's port: the built-in one and CNI's.
//!
//! ```text
//!   supervisor ── PodNetworks ──► Networks ─┬─► mainstay_network::Network   opened with the first pod that has it
//!                                           └─► mainstay_network::cni::Cni
//! ```
//!
//! Owns: which of them a pod is given to, and the translation of what is asked and answered. Never: touches the machine
//! itself, nor opens a network that nobody has: a runtime without such pods makes no bridge. One network that cannot be used keeps
//! nobody from the other (P9).

mod builtin;
mod cni;
mod lazy;
mod questions;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use mainstay_messages::audit::{Owner, Thing, ThingKind};
use mainstay_messages::network::PodNetwork;
use mainstay_messages::spec::Network as Kind;
use mainstay_messages::{Error, Result, SandboxId, Timestamp};
use mainstay_network::cni::{Cni, CniSettings};
use mainstay_network::{Holdings, Network, NetworkError};
use mainstay_supervisor::netns::NamespaceNames;
use mainstay_supervisor::{NetworkThings, PodNetworks, PodToAttach};

use self::lazy::Lazy;
use crate::config::Config;

/// See the module.
#[derive(Debug)]
pub(crate) struct Networks {
    builtin: Lazy<mainstay_network::Settings, Network>,
    cni: Lazy<CniSettings, Cni>,
    names: NamespaceNames,
}

impl Networks {
    /// Opens nothing.
    pub(crate) fn new(config: &Config, names: NamespaceNames) -> Self {
        let builtin = config.network.builtin(&config.root_dir);
        let cni = config.network.cni(&config.root_dir, config.timeouts.network_ms);
        let directories = (builtin.directory.clone(), cni.directory.clone());
        Self { builtin: Lazy::new(builtin, directories.0), cni: Lazy::new(cni, directories.1), names }
    }

    /// The names by which the namespaces of pods are found.
    pub(crate) fn namespace_names(&self) -> &NamespaceNames {
        &self.names
    }

    fn builtin(&self) -> Result<Arc<Network>> {
        self.builtin.get(|settings| {
            let network = Network::open(settings)?;
            // They keep nobody from having a network, and are found here sooner than by those who wonder.
            for obstacle in network.obstacles()? {
                tracing::warn!("{obstacle}");
            }
            for change in network.sysctl_changes() {
                tracing::info!(?change, "a switch of the kernel was changed for the pods' network");
            }
            Ok(network)
        })
    }

    fn cni(&self) -> Result<Arc<Cni>> {
        self.cni.get(|settings| Ok(Cni::open(settings)?))
    }

    /// Closes the networks; the built-in one's bridge and table go when no pod has a lease any more. Nothing is attached,
    /// detached or asked from now on. Blocks.
    pub(crate) fn close(&self) {
        drop(self.cni.close());
        let Some(network) = self.builtin.close() else { return };
        let Some(network) = Arc::into_inner(network) else {
            tracing::warn!(
                "the bridge of the built-in network stays: somebody is still at work on the network"
            );
            return;
        };
        match network.remove() {
            Ok(()) | Err(NetworkError::InUse { .. }) => {}
            Err(error) => tracing::warn!(%error, "the bridge of the built-in network stays"),
        }
    }

    fn builtin_things(&self, things: &mut Vec<Thing>) -> Result<()> {
        let (holdings, settings) = (self.builtin_holdings()?, self.builtin.settings());
        builtin::things(&holdings, settings, |pod| self.builtin.file_of(pod), things);
        Ok(())
    }

    /// A network that nobody has is not opened for a look: that would make it. What a pod has left in the kernel without a file
    /// that tells of it is seen all the same.
    fn builtin_holdings(&self) -> Result<Holdings> {
        Ok(match self.builtin.is_in_use() {
            true => self.builtin()?.list()?,
            false => Network::look(self.builtin.settings())?,
        })
    }

    /// Whether the built-in network has to be opened to take back what a pod may have of it.
    fn builtin_may_have(&self, sandbox: &SandboxId) -> Result<bool> {
        Ok(self.builtin.is_in_use() || self.builtin_holdings()?.has_of(sandbox))
    }

    fn cni_things(&self, things: &mut Vec<Thing>) -> Result<()> {
        if !self.cni.is_in_use() {
            return Ok(());
        }
        cni::things(&*self.cni()?, |pod| self.cni.file_of(pod), &self.names, things)
    }

    /// What a pod has, for a runtime whose store has lost it.
    pub(crate) fn attached(&self, sandbox: &SandboxId) -> Option<PodNetwork> {
        let name = self.names.path(sandbox);
        if self.builtin.has_file_of(sandbox) {
            let network = self.builtin().inspect_err(unknown(sandbox)).ok()?;
            return Some(builtin::shown(network.attached(sandbox)?, name));
        }
        if self.cni.has_file_of(sandbox) {
            let cni = self.cni().inspect_err(unknown(sandbox)).ok()?;
            let result = cni.attached(sandbox).map_err(Error::from);
            return Some(cni::shown(result.inspect_err(unknown(sandbox)).ok()??, name));
        }
        None
    }
}

fn unknown(sandbox: &SandboxId) -> impl Fn(&Error) + '_ {
    move |error| tracing::warn!(%sandbox, %error, "what the pod has of a network cannot be found out")
}

impl PodNetworks for Networks {
    fn attach(&self, pod: &PodToAttach<'_>) -> Result<PodNetwork> {
        match pod.spec.network {
            Kind::Builtin => builtin::attach(&*self.builtin()?, pod),
            Kind::Cni => cni::attach(&*self.cni()?, pod),
            other => Err(Error::internal("the networks of pods", format!("nothing is attached to {other}"))),
        }
    }

    fn holds(&self, sandbox: &SandboxId) -> bool {
        self.builtin.has_file_of(sandbox) || self.cni.has_file_of(sandbox)
    }

    fn detach(&self, sandbox: &SandboxId, namespace: Option<&Path>) -> Result<()> {
        let is_in = (self.builtin.has_file_of(sandbox), self.cni.has_file_of(sandbox));
        let builtin = match is_in.0 || self.builtin.is_open() {
            true => self.builtin().and_then(|network| Ok(network.detach(sandbox)?)),
            false => Ok(()),
        };
        let cni = match is_in.1 || self.cni.is_open() {
            true => self.cni().and_then(|cni| Ok(cni.detach(sandbox, namespace)?)),
            false => Ok(()),
        };
        both(sandbox, is_in, builtin, cni)
    }

    fn remove_leak(&self, sandbox: &SandboxId, namespace: Option<&Path>) -> Result<()> {
        let is_in = (self.builtin.has_file_of(sandbox), self.cni.has_file_of(sandbox));
        let builtin = match self.builtin_may_have(sandbox) {
            Ok(true) => self.builtin().and_then(|network| Ok(network.detach(sandbox)?)),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        let cni = match self.cni.is_in_use() {
            true => self.cni().and_then(|cni| cni::remove_leak(&cni, sandbox, namespace, &self.names)),
            false => Ok(()),
        };
        both(sandbox, is_in, builtin, cni)
    }

    fn things(&self) -> NetworkThings {
        let mut found = NetworkThings::default();
        let looks = [
            (Kind::Builtin, self.builtin_things(&mut found.things)),
            (Kind::Cni, self.cni_things(&mut found.things)),
        ];
        for (network, looked) in looks {
            if let Err(error) = looked {
                tracing::error!(%network, %error, "what pods have of a network cannot be seen; the audit says nothing of it");
                found.unseen.push(network);
            }
        }
        found
    }
}

/// What came of taking something back from both networks. `is_in` says which of them, the built-in one first, had a file of the
/// pod before: one that had none keeps no pod of the other from its end.
fn both(sandbox: &SandboxId, is_in: (bool, bool), builtin: Result<()>, cni: Result<()>) -> Result<()> {
    match (is_in, builtin) {
        ((false, true), Err(error)) => {
            tracing::warn!(%sandbox, %error, "the built-in network, which the pod is not in, cannot be used");
            cni
        }
        (_, builtin) => builtin.and(cni),
    }
}

fn thing(kind: ThingKind, place: String, owner: Option<&SandboxId>, since: Option<Timestamp>) -> Thing {
    let owner = owner.map(Owner::pod).unwrap_or_default();
    Thing { kind, place, process: None, owner, since }
}

/// When a file was last changed.
fn changed_at(path: &Path) -> Option<Timestamp> {
    File::open(path).and_then(|file| file.metadata()?.modified()).ok().map(Timestamp::from_system)
}
