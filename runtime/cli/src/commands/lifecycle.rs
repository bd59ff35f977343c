//! `start`, `stop`, `kill`, `pause`, `resume`, `update`, `rm` and `wait`: one request for each object, all at the same time, each with its
//! own outcome.

use std::process::ExitCode;

use futures::future::join_all;
use mainstay_admin::Client;
use mainstay_messages::admin::{IfRunning, Object, Reference};
use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerPhase, ContainerSnapshot, SandboxSnapshot};
use mainstay_messages::spec::Resources;
use mainstay_messages::{ContainerId, Error, Exit};
use serde_json::{Value, json};

use super::run::OWN_POD_ANNOTATION;
use crate::arguments::spec::millis;
use crate::arguments::{Containers, Format, KillArguments, RemoveArguments, StopArguments, UpdateArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, tell_failure};
use crate::view::{self, ExitView};

/// Whether a command may take what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    Yes,
    No,
}

/// `mainstay start`
pub(super) async fn start(context: &Context, arguments: Containers) -> Result<ExitCode> {
    let client = context.daemon().await?;
    each(context, arguments.containers, |container| client.start_container(container)).await
}

/// `mainstay stop`
pub(super) async fn stop(context: &Context, arguments: StopArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let grace_ms = arguments.grace.map(millis);
    let stop = |container| client.stop_container(container, arguments.signal, grace_ms);
    each(context, arguments.containers.containers, stop).await
}

/// `mainstay kill`
pub(super) async fn kill(context: &Context, arguments: KillArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let kill = |container| client.kill_container(container, arguments.signal);
    each(context, arguments.containers.containers, kill).await
}

/// `mainstay pause`
pub(super) async fn pause(context: &Context, arguments: Containers) -> Result<ExitCode> {
    let client = context.daemon().await?;
    each(context, arguments.containers, |container| client.pause_container(container)).await
}

/// `mainstay resume`
pub(super) async fn resume(context: &Context, arguments: Containers) -> Result<ExitCode> {
    let client = context.daemon().await?;
    each(context, arguments.containers, |container| client.resume_container(container)).await
}

/// `mainstay update`
pub(super) async fn update(context: &Context, arguments: UpdateArguments) -> Result<ExitCode> {
    let change = arguments.resources.resources();
    if change == Resources::default() {
        return Err(Failure::NothingToChange);
    }
    let client = context.daemon().await?;
    let update = |container| client.update_container(container, change.clone());
    each(context, arguments.containers.containers, update).await
}

/// `mainstay rm`
pub(super) async fn remove(context: &Context, arguments: RemoveArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let force = if arguments.force { Force::Yes } else { Force::No };
    each(context, arguments.objects, |object| remove_one(&client, object, force)).await
}

/// `mainstay wait`
pub(super) async fn wait(context: &Context, arguments: Containers) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let exits = join_all(arguments.containers.iter().map(|container| client.wait(container.clone()))).await;
    let exits: Vec<_> = arguments.containers.into_iter().zip(exits).collect();
    let mut shown = String::new();
    match context.format() {
        Format::Text => exits.iter().filter_map(|(_, exit)| exit.as_ref().ok()).for_each(|exit| {
            shown.push_str(&format!("{}\n", exit.code()));
        }),
        Format::Json => shown = view::document(&exits.iter().map(waited).collect::<Vec<_>>()),
    }
    output::print(&shown).map_err(Failure::Output)?;
    all_of(exits.into_iter().map(|(_, exit)| exit.map(|_| ())))
}

fn waited((container, exit): &(Reference, Result<Exit, Error>)) -> Value {
    match exit {
        Ok(exit) => json!({ "id": container.0, "exit": ExitView::from(exit), "error": null }),
        Err(error) => json!({ "id": container.0, "exit": null, "error": error.to_string() }),
    }
}

