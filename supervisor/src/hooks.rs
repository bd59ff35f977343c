//! What plugins are told of pods and containers, as steps of the sagas.
//!
//! Owns: which event comes at which step, what is said of the object then, and that whoever was told of a beginning is
//! told of the end. Never: decides what a plugin's failure costs ([`mainstay_nri`] does), and never lets one stand in the way
//! of an end. Without plugins all of it does nothing.

mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{PodEnd, UpdatePod};
use mainstay_messages::{ContainerId, Exit, ProcessIdentity, Result, SandboxId};
use mainstay_nri::adjust::{self, PodFacts};
use mainstay_nri::api::{Container, ContainerState, Event, PodSandbox};
use mainstay_nri::name::PluginName;
use mainstay_nri::{Nri, Unrun};
use mainstay_task_api::convert::ProcessKey;

use crate::launch::{Launch, Telling};
use crate::machine::Machine;
use crate::shim::Shim;
use crate::stop;
use crate::task::{self, Creation};

pub(crate) use told::Book;
use told::{End, Told, ToldContainer};

/// RunPodSandbox: the pod is whole, and nobody sees it yet. A plugin may say no.
pub(crate) async fn run_pod(launch: &Launch) -> Result<()> {
    let stop::Remains { machine, turn, .. } = launch.remains();
    let Some(nri) = machine.plugins().filter(|_| launch.telling().get() == Telling::Due) else {
        return Ok(());
    };
    let record = launch.record()?;
    let id = record.id.clone();
    let pod = adjust::pod(&record, &facts(machine, &record)?);
    let name = record.name().as_str().to_owned();
    let intent = async |plugins: Vec<PluginName>| {
        let pod = id.clone();
        let note = move |machine: &Machine| {
            machine.told.change(&pod, |told| {
                told.name = name;
                told.plugins.extend(plugins);
            })
        };
        turn.blocking(format!("the writing of what plugins are told of pod {id}"), note).await
    };
    match nri.run_pod(&id, pod, intent).await {
        Ok(()) => {
            launch.telling().set(Telling::Done);
            Ok(())
        }
        Err(Unrun { error, untold }) => {
            if !untold.is_empty() {
                let pod = id.clone();
                let note = move |machine: &Machine| {
                    machine.told.change(&pod, |told| told.plugins.retain(|plugin| !untold.contains(plugin)))
                };
                let noted =
                    turn.blocking(format!("the writing of what plugins were told of pod {id}"), note).await;
                if let Err(error) = noted {
                    tracing::warn!(sandbox = %id, %error, "plugins may be told of the end of what they never heard of");
                }
            }
            Err(error)
        }
    }
}

/// UpdatePodSandbox: what a pod is expected to take changes, and nothing of it is done yet. A plugin may say no.
pub(crate) async fn update_pod(machine: &Arc<Machine>, change: &UpdatePod) -> Result<()> {
    let _told = (machine, change);
    Ok(())
}

/// PostUpdatePodSandbox. Nobody waits for that.
pub(crate) fn pod_updated(machine: &Arc<Machine>, change: &UpdatePod) {
    let _told = (machine, change);
}

/// StopPodSandbox: its containers have ended, and the pod is still whole.
pub(crate) async fn pod_stops(remains: &stop::Remains) -> Result<()> {
    let Some(nri) = remains.machine.plugins() else { return Ok(()) };
    let pod = described(&remains.machine, &remains.sandbox);
    nri.tell_pod(Event::STOP_POD_SANDBOX, &remains.sandbox, pod).await;
    Ok(())
}

/// RemovePodSandbox: nothing of it is left. Those who were told of it and are not here are told when they come again.
pub(crate) async fn pod_is_gone(remains: &stop::Remains) -> Result<()> {
    let (machine, id) = (&remains.machine, &remains.sandbox);
    let Some(nri) = machine.plugins().filter(|_| remains.end == PodEnd::Removed) else { return Ok(()) };
    let pod = described(machine, id);
    let mut heard = nri.tell_pod(Event::REMOVE_POD_SANDBOX, id, pod).await;
    let Some(told) = machine.told.of(id) else { return Ok(()) };
    // They may have come again since, without knowing of it any more.
    for plugin in told.plugins.difference(&heard.clone()) {
        if settle_containers(nri, id, &told, plugin, told.containers.keys().cloned().collect()).await
            && nri.settle_pod(plugin, id, &told.pod(id)).await
        {
            heard.insert(plugin.clone());
        }
    }
    note_end(machine, id, move |told| told.gone(&heard)).await;
    Ok(())
}

