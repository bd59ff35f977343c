//! What is asked of another shim about containers that run: signals, freezing, limits, numbers, terminals.
//!
//! Owns: how long it may take to answer, and what is done without it. Never: lets SIGKILL depend on it.

use std::collections::HashSet;

use mainstay_launch::WindowSize;
use mainstay_messages::Signal;
use mainstay_messages::supervisor::Stats;
use mainstay_task_api::task as wire;
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::well_known_types::empty::Empty;
use mainstay_task_api::{MessageField, RESOURCES_TYPE_URL};
use oci_spec::runtime::LinuxResources;
use rustix::process::Pid;

use super::{TaskShim, metrics};
use crate::container::{Container, Paused};
use crate::failure::Failure;
use crate::logger;
use crate::process::Process;

/// How long a shim may take to send SIGKILL before it is sent without it, in milliseconds: less than the supervisor waits.
pub(super) const SHIM_KILL_MS: u64 = 600;
/// How long it may take to send another signal, in milliseconds: less than the supervisor gives this one.
const SHIM_SIGNAL_MS: u64 = 4_000;
/// How long it may take to freeze or thaw a container, in milliseconds.
const SHIM_FREEZE_MS: u64 = 10_000;
/// How long it may take for anything else, in milliseconds.
const SHIM_CALL_MS: u64 = 4_000;

impl TaskShim {
    /// See [`crate::backend::Backend::signal`].
    pub(in crate::backend) async fn signal(
        &self,
        container: &Container,
        process: &Process,
        signal: Signal,
    ) -> Result<(), Failure> {
        if process.identity().is_none() || process.exit().is_some() {
            return Err(Failure::Gone { process: process.key.clone() });
        }
        let request = wire::KillRequest {
            id: container.id.as_str().to_owned(),
            exec_id: process.key.exec_text().to_owned(),
            signal: u32::from(signal.0),
            ..Default::default()
        };
        let limit_ms = if signal == Signal::KILL { SHIM_KILL_MS } else { SHIM_SIGNAL_MS };
        let by = self.external_of(&container.id)?;
        let paused = container.paused();
        let answer = by.task::<Empty>("Kill", &request, limit_ms).await;
        let sent = match answer {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Err(Failure::Gone { process: process.key.clone() }),
            Err(error) if signal == Signal::KILL => {
                logger::warning!("{}: {error}; it is killed without it", process.key);
                match process.key.exec {
                    // Below.
                    None => Ok(()),
                    Some(_) => return process.signal(signal),
                }
            }
            Err(error) => Err(error.into()),
        };
        if signal != Signal::KILL {
            return sent;
        }
        if process.key.exec.is_none() {
            // Whatever it has answered.
            container.kill_all()?;
        }
        if sent.is_ok() && paused == Paused::Yes {
            // What is frozen cannot die, and the freezer may be out of sight, as that of a virtual machine is. Some thaw it with the
            // kill, and say so to a Resume.
            let _ = self.thaw(container, SHIM_KILL_MS).await;
        }
        sent
    }

