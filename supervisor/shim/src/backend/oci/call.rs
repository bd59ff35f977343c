//! One call of a runtime's program, from its birth to its end.
//!
//! Owns: the program's process and everything that it leaves when it hangs: that is killed, and reaped. Never: outlives its
//! limit, or leaves the program running when nobody waits for it any more.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use mainstay_launch::{
    CgroupEntry, HostMounts, LaunchError, Launching, Preparation, Reply, RuntimeCall, Stdio,
};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::files::Files;
use super::{Oci, reason, tree};
use crate::container::Container;
use crate::failure::Failure;
use crate::logger;
use crate::readiness::watch;
use crate::shim::Shim;
use crate::task::Ending;

/// How long a runtime that was killed may take to be gone, in milliseconds.
const KILLED_HELPER_MS: u64 = 5_000;

/// See the module.
pub(super) struct Call<'a> {
    pub(super) verb: &'static str,
    /// After the verb.
    pub(super) arguments: Vec<OsString>,
    /// What the container takes over; without it, the program's own words are read.
    pub(super) stdio: Option<Stdio>,
    pub(super) preparation: Preparation<'a>,
    pub(super) limit: Duration,
    pub(super) files: &'a Files,
}

/// The program's process.
struct Helper {
    launching: Launching,
    ended: oneshot::Receiver<Ending>,
    is_over: bool,
}

impl Drop for Helper {
    fn drop(&mut self) {
        if !self.is_over {
            tree::kill(self.launching.pid, self.launching.pidfd.as_fd());
        }
    }
}

impl Call<'_> {
    /// Runs it to its end.
    pub(super) async fn run(self, oci: &Oci, shim: &Rc<Shim>, container: &Container) -> Result<(), Failure> {
        let Call { verb, arguments, stdio, preparation, limit, files } = self;
        let all: Vec<OsString> = [
            "--root".into(),
            files.root.clone().into(),
            "--log".into(),
            files.log.clone().into(),
            "--log-format".into(),
            "json".into(),
            verb.into(),
        ]
        .into_iter()
        .chain(arguments)
        .collect();
        let (stdio, words) = match stdio {
            Some(stdio) => (stdio, None),
            None => {
                let (words, stderr) = pipe_with(PipeFlags::CLOEXEC)
                    .map_err(|error| Failure::System { doing: "making pipes", source: error.into() })?;
                let words =
                    watch(words, Interest::READABLE).map_err(Failure::system("waiting for a pipe"))?;
                (no_input(stderr)?, Some(words))
            }
        };
        let v2_dir = match preparation {
            Preparation::None => None,
            Preparation::Container(_) | Preparation::Exec { .. } => Oci::birthplace(shim, container)?,
        };
        let launching = mainstay_launch::call_runtime(RuntimeCall {
            program: &oci.program,
            arguments: &all,
            stdio,
            host_mounts: HostMounts { namespace: shim.host_mounts.as_fd(), own: &shim.arguments.directory },
            cgroup: CgroupEntry { v2_dir: v2_dir.as_ref().map(AsFd::as_fd), v1_procs: &[] },
            preparation,
        })?;
        let ended = shim.watch_helper(launching.pid);
        let mut helper = Helper { launching, ended, is_over: false };
        let mut said = reason::Words::default();
        let ending = match timeout(limit, helper.wait(words.as_ref(), &mut said)).await {
            Ok(ending) => ending,
            Err(_) => return Err(helper.hung(oci, verb, limit, container).await),
        };
        if let Some(error) = helper.launch_failure() {
            return Err(error.into());
        }
        match ending {
            Ending::Exited { code: 0 } => Ok(()),
            ending => {
                let log = reason::of_log(&files.log).or_else(|| said.last());
                let reason = match (log, ending) {
                    (Some(reason), _) => reason,
                    (None, Ending::Signaled { signal }) => format!("it was ended by signal {signal}"),
                    // The container's own standard error may have it.
                    (None, _) => String::new(),
                };
                Err(oci.refusal(verb, reason))
            }
        }
    }
}

impl Helper {
    async fn wait(&mut self, words: Option<&AsyncFd<OwnedFd>>, said: &mut reason::Words) -> Ending {
        let mut words = words;
        let ending = loop {
            let readable = async {
                match words {
                    Some(fd) => fd.readable().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The reaper lives as long as the shim.
                ending = &mut self.ended => break ending.unwrap_or(Ending::NeverBegan),
                ready = readable => match ready {
                    Ok(mut guard) => match said.read(guard.get_inner()) {
                        Ok(0) => words = None,
                        // One that floods delays nobody.
                        Ok(_) => tokio::task::yield_now().await,
                        Err(Errno::AGAIN) => guard.clear_ready(),
                        Err(_) => words = None,
                    },
                    Err(_) => words = None,
                },
            }
        };
        self.is_over = true;
        // What it said last may be in the pipe still.
        if let Some(fd) = words {
            said.read_left(fd.get_ref());
        }
        ending
    }

    /// Why it was not even executed.
    fn launch_failure(&mut self) -> Option<LaunchError> {
        loop {
            match self.launching.try_reply() {
                Ok(Some(Reply::Failed(error))) | Err(error) => return Some(error),
                Ok(Some(Reply::Running) | None) => return None,
                Ok(Some(Reply::Environment | Reply::Ready { .. })) => {}
            }
        }
    }

    /// Ends it with all that it has made, its container among that.
    async fn hung(&mut self, oci: &Oci, verb: &str, limit: Duration, container: &Container) -> Failure {
        let place = kernel_wait(self.launching.pid.as_raw_nonzero().get());
        tree::kill(self.launching.pid, self.launching.pidfd.as_fd());
        if verb == "create" {
            // What it has made so far is nobody's yet.
            if let Err(failure) = container.kill_all() {
                logger::error!("container {}: {}", container.id, failure.sentence());
            }
        }
        let gone = timeout(Duration::from_millis(KILLED_HELPER_MS), &mut self.ended).await;
        self.is_over = gone.is_ok();
        if gone.is_err() {
            logger::error!("{} {verb} of container {} cannot be killed yet", oci.name, container.id);
        }
        Failure::Deadline {
            what: format!("{} {verb} of container {}", oci.name, container.id),
            after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            place,
        }
    }
}

/// Where in the kernel a process waits, as words for the end of a sentence.
fn kernel_wait(pid: i32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default().as_str() {
        "" | "0" => "; it was killed".to_owned(),
        place => format!("; it waited in the kernel, in {place}, and was killed"),
    }
}

/// Nothing to read, and a place for words: there is no container's output.
fn no_input(stderr: OwnedFd) -> Result<Stdio, Failure> {
    use rustix::fs::{Mode, OFlags, open};
    let null = |flags| {
        let opened = open("/dev/null", flags | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(|error| Failure::System { doing: "opening /dev/null", source: error.into() })
    };
    Ok(Stdio { stdin: null(OFlags::RDONLY)?, stdout: null(OFlags::WRONLY)?, stderr })
}