/// A plugin has come to know all there is: what it is owed from earlier is told to it.
pub(crate) async fn plugin_came(machine: Arc<Machine>, plugin: PluginName) {
    let Some(nri) = machine.plugins() else { return };
    for (id, told) in machine.told.owed_to(&plugin) {
        let containers = told.owed_containers(&plugin);
        if !settle_containers(nri, &id, &told, &plugin, containers.clone()).await
            || told.end == End::Owed && !nri.settle_pod(&plugin, &id, &told.pod(&id)).await
        {
            return;
        }
        let heard = BTreeSet::from([plugin.clone()]);
        let noted = note_end(&machine, &id, move |told| {
            match told.end {
                End::Owed => told.gone(&heard),
                End::Open => containers.iter().for_each(|id| told.ended(id, &heard)),
            };
        });
        noted.await;
    }
}

/// Tells a plugin of the end of containers that it heard of in an earlier life. The answer is whether it is there.
async fn settle_containers(
    nri: &Nri,
    pod: &SandboxId,
    told: &Told,
    plugin: &PluginName,
    containers: Vec<ContainerId>,
) -> bool {
    for id in containers {
        let described = (told.pod(pod), told.container(pod, &id));
        if !nri.settle_container(plugin, (pod, &id), described).await {
            return false;
        }
    }
    true
}

/// Writes down what plugins were told of an end. A file that cannot be written stands in the way of no end (P7): it costs a
/// plugin that it hears of one twice.
async fn note_end(machine: &Arc<Machine>, pod: &SandboxId, change: impl FnOnce(&mut Told) + Send + 'static) {
    let id = pod.clone();
    let what = format!("the writing of what plugins were told of pod {pod}");
    if let Err(error) = machine.blocking(what, move |machine| machine.told.change(&id, change)).await {
        tracing::warn!(sandbox = %pod, %error, "plugins may be told of an end twice after a restart");
    }
}

/// A pod as plugins see it when it ends.
fn described(machine: &Machine, id: &SandboxId) -> PodSandbox {
    let known = machine.plugins().and_then(|nri| nri.node().pod(id));
    known.or_else(|| Some(machine.told.of(id)?.pod(id))).unwrap_or_else(|| Told::default().pod(id))
}

/// What plugins are told of a pod beside its record.
pub(crate) fn facts(machine: &Machine, record: &SandboxRecord) -> Result<PodFacts> {
    Ok(PodFacts::of(record, machine.pod_cgroup(&record.id)?.to_string()))
}

/// CreateContainer: what plugins change of it is known before anything is made.
pub(crate) async fn create_container(creation: &Creation) -> Result<()> {
    let task::Remains { machine, turn, .. } = creation.remains();
    let Some(nri) = machine.plugins().filter(|_| creation.adjusted().get().is_none()) else { return Ok(()) };
    let (record, pod) = (creation.record(), creation.pod());
    let about = (pod.id.clone(), record.id.clone());
    let facts = facts(machine, pod)?;
    let described = (adjust::pod(pod, &facts), adjust::container(record, &facts));
    let (id, name) = (about.1.clone(), record.name().as_str().to_owned());
    let (pod_id, pod_name) = (about.0.clone(), pod.name().as_str().to_owned());
    let intent = async |plugins: Vec<PluginName>| {
        let what = format!("the writing of what plugins are told of container {id}");
        let note = move |machine: &Machine| {
            machine.told.change(&pod_id, |told| {
                told.name = pod_name;
                told.plugins.extend(plugins.iter().cloned());
                let plugins = plugins.into_iter().collect();
                told.containers.insert(id, ToldContainer { name, plugins, end: End::Open });
            })
        };
        turn.blocking(what, note).await
    };
    let adjustment = nri.create_container((&about.0, &about.1), described, intent).await?;
    // Empty, as this step has just seen.
    let _ = creation.adjusted().set(record.clone().adjusted(adjustment));
    Ok(())
}

/// PostCreateContainer: its process waits to be told to run. Nobody waits for that.
pub(crate) fn container_created(creation: &Creation, process: &ProcessIdentity) {
    let machine = &creation.remains().machine;
    if machine.plugins().is_none() {
        return;
    }
    let record = ContainerRecord { process: Some(process.clone()), ..creation.record().clone() };
    let pod = creation.pod();
    let Ok(facts) = facts(machine, pod) else { return };
    let described = (adjust::pod(pod, &facts), adjust::container(&record, &facts));
    announce(machine, Event::POST_CREATE_CONTAINER, (&pod.id, &record.id), described);
}

/// StartContainer. A plugin may say no.
pub(crate) async fn container_starts(machine: &Machine, pod: &SandboxId, id: &ContainerId) -> Result<()> {
    let Some(nri) = machine.plugins() else { return Ok(()) };
    nri.start_container((pod, id), both(machine, pod, id)).await
}