    /// See [`crate::backend::Backend::signal_all`].
    pub(in crate::backend) async fn signal_all(
        &self,
        container: &Container,
        signal: Signal,
    ) -> Result<(), Failure> {
        let request = wire::KillRequest {
            id: container.id.as_str().to_owned(),
            signal: u32::from(signal.0),
            all: true,
            ..Default::default()
        };
        let limit_ms = if signal == Signal::KILL { SHIM_KILL_MS } else { SHIM_SIGNAL_MS };
        let sent = self.external_of(&container.id)?.task::<Empty>("Kill", &request, limit_ms).await;
        match sent {
            // What is in the cgroup is killed whether the shim did it or not.
            _ if signal == Signal::KILL => container.kill_all(),
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// See [`crate::backend::Backend::pause`].
    pub(in crate::backend) async fn pause(&self, container: &Container) -> Result<(), Failure> {
        let request = wire::PauseRequest { id: container.id.as_str().to_owned(), ..Default::default() };
        self.external_of(&container.id)?.task::<Empty>("Pause", &request, SHIM_FREEZE_MS).await?;
        container.note_paused(Paused::Yes);
        Ok(())
    }

    /// See [`crate::backend::Backend::resume`].
    pub(in crate::backend) async fn resume(&self, container: &Container) -> Result<(), Failure> {
        self.thaw(container, SHIM_FREEZE_MS).await
    }

    async fn thaw(&self, container: &Container, limit_ms: u64) -> Result<(), Failure> {
        let request = wire::ResumeRequest { id: container.id.as_str().to_owned(), ..Default::default() };
        self.external_of(&container.id)?.task::<Empty>("Resume", &request, limit_ms).await?;
        container.note_paused(Paused::No);
        Ok(())
    }

    /// See [`crate::backend::Backend::update`].
    pub(in crate::backend) async fn update(
        &self,
        container: &Container,
        resources: &LinuxResources,
    ) -> Result<(), Failure> {
        let value = serde_json::to_vec(resources).map_err(|error| Failure::Invalid {
            field: "resources",
            value: error.to_string(),
            expected: "resources that can be written as JSON",
        })?;
        let resources = Any { type_url: RESOURCES_TYPE_URL.to_owned(), value, ..Default::default() };
        let request = wire::UpdateTaskRequest {
            id: container.id.as_str().to_owned(),
            resources: MessageField::some(resources),
            ..Default::default()
        };
        self.external_of(&container.id)?.task::<Empty>("Update", &request, SHIM_CALL_MS).await?;
        Ok(())
    }

    /// See [`crate::backend::Backend::stats`].
    pub(in crate::backend) async fn stats(&self, container: &Container) -> Result<Stats, Failure> {
        if !container.pids()?.is_empty() || container.init.exit().is_some() {
            return container.measure();
        }
        // They are where only the shim can see them.
        let request = wire::StatsRequest { id: container.id.as_str().to_owned(), ..Default::default() };
        let by = self.external_of(&container.id)?;
        let answer = by.task::<wire::StatsResponse>("Stats", &request, SHIM_CALL_MS).await?;
        match answer.stats.as_ref().and_then(|any| metrics::read(any, logger::now())) {
            Some(stats) => Ok(Stats { log_bytes_lost: container.init.output.log_bytes_lost(), ..stats }),
            None => container.measure(),
        }
    }

    /// See [`crate::backend::Backend::pids`].
    pub(in crate::backend) async fn pids(&self, container: &Container) -> Result<HashSet<Pid>, Failure> {
        let own = container.pids()?;
        if !own.is_empty() || container.init.exit().is_some() {
            return Ok(own);
        }
        // They are where only the shim can see them.
        let request = wire::PidsRequest { id: container.id.as_str().to_owned(), ..Default::default() };
        let by = self.external_of(&container.id)?;
        let answer = by.task::<wire::PidsResponse>("Pids", &request, SHIM_CALL_MS).await?;
        let pids = answer.processes.iter().filter_map(|process| i32::try_from(process.pid).ok());
        Ok(pids.filter_map(Pid::from_raw).collect())
    }

    /// See [`crate::backend::Backend::resize`].
    pub(in crate::backend) async fn resize(
        &self,
        process: &Process,
        size: WindowSize,
    ) -> Result<(), Failure> {
        // It is refused for a process without a terminal, and kept for one that does not exist yet.
        process.resize(size)?;
        if process.identity().is_none() || process.exit().is_some() {
            return Ok(());
        }
        let request = wire::ResizePtyRequest {
            id: process.key.container.as_str().to_owned(),
            exec_id: process.key.exec_text().to_owned(),
            width: size.columns.into(),
            height: size.rows.into(),
            ..Default::default()
        };
        let by = self.external_of(&process.key.container)?;
        by.task::<Empty>("ResizePty", &request, SHIM_CALL_MS).await?;
        Ok(())
    }
}
