//! The clone, seen from both sides: the parent that opens the child's cgroups, and the frame that the child runs in.
//!
//! The parent never waits for the child. The child never returns: it becomes the program, or reports why not and exits.
//!
//! A process that is moved to another v1 group by somebody else waits, with all of its machine's moves, for every CPU to
//! have passed a quiet point: some 10 ms on an idle machine. One thread that moves itself does not (kernel 5.19 and later,
//! `cgroup_procs_write_start`); and so the child does, before anything else that it does.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid, umask};

use crate::control::{ControlEnd, Launching, pair};
use crate::error::{Context, LaunchError, Result, Step};
use crate::namespaces::PidNamespaceVisit;
use crate::syscall::{Cloned, clone_process, close_range, exit_now, reset_signals};

/// The first descriptor after standard input, output and error.
const FIRST_OTHER_FD: u32 = 3;
/// The exit status of a child that could not become its program.
pub const LAUNCH_FAILED_STATUS: i32 = 1;

/// Where in the cgroup hierarchies the process belongs. The groups exist already; they are never made or removed here.
#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupEntry<'a> {
    /// The directory of the v2 group that the process is born in.
    pub v2_dir: Option<BorrowedFd<'a>>,
    /// The `cgroup.procs` files of the v1 groups that the process joins.
    pub v1_procs: &'a [PathBuf],
}

/// What a child can never be.
pub(crate) enum Never {}

/// Clones a child that runs `body` with its end of the control socket and with these descriptors open.
pub(crate) fn start(
    namespaces: u64,
    visit: Option<PidNamespaceVisit>,
    cgroup: CgroupEntry<'_>,
    keep: &[BorrowedFd<'_>],
    body: impl FnOnce(&ControlEnd) -> Result<Never>,
) -> Result<Launching> {
    debug_assert_eq!(
        fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1),
        1,
        "the launcher forks, and a fork of a process with threads must not run Rust"
    );
    let groups = open_v1(cgroup.v1_procs)?;
    let (control, child_end) = pair().context(Step::Clone, || "making the control socket".to_owned())?;
    // SAFETY: the process has one thread (its contract, checked above in debug builds), and `run` never returns.
    let cloned = unsafe { clone_process(namespaces, cgroup.v2_dir) };
    if matches!(cloned, Ok(Cloned::Child)) {
        run(child_end, groups, keep, body);
    }
    drop(groups);
    let elsewhere = visit.is_some();
    drop(visit);
    drop(child_end);
    let subject = || {
        let hint = if elsewhere {
            " (in a pid name space whose first process has ended there is no memory)"
        } else {
            ""
        };
        format!("making the process{hint}")
    };
    match cloned.context(Step::Clone, subject)? {
        Cloned::Parent { pid, pidfd } => {
            let launching = Launching::new(pid, pidfd, control);
            // A child that ended already has said why.
            let _ = launching.go();
            Ok(launching)
        }
        Cloned::Child => Err(LaunchError::Internal { detail: "the child returned".to_owned() }),
    }
}

/// Opens the `tasks` files of v1 groups. Whether somebody may join is decided by who opened them: the child may be in a
/// user name space already.
fn open_v1(procs: &[PathBuf]) -> Result<Vec<(PathBuf, File)>> {
    let open = |procs: &PathBuf| {
        let path = procs.with_file_name("tasks");
        let file = File::options().write(true).open(&path);
        file.map(|file| (path.clone(), file)).context(Step::Cgroup, || format!("opening {path:?}"))
    };
    procs.iter().map(open).collect()
}

/// Moves this process, which has one thread, into its v1 groups.
fn join_v1(groups: Vec<(PathBuf, File)>) -> Result<()> {
    for (path, mut tasks) in groups {
        tasks.write_all(b"0").context(Step::Cgroup, || format!("joining {path:?}"))?;
    }
    Ok(())
}

/// The child, from its first instruction to its last.
fn run(
    control: ControlEnd,
    groups: Vec<(PathBuf, File)>,
    keep: &[BorrowedFd<'_>],
    body: impl FnOnce(&ControlEnd) -> Result<Never>,
) -> ! {
    let keep: Vec<BorrowedFd<'_>> = keep.iter().copied().chain([control.as_fd()]).collect();
    // Nothing of the parent's frames may be unwound here: their destructors are the parent's business.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        join_v1(groups)?;
        prepare(&keep)?;
        body(&control)
    }));
    let error = match outcome {
        Ok(Ok(never)) => match never {},
        Ok(Err(error)) => error,
        Err(_) => LaunchError::Internal {
            detail: "the child panicked; its message is on the runtime's standard error".to_owned(),
        },
    };
    control.failed(&error);
    exit_now(LAUNCH_FAILED_STATUS)
}

/// A clean process: default signals, own session, no descriptor that is not needed, not to be looked into by others.
fn prepare(keep: &[BorrowedFd<'_>]) -> Result<()> {
    reset_signals();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context(Step::Session, || "hiding from others".to_owned())?;
    close_others(keep).context(Step::Session, || "closing descriptors".to_owned())?;
    setsid().context(Step::Session, || "a session of its own".to_owned())?;
    // Modes of nodes and directories are meant as they are written.
    umask(Mode::empty());
    Ok(())
}

/// Closes all descriptors from 3 on but these.
pub(crate) fn close_others(keep: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let mut kept: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    kept.sort_unstable();
    let mut first = FIRST_OTHER_FD;
    for fd in kept {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX)
}
