//! The last steps of every process, of a new container or executed in one: stdio, working directory, user, limits,
//! capabilities, filter, and the program.
//!
//! Runs inside the container. What can fail fails before the parent is told `Ready`; only the filter and the exec come after.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::{LinuxPersonalityDomain, Process, Spec};
use rustix::fs::{FileType, Gid, Mode, Uid, fchown, fstat};
use rustix::process::{Signal, ioctl_tiocsctty, set_parent_process_death_signal, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{
    CapabilitySet, set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::capabilities::Sets;
use crate::clone::{Never, close_others};
use crate::command::Command;
use crate::control::ControlEnd;
use crate::cwd::{self, Entered};
use crate::error::{Context, Result, Step, unsupported};
use crate::limits::set_rlimits;
use crate::seccomp::Filter;
use crate::syscall::{close_on_exec_from, load_seccomp, new_session_keyring};
use crate::terminal::Terminal;
use crate::user::Credentials;

/// The umask of a process that names none.
const UMASK_DEFAULT: u32 = 0o022;
const PER_LINUX: libc::c_ulong = 0x0000;
const PER_LINUX32: libc::c_ulong = 0x0008;

/// Whether the process waits between being ready and executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    UntilReleased,
    No,
}

/// What becomes of a process when its caller ends, killed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerEnd {
    /// It runs on.
    Survived,
    /// The kernel kills it, unless its program has privileges that the caller has not given it, or has asked for something
    /// else itself.
    Fatal,
}

/// The child's ends of standard input, output and error.
pub(crate) enum ChildIo {
    Pipes([OwnedFd; 3]),
    Terminal(Terminal),
}

/// All that is known about the process before its last steps.
pub(crate) struct Prepared<'a> {
    pub(crate) process: &'a Process,
    pub(crate) personality: Option<LinuxPersonalityDomain>,
    pub(crate) credentials: Credentials,
    pub(crate) capabilities: Sets,
    pub(crate) filter: Option<Filter>,
    pub(crate) io: ChildIo,
    pub(crate) hold: Hold,
    pub(crate) caller_end: CallerEnd,
    pub(crate) warnings: Vec<String>,
    /// What is run in the container when the program may be executed, as its user.
    pub(crate) start_hooks: &'a dyn Fn() -> Result<()>,
}

/// `linux.personality` of a spec.
pub(crate) fn personality(spec: &Spec) -> Result<Option<LinuxPersonalityDomain>> {
    let Some(personality) = spec.linux().as_ref().and_then(|linux| linux.personality().as_ref()) else {
        return Ok(None);
    };
    if personality.flags().as_ref().is_some_and(|flags| !flags.is_empty()) {
        return Err(unsupported("linux.personality.flags", "a personality flag"));
    }
    Ok(Some(personality.domain()))
}