/// Does the same for each object, all at the same time, and says what became of each.
pub(super) async fn each<F>(
    context: &Context,
    objects: Vec<Reference>,
    work: impl Fn(Reference) -> F,
) -> Result<ExitCode>
where
    F: Future<Output = Result<(), Error>>,
{
    let outcomes = join_all(objects.iter().map(|object| work(object.clone()))).await;
    let shown = match context.format() {
        Format::Text => {
            let done = objects.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
            done.map(|(object, _)| format!("{}\n", object.0)).collect()
        }
        Format::Json => {
            let outcome = |(object, outcome): (&Reference, &Result<(), Error>)| json!({ "id": object.0, "error": outcome.as_ref().err().map(ToString::to_string) });
            view::document(&objects.iter().zip(&outcomes).map(outcome).collect::<Vec<_>>())
        }
    };
    output::print(&shown).map_err(Failure::Output)?;
    all_of(outcomes)
}

fn all_of(outcomes: impl IntoIterator<Item = Result<(), Error>>) -> Result<ExitCode> {
    let failed = outcomes.into_iter().filter_map(Result::err).map(|error| tell_failure(&error)).count();
    if failed == 0 { Ok(ExitCode::SUCCESS) } else { Err(Failure::Partly) }
}

/// Removes a container with the pod that was made for it, or a pod with its containers.
async fn remove_one(client: &Client, object: Reference, force: Force) -> Result<(), Error> {
    match client.inspect(object).await? {
        Object::Sandbox { sandbox, containers } => remove_pod(client, &sandbox, &containers, force).await,
        Object::Container { container, .. } => remove_container(client, &container, force).await,
        Object::Exec(exec) => Err(Error::WrongPhase {
            kind: Kind::Exec,
            id: exec.id.to_string(),
            phase: format!("part of container {}", exec.container.short()),
            operation: "removing".to_owned(),
            needed: "a container or a pod; execs go with their container".to_owned(),
        }),
    }
}

/// Removes a pod, unless something in it runs that may not be taken.
pub(super) async fn remove_pod(
    client: &Client,
    sandbox: &SandboxSnapshot,
    containers: &[ContainerSnapshot],
    force: Force,
) -> Result<(), Error> {
    let running = containers.iter().find(|container| is_alive(container.record.phase));
    if let (Some(running), Force::No) = (running, force) {
        return Err(Error::WrongPhase {
            kind: Kind::Sandbox,
            id: sandbox.record.name().to_string(),
            phase: format!("in use by container {}", running.record.name()),
            operation: "removing".to_owned(),
            needed: "without running containers (stop them first, or use --force)".to_owned(),
        });
    }
    client.remove_sandbox(Reference(sandbox.record.id.to_string())).await
}

async fn remove_container(client: &Client, container: &ContainerSnapshot, force: Force) -> Result<(), Error> {
    let record = &container.record;
    let running = match force {
        Force::Yes => IfRunning::Kill,
        Force::No => IfRunning::Refuse,
    };
    client.remove_container(Reference(record.id.to_string()), running).await?;
    let pod = Reference(record.sandbox.to_string());
    match client.inspect(pod.clone()).await {
        Ok(Object::Sandbox { sandbox, containers }) if is_left_over(&sandbox, &containers, &record.id) => {
            client.remove_sandbox(pod).await
        }
        // It has other containers or a life of its own, or somebody else removed it.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a pod was made for a container that is gone now, and nobody put another one into it.
fn is_left_over(sandbox: &SandboxSnapshot, containers: &[ContainerSnapshot], removed: &ContainerId) -> bool {
    sandbox.record.spec.annotations.contains_key(OWN_POD_ANNOTATION)
        && containers.iter().all(|container| container.record.id == *removed)
}

/// Whether a process of it runs, or may soon.
pub(super) fn is_alive(phase: ContainerPhase) -> bool {
    match phase {
        ContainerPhase::Creating
        | ContainerPhase::Starting
        | ContainerPhase::Running
        | ContainerPhase::Stopping => true,
        ContainerPhase::Created
        | ContainerPhase::Exited
        | ContainerPhase::Removing
        | ContainerPhase::Unknown => false,
    }
}
