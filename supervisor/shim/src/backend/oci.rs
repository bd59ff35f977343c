//! Containers made by `runc`, `crun` or another program with their command line, as children of this shim.
//!
//! The program makes the process and ends; the process is then a child of the shim as any other, its exit comes by the reaper,
//! its output by pipes of the shim, signals go by pidfd, and freezing, limits and numbers by the cgroup, which is the shim's.
//! So the program is called four times in the life of a container, and never to look after it.
//!
//! ```text
//!  set_up ── create ──▶ pid file ──▶ adopted        exec ── exec --detach ──▶ pid file ──▶ adopted
//!  let_run ─ start                                  tear_down ─ delete --force
//! ```
//!
//! Owns: these calls, their arguments and files. Never: waits without a limit, or takes a program's word for a process that is
//! no child of this shim. Hooks are run by the program.

mod birth;
mod call;
mod console;
mod files;
mod reason;
mod tree;

use std::cell::Cell;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{CgroupError, Mode};
use mainstay_launch::{ContainerBundle, Preparation, WindowSize};
use mainstay_messages::Signal;
use mainstay_task_api::extension as wire;
use oci_spec::runtime::BoxBuilder;
use tokio::time::timeout;

use self::birth::Birthplace;
use self::call::Call;
use super::Parts;
use crate::container::Container;
use crate::create::TASK_CREATE_MS;
use crate::failure::Failure;
use crate::logger;
use crate::process::Process;
use crate::run::FAILED_START_REAP_MS;
use crate::shim::Shim;
use crate::task::{Input, Phase, Refusal};

/// The directory of the runtime's own state, below the pod's directory.
const STATE_DIRECTORY: &str = "oci";
/// How long a start or an exec may take, in milliseconds. The supervisor waits 15 s for either, and is to hear what it was that
/// hung, and that it was killed.
const OCI_START_MS: u64 = 12_000;

/// A runtime of a pod.
#[derive(Debug)]
pub(crate) struct Oci {
    program: PathBuf,
    /// Its last component, for sentences.
    name: String,
    /// As the supervisor has learned it.
    version: String,
    /// How long one call may take at most.
    limit: Duration,
    /// The number of the next call, for the names of its files.
    calls: Cell<u64>,
}

impl Oci {
    /// The runtime that a request names.
    pub(super) fn new(request: &wire::OciRuntime) -> Result<Rc<Self>, Failure> {
        let program = PathBuf::from(&request.program);
        if !program.is_absolute() {
            return Err(Failure::Invalid {
                field: "backend.oci.program",
                value: format!("{program:?}"),
                expected: "an absolute path",
            });
        }
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        let longest = Duration::from_millis(TASK_CREATE_MS);
        let limit = match request.call_ms {
            0 => longest,
            limit_ms => longest.min(Duration::from_millis(limit_ms.into())),
        };
        Ok(Rc::new(Self { program, name, version: request.version.clone(), limit, calls: Cell::new(0) }))
    }

    /// What it is.
    pub(super) fn info(&self) -> wire::BackendInfo {
        wire::BackendInfo {
            program: self.program.to_string_lossy().into_owned(),
            version: self.version.clone(),
            protocol: "oci".to_owned(),
            ..Default::default()
        }
    }

    /// See [`super::Backend::set_up`].
    pub(super) async fn set_up(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        parts: Parts,
    ) -> Result<(), Failure> {
        let Parts { spec, root } = parts;
        let files = self.files(shim, container);
        let cgroup = container.cgroup.path().to_string();
        let bundle = ContainerBundle {
            spec: &spec,
            directory: &container.bundle,
            root: &root,
            cgroup: Path::new(&cgroup),
        };
        let mut arguments: Vec<OsString> = vec!["--bundle".into(), container.bundle.clone().into()];
        let born = self
            .bear(
                shim,
                container,
                &container.init,
                Birthplace {
                    verb: "create",
                    arguments: &mut arguments,
                    files: &files,
                    preparation: Preparation::Container(bundle),
                    limit: self.limit.min(Duration::from_millis(TASK_CREATE_MS)),
                },
            )
            .await;
        drop(spec);
        born?;
        container.init.apply(Input::Prepared)?;
        if container.init.has_died() {
            // It is reaped at once.
            let _ = timeout(Duration::from_millis(FAILED_START_REAP_MS), container.init.wait_ended()).await;
        }
        match container.init.exit() {
            None => Ok(()),
            Some(exit) => {
                Err(Failure::EndedEarly { process: container.init.key.clone(), how: exit.to_string() })
            }
        }
    }

