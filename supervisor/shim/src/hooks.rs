//! Hooks of a container that run on the host.
//!
//! Owns: running them and waiting for them. Never: decides when they are due, or what a failure means for the container; and
//! never blocks: they run in a process of their own, which ends with the waiting for it.

use std::os::fd::AsFd;
use std::time::Duration;

use mainstay_launch::{HookPoint, HooksRequest, run_hooks};
use oci_spec::runtime::Spec;
use tokio::time::timeout;

use crate::container::Container;
use crate::errand;
use crate::failure::Failure;
use crate::logger;
use crate::shim::Shim;

/// How long the hooks of a point may take together that hold up a start or a deletion, in milliseconds: less than the
/// supervisor gives to those, lest it takes the shim for hung.
pub(crate) const LATE_HOOKS_MS: u64 = 8_000;
/// The same for the end of the whole pod, when whoever asks for that does not say how long it may take.
pub(crate) const LAST_HOOKS_MS: u64 = 2_000;

/// Which hooks a container has that are due when its spec is not at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaterHooks {
    pub(crate) poststart: bool,
    pub(crate) poststop: bool,
}

impl LaterHooks {
    pub(crate) fn of(spec: &Spec) -> Self {
        Self {
            poststart: !HookPoint::Poststart.of(spec).is_empty(),
            poststop: !HookPoint::Poststop.of(spec).is_empty(),
        }
    }
}

/// Runs the hooks of these points, one after the other.
pub(crate) async fn run(
    shim: &Shim,
    container: &Container,
    spec: &Spec,
    points: &[HookPoint],
) -> Result<(), Failure> {
    if points.iter().all(|point| point.of(spec).is_empty()) {
        return Ok(());
    }
    let pid = container.init.identity().filter(|_| container.init.exit().is_none());
    let launching = run_hooks(HooksRequest {
        points,
        spec,
        id: container.id.as_str(),
        bundle: &container.bundle,
        pid: pid.map(|identity| identity.pid),
        host_mounts: Some(shim.host_mounts.as_fd()),
    })?;
    let warnings = errand::done(launching).await?;
    warnings.iter().for_each(|warning| logger::warning!("container {}: {warning}", container.id));
    Ok(())
}

/// Runs hooks whose failure is nobody's but their own. They read the spec anew: it is not kept.
pub(crate) async fn run_late(shim: &Shim, container: &Container, point: HookPoint, limit: Duration) {
    let hooks = async { run(shim, container, &container.spec()?, &[point]).await };
    let done = match timeout(limit, hooks).await {
        Ok(done) => done,
        Err(_) => Err(Failure::Deadline {
            what: format!("the {} hooks", point.name()),
            after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            place: "; the one that ran was killed".to_owned(),
        }),
    };
    if let Err(failure) = done {
        logger::warning!("container {}: {}", container.id, failure.sentence());
    }
}
