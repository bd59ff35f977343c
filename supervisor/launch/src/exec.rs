//! A further process in a container that runs.
//!
//! The child joins the name spaces of the container's first process by its pidfd, all at once; it is born in the right process
//! id name space, which the parent enters for the clone.

use std::os::fd::{AsFd, BorrowedFd};

use oci_spec::runtime::{Process, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use crate::capabilities::Sets;
use crate::clone::{self, CgroupEntry, Never};
use crate::control::{ControlEnd, Launching};
use crate::error::{Context, LaunchError, Result, Step};
use crate::init::{filter_of, groups_of};
use crate::limits::{OomScorePolicy, raise_hard_limits, set_oom_score};
use crate::mounts::target::ContainerRoot;
use crate::namespaces::PidNamespaceVisit;
use crate::process::{CallerEnd, ChildIo, Hold, Prepared, personality};
use crate::procfs::HostProc;
use crate::scheduling::Scheduling;
use crate::stdio::Io;
use crate::support::check_process;
use crate::user::UserDatabase;
use crate::user_namespace::IdMap;
use crate::{modules, terminal, user_namespace};

/// A process to execute in a container.
#[derive(Debug)]
pub struct ExecRequest<'a> {
    /// The process. Without capabilities of its own it gets those of the container's first process.
    pub process: &'a Process,
    /// The user as the caller wrote it (see [`crate::USER_ANNOTATION`]); it decides in place of `process.user`.
    pub user: Option<&'a str>,
    /// The container's spec: its filter and personality hold for every process in it.
    pub spec: &'a Spec,
    /// A pidfd of the container's first process.
    pub target: BorrowedFd<'a>,
    /// Standard input, output and error.
    pub io: Io,
    /// The groups that the process belongs to.
    pub cgroup: CgroupEntry<'a>,
    /// What to do when the OOM score cannot be lowered.
    pub oom_score: OomScorePolicy,
    /// What becomes of it when the caller ends.
    pub caller_end: CallerEnd,
}

/// Starts a process in a running container. It reports `Ready`, and executes at once.
///
/// # Errors
/// As [`crate::create`]; [`LaunchError::TargetGone`] when the container's first process has ended.
pub fn exec(request: ExecRequest<'_>) -> Result<Launching> {
    check_process(request.process)?;
    let scheduling = Scheduling::of(request.process, request.spec)?;
    if is_over(request.target) {
        return Err(LaunchError::TargetGone);
    }
    let visit = match PidNamespaceVisit::by_process(request.target) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(LaunchError::TargetGone),
        result => result.context(Step::Namespaces, || "joining the container's pid name space".to_owned())?,
    };
    let keep: Vec<BorrowedFd<'_>> = request.io.fds().chain([request.target]).collect();
    let started =
        clone::start(0, Some(visit), request.cgroup, &keep, |control| run(&request, &scheduling, control));
    // A process id name space whose first process has ended takes no new one; its cgroup may be gone as well.
    started.map_err(|error| if is_over(request.target) { LaunchError::TargetGone } else { error })
}

fn run(request: &ExecRequest<'_>, scheduling: &Scheduling, control: &ControlEnd) -> Result<Never> {
    let (spec, process) = (request.spec, request.process);
    let mut warnings = Vec::new();
    let proc = HostProc::open().context(Step::Namespaces, || "opening the host's /proc".to_owned())?;
    if let Some(score) = process.oom_score_adj() {
        set_oom_score(&proc, score, request.oom_score, &mut warnings)?;
    }
    scheduling.set()?;
    let filter = filter_of(spec)?;
    let ids = IdMap::of(spec)?;
    if let Some(ids) = ids {
        raise_hard_limits(process.rlimits().as_deref().unwrap_or_default())?;
        request.io.give_pipes_to(ids.root())?;
    }
    join(request.target, ids)?;
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(Step::Namespaces, || "opening the container's root".to_owned())?;
    let root = ContainerRoot::new(root);
    let io = match &request.io {
        Io::Pipes(stdio) => ChildIo::Pipes(stdio.for_container(&root, &proc)?),
        Io::Terminal { size } => ChildIo::Terminal(terminal::open(&root, &proc, *size)?),
    };
    let database = UserDatabase::read(&root, &proc)?;
    let credentials = match request.user {
        Some(text) => database.resolve(text, process.user(), groups_of(spec))?,
        None => database.numeric(process.user())?,
    };
    if let Some(ids) = ids {
        ids.check(&credentials)?;
    }
    let container = spec.process().as_ref().and_then(|process| process.capabilities().as_ref());
    let capabilities = Sets::of(process.capabilities().as_ref().or(container), &mut warnings)?;
    modules::confine(&proc, process, spec.process().as_ref())?;
    drop((root, proc));

    control.wait_for_go();
    let personality = personality(spec)?;
    let (hold, caller_end) = (Hold::No, request.caller_end);
    Prepared {
        process,
        personality,
        credentials,
        capabilities,
        filter,
        io,
        hold,
        caller_end,
        warnings,
        start_hooks: &|| Ok(()),
    }
    .finish(control)
}

/// Joins every name space of the container but the pid one, which this process was born in.
fn join(target: BorrowedFd<'_>, ids: Option<IdMap<'_>>) -> Result<()> {
    let mut all = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::CONTROL_GROUP;
    if ids.is_some() {
        all |= ThreadNameSpaceType::USER;
    }
    match move_into_thread_name_spaces(target, all) {
        Err(Errno::SRCH) => return Err(LaunchError::TargetGone),
        result => result.context(Step::Namespaces, || "joining the container's".to_owned())?,
    }
    ids.map_or(Ok(()), |_| user_namespace::become_root())
}

/// Whether the process has ended, reaped or not.
pub(crate) fn is_over(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
