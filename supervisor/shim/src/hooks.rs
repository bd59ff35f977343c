//! Hooks of a container that run on the host.
//!
//! Owns: running them and waiting for them. Never: decides when they are due, or what a failure means for the container; and
//! never blocks: they run in a process of their own, which ends with the waiting for it.

use std::os::fd::{AsFd, OwnedFd};

use mainstay_launch::{HookPoint, HooksRequest, Launching, Reply, run_hooks};
use mainstay_messages::Signal;
use oci_spec::runtime::Spec;
use tokio::io::Interest;

use crate::container::Container;
use crate::failure::Failure;
use crate::identity::send_signal;
use crate::logger;
use crate::readiness;
use crate::shim::Shim;

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

/// The process that runs hooks. It ends with this, and the hook that runs with it.
struct Runner {
    launching: Launching,
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It has ended already where all went its way; the reaper has it then.
        let _ = send_signal(self.launching.pidfd.as_fd(), Signal::KILL);
    }
}

/// Runs the hooks of these points, one after the other.
pub(crate) async fn run(
    shim: &Shim,
    container: &Container,
    spec: &Spec,
    points: &[HookPoint],
) -> Result<(), Failure> {
    let pid = container.init.identity().filter(|_| container.init.exit().is_none());
    let launching = run_hooks(HooksRequest {
        points,
        spec,
        id: container.id.as_str(),
        bundle: &container.bundle,
        pid: pid.map(|identity| identity.pid),
        host_mounts: Some(shim.host_mounts.as_fd()),
    })?;
    let control: OwnedFd =
        launching.control().try_clone_to_owned().map_err(Failure::system("duplicating a socket"))?;
    let control =
        readiness::watch(control, Interest::READABLE).map_err(Failure::system("waiting for a socket"))?;
    let mut runner = Runner { launching };
    loop {
        match runner.launching.try_reply()? {
            Some(Reply::Ready { warnings, .. }) => {
                warnings.iter().for_each(|warning| logger::warning!("container {}: {warning}", container.id));
                return Ok(());
            }
            Some(Reply::Failed(error)) => return Err(error.into()),
            Some(Reply::Environment | Reply::Running) | None => {}
        }
        let ready = control.readable().await.map(|mut guard| guard.clear_ready());
        ready.map_err(Failure::system("waiting for a socket"))?;
    }
}

/// Runs hooks whose failure is nobody's but their own. They read the spec anew: it is not kept.
pub(crate) async fn run_late(shim: &Shim, container: &Container, point: HookPoint) {
    let done = match container.spec() {
        Ok(spec) => run(shim, container, &spec, &[point]).await,
        Err(failure) => Err(failure),
    };
    if let Err(failure) = done {
        logger::warning!("container {}: {}", container.id, failure.sentence());
    }
}
