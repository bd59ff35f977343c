//! The shim's process under containerd, from its birth to its end.
//!
//! Owns: what runs in it, and the order of its end. Never: ends while a container is there, unless it is killed.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_cgroups::Layout;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::events::{self, Events};
use super::service::ContainerdTask;
use super::{Face, Sentence, failed, socket};
use crate::door::door;
use crate::logger;
use crate::reaper;
use crate::shim::Shim;
use crate::start::{block_on, isolate, task_server};

/// How long the end of a shim may wait for its last events to be taken, in milliseconds: somebody waits for the end.
const LAST_EVENTS_MS: u64 = 2_000;

/// What a shim is born with.
pub(super) struct Birth {
    /// containerd's namespace.
    pub(super) namespace: String,
    /// The group of containers that it is for.
    pub(super) group: String,
    /// The bundle of the first of them.
    pub(super) bundle: PathBuf,
    /// Where it listens.
    pub(super) socket: PathBuf,
    /// Where containerd takes events; nobody does without it.
    pub(super) events: Option<String>,
}

/// Serves until it is shut down. Calls `ready` when requests are answered.
pub(super) fn serve(birth: Birth, listener: UnixListener, ready: impl FnOnce()) -> Result<(), Sentence> {
    let host_mounts = isolate().map_err(failed("isolating the shim"))?;
    let layout = Layout::detect().map_err(failed("finding the cgroups"))?;
    let Birth { namespace, group, bundle, socket: path, events: address } = birth;
    let serving = async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let children = reaper::listen()?;
        // Only `Shutdown` and SIGKILL end a shim: a signal that was meant for a group must not.
        let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        let events = Events::new(namespace.clone());
        let shim = Shim::under_containerd(Face::new(namespace, bundle, events.clone()), layout, host_mounts);
        let (door, requests) = door();
        let service = Arc::new(ContainerdTask::new(door));
        let mut server = task_server(listener, service);
        server.start().await.map_err(std::io::Error::other)?;
        tokio::task::spawn_local(reaper::run(shim.clone(), children));
        tokio::task::spawn_local(requests.serve(shim.clone()));
        if let Some(address) = address {
            tokio::task::spawn_local(events::send(events.clone(), address));
        }
        logger::note!("shim of group {group:?} is process {}", std::process::id());
        ready();
        crate::create::trim_memory();
        shim.closed().await;
        // Whoever asks for a shim from now on gets another one.
        socket::remove(&path);
        finish(&events).await;
        // Waits for the answers that are on their way, for a bounded time.
        server.shutdown().await.map_err(std::io::Error::other)
    };
    let outcome = block_on(serving).map_err(failed("starting the shim's runtime"))?;
    outcome.map_err(failed("serving"))
}

async fn finish(events: &Rc<Events>) {
    if timeout(Duration::from_millis(LAST_EVENTS_MS), events.sent()).await.is_err() {
        logger::warning!("ending with events that nobody has taken");
    }
    logger::note!("ending");
}
