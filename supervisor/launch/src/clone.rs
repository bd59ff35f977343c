//! The clone, seen from both sides: the parent that puts the child into its cgroups, and the frame that the child runs in.
//!
//! The parent never waits for the child. The child never returns: it becomes the program, or reports why not and exits.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_dumpable_behavior, setsid, umask,
    waitid,
};

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
    /// The `cgroup.procs` files of v1 groups that the parent writes the process's id to.
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
    let (control, child_end) = pair().context(Step::Clone, || "making the control socket".to_owned())?;
    // SAFETY: the process has one thread (its contract, checked above in debug builds), and `run` never returns.
    let cloned = unsafe { clone_process(namespaces, cgroup.v2_dir) };
    if matches!(cloned, Ok(Cloned::Child)) {
        run(child_end, keep, body);
    }
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
            match admit(&launching, cgroup) {
                Ok(()) => Ok(launching),
                Err(error) => {
                    end(&launching);
                    Err(error)
                }
            }
        }
        Cloned::Child => Err(LaunchError::Internal { detail: "the child returned".to_owned() }),
    }
}

/// Puts the child into its v1 groups, then lets it go on.
fn admit(launching: &Launching, cgroup: CgroupEntry<'_>) -> Result<()> {
    for procs in cgroup.v1_procs {
        fs::write(procs, launching.pid.to_string()).context(Step::Cgroup, || format!("joining {procs:?}"))?;
    }
    // A child that ended already has said why.
    let _ = launching.go();
    Ok(())
}

/// Ends and reaps a child that nobody else will hear of.
fn end(launching: &Launching) {
    // It may have ended by itself, and the caller's own reaper may be faster: both are fine.
    let _ = pidfd_send_signal(&launching.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(launching.pidfd.as_fd()), WaitIdOptions::EXITED);
}

/// The child, from its first instruction to its last.
fn run(control: ControlEnd, keep: &[BorrowedFd<'_>], body: impl FnOnce(&ControlEnd) -> Result<Never>) -> ! {
    let keep: Vec<BorrowedFd<'_>> = keep.iter().copied().chain([control.as_fd()]).collect();
    // Nothing of the parent's frames may be unwound here: their destructors are the parent's business.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
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
