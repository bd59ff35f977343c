//! Running another shim's program: `start`, which leaves the shim itself behind, and `delete`, which cleans up after it.
//!
//! Owns: its command line and environment, which are containerd's, its deadline, and the sentence for what it said. Never:
//! speaks with the shim.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{Cgroup, CgroupError};
use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::BootstrapParams;
use mainstay_task_api::task::DeleteResponse;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::{Answer, AnswerError};
use super::end::End;
use super::home::Home;
use super::running::{Finished, Running};
use crate::shim::Shim;
use crate::task::Ending;

/// The namespace of containerd that everything is in.
pub(crate) const NAMESPACE: &str = "mainstay";
/// How long `start` may take, in milliseconds.
pub(crate) const SHIM_LAUNCH_MS: u64 = 4_000;
/// How long `delete` may take, in milliseconds.
pub(crate) const SHIM_DELETE_MS: u64 = 5_000;
/// Where programs are looked for by a shim whose own environment has no PATH.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a program of another shim did not do its step.
#[derive(Debug, Error)]
pub(crate) enum LaunchShimError {
    /// It could not be run.
    #[error("{program:?} cannot be run")]
    Run {
        /// Which.
        program: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It hung.
    #[error("{program:?} {action} did not end within {after_ms} ms; it was killed")]
    Deadline {
        /// Which.
        program: PathBuf,
        /// `start` or `delete`.
        action: &'static str,
        /// The limit.
        after_ms: u64,
    },
    /// It failed.
    #[error("{program:?} {action} {how}: {said}")]
    Failed {
        /// Which.
        program: PathBuf,
        /// `start` or `delete`.
        action: &'static str,
        /// How it ended.
        how: String,
        /// What it said.
        said: String,
    },
    /// Its answer cannot be used.
    #[error("{program:?} start was not understood: {reason}")]
    Answer {
        /// Which.
        program: PathBuf,
        /// Why not.
        reason: AnswerError,
    },
}

/// What is run.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) home: &'a Home,
    /// The id that the shim is started for.
    pub(crate) id: &'a str,
    pub(crate) bundle: &'a Path,
    /// The cgroup that the program, and so the shim that it leaves behind, is in.
    pub(crate) cgroup: &'a Cgroup,
}