impl Prepared<'_> {
    /// Becomes the program.
    pub(crate) fn finish(self, control: &ControlEnd) -> Result<Never> {
        let master =
            attach_stdio(self.io, self.credentials.uid).context(Step::Stdio, || "attaching".to_owned())?;
        let keep: Vec<BorrowedFd<'_>> =
            [control.as_fd()].into_iter().chain(master.as_ref().map(AsFd::as_fd)).collect();
        close_others(&keep).context(Step::Session, || "closing descriptors".to_owned())?;

        let cwd = self.process.cwd();
        let entered = cwd::enter(cwd)?;
        join_session(self.personality)?;
        set_rlimits(self.process.rlimits().as_deref().unwrap_or_default())?;

        let no_new_privileges = self.process.no_new_privileges().unwrap_or(false);
        // Without no_new_privs only an administrator may load a filter, so that right is kept until it is loaded.
        let kept = match self.filter {
            Some(_) if !no_new_privileges => CapabilitySet::SYS_ADMIN,
            _ => CapabilitySet::empty(),
        };
        self.capabilities.limit_bounding()?;
        become_user(&self.credentials)?;
        self.capabilities.apply(kept)?;
        if entered == Entered::NotAllowed {
            cwd::enter_as_user(cwd)?;
        }
        if no_new_privileges {
            set_no_new_privs(true).context(Step::Capabilities, || "no_new_privs".to_owned())?;
        }
        let command = Command::find(self.process, &self.credentials.home)?;
        umask(Mode::from_raw_mode(self.process.user().umask().unwrap_or(UMASK_DEFAULT) & 0o777));
        close_on_exec_from(3).context(Step::Session, || "marking descriptors".to_owned())?;
        if self.caller_end == CallerEnd::Fatal {
            // Each change of the user takes it back, so it comes after the last.
            set_parent_process_death_signal(Some(Signal::KILL))
                .context(Step::Session, || "asking to end with the caller".to_owned())?;
        }

        control.ready(master.as_ref(), &self.warnings);
        if self.hold == Hold::UntilReleased {
            control.wait_for_release();
        }
        (self.start_hooks)()?;
        if let Some(filter) = &self.filter {
            load_seccomp(&filter.program, filter.flags)
                .context(Step::Seccomp, || "loading the filter".to_owned())?;
        }
        if !kept.is_empty() {
            self.capabilities.finish()?;
        }
        Err(command.execute())
    }
}

/// Makes the three ends this process's own; the answer is the terminal's master.
fn attach_stdio(io: ChildIo, uid: u32) -> io::Result<Option<OwnedFd>> {
    let (ends, master) = match io {
        ChildIo::Pipes(ends) => (ends, None),
        ChildIo::Terminal(Terminal { master, slave }) => {
            ioctl_tiocsctty(&slave)?;
            ([slave.try_clone()?, slave.try_clone()?, slave], Some(master))
        }
    };
    for end in &ends {
        give_to_user(end, uid)?;
    }
    dup2_stdin(&ends[0])?;
    dup2_stdout(&ends[1])?;
    dup2_stderr(&ends[2])?;
    Ok(master)
}

/// Lets the user reopen its own stdio (`/dev/stderr`): pipes and terminals become its property.
fn give_to_user(end: &OwnedFd, uid: u32) -> io::Result<()> {
    let stat = fstat(end)?;
    let is_terminal = rustix::termios::isatty(end);
    if stat.st_uid == uid || !(is_terminal || FileType::from_raw_mode(stat.st_mode) == FileType::Fifo) {
        return Ok(());
    }
    match fchown(end, Some(Uid::from_raw(uid)), None) {
        // On a read-only or foreign file system the owner stays; the descriptor works all the same.
        Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::ROFS | rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn join_session(personality: Option<LinuxPersonalityDomain>) -> Result<()> {
    if let Some(domain) = personality {
        let persona = match domain {
            LinuxPersonalityDomain::PerLinux => PER_LINUX,
            LinuxPersonalityDomain::PerLinux32 => PER_LINUX32,
        };
        // SAFETY: `personality` takes a number and touches no memory.
        let result = unsafe { libc::personality(persona) };
        crate::syscall::check(result.into())
            .context(Step::Session, || format!("linux.personality {domain:?}"))?;
    }
    match new_session_keyring() {
        Ok(()) => Ok(()),
        // A kernel without key rings, a host that forbids them, or a quota that is used up: not the container's business.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EDQUOT)) => {
            Ok(())
        }
        Err(error) => Err(error).context(Step::Session, || "a key ring of its own".to_owned()),
    }
}

fn become_user(credentials: &Credentials) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(credentials.uid), Gid::from_raw(credentials.gid));
    let groups: Vec<Gid> = credentials.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let change = || -> rustix::io::Result<()> {
        set_keep_capabilities(true)?;
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        set_keep_capabilities(false)
    };
    change().context(Step::User, || format!("becoming {}:{}", credentials.uid, credentials.gid))
}