    /// See [`super::Backend::let_run`].
    pub(super) async fn let_run(&self, shim: &Rc<Shim>, container: &Rc<Container>) -> Result<(), Failure> {
        let files = self.files(shim, container);
        let call = Call {
            verb: "start",
            arguments: vec![container.id.as_str().into()],
            stdio: None,
            preparation: Preparation::None,
            limit: self.limit.min(Duration::from_millis(OCI_START_MS)),
            files: &files,
        };
        let init = &container.init;
        match call.run(self, shim, container).await {
            Ok(()) => {
                // Ignored where it has ended meanwhile, as a short program may.
                init.apply(Input::Executed)?;
                Ok(())
            }
            Err(failure) => {
                init.apply(Input::Failed { reason: failure.sentence() })?;
                // Gone already is as good.
                let _ = init.signal(Signal::KILL);
                let _ = timeout(Duration::from_millis(FAILED_START_REAP_MS), init.wait_ended()).await;
                Err(failure)
            }
        }
    }

    /// See [`super::Backend::exec`].
    pub(super) async fn exec(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        process: &Rc<Process>,
    ) -> Result<(), Failure> {
        let gone = || Failure::Refused { process: container.init.key.clone(), refusal: Refusal::HasExited };
        let mut program =
            process.take_program().ok_or_else(|| Failure::NotFound { process: process.key.clone() })?;
        if let Some(WindowSize { rows, columns }) = process.initial_size() {
            let size = BoxBuilder::default().height(rows).width(columns).build();
            program.set_console_size(size.ok());
        }
        let target_fd = container.init.pidfd().ok_or_else(gone)?;
        let target = container.init.identity().ok_or_else(gone)?.pid;
        let spec = container.spec()?;
        let files = self.files(shim, container);
        let preparation = Preparation::Exec {
            spec: &spec,
            process: &program,
            user: program.user().username().as_deref(),
            target,
            target_fd: target_fd.as_fd(),
            file: &files.process,
        };
        let mut arguments: Vec<OsString> =
            vec!["--detach".into(), "--process".into(), files.process.clone().into()];
        let born = self
            .bear(
                shim,
                container,
                process,
                Birthplace {
                    verb: "exec",
                    arguments: &mut arguments,
                    files: &files,
                    preparation,
                    limit: self.limit.min(Duration::from_millis(OCI_START_MS)),
                },
            )
            .await;
        match born {
            Ok(()) => {
                // Ignored where it has ended meanwhile.
                process.apply(Input::Executed)?;
                Ok(())
            }
            // The runtime says it in its own words, and not always the same.
            Err(_) if matches!(container.init.phase(), Phase::Exited(_)) => Err(gone()),
            Err(failure) => Err(failure),
        }
    }

    /// See [`super::Backend::tear_down`].
    pub(super) async fn tear_down(&self, shim: &Rc<Shim>, container: &Rc<Container>, limit: Duration) {
        // What it has never made, or has removed, it need not be asked about: it would complain.
        if !self.state_directory(shim).join(container.id.as_str()).exists() {
            return;
        }
        let files = self.files(shim, container);
        let call = Call {
            verb: "delete",
            arguments: vec!["--force".into(), container.id.as_str().into()],
            stdio: None,
            preparation: Preparation::None,
            limit: self.limit.min(limit),
            files: &files,
        };
        if let Err(failure) = call.run(self, shim, container).await {
            logger::warning!("container {}: {}", container.id, failure.sentence());
        }
    }

    /// A refusal of the program.
    fn refusal(&self, verb: &'static str, reason: String) -> Failure {
        Failure::Runtime { runtime: self.name.clone(), verb, reason }
    }

    /// Where a helper is born that makes a process; one that makes none must not end with the container. Runtimes know nothing
    /// of a v2 tree beside v1 hierarchies, and the shim freezes and counts by it: what they make is born there. Elsewhere they
    /// put it where the spec says, and want to find that place empty.
    fn birthplace(shim: &Shim, container: &Container) -> Result<Option<OwnedFd>, CgroupError> {
        match shim.layout.mode() {
            Mode::Hybrid | Mode::V1 => container.cgroup.v2_dir(),
            Mode::V2 => Ok(None),
        }
    }

    fn state_directory(&self, shim: &Shim) -> PathBuf {
        shim.arguments.directory.join(STATE_DIRECTORY)
    }
}
