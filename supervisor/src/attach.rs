//! The steps of run-pod that give a pod its network, and what undoes them.
//!
//! They come after the shim and the namespaces: then the namespace belongs to whom it should in a pod with a user
//! namespace, and a start that fails before has nothing to take back. They are undone first, while the namespace is there.
//! Everything here may be done again, and what is not there is gone already.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mainstay_messages::record::SandboxRecord;
use mainstay_messages::supervisor::PodEnd;
use mainstay_messages::{Error, Result, SandboxId};

use crate::files::{self, at};
use crate::find::find_shim;
use crate::machine::Machine;
use crate::netns;
use crate::network::PodToAttach;
use crate::shim::Shim;
use crate::stop::Remains;

/// Names the namespace that the shim has made, and holds it. `made` is what the shim said where it is.
pub(crate) async fn name_namespace(remains: &Remains, shim: &Shim, made: Option<PathBuf>) -> Result<()> {
    let Some(place) = made else { return Ok(()) };
    let sandbox = remains.sandbox.clone();
    let what = format!("the naming of the network namespace of pod {sandbox}");
    let work = move |machine: &Machine| {
        let held = netns::open(&place).map_err(at(&place))?;
        machine.names.make(&sandbox, &place).map_err(at(&machine.names.path(&sandbox)))?;
        Ok(held)
    };
    let held = remains.turn.blocking(what, work).await?;
    shim.hold_namespace(held);
    Ok(())
}

/// Removes the name.
pub(crate) async fn remove_name(remains: &Remains) -> Result<()> {
    let sandbox = remains.sandbox.clone();
    let what = format!("the removal of the name of the network namespace of pod {sandbox}");
    let work =
        move |machine: &Machine| machine.names.remove(&sandbox).map_err(at(&machine.names.path(&sandbox)));
    remains.turn.blocking(what, work).await
}

/// Gives the pod the network that it asks for.
pub(crate) async fn attach(remains: &Remains, shim: &Shim, record: &SandboxRecord) -> Result<()> {
    if !record.spec.network.is_attached() || shim.network().is_some() {
        return Ok(());
    }
    let what = format!("the network of pod {}", record.id);
    let held = shim.namespace().ok_or_else(|| Error::internal(&what, "the pod has no namespace for it"))?;
    let record = record.clone();
    let work = move |machine: &Machine| {
        let name = machine.names.path(&record.id);
        machine.networks.attach(&PodToAttach {
            sandbox: &record.id,
            spec: &record.spec,
            name: &name,
            namespace: &held,
        })
    };
    let after_ms = remains.machine.settings.timeouts.network_ms;
    let network = remains.turn.blocking_within(what, after_ms, work).await?;
    shim.set_network(Some(network));
    Ok(())
}

/// Makes anew what a pod has lost of its network that was whole.
pub(crate) async fn restore(shim: Rc<Shim>, record: SandboxRecord) -> Result<()> {
    shim.alive()?;
    let shim_of = Some(Rc::clone(&shim));
    let remains = Remains::of(&shim.machine, &record.id, shim_of, PodEnd::Stopped).await?;
    // The pod may have been stopped while this waited for its turn.
    shim.alive()?;
    let made = shim.namespaces(&record.spec).await?.network;
    name_namespace(&remains, &shim, made).await?;
    let before = shim.network();
    // So that the step is taken again.
    shim.set_network(None);
    let attached = attach(&remains, &shim, &record).await;
    if attached.is_err() {
        shim.set_network(before);
    }
    attached
}

/// Takes back what the pod has of networks.
pub(crate) async fn detach(remains: &Remains) -> Result<()> {
    let sandbox = remains.sandbox.clone();
    let held = remains.shim.borrow().as_ref().and_then(|shim| shim.namespace());
    let what = format!("the taking back of the network of pod {sandbox}");
    let after_ms = remains.machine.settings.timeouts.network_ms;
    let work = move |machine: &Machine| detach_now(machine, &sandbox, held);
    remains.turn.blocking_within(what, after_ms, work).await
}

/// The same for one whose namespace, if there is one, may have to be found.
pub(crate) fn detach_now(machine: &Machine, sandbox: &SandboxId, held: Option<Arc<File>>) -> Result<()> {
    if !machine.networks.holds(sandbox) {
        return Ok(());
    }
    let namespace = held.or_else(|| find_namespace(machine, sandbox).map(Arc::new));
    let place = namespace.as_ref().map(|namespace| netns::place_of(namespace));
    machine.networks.detach(sandbox, place.as_deref())
}

/// Takes back what a pod has that should have nothing, whether anything tells of it or not.
pub(crate) fn remove_leak(machine: &Machine, sandbox: &SandboxId) -> Result<()> {
    let namespace = find_namespace(machine, sandbox);
    let place = namespace.as_ref().map(netns::place_of);
    machine.networks.remove_leak(sandbox, place.as_deref())?;
    machine.names.remove(sandbox).map_err(at(&machine.names.path(sandbox)))
}

/// The namespace of a pod whose shim nobody has told of.
fn find_namespace(machine: &Machine, sandbox: &SandboxId) -> Option<File> {
    let recorded = files::read_identity(&machine.directories, sandbox).map(|shim| shim.process);
    let shim = recorded.or_else(|| find_shim(&machine.directories, sandbox))?;
    machine.names.namespace_of(sandbox, &shim)
}