/// PostStartContainer. Nobody waits for that.
pub(crate) fn container_started(machine: &Arc<Machine>, pod: &SandboxId, id: &ContainerId) {
    if machine.plugins().is_none() {
        return;
    }
    let (pod_now, mut container) = both(machine, pod, id);
    container.state = ContainerState::CONTAINER_RUNNING.into();
    announce(machine, Event::POST_START_CONTAINER, (pod, id), (pod_now, container));
}

/// UpdateContainer: what plugins make of new limits; none when they leave them alone.
pub(crate) async fn update_container(
    shim: &Shim,
    id: &ContainerId,
    limits: &Resources,
) -> Result<Option<Resources>> {
    let Some(nri) = shim.machine.plugins() else { return Ok(None) };
    let described = both(&shim.machine, &shim.sandbox, id);
    nri.update_container((&shim.sandbox, id), described, limits).await
}

/// PostUpdateContainer. Nobody waits for that.
pub(crate) fn container_updated(machine: &Arc<Machine>, pod: &SandboxId, id: &ContainerId) {
    if machine.plugins().is_some() {
        announce(machine, Event::POST_UPDATE_CONTAINER, (pod, id), both(machine, pod, id));
    }
}

/// Tells plugins of what is over: it takes its turn among the events of the pod now, and holds up no answer.
fn announce(
    machine: &Arc<Machine>,
    event: Event,
    (pod, id): (&SandboxId, &ContainerId),
    described: (PodSandbox, Container),
) {
    let (machine, pod, id) = (Arc::clone(machine), pod.clone(), id.clone());
    actix::spawn(async move {
        if let Some(nri) = machine.plugins() {
            nri.tell_container(event, (&pod, &id), described).await;
        }
    });
}

/// StopContainer: its process has ended, however that came. It is told once, however often the end is reported.
pub(crate) fn ended(machine: &Arc<Machine>, pod: &SandboxId, process: &ProcessKey, exit: &Exit) {
    if process.exec.is_some() || machine.plugins().is_none() {
        return;
    }
    let (pod_now, mut container) = both(machine, pod, &process.container);
    container.state = ContainerState::CONTAINER_STOPPED.into();
    container.exit_code = i32::try_from(exit.code()).unwrap_or(i32::MAX);
    announce(machine, Event::STOP_CONTAINER, (pod, &process.container), (pod_now, container));
}

/// StopContainer, if that has not been told yet, and RemoveContainer: nothing of it is left.
pub(crate) async fn container_is_gone(remains: &task::Remains) -> Result<()> {
    let task::Remains { machine, sandbox, container: id, .. } = remains;
    let Some(nri) = machine.plugins() else { return Ok(()) };
    let mut heard = BTreeSet::new();
    for event in [Event::STOP_CONTAINER, Event::REMOVE_CONTAINER] {
        let (pod, mut container) = both(machine, sandbox, id);
        container.state = ContainerState::CONTAINER_STOPPED.into();
        heard = nri.tell_container(event, (sandbox, id), (pod, container)).await;
    }
    let told = machine.told.of(sandbox).unwrap_or_default();
    let Some(container) = told.containers.get(id) else { return Ok(()) };
    for plugin in container.plugins.difference(&heard.clone()) {
        if settle_containers(nri, sandbox, &told, plugin, vec![id.clone()]).await {
            heard.insert(plugin.clone());
        }
    }
    let id = id.clone();
    note_end(machine, sandbox, move |told| told.ended(&id, &heard)).await;
    Ok(())
}

/// A container and its pod as plugins see them.
fn both(machine: &Machine, pod: &SandboxId, id: &ContainerId) -> (PodSandbox, Container) {
    let known = machine.plugins().and_then(|nri| nri.node().container(id));
    let told = || machine.told.of(pod).unwrap_or_default().container(pod, id);
    (described(machine, pod), known.unwrap_or_else(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::RUN_POD;
    use crate::saga::Saga;
    use crate::task::CREATE_CONTAINER;

    /// The steps that leave something behind when their undo fails, but for those that only tell plugins.
    fn leaving<A, U>(saga: &Saga<A, U>) -> Vec<&'static str> {
        let steps = saga.steps.iter().skip(1).filter(|step| step.undo.is_some() && step.name != "hook");
        steps.map(|step| step.name).collect()
    }

    /// Plugins could be told that a pod was gone whose shim still ran.
    #[test]
    fn plugins_hear_that_it_is_gone_when_all_of_it_is() {
        let sorted = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(sorted(RUN_POD.steps[0].undone_after), sorted(&leaving(&RUN_POD)));
        assert_eq!(sorted(CREATE_CONTAINER.steps[0].undone_after), sorted(&leaving(&CREATE_CONTAINER)));
    }
}
