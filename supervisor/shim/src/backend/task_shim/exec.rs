//! Further processes of containers that another shim has made.
//!
//! Registered and started in one go, since registering one is this shim's own business until it starts. Owns: that, and that the
//! other shim forgets a process whose end is known and whose output has been read. Never: makes a container.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use mainstay_launch::Preparation;
use mainstay_messages::Signal;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task as wire;
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::well_known_types::empty::Empty;
use mainstay_task_api::{MessageField, PROCESS_TYPE_URL};
use oci_spec::runtime::BoxBuilder;
use tokio::time::timeout;

use super::container::{SHIM_EXEC_MS, SHIM_START_MS, SHIM_TASK_DELETE_MS, follow_stdin};
use super::control::SHIM_KILL_MS;
use super::end::End;
use super::external::External;
use super::streams::{Connected, Made};
use super::{CallError, TaskShim};
use crate::container::Container;
use crate::errand;
use crate::failure::Failure;
use crate::logger;
use crate::process::Process;
use crate::shim::Shim;
use crate::task::Input;

/// How long a shim may take to delete an exec that has failed, in milliseconds: whoever asked for it waits.
const FAILED_EXEC_DELETE_MS: u64 = 2_000;

impl TaskShim {
    /// See [`crate::backend::Backend::exec`].
    pub(in crate::backend) async fn exec(
        self: &Rc<Self>,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        process: &Rc<Process>,
    ) -> Result<(), Failure> {
        let by = self.external_of(&container.id)?;
        let not_found = || Failure::NotFound { process: process.key.clone() };
        let mut program = process.take_program().ok_or_else(not_found)?;
        if let Some(size) = process.initial_size() {
            let sized = BoxBuilder::default().height(u64::from(size.rows)).width(u64::from(size.columns));
            program.set_console_size(sized.build().ok());
        }
        // One for all of it, so that whoever waits hears the reason and not that nobody answered.
        let end = End::in_ms(SHIM_START_MS);
        let program = self.exec_spec(container, &program, end).await?;
        let (names, streams) = self.streams(process)?;
        let request = wire::ExecProcessRequest {
            id: container.id.as_str().to_owned(),
            exec_id: process.key.exec_text().to_owned(),
            terminal: process.terminal == Terminal::Yes,
            stdin: names.stdin,
            stdout: names.stdout,
            stderr: names.stderr,
            spec: MessageField::some(program),
            ..Default::default()
        };
        let registered = by.task::<Empty>("Exec", &request, end.left_ms(SHIM_EXEC_MS)).await;
        if let Err(error @ CallError::Refused { .. }) = registered {
            // There is none, or it is another one's.
            return Err(error.into());
        }
        let begun = async {
            registered?;
            let started = start_exec(&by, &request, end).await;
            let connected = streams.connect(process, Made::from(&started))?;
            self.adopt(shim, container, process, started?)?;
            Ok(connected)
        };
        let connected = match begun.await {
            Ok(connected) => connected,
            Err(failure) => {
                // It may run, or begin to, when nobody expects it any more.
                end_exec(&by, &process.key).await;
                self.parked.borrow_mut().forget(&process.key);
                return Err(failure);
            }
        };
        let _ = process.apply(Input::Executed);
        self.expect_end(shim, process, &by);
        follow_stdin(process, &by);
        tokio::task::spawn_local(self.clone().forget_exec(process.clone(), by, connected));
        Ok(())
    }

    /// Has the shim forget an exec that has ended and whose output has been read.
    async fn forget_exec(self: Rc<Self>, process: Rc<Process>, by: Rc<External>, streams: Connected) {
        process.wait_ended().await;
        process.output.over().await;
        delete_exec(&by, &process.key, SHIM_TASK_DELETE_MS).await;
        self.parked.borrow_mut().forget(&process.key);
        drop(streams);
    }

    /// What an exec is to run, with its user by numbers.
    async fn exec_spec(
        &self,
        container: &Container,
        program: &oci_spec::runtime::Process,
        end: End,
    ) -> Result<Any, Failure> {
        let file = self.home.exec(self.next_number());
        let value = match (container.init.identity(), container.init.pidfd()) {
            (Some(init), Some(pidfd)) => {
                let prepared = mainstay_launch::prepare_exec(Preparation::Exec {
                    spec: &container.spec()?,
                    process: program,
                    user: program.user().username().as_deref(),
                    target: init.pid,
                    target_fd: pidfd.as_fd(),
                    file: &file,
                })?;
                let limit_ms = end.left_ms(SHIM_EXEC_MS);
                let done = timeout(Duration::from_millis(limit_ms), errand::done(prepared)).await;
                // It looks into the container's root, which may hang.
                done.map_err(|_| Failure::Deadline {
                    what: format!("looking up the user of an exec in container {}", container.id),
                    after_ms: limit_ms,
                    place: String::new(),
                })??;
                let read = std::fs::read(&file);
                // Of no use any more; what is left of it goes with the pod.
                let _ = std::fs::remove_file(&file);
                read.map_err(|source| Failure::File { path: file, doing: "read", source })?
            }
            // Its root is out of sight, in a machine of its own; whoever runs it looks the user up.
            _ => serde_json::to_vec(program).map_err(|source| Failure::Spec { path: file, source })?,
        };
        Ok(Any { type_url: PROCESS_TYPE_URL.to_owned(), value, ..Default::default() })
    }
}

async fn start_exec(by: &External, request: &wire::ExecProcessRequest, end: End) -> Result<u32, CallError> {
    let start =
        wire::StartRequest { id: request.id.clone(), exec_id: request.exec_id.clone(), ..Default::default() };
    Ok(by.task::<wire::StartResponse>("Start", &start, end.left_ms(SHIM_START_MS)).await?.pid)
}

/// Has the shim end and forget an exec that has failed.
async fn end_exec(by: &External, key: &ProcessKey) {
    let request = wire::KillRequest {
        id: key.container.as_str().to_owned(),
        exec_id: key.exec_text().to_owned(),
        signal: u32::from(Signal::KILL.0),
        ..Default::default()
    };
    // As a rule there is nothing to kill.
    let _ = by.task::<Empty>("Kill", &request, SHIM_KILL_MS).await;
    delete_exec(by, key, FAILED_EXEC_DELETE_MS).await;
}

async fn delete_exec(by: &External, key: &ProcessKey, limit_ms: u64) {
    let request = wire::DeleteRequest {
        id: key.container.as_str().to_owned(),
        exec_id: key.exec_text().to_owned(),
        ..Default::default()
    };
    match by.task::<wire::DeleteResponse>("Delete", &request, limit_ms).await {
        Ok(_) | Err(CallError::Gone { .. }) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => logger::warning!("{key}: {error}"),
    }
}
