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

mod call;
mod console;
mod reason;
mod tree;

use std::cell::Cell;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{CgroupError, Mode};
use mainstay_launch::{ContainerBundle, Io, Preparation, Stdio, WindowSize};
use mainstay_messages::Signal;
use mainstay_task_api::extension as wire;
use mainstay_task_api::streams::Terminal;
use oci_spec::runtime::BoxBuilder;
use rustix::process::Pid;
use tokio::time::timeout;

use self::call::Call;
use self::console::Console;
use super::Parts;
use crate::child_io::{self, ShimEnds};
use crate::container::Container;
use crate::create::{TASK_CREATE_MS, connect};
use crate::failure::Failure;
use crate::logger;
use crate::process::Process;
use crate::run::{FAILED_START_REAP_MS, TASK_START_MS};
use crate::shim::Shim;
use crate::task::{Input, Phase, Refusal};

/// The directory of the runtime's own state, below the pod's directory.
const STATE_DIRECTORY: &str = "oci";
/// The longest pid file that is read, in bytes.
const PID_FILE_MAX_BYTES: usize = 64;

/// A runtime of a pod.
#[derive(Debug)]
pub(crate) struct Oci {
    program: PathBuf,
    /// Its last component, for sentences.
    name: String,
    /// How long one call may take at most.
    limit: Duration,
    /// The number of the next call, for the names of its files.
    calls: Cell<u64>,
}

impl Oci {
    /// The runtime that this program is, with a limit of its own for each call where there is one.
    pub(crate) fn new(program: PathBuf, limit: Option<Duration>) -> Rc<Self> {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        let longest = Duration::from_millis(TASK_CREATE_MS.max(TASK_START_MS));
        let limit = limit.map_or(longest, |limit| limit.min(longest));
        Rc::new(Self { program, name, limit, calls: Cell::new(0) })
    }

