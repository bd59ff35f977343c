//! Other limits for a pod that runs.
//!
//! Owns: that plugins are asked before anything is done, and that limits of which the kernel refuses one are as they were.
//! Never: decides what the limits are, or remembers them.

use std::rc::Rc;

use mainstay_cgroups::Cgroup;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{Consult, UpdatePod};
use mainstay_messages::{Error, Result};

use crate::cgroup;
use crate::disks;
use crate::hooks;
use crate::machine::Machine;
use crate::oci::pod_resources;
use crate::saga::Turn;
use crate::shim::Shim;

/// Changes the limits of a pod's cgroup.
pub(crate) async fn update(shim: Rc<Shim>, change: UpdatePod) -> Result<()> {
    let (machine, pod) = (&shim.machine, &shim.sandbox);
    // What puts limits back waits for the change that it takes back.
    let turn = Turn::take(machine, format!("the limits of pod {pod}")).await?;
    shim.alive()?;
    if change.consult == Consult::Plugins {
        hooks::update_pod(machine, &change).await?;
    }
    let (id, limits) = (pod.clone(), change.limits.clone());
    let before = change.record.limits().restoring(&limits);
    let work = move |machine: &Machine| {
        let group = machine.pod_group(&id)?;
        let changed = apply(machine, &group, &limits);
        if matches!(changed, Err(Error::Unsupported { .. } | Error::InvalidArgument { .. }))
            && let Err(left) = apply(machine, &group, &before)
        {
            tracing::warn!(sandbox = %id, error = %left, "the limits from before are not all in force again");
        }
        changed
    };
    turn.blocking(format!("the change of limits of pod {pod}"), work).await?;
    if change.consult == Consult::Plugins {
        hooks::pod_updated(machine, &change);
    }
    Ok(())
}

fn apply(machine: &Machine, group: &Cgroup, limits: &Resources) -> Result<()> {
    let resources = pod_resources(limits, &disks::numbers(&limits.block_io)?);
    machine.layout.check(&resources).map_err(cgroup::error)?;
    for warning in group.apply(&resources).map_err(cgroup::error)? {
        tracing::warn!(cgroup = %group.path(), %warning, "limit left out");
    }
    Ok(())
}
