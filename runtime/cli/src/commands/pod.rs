//! `pod run`, `pod stop` and `pod rm`: pods that are not made for one container alone.

use std::process::ExitCode;

use mainstay_admin::Client;
use mainstay_messages::Error;
use mainstay_messages::admin::{Object, Reference};
use mainstay_messages::error::Kind;
use mainstay_messages::sandbox::SandboxChange;
use serde_json::json;

use super::lifecycle::{Force, each, remove_pod};
use crate::arguments::spec::millis;
use crate::arguments::{PodCommand, PodRunArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::naming::made_up_name;

/// `mainstay pod`
pub(super) async fn run(context: &Context, command: PodCommand) -> Result<ExitCode> {
    match command {
        PodCommand::Run(arguments) => run_pod(context, arguments).await,
        PodCommand::Stop(arguments) => {
            let client = context.daemon().await?;
            let grace_ms = arguments.grace.map(millis);
            each(context, arguments.pods, |pod| client.stop_sandbox(pod, grace_ms)).await
        }
        PodCommand::Rm(arguments) => {
            let client = context.daemon().await?;
            let force = if arguments.force { Force::Yes } else { Force::No };
            each(context, arguments.pods, |pod| remove(&client, pod, force)).await
        }
        PodCommand::Update(arguments) => {
            let change =
                SandboxChange { limits: arguments.resources.resources(), ..SandboxChange::default() };
            if change == SandboxChange::default() {
                return Err(Failure::NothingToChange);
            }
            let client = context.daemon().await?;
            each(context, arguments.pods, |pod| client.update_sandbox(pod, change.clone())).await
        }
    }
}

async fn run_pod(context: &Context, arguments: PodRunArguments) -> Result<ExitCode> {
    let name = match arguments.name {
        Some(name) => name,
        None => made_up_name().map_err(|e| Failure::machine("random bytes for a name", e))?,
    };
    let mut spec = arguments.sandbox.sandbox_spec(name.clone());
    spec.resources = arguments.resources.resources();
    spec.labels = arguments.labels.into_iter().collect();
    spec.check()?;
    let id = context.daemon().await?.run_sandbox(spec).await?;
    let json = json!({ "id": id.as_str(), "name": name.as_str() });
    super::print(context.format(), || format!("{id}\n"), &json)
}

async fn remove(client: &Client, pod: Reference, force: Force) -> Result<(), Error> {
    // Of a pod and a container of one name, other commands mean the container; here only the pod is meant.
    let pods = client.list_sandboxes().await?;
    let exact = pods.iter().find(|known| known.record.name().as_str() == pod.0);
    let wanted = exact.map_or_else(|| pod.clone(), |known| Reference(known.record.id.to_string()));
    match client.inspect(wanted).await? {
        Object::Sandbox { sandbox, containers } => remove_pod(client, &sandbox, &containers, force).await,
        Object::Container { .. } | Object::Exec(_) => Err(Error::not_found(Kind::Sandbox, &pod.0)),
    }
}