    /// The program. Nothing of it runs between its calls.
    pub(super) fn info(&self) -> wire::BackendInfo {
        let program = self.program.to_string_lossy().into_owned();
        wire::BackendInfo { program, protocol: "oci".to_owned(), ..Default::default() }
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
            limit: self.limit.min(Duration::from_millis(TASK_START_MS)),
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
                    limit: self.limit.min(Duration::from_millis(TASK_START_MS)),
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

    /// Has the runtime make a process, and takes charge of it.
    async fn bear(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        process: &Rc<Process>,
        place: Birthplace<'_>,
    ) -> Result<(), Failure> {
        let Birthplace { verb, arguments, files, preparation, limit } = place;
        arguments.extend(["--pid-file".into(), files.pid.clone().into()]);
        let (io, ends) = child_io::make(process).map_err(Failure::system("making pipes"))?;
        let mut console = None;
        let stdio = match io {
            Io::Pipes(stdio) => Some(stdio),
            Io::Terminal { .. } => {
                let listening = Console::listen(&files.console)?;
                arguments.extend(["--console-socket".into(), files.console.clone().into()]);
                console = Some(listening);
                None
            }
        };
        arguments.push(container.id.as_str().into());
        let call = Call { verb, arguments: std::mem::take(arguments), stdio, preparation, limit, files };
        let birth = shim.expect_birth();
        let called = async {
            let master = async {
                match &console {
                    Some(console) => console.master().await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::pin!(master);
            let run = call.run(self, shim, container);
            tokio::pin!(run);
            let mut received = None;
            loop {
                tokio::select! {
                    outcome = &mut run => {
                        outcome?;
                        break;
                    }
                    master = &mut master, if received.is_none() && console.is_some() => {
                        let master = master?;
                        // Before the program runs, if that can be; a runtime may not care for the size that the spec has.
                        if let (Some(master), Some(size)) = (&master, process.initial_size()) {
                            console::set_size(master, size);
                        }
                        received = Some(master);
                    }
                }
            }
            match (received, &console) {
                (Some(master), _) => Ok(master),
                // It was sent before the runtime ended.
                (None, Some(console)) => console.master_at_once().map(Some),
                (None, None) => Ok(None),
            }
        };
        let master: Option<OwnedFd> = match called.await {
            Ok(master) => master,
            Err(failure) => return Err(self.with_output(failure, verb, &ends)),
        };
        let pid = self.read_pid(verb, &files.pid)?;
        match (process.terminal, master) {
            (Terminal::Yes, Some(master)) => process.connect_terminal(master),
            _ => connect(process, ends),
        }
        shim.adopt(process, pid, &birth)
    }

    /// Adds what the runtime has said to the container's standard error, where it has not said anything to its log.
    fn with_output(&self, failure: Failure, verb: &'static str, ends: &ShimEnds) -> Failure {
        match failure {
            Failure::Runtime { reason, .. } if reason.is_empty() => {
                let said = match ends {
                    ShimEnds::Pipes { output, .. } => reason::last_words(output),
                    ShimEnds::Terminal => String::new(),
                };
                self.refusal(verb, said)
            }
            other => other,
        }
    }

    fn refusal(&self, verb: &'static str, reason: String) -> Failure {
        Failure::Runtime { runtime: self.name.clone(), verb, reason }
    }

    fn read_pid(&self, verb: &'static str, file: &Path) -> Result<Pid, Failure> {
        let text = std::fs::read(file).unwrap_or_default();
        let number = text.get(..text.len().min(PID_FILE_MAX_BYTES)).and_then(|text| {
            let text = std::str::from_utf8(text).ok()?;
            text.trim().parse().ok().filter(|number| *number > 0).and_then(Pid::from_raw)
        });
        number.ok_or_else(|| {
            let said = String::from_utf8_lossy(&text[..text.len().min(PID_FILE_MAX_BYTES)]).into_owned();
            self.refusal(verb, format!("it succeeded, but its pid file has {said:?} and no process id"))
        })
    }

    /// Where a helper is born that makes a process; one that makes none must not end with the container. Runtimes know nothing of a v2 tree beside v1 hierarchies, and the shim freezes and counts by
    /// it: what they make is born there. Elsewhere they put it where the spec says, and want to find that place empty.
    fn birthplace(shim: &Shim, container: &Container) -> Result<Option<OwnedFd>, CgroupError> {
        match shim.layout.mode() {
            Mode::Hybrid | Mode::V1 => container.cgroup.v2_dir(),
            Mode::V2 => Ok(None),
        }
    }

    fn state_directory(&self, shim: &Shim) -> PathBuf {
        shim.arguments.directory.join(STATE_DIRECTORY)
    }

    fn files(&self, shim: &Shim, container: &Container) -> Files {
        let number = self.calls.get();
        self.calls.set(number + 1);
        let in_bundle = |name: &str| container.bundle.join(format!("{name}-{number}"));
        Files {
            root: self.state_directory(shim),
            log: in_bundle("oci-log"),
            pid: in_bundle("oci-pid"),
            process: in_bundle("oci-process"),
            // The path of a socket is short.
            console: shim.arguments.directory.join(format!("con{number}")),
        }
    }
}

/// What a process is made with.
struct Birthplace<'a> {
    verb: &'static str,
    arguments: &'a mut Vec<OsString>,
    files: &'a Files,
    preparation: Preparation<'a>,
    limit: Duration,
}

/// The files of one call; they go with it.
#[derive(Debug)]
struct Files {
    root: PathBuf,
    log: PathBuf,
    pid: PathBuf,
    process: PathBuf,
    console: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.log, &self.pid, &self.process, &self.console] {
            // Most calls have only some of them.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Nothing to read, and two places for words: the container's output has not begun.
fn no_input(stderr: OwnedFd) -> Result<Stdio, Failure> {
    use rustix::fs::{Mode, OFlags, open};
    let null = |flags| {
        let opened = open("/dev/null", flags | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(|error| Failure::System { doing: "opening /dev/null", source: error.into() })
    };
    Ok(Stdio { stdin: null(OFlags::RDONLY)?, stdout: null(OFlags::WRONLY)?, stderr })
}
