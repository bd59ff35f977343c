//! What the shim answers beside the Task API.
//!
//! Owns: the translation between the wire and the shim's operations, and the waiting of those who ask for exits.
//! Never: forgets an exit that was not acknowledged.

use std::rc::Rc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mainstay_cgroups::Cgroup;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension::{self as wire, Extension};
use mainstay_task_api::{EXTENSION_PROTOCOL, EXTENSION_PROTOCOL_OLDEST, MessageField};
use ttrpc::r#async::TtrpcContext;

use crate::container::{Container, Paused, measure};
use crate::delete::forget_exec;
use crate::door::Door;
use crate::exits::{Begin, EXIT_POLL_MS};
use crate::failure::Failure;
use crate::process::Process;
use crate::shim::Shim;
use crate::task::Phase;

/// Handles the extension's requests.
pub(crate) struct ExtensionService {
    pub(crate) door: Door,
}

#[async_trait]
impl Extension for ExtensionService {
    async fn info(&self, _: &TtrpcContext, _: wire::InfoRequest) -> ttrpc::Result<wire::InfoResponse> {
        self.door
            .ask(move |shim| async move {
                Ok(wire::InfoResponse {
                    protocol: EXTENSION_PROTOCOL,
                    oldest_protocol: EXTENSION_PROTOCOL_OLDEST,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    sandbox: shim.arguments.sandbox.as_str().to_owned(),
                    pid: std::process::id(),
                    tasks: shim.containers().len() as u32,
                    backend: shim.backend().info().into(),
                    ..Default::default()
                })
            })
            .await
    }

    async fn create_pod(
        &self,
        _: &TtrpcContext,
        request: wire::CreatePodRequest,
    ) -> ttrpc::Result<wire::CreatePodResponse> {
        let door = self.door.clone();
        self.door.ask(move |shim| async move { crate::pod::create(&shim, door, request).await }).await
    }

    async fn next_exits(
        &self,
        _: &TtrpcContext,
        request: wire::NextExitsRequest,
    ) -> ttrpc::Result<wire::NextExitsResponse> {
        self.door.ask(move |shim| next_exits(shim, request)).await
    }

    async fn tasks(&self, _: &TtrpcContext, _: wire::TasksRequest) -> ttrpc::Result<wire::TasksResponse> {
        self.door
            .ask(move |shim| async move {
                Ok(wire::TasksResponse { processes: process_states(&shim), ..Default::default() })
            })
            .await
    }

    async fn reopen_log(
        &self,
        _: &TtrpcContext,
        request: wire::ReopenLogRequest,
    ) -> ttrpc::Result<wire::ReopenLogResponse> {
        self.door
            .ask(move |shim| async move {
                let key = ProcessKey::parse(&request.container, "")?;
                let reopened = shim.process(&key)?.output.reopen_log();
                reopened.ok_or(Failure::NoLog { process: key })??;
                Ok(wire::ReopenLogResponse::default())
            })
            .await
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: wire::StatsRequest,
    ) -> ttrpc::Result<wire::StatsResponse> {
        self.door.ask(move |shim| async move { stats(&shim, &request).await }).await
    }
}

async fn next_exits(
    shim: Rc<Shim>,
    request: wire::NextExitsRequest,
) -> Result<wire::NextExitsResponse, Failure> {
    for key in &request.acknowledged {
        let key = ProcessKey::try_from(key)?;
        shim.exits.borrow_mut().acknowledge(&key);
        forget_exec(&shim, &key);
    }
    let begin = if request.from_the_start { Begin::FromTheStart } else { Begin::WithWhatIsDue };
    let until = Instant::now() + Duration::from_millis(EXIT_POLL_MS);
    loop {
        // Before the exits are looked at, so that none is missed.
        let changed = shim.exits_changed.notified();
        let now = Instant::now();
        let exits = shim.exits.borrow_mut().take_due(begin, now);
        if !exits.is_empty() || now >= until {
            let lost = |key| shim.process(key).map_or(0, |process| process.output.log_bytes_lost());
            let exits = exits.iter().map(|(key, exit)| wire::TaskExit {
                process: MessageField::some(key.into()),
                exit: MessageField::some(exit.into()),
                log_bytes_lost: lost(key),
                ..Default::default()
            });
            return Ok(wire::NextExitsResponse { exits: exits.collect(), ..Default::default() });
        }
        let next = shim.exits.borrow().next_due().map_or(until, |due| due.min(until));
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(next.into()) => {}
            () = shim.closed() => return Ok(wire::NextExitsResponse::default()),
        }
    }
}

/// Every process that there is, and those that were deleted while their exits are owed: whoever asks about one of these is
/// told how it ended, and not that nobody knows it.
fn process_states(shim: &Shim) -> Vec<wire::ProcessState> {
    let containers = shim.containers();
    let present = containers.iter().flat_map(|container| {
        let state = |process: Rc<Process>| process_state(container, &process);
        container.processes().into_iter().map(state)
    });
    let exits = shim.exits.borrow();
    let deleted = exits.owed().filter(|(key, _)| shim.process(key).is_err());
    let deleted = deleted.map(|(key, exit)| wire::ProcessState {
        process: MessageField::some(key.into()),
        phase: wire::Phase::EXITED.into(),
        exit: MessageField::some(exit.into()),
        ..Default::default()
    });
    present.chain(deleted).collect()
}

fn process_state(container: &Container, process: &Process) -> wire::ProcessState {
    let phase = match process.phase() {
        Phase::Exited(_) => wire::Phase::EXITED,
        _ if container.paused() == Paused::Yes => wire::Phase::PAUSED,
        Phase::Preparing => wire::Phase::CREATING,
        Phase::Created | Phase::Starting => wire::Phase::CREATED,
        Phase::Running => wire::Phase::RUNNING,
    };
    wire::ProcessState {
        process: MessageField::some((&process.key).into()),
        phase: phase.into(),
        pid: process.pid_or_zero(),
        start_ticks: process.identity().map_or(0, |identity| identity.start_ticks),
        exit: process.exit().as_ref().map(wire::Exit::from).into(),
        ..Default::default()
    }
}

async fn stats(shim: &Shim, request: &wire::StatsRequest) -> Result<wire::StatsResponse, Failure> {
    let (stats, shim_private_bytes) = if request.container.is_empty() {
        let lost: u64 = shim.containers().iter().map(|each| each.init.output.log_bytes_lost()).sum();
        let mut stats = measure(&Cgroup::open(&shim.layout, &shim.pod_cgroup()))?;
        stats.log_bytes_lost = lost;
        (stats, private_bytes())
    } else {
        let container = shim.container(&ProcessKey::parse(&request.container, "")?.container)?;
        (container.backend.stats(&container).await?, None)
    };
    Ok(wire::StatsResponse {
        stats: MessageField::some((&stats).into()),
        shim_private_bytes,
        ..Default::default()
    })
}

/// The shim's own memory that it shares with nobody.
fn private_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let field = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("Private_Clean:").or_else(|| line.strip_prefix("Private_Dirty:"))?;
        rest.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(text.lines().filter_map(field).sum::<u64>() * 1024)
}
