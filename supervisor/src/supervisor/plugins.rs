//! The beginning of plugins, and what is owed to those that come again.

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::{Handler, Message, ResponseFuture};
use mainstay_messages::{Result, SandboxId};
use mainstay_nri::Nri;
use mainstay_nri::hook::Object;
use mainstay_nri::name::PluginName;

use super::{ShimSupervisor, guarded};
use crate::hooks;
use crate::machine::Machine;

/// Plugins may come now: what was there before is known.
#[derive(Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct WelcomePlugins {
    /// All pods of which there is a record.
    pub pods: BTreeSet<SandboxId>,
    /// What plugins are told of when they come: what is not about to be undone. Of a container that was being made they are
    /// told what becomes of it.
    pub present: BTreeSet<Object>,
}

/// A plugin has come to know all there is.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PluginCame(pub PluginName);

impl ShimSupervisor {
    /// The same, with plugins.
    #[must_use]
    pub fn with_plugins(self, plugins: Nri) -> Self {
        self.machine.take_plugins(plugins);
        self
    }
}

impl Handler<WelcomePlugins> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: WelcomePlugins, _: &mut Self::Context) -> Self::Result {
        let WelcomePlugins { pods, present } = message;
        let machine = Arc::clone(&self.machine);
        Box::pin(guarded(async move {
            let Some(nri) = machine.plugins() else { return Ok(()) };
            nri.found(present);
            let load = move |machine: &Machine| machine.told.load(&pods);
            machine.blocking("the reading of what plugins were told", load).await
        }))
    }
}

impl Handler<PluginCame> for ShimSupervisor {
    type Result = ();

    fn handle(&mut self, PluginCame(plugin): PluginCame, _: &mut Self::Context) {
        actix::spawn(hooks::plugin_came(Arc::clone(&self.machine), plugin));
    }
}