impl Launch<'_> {
    /// Starts the shim; says where it listens.
    pub(super) async fn start(&self, shim: &Rc<Shim>, end: End) -> Result<Answer, LaunchShimError> {
        // The older ones stumble over a message that they do not know, and the newest insist on it: who fails without it gets
        // it. A start that failed has left nothing.
        let mut finished = self.run(shim, "start", &[], end.left_ms(SHIM_LAUNCH_MS)).await?;
        if finished.how != (Ending::Exited { code: 0 }) {
            let again = self.run(shim, "start", &self.params(), end.left_ms(SHIM_LAUNCH_MS)).await?;
            if again.how == (Ending::Exited { code: 0 }) || finished.speaks_of_bootstrap() {
                finished = again;
            }
        }
        let stdout = self.check("start", finished)?;
        Answer::parse(&stdout)
            .map_err(|reason| LaunchShimError::Answer { program: self.program.to_owned(), reason })
    }

    /// Has the program clean up after a shim; what it says of the end of the container, if anything.
    pub(crate) async fn delete(
        &self,
        shim: &Rc<Shim>,
        limit: Duration,
    ) -> Result<Option<DeleteResponse>, LaunchShimError> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).min(SHIM_DELETE_MS);
        let finished = self.run(shim, "delete", &[], limit_ms).await?;
        let stdout = self.check("delete", finished)?;
        Ok(DeleteResponse::parse_from_bytes(&stdout).ok().filter(|answer| answer.exited_at.is_some()))
    }

    fn params(&self) -> Vec<u8> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let params = BootstrapParams {
            instance_id: self.id.to_owned(),
            namespace: NAMESPACE.to_owned(),
            containerd_version: env!("CARGO_PKG_VERSION").to_owned(),
            containerd_ttrpc_address: text(self.home.events()),
            containerd_grpc_address: text(self.home.address()),
            containerd_binary: text(self.home.logger()),
            ..Default::default()
        };
        // It has a few short texts.
        params.write_to_bytes().unwrap_or_default()
    }

    fn check(&self, action: &'static str, finished: Finished) -> Result<Vec<u8>, LaunchShimError> {
        if finished.how == (Ending::Exited { code: 0 }) {
            return Ok(finished.stdout);
        }
        let how = match finished.how {
            Ending::Exited { code } => format!("failed with code {code}"),
            Ending::Signaled { signal } => format!("was ended by signal {signal}"),
            _ => "failed".to_owned(),
        };
        Err(LaunchShimError::Failed { program: self.program.to_owned(), action, how, said: finished.said() })
    }

    fn command(&self, action: &'static str) -> Command {
        let mut command = Command::new(self.program);
        command.args(["-namespace", NAMESPACE, "-address"]).arg(self.home.address());
        command.arg("-publish-binary").arg(self.home.logger()).args(["-id", self.id]);
        if action == "delete" {
            command.arg("-bundle").arg(self.bundle);
        }
        command.arg(action).current_dir(self.bundle).process_group(0);
        command.env("TTRPC_ADDRESS", self.home.events()).env("GRPC_ADDRESS", self.home.address());
        command.env("NAMESPACE", NAMESPACE).env("MAX_SHIM_VERSION", "2").env("GOMAXPROCS", "2");
        if std::env::var_os("PATH").is_none() {
            command.env("PATH", PATH_DEFAULT);
        }
        command
    }

    async fn run(
        &self,
        shim: &Rc<Shim>,
        action: &'static str,
        input: &[u8],
        limit_ms: u64,
    ) -> Result<Finished, LaunchShimError> {
        let failed = |source| LaunchShimError::Run { program: self.program.to_owned(), source };
        let (mut running, ended) = self.spawn(shim, action, input).map_err(failed)?;
        let waited = timeout(Duration::from_millis(limit_ms), running.end(ended)).await;
        match waited {
            Ok(finished) => Ok(finished),
            Err(_) => {
                let program = self.program.to_owned();
                Err(LaunchShimError::Deadline { program, action, after_ms: limit_ms })
            }
        }
    }

    /// The files that a process joins the cgroup by. It has one thread then, and `tasks` of a v1 hierarchy moves that without the wait
    /// of `cgroup.procs` for the whole machine.
    fn groups(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let mut groups = Vec::new();
        for procs in self.cgroup.v1_procs()? {
            let path = procs.with_file_name("tasks");
            let opened = open(&path, flags, Mode::empty());
            groups.push(opened.map_err(|source| CgroupError::Io { action: "open", path, source })?);
        }
        if let Some(directory) = self.cgroup.v2_dir()? {
            let opened = openat(&directory, "cgroup.procs", flags, Mode::empty());
            let path = PathBuf::from("cgroup.procs");
            groups.push(opened.map_err(|source| CgroupError::Io { action: "open", path, source })?);
        }
        if groups.is_empty() {
            // It would run on in the cgroup of this shim, where the end of the pod does not find it.
            return Err(CgroupError::NotFound { path: self.cgroup.path().clone() });
        }
        Ok(groups)
    }

    fn spawn(
        &self,
        shim: &Rc<Shim>,
        action: &'static str,
        input: &[u8],
    ) -> std::io::Result<(Running, oneshot::Receiver<Ending>)> {
        let (stdout, stdout_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = self.command(action);
        command.stdin(standard_input(input)?).stdout(stdout_theirs).stderr(stderr_theirs);
        let groups = self.groups().map_err(std::io::Error::other)?;
        // SAFETY: between fork and exec only write is called, on descriptors that live until after the spawn.
        unsafe {
            // Before it runs, so that the shim which it leaves behind is born there.
            command.pre_exec(move || {
                groups
                    .iter()
                    .try_for_each(|procs| rustix::io::write(procs, b"0").map(drop))
                    .map_err(Into::into)
            });
        }
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // Nothing waits between its birth and this.
        let ended = shim.watch_helper(pid);
        let running = Running::new(pid, stdout, stderr)?;
        Ok((running, ended))
    }
}

fn standard_input(input: &[u8]) -> std::io::Result<Stdio> {
    if input.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = std::fs::File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
