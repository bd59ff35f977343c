//! Containers made by this program, with `mainstay-launch`.
//!
//! Owns: the order in which the launcher, the network devices and the hooks have their turn. Never: makes the cgroup, the
//! log or the entry of a container; that is done for every backend alike.
//!
//! Making: pipes → clone → network devices and hooks on the host, where there are any → the child reports that it is ready.
//! Undoing, in reverse: network devices back → poststop hooks.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use mainstay_launch::{
    CgroupEntry, ExecRequest, HookPoint, HostMounts, InitRequest, LaunchError, OomScorePolicy,
    needs_environment,
};
use oci_spec::runtime::Spec;
use tokio::time::timeout;

use super::Parts;
use crate::child_io;
use crate::container::Container;
use crate::create::{TASK_CREATE_MS, connect, kernel_wait};
use crate::failure::Failure;
use crate::hooks::{self, LaterHooks};
use crate::net_devices;
use crate::process::{Goal, Process};
use crate::run::{FAILED_START_REAP_MS, TASK_START_MS};
use crate::shim::Shim;
use crate::task::Refusal;

/// See [`super::Backend::set_up`].
pub(super) async fn set_up(shim: &Rc<Shim>, container: &Rc<Container>, parts: Parts) -> Result<(), Failure> {
    let spec = launch(shim, container, parts)?;
    let prepared = async {
        if needs_environment(&spec) {
            container.init.reach(Goal::Environment).await?;
            net_devices::give(container, &spec).await?;
            hooks::run(shim, container, &spec, &[HookPoint::Prestart, HookPoint::CreateRuntime]).await?;
            container.init.proceed();
        }
        drop(spec);
        container.init.reach(Goal::Prepared).await
    };
    match timeout(Duration::from_millis(TASK_CREATE_MS), prepared).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Deadline {
            what: format!("setting up container {}", container.id),
            after_ms: TASK_CREATE_MS,
            place: kernel_wait(&container.init),
        }),
    }
}

/// Everything that does not wait; the spec is what is left to do by.
fn launch(shim: &Rc<Shim>, container: &Rc<Container>, parts: Parts) -> Result<Spec, Failure> {
    let Parts { spec, root } = parts;
    let (io, ends) = child_io::make(&container.init).map_err(Failure::system("making pipes"))?;
    let v2_dir = container.cgroup.v2_dir()?;
    let v1_procs = container.cgroup.v1_procs()?;
    let launching = mainstay_launch::create(InitRequest {
        id: container.id.as_str(),
        spec: &spec,
        bundle: &container.bundle,
        root: &root,
        host_mounts: Some(HostMounts { namespace: shim.host_mounts.as_fd(), own: &shim.arguments.directory }),
        io,
        cgroup: CgroupEntry { v2_dir: v2_dir.as_ref().map(AsFd::as_fd), v1_procs: &v1_procs },
        oom_score: OomScorePolicy::Clamp,
        caller_end: shim.arguments.caller_end(),
    })?;
    container.init.launched(launching)?;
    shim.add_process(&container.init);
    connect(&container.init, ends);
    container.note_hooks(LaterHooks::of(&spec));
    Ok(spec)
}

/// See [`super::Backend::let_run`].
pub(super) async fn let_run(shim: &Rc<Shim>, container: &Rc<Container>) -> Result<(), Failure> {
    container.init.release();
    executed(&container.init).await?;
    if container.later_hooks().poststart {
        let limit = Duration::from_millis(hooks::LATE_HOOKS_MS);
        hooks::run_late(shim, container, HookPoint::Poststart, limit).await;
    }
    Ok(())
}

/// See [`super::Backend::exec`].
pub(super) async fn exec(
    shim: &Rc<Shim>,
    container: &Rc<Container>,
    process: &Rc<Process>,
) -> Result<(), Failure> {
    launch_exec(shim, container, process)?;
    executed(process).await
}

async fn executed(process: &Process) -> Result<(), Failure> {
    let outcome = match timeout(Duration::from_millis(TASK_START_MS), process.reach(Goal::Executed)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let place = kernel_wait(process);
            // Gone already is as good.
            let _ = process.signal(mainstay_messages::Signal::KILL);
            Err(Failure::Deadline {
                what: format!("starting {}", process.key),
                after_ms: TASK_START_MS,
                place,
            })
        }
    };
    if outcome.is_err() {
        // The child has reported and ends by itself. If it hangs, its exit comes when it comes.
        let _ = timeout(Duration::from_millis(FAILED_START_REAP_MS), process.wait_ended()).await;
    }
    outcome
}

/// Everything that does not wait.
fn launch_exec(shim: &Rc<Shim>, container: &Container, process: &Rc<Process>) -> Result<(), Failure> {
    let gone = || Failure::Refused { process: container.init.key.clone(), refusal: Refusal::HasExited };
    let program = process.take_program().ok_or_else(|| Failure::NotFound { process: process.key.clone() })?;
    let target = container.init.pidfd().ok_or_else(gone)?;
    let spec = container.spec()?;
    let (io, ends) = child_io::make(process).map_err(Failure::system("making pipes"))?;
    let v2_dir = container.cgroup.v2_dir()?;
    let v1_procs = container.cgroup.v1_procs()?;
    let launching = mainstay_launch::exec(ExecRequest {
        process: &program,
        user: program.user().username().as_deref(),
        spec: &spec,
        target: target.as_fd(),
        io,
        cgroup: CgroupEntry { v2_dir: v2_dir.as_ref().map(AsFd::as_fd), v1_procs: &v1_procs },
        oom_score: OomScorePolicy::Clamp,
        caller_end: shim.arguments.caller_end(),
    })
    .map_err(|error| match error {
        LaunchError::TargetGone => gone(),
        other => other.into(),
    })?;
    process.launched(launching)?;
    shim.add_process(process);
    connect(process, ends);
    Ok(())
}

/// See [`super::Backend::tear_down`]. The hooks run once.
pub(super) async fn tear_down(shim: &Shim, container: &Container, limit: Duration) {
    net_devices::take_back(container).await;
    let later = container.later_hooks();
    if later.poststop {
        container.note_hooks(LaterHooks { poststop: false, ..later });
        hooks::run_late(shim, container, HookPoint::Poststop, limit).await;
    }
}
