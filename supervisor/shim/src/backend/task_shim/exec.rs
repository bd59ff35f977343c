//! Further processes of containers that another shim has made.
//!
//! Registered and started in one go, since registering one is this shim's own business until it starts. Owns: that, and that the
//! other shim forgets a process whose end is known and whose output has been read. Never: makes a container.

use std::os::fd::AsFd;
use std::rc::Rc;

use mainstay_launch::Preparation;
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task as wire;
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::well_known_types::empty::Empty;
use mainstay_task_api::{MessageField, PROCESS_TYPE_URL};
use oci_spec::runtime::BoxBuilder;

use super::container::{SHIM_EXEC_MS, SHIM_START_MS, SHIM_TASK_DELETE_MS, follow_stdin};
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
        let program = self.exec_spec(container, &program).await?;
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
        let begun = begin_exec(&by, &request).await;
        let connected = streams.connect(process, Made::from(&begun))?;
        self.adopt(shim, container, process, begun?)?;
        let _ = process.apply(Input::Executed);
        self.expect_end(shim, process, &by);
        follow_stdin(process, &by);
        tokio::task::spawn_local(forget_exec(process.clone(), by, connected));
        Ok(())
    }

    /// What an exec is to run, with its user by numbers.
    async fn exec_spec(
        &self,
        container: &Container,
        program: &oci_spec::runtime::Process,
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
                errand::done(prepared).await?;
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

async fn begin_exec(by: &External, request: &wire::ExecProcessRequest) -> Result<u32, Failure> {
    by.task::<Empty>("Exec", request, SHIM_EXEC_MS).await?;
    let start =
        wire::StartRequest { id: request.id.clone(), exec_id: request.exec_id.clone(), ..Default::default() };
    match by.task::<wire::StartResponse>("Start", &start, SHIM_START_MS).await {
        Ok(started) => Ok(started.pid),
        Err(error) => {
            delete_exec(by, &request.id, &request.exec_id).await;
            Err(error.into())
        }
    }
}

/// Has the shim forget an exec that has ended and whose output has been read.
async fn forget_exec(process: Rc<Process>, by: Rc<External>, streams: Connected) {
    process.wait_ended().await;
    process.output.over().await;
    delete_exec(&by, process.key.container.as_str(), process.key.exec_text()).await;
    drop(streams);
}

async fn delete_exec(by: &External, id: &str, exec: &str) {
    let request = wire::DeleteRequest { id: id.to_owned(), exec_id: exec.to_owned(), ..Default::default() };
    match by.task::<wire::DeleteResponse>("Delete", &request, SHIM_TASK_DELETE_MS).await {
        Ok(_) | Err(CallError::Gone { .. }) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => logger::warning!("exec {exec} of container {id}: {error}"),
    }
}
