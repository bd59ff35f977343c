//! Deleting what has ended or never ran, and ending the whole pod.
//!
//! Owns: that nothing is left, and that it can be asked for again. Never: deletes what runs, unless the whole pod ends.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupError};
use mainstay_launch::{Removal, remove_directory};
use mainstay_messages::{Exit, Signal};
use mainstay_task_api::CALL_GRACE_MS;
use mainstay_task_api::convert::ProcessKey;
use tokio::time::timeout;

use crate::container::{Container, remove_cgroup};
use crate::failure::Failure;
use crate::hooks;
use crate::logger::{self, Chain};
use crate::process::Process;
use crate::shim::Shim;
use crate::task::{Input, Phase};

/// How long a killed process may take to be gone, in milliseconds.
const KILLED_MS: u64 = 10_000;
/// What is kept of the time of a call for its answer, in milliseconds.
const ANSWER_MS: u64 = 200;

/// Deletes a container or an exec; answers with its process and how that ended.
pub(crate) async fn delete(shim: Rc<Shim>, key: ProcessKey) -> Result<(Rc<Process>, Exit), Failure> {
    let container = shim.container(&key.container)?;
    let process = container.process(&key)?;
    match process.phase() {
        Phase::Starting | Phase::Running => return Err(Failure::Running { process: key }),
        Phase::Preparing | Phase::Created => {
            end_unstarted(&container, &process).await?;
            // It never ran, so nobody waits for its end.
            shim.exits.borrow_mut().acknowledge(&key);
        }
        Phase::Exited(_) => {}
    }
    // The wait above ends with an exit.
    let exit = process.exit().ok_or_else(|| Failure::Running { process: key.clone() })?;
    match &key.exec {
        Some(exec) => {
            shim.exits.borrow_mut().acknowledge(&key);
            container.remove_exec(exec);
            remove_file(&crate::exit_record::record_path(&container.bundle, key.exec.as_ref()));
        }
        None => remove_container(&shim, &container).await?,
    }
    Ok((process, exit))
}

/// Ends what was created and not started.
async fn end_unstarted(container: &Container, process: &Process) -> Result<(), Failure> {
    if process.key.exec.is_some() {
        // Not even launched.
        process.drop_unstarted();
        return Ok(());
    }
    process.apply(Input::KillAsked)?;
    container.kill_all()?;
    // It may have ended meanwhile.
    let _ = process.signal(Signal::KILL);
    let gone = timeout(Duration::from_millis(KILLED_MS), process.wait_ended()).await;
    gone.map_err(|_| Failure::Deadline {
        what: format!("killing {}", process.key),
        after_ms: KILLED_MS,
        place: crate::create::kernel_wait(process),
    })
}

async fn remove_container(shim: &Rc<Shim>, container: &Rc<Container>) -> Result<(), Failure> {
    remove_cgroup(&container.cgroup).await?;
    container.backend.tear_down(shim, container, Duration::from_millis(hooks::LATE_HOOKS_MS)).await;
    // Under containerd the bundle is containerd's.
    let ours = shim.containerd.is_none();
    if ours {
        let path = container.bundle.clone();
        remove_own(&path).map_err(|source| Failure::File { path, doing: "removed", source })?;
    }
    // The exits that are not acknowledged are still owed: a removal goes on while they cannot be written down.
    shim.remove_container(container);
    crate::create::trim_memory();
    Ok(())
}

/// Forgets an exec whose exit has been acknowledged, once its output has been delivered too: an exec may end, and
/// its exit be journalled, before whoever asked for it has opened its streams.
pub(crate) fn forget_exec(shim: &Rc<Shim>, key: &ProcessKey) {
    let (Some(exec), Ok(container)) = (key.exec.clone(), shim.container(&key.container)) else { return };
    let Ok(process) = container.process(key) else { return };
    if process.exit().is_none() {
        return;
    }
    let record = crate::exit_record::record_path(&container.bundle, key.exec.as_ref());
    remove_file(&record);
    tokio::task::spawn_local(async move {
        process.output.over().await;
        container.remove_exec(&exec);
    });
}

/// How long the end of a pod may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndTime {
    /// Nobody waits for it.
    Free,
    /// Until then; after that the shim is killed.
    Until(Instant),
}

impl EndTime {
    /// For a call with this deadline on the wire, in nanoseconds from now; 0 for none.
    pub(crate) fn of_call(timeout_nano: i64) -> Self {
        match u64::try_from(timeout_nano) {
            Ok(0) | Err(_) => Self::Free,
            Ok(nanoseconds) => {
                let kept = Duration::from_millis(CALL_GRACE_MS + ANSWER_MS);
                Self::Until(Instant::now() + Duration::from_nanos(nanoseconds).saturating_sub(kept))
            }
        }
    }

