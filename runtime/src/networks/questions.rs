//! What an operator or an embedding program may ask of networks beside what pods need.

use std::sync::Arc;

use mainstay_messages::spec::Network as Kind;
use mainstay_messages::{Error, Result, SandboxId};

use super::Networks;
use crate::runtime::Runtime;

impl Runtime {
    /// Whether a pod has all of its network: for the built-in one its link and rules, for CNI what the plugins say (CHECK). A
    /// pod with the host's network or a loopback alone has all of it.
    ///
    /// # Errors
    /// [`Error::NotFound`], or what is missing.
    pub async fn check_network(&self, sandbox: &SandboxId) -> Result<()> {
        let pod = self.sandbox(sandbox)?;
        let (kind, id) = (pod.record.spec.network, sandbox.clone());
        self.ask_networks(move |networks| networks.check(kind, &id)).await
    }

    /// Whether a pod could be given such a network now: the built-in one can be made, CNI has a list whose plugins are there
    /// and say so (STATUS).
    ///
    /// # Errors
    /// What is in the way.
    pub async fn network_status(&self, network: Kind) -> Result<()> {
        let kind = if network == Kind::Default { self.config().network.default } else { network };
        self.ask_networks(move |networks| networks.status(kind)).await
    }

    /// Tells CNI plugins which pods this runtime has, so that they take back what they hold for all others (GC). Only for who
    /// knows that nobody else uses the network of that name: it takes from others what is theirs.
    ///
    /// # Errors
    /// What a plugin says.
    pub async fn collect_cni_garbage(&self) -> Result<()> {
        self.ask_networks(|networks| Ok(networks.cni()?.collect_garbage()?)).await
    }

    async fn ask_networks<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Networks) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let networks = Arc::clone(&self.system().networks);
        let asked = tokio::task::spawn_blocking(move || question(&networks));
        asked.await.map_err(|error| Error::internal("a question to the networks", error))?
    }
}

impl Networks {
    fn check(&self, kind: Kind, sandbox: &SandboxId) -> Result<()> {
        match kind {
            Kind::Builtin => {
                let faults = self.builtin()?.check(sandbox)?;
                match faults.first() {
                    None => Ok(()),
                    Some(fault) => Err(Error::unavailable(format!("the network of pod {sandbox}"), fault)),
                }
            }
            Kind::Cni => Ok(self.cni()?.check(sandbox)?),
            Kind::Default | Kind::None | Kind::Host => Ok(()),
        }
    }

    fn status(&self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Builtin => self.builtin().map(drop),
            Kind::Cni => Ok(self.cni()?.status()?),
            Kind::Default | Kind::None | Kind::Host => Ok(()),
        }
    }
}
