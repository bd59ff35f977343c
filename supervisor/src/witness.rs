//! What became of a PID 1 for which its shim does not speak: because it hangs, speaks no protocol of ours, or cannot be
//! reached any more.
//!
//! Owns: finding that out, from the exit record or from the kernel, and reporting the ends of the containers of shims that
//! are out of reach for good. Never: guesses. What neither has written down is unknown.
//!
//! ```text
//!   Runs ──ends──► its exit record, if there is one by then
//!                  else what the kernel says of a process that nobody has waited for, or of the pidfd of one
//!                  else Lost
//! ```
//!
//! A PID 1 of which nobody has written down which process it is (the runtime was killed while it was being made) is watched by
//! its exit record and its cgroup: it has ended when nothing of its container runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::Occupancy;
use mainstay_messages::process::{ExitStatus, OomVerdict, UnknownReason};
use mainstay_messages::router::ExitReceipt;
use mainstay_messages::{ContainerId, Exit, ProcessIdentity, SandboxId, Timestamp};
use mainstay_task_api::convert::ProcessKey;

use crate::cgroup;
use crate::files;
use crate::identity;
use crate::machine::{Machine, now};
use crate::paths::Directories;
use crate::shim::Shim;
use crate::state::Announcement;
use crate::task::process_key;
use crate::watch::{WatchedProcess, is_over};

/// Time for the exit record of a process that has ended to appear, in milliseconds. A shim that runs writes it at once.
pub(crate) const RECORD_WAIT_MS: u64 = 500;
/// Time between two looks for it, in milliseconds.
const RECORD_LOOK_MS: u64 = 20;
/// Time between two looks at the cgroup of a container whose process is not known, in milliseconds.
const GROUP_LOOK_MS: u64 = 1_000;

/// What can be seen of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It runs.
    Runs,
    /// It has ended like this.
    Ended(Exit),
    /// It has ended, and nobody has kept how.
    Lost,
}

/// Looks at a process, by its identity alone or, where one was opened while it ran, by its pidfd.
pub(crate) fn look(
    directories: &Directories,
    sandbox: &SandboxId,
    process: &ProcessKey,
    identity: &ProcessIdentity,
    pidfd: Option<BorrowedFd<'_>>,
) -> io::Result<Sight> {
    let opened: Option<OwnedFd> = if pidfd.is_none() { identity::open(identity)? } else { None };
    let pidfd = pidfd.or(opened.as_ref().map(AsFd::as_fd));
    if let Some(pidfd) = pidfd
        && !is_over(pidfd)?
    {
        return Ok(Sight::Runs);
    }
    if let Some(exit) = files::exit_record(directories, sandbox, process) {
        return Ok(Sight::Ended(exit));
    }
    let status = match identity::end_of_zombie(identity)? {
        Some(status) => Some(status),
        None => pidfd.and_then(identity::end_of_pidfd),
    };
    Ok(status.map_or(Sight::Lost, |status| Sight::Ended(exit(status, now()))))
}

/// Reports the ends of a shim's containers in its place, for as long as it is out of reach.
pub(crate) fn begin(shim: &Rc<Shim>) {
    for (container, process) in shim.unwitnessed() {
        let witness = Rc::clone(shim);
        shim.hold(actix::spawn(async move { testify(witness, container, process).await }).abort_handle());
    }
}

/// Waits for the end of one container and reports it.
async fn testify(shim: Rc<Shim>, container: ContainerId, process: Option<ProcessIdentity>) {
    let key = process_key(&container, None);
    let watched = match process {
        Some(process) => watch(&shim, &key, &process).await.map(Some),
        None => watch_group(&shim, &key).await,
    };
    let exit = match watched {
        Ok(Some(exit)) => exit,
        Ok(None) => return,
        Err(error) => {
            tracing::error!(sandbox = %shim.sandbox, %container, %error, "the end of a container cannot be watched");
            return;
        }
    };
    let announced = shim.ledger.borrow_mut().announced(key.clone(), &exit);
    if announced == Announcement::Report {
        tracing::warn!(sandbox = %shim.sandbox, %container, %exit, "ended while its shim is out of reach");
        shim.facts.settle(&shim.sandbox, &key, &exit).await;
        shim.ledger.borrow_mut().receipt(&key, ExitReceipt::Settled);
    }
}

async fn watch(shim: &Shim, key: &ProcessKey, process: &ProcessIdentity) -> io::Result<Exit> {
    let Some(pidfd) = identity::open(process)? else {
        return recorded(shim, key, process, None, UnknownReason::LostWhileDown).await;
    };
    let watched = WatchedProcess::new(pidfd)?;
    watched.ended().await;
    recorded(shim, key, process, Some(&watched), UnknownReason::ShimOutOfReach).await
}

/// Waits for the end of a container whose process is not known. None when its end came otherwise, or it was never made.
async fn watch_group(shim: &Rc<Shim>, key: &ProcessKey) -> io::Result<Option<Exit>> {
    loop {
        if !shim.ledger.borrow().is_live(key) {
            return Ok(None);
        }
        // What this runtime is making itself is not there yet.
        if shim.makings.none_of(key).is_ok() {
            if let Some(process) = shim.process_of(&key.container) {
                return watch(shim, key, &process).await.map(Some);
            }
            // The record is looked for last: it may appear when the last process has just gone.
            if !occupied(shim, &key.container).await {
                let exit = record(shim, key).await;
                if exit.is_some() || !occupied(shim, &key.container).await {
                    return Ok(Some(
                        exit.unwrap_or_else(|| Exit::unknown(UnknownReason::ShimOutOfReach, now())),
                    ));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(GROUP_LOOK_MS)).await;
    }
}

/// Whether anything of a container may run. What cannot be seen may.
async fn occupied(shim: &Shim, container: &ContainerId) -> bool {
    let (sandbox, container) = (shim.sandbox.clone(), container.clone());
    let look = move |machine: &Machine| {
        let group = machine.container_group(&sandbox, &container)?;
        group.occupancy().map_err(cgroup::error)
    };
    let seen = shim.machine.blocking("a look at the cgroup of a container", look).await;
    !matches!(seen, Ok(Occupancy::Empty))
}

/// The exit record of a process that has ended, for which it is waited a while.
async fn record(shim: &Shim, key: &ProcessKey) -> Option<Exit> {
    let directories = &shim.machine.directories;
    let record = async {
        loop {
            if let Some(exit) = files::exit_record(directories, &shim.sandbox, key) {
                return exit;
            }
            tokio::time::sleep(Duration::from_millis(RECORD_LOOK_MS)).await;
        }
    };
    if !directories.bundle(&shim.sandbox, &key.container).exists() {
        return None;
    }
    tokio::time::timeout(Duration::from_millis(RECORD_WAIT_MS), record).await.ok()
}

/// How a process ended that has: by its shim's own record, else by what is left of it.
async fn recorded(
    shim: &Shim,
    key: &ProcessKey,
    process: &ProcessIdentity,
    watched: Option<&WatchedProcess>,
    lost: UnknownReason,
) -> io::Result<Exit> {
    if let Some(exit) = record(shim, key).await {
        return Ok(exit);
    }
    let pidfd = watched.map(WatchedProcess::pidfd);
    Ok(match look(&shim.machine.directories, &shim.sandbox, key, process, pidfd)? {
        Sight::Ended(exit) => exit,
        Sight::Runs | Sight::Lost => Exit::unknown(lost, now()),
    })
}

/// Whether the kernel killed it for want of memory only its shim can say.
fn exit(status: ExitStatus, at: Timestamp) -> Exit {
    Exit { status, at, oom: OomVerdict::NotKilled }
}