    /// What is left of it, where there is an end.
    fn left(self) -> Option<Duration> {
        match self {
            Self::Free => None,
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
        }
    }

    /// How long killed processes may take to be gone: half of it is for the hooks.
    fn for_killing(self) -> Duration {
        let longest = Duration::from_millis(KILLED_MS);
        self.left().map_or(longest, |left| longest.min(left / 2))
    }

    /// How long the last hooks of each container may take.
    fn for_hooks(self) -> Duration {
        self.left().unwrap_or(Duration::from_millis(hooks::LAST_HOOKS_MS))
    }
}

/// Kills everything in the pod and removes its cgroups, for a bounded time. The last hooks of its containers run side by side,
/// those of each one after the other.
pub(crate) async fn end_pod(shim: &Rc<Shim>, time: EndTime) {
    for container in shim.containers() {
        for process in container.processes() {
            // Never refused.
            let _ = process.apply(Input::KillAsked);
        }
    }
    if shim.backend().ends_in_order() {
        end_in_order(shim, time).await;
    }
    shim.kill_pod();
    let killed = time.for_killing();
    if timeout(killed, all_gone(shim)).await.is_err() {
        logger::error!("processes of the pod cannot be killed within {} ms", killed.as_millis());
    }
    remove_pod_cgroup(shim).await;
    let containers = shim.containers();
    let last =
        containers.iter().map(|container| container.backend.tear_down(shim, container, time.for_hooks()));
    futures::future::join_all(last).await;
}

/// Has the shim behind this one end its containers and itself: it may keep what no cgroup holds, as one with virtual machines
/// does. Each step has half of what is left of the time, and what does not end by then is killed with the rest.
async fn end_in_order(shim: &Rc<Shim>, time: EndTime) {
    let (backend, containers) = (shim.backend(), shim.containers());
    let killed = async {
        for container in &containers {
            // What has ended by itself is killed.
            let _ = backend.signal_all(container, Signal::KILL).await;
        }
        all_gone(shim).await;
    };
    if timeout(time.for_killing(), killed).await.is_err() {
        logger::warning!("the containers of the pod do not end by the hand of their shim");
    }
    let limit = time.for_killing();
    let torn_down = containers.iter().map(|container| container.backend.tear_down(shim, container, limit));
    futures::future::join_all(torn_down).await;
    if timeout(time.for_killing(), backend.end()).await.is_err() {
        logger::warning!("the shim behind this one does not end, and is killed");
    }
}

/// Waits until no PID 1 runs.
async fn all_gone(shim: &Shim) {
    for container in shim.containers() {
        if container.init.identity().is_some() {
            container.init.wait_ended().await;
        }
    }
}

/// Removes the pod's cgroup and all below it.
pub(crate) async fn remove_pod_cgroup(shim: &Shim) {
    if shim.containerd.is_some() {
        return remove_all_cgroups(shim).await;
    }
    match remove_cgroup(&Cgroup::open(&shim.layout, &shim.pod_cgroup())).await {
        Ok(()) | Err(CgroupError::NotFound { .. }) => {}
        Err(error) => logger::error!("the pod's cgroup stays: {}", Chain(&error)),
    }
}

/// Under containerd there is no cgroup of a pod's, and each container's is where its spec says.
async fn remove_all_cgroups(shim: &Shim) {
    for container in shim.containers() {
        if let Err(error) = remove_cgroup(&container.cgroup).await {
            logger::error!("the cgroup of container {} stays: {}", container.id, Chain(&error));
        }
    }
}

/// Removes a directory that is the shim's own. A root may be mounted in it, which is somebody else's: then it stays.
pub(crate) fn remove_own(directory: &Path) -> io::Result<()> {
    match remove_directory(directory)? {
        Removal::Gone => Ok(()),
        Removal::Mounted => Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it")),
    }
}

fn remove_file(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => logger::warning!("{path:?}: {error}"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hooks had two seconds whatever had gone before them, and the supervisor kills a shim after three in all.
    #[test]
    fn the_end_of_a_pod_fits_into_the_time_of_its_call() {
        const CALL_MS: u64 = 3_000;
        let wire = Duration::from_millis(CALL_MS + CALL_GRACE_MS);
        let time = EndTime::of_call(i64::try_from(wire.as_nanos()).expect("a short time"));
        let left = time.left().expect("it has an end");
        assert!(left <= Duration::from_millis(CALL_MS - ANSWER_MS), "{left:?}");
        assert!(time.for_killing() <= left / 2, "hooks have their part");
        assert!(time.for_hooks() <= left, "what is left at that time");
        let over = EndTime::of_call(1);
        assert_eq!((over.for_killing(), over.for_hooks()), (Duration::ZERO, Duration::ZERO));
        assert_eq!(EndTime::of_call(0), EndTime::Free);
    }
}
