//! Changes of a task that runs: standing still and going on, and other limits.

use std::rc::Rc;

use mainstay_messages::record::Paused;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{Consult, UpdateTask};
use mainstay_messages::{ContainerId, Error, Result};
use mainstay_task_api::task::{PauseRequest, ResumeRequest, UpdateTaskRequest};
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{MessageField, RESOURCES_TYPE_URL};

use super::{call, not_found_or};
use crate::cgroup;
use crate::disks;
use crate::hooks;
use crate::link::CallError;
use crate::machine::Machine;
use crate::oci;
use crate::saga::Turn;
use crate::shim::Shim;

/// Time for a shim to freeze a container, in milliseconds: more than it gives itself.
const FREEZE_LIMIT_MS: u64 = 12_000;

/// Freezes a container, or lets it go on.
pub(crate) async fn freeze(shim: Rc<Shim>, container: ContainerId, to: Paused) -> Result<()> {
    shim.alive()?;
    let id = container.as_str().to_owned();
    let done = match to {
        Paused::Yes => {
            let call = call(&shim, "the pausing", &container, FREEZE_LIMIT_MS);
            let request = PauseRequest { id, ..Default::default() };
            shim.link.call(call, async |services, context| services.task.pause(context, &request).await).await
        }
        Paused::No => {
            let call = call(&shim, "the resuming", &container, FREEZE_LIMIT_MS);
            let request = ResumeRequest { id, ..Default::default() };
            shim.link
                .call(call, async |services, context| services.task.resume(context, &request).await)
                .await
        }
    };
    done.map(drop).map_err(|error| not_found_or(error, &container, None))
}

/// Changes the limits of a container; when the kernel refuses one of them, it has those from before. Device rules are not
/// among them.
pub(crate) async fn update(shim: Rc<Shim>, message: UpdateTask) -> Result<Option<Box<Resources>>> {
    let UpdateTask { container, limits: wanted, before, consult, .. } = message;
    // What puts limits back waits for the change that it takes back.
    let _turn = Turn::of_container(&shim.machine, &container).await?;
    shim.alive()?;
    let changed = match consult {
        Consult::Plugins => hooks::update_container(&shim, &container, &wanted).await?,
        Consult::Nobody => None,
    };
    let limits = changed.clone().unwrap_or(wanted);
    let back = before.restoring(&limits);
    match apply(&shim, &container, limits).await? {
        Ok(()) => {
            if consult == Consult::Plugins {
                hooks::container_updated(&shim.machine, &shim.sandbox, &container);
            }
            Ok(changed.map(Box::new))
        }
        Err(error @ CallError::Refused { .. }) if !error.is_not_found() => {
            if let Err(left) = apply(&shim, &container, back).await.and_then(|done| done.map_err(Error::from))
            {
                tracing::warn!(%container, error = %left, "the limits from before are not all in force again");
            }
            let CallError::Refused { reason, .. } = error else { return Err(error.into()) };
            Err(Error::Unsupported { setting: "limits".to_owned(), reason })
        }
        Err(error) => Err(not_found_or(error, &container, None)),
    }
}

/// Checks limits against the machine, and has the shim put them in force.
async fn apply(shim: &Shim, container: &ContainerId, limits: Resources) -> Result<Result<(), CallError>> {
    let what = format!("the limits of container {container}");
    let check = move |machine: &Machine| {
        let resources = oci::pod_resources(&limits, &disks::numbers(&limits.block_io)?);
        machine.layout.check(&resources).map_err(cgroup::error)?;
        serde_json::to_vec(&resources).map_err(|error| Error::internal("limits as JSON", error))
    };
    let value = shim.machine.blocking(what, check).await?;
    let resources = Any { type_url: RESOURCES_TYPE_URL.to_owned(), value, ..Default::default() };
    let request = UpdateTaskRequest {
        id: container.as_str().to_owned(),
        resources: MessageField::some(resources),
        ..Default::default()
    };
    let call = call(shim, "the change of limits", container, shim.machine.settings.timeouts.query_ms);
    let updated =
        shim.link.call(call, async |services, context| services.task.update(context, &request).await).await;
    Ok(updated.map(drop))
}
