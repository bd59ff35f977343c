//! The networks of pods behind the supervisor's port: the built-in one and CNI's.
//!
//! ```text
//!   supervisor ── PodNetworks ──► Networks ─┬─► mainstay_network::Network   opened with the first pod that has it
//!                                           └─► mainstay_network::cni::Cni
//! ```
//!
//! Owns: which of them a pod is given to, and the translation of what is asked and answered. Never: touches the machine
//! itself, nor opens a network that nobody has: a runtime without such pods makes no bridge.

mod builtin;
mod cni;
mod questions;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_messages::audit::{Owner, Thing, ThingKind};
use mainstay_messages::network::PodNetwork;
use mainstay_messages::spec::Network as Kind;
use mainstay_messages::{Error, Result, SandboxId, Timestamp};
use mainstay_network::cni::{Cni, CniSettings};
use mainstay_network::{Network, NetworkError};
use mainstay_supervisor::netns::NamespaceNames;
use mainstay_supervisor::{PodNetworks, PodToAttach};

use crate::config::Config;

/// See the module.
#[derive(Debug)]
pub(crate) struct Networks {
    builtin: Lazy<mainstay_network::Settings, Network>,
    cni: Lazy<CniSettings, Cni>,
    names: NamespaceNames,
}

/// A network that is opened when it is needed, and tried again when that did not work.
#[derive(Debug)]
struct Lazy<S, N> {
    settings: S,
    directory: PathBuf,
    opened: Mutex<Option<Arc<N>>>,
}

impl<S: Clone, N> Lazy<S, N> {
    fn new(settings: S, directory: PathBuf) -> Self {
        Self { settings, directory, opened: Mutex::new(None) }
    }

    fn get(&self, open: impl FnOnce(S) -> Result<N>) -> Result<Arc<N>> {
        // It holds a whole network or none, whoever panicked.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(network) = &*opened {
            return Ok(Arc::clone(network));
        }
        let network = Arc::new(open(self.settings.clone())?);
        Ok(Arc::clone(opened.insert(network)))
    }

    fn take(&self) -> Option<Arc<N>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether it has ever been in use here.
    fn has_been_used(&self) -> bool {
        self.directory.exists()
    }

    /// Whether there is a file for a pod in its directory, which is the case from before anything is made for the pod until
    /// all of it is gone.
    fn has_file_of(&self, sandbox: &SandboxId) -> bool {
        self.directory.join(sandbox.as_str()).exists()
    }

    fn file_of(&self, sandbox: &SandboxId) -> String {
        self.directory.join(sandbox.as_str()).display().to_string()
    }
}

impl Networks {
    /// Opens nothing.
    pub(crate) fn new(config: &Config, names: NamespaceNames) -> Self {
        let builtin = config.network.builtin(&config.root_dir);
        let cni = config.network.cni(&config.root_dir);
        let directories = (builtin.directory.clone(), cni.directory.clone());
        Self { builtin: Lazy::new(builtin, directories.0), cni: Lazy::new(cni, directories.1), names }
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

    /// Closes the networks; the built-in one's bridge and table go when no pod has a lease any more. Nothing may be attached or
    /// detached from now on. Blocks.
    pub(crate) fn close(&self) {
        drop(self.cni.take());
        let Some(network) = self.builtin.take().and_then(Arc::into_inner) else { return };
        match network.remove() {
            Ok(()) | Err(NetworkError::InUse { .. }) => {}
            Err(error) => tracing::warn!(%error, "the bridge of the built-in network stays"),
        }
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
        let builtin = match self.builtin.has_been_used() {
            true => self.builtin().and_then(|network| Ok(network.detach(sandbox)?)),
            false => Ok(()),
        };
        let cni = match self.cni.has_been_used() {
            true => self.cni().and_then(|cni| cni::detach(&cni, sandbox, namespace)),
            false => Ok(()),
        };
        builtin.and(cni)
    }

    fn things(&self) -> Result<Vec<Thing>> {
        let mut things = Vec::new();
        if self.builtin.has_been_used() {
            builtin::things(&*self.builtin()?, |pod| self.builtin.file_of(pod), &mut things)?;
        }
        if self.cni.has_been_used() {
            cni::things(&*self.cni()?, |pod| self.cni.file_of(pod), &self.names, &mut things)?;
        }
        Ok(things)
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
