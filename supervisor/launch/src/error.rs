//! Why a launch failed: one sentence that names the field or the step, the value, and what would be right.
//!
//! The same type is made in the parent and in the child (which sends it over the control socket), so every variant is plain
//! data. It never carries a descriptor or a backtrace, and it never repeats its source in its own text.

use std::fmt;
use std::io;

/// A part of the work of a launch, in the order in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The clone of the child.
    Clone,
    /// Joining the cgroup.
    Cgroup,
    /// Creating and joining namespaces.
    Namespaces,
    /// Setting `oom_score_adj`.
    OomScore,
    /// Scheduler, I/O priority and memory policy.
    Scheduling,
    /// Mounting the container's root.
    RootMount,
    /// The mounts of the spec.
    Mounts,
    /// Device nodes and links in `/dev`.
    Devices,
    /// The pseudo terminal.
    Terminal,
    /// Paths that are made read-only.
    ReadonlyPaths,
    /// Paths that are hidden.
    MaskedPaths,
    /// Moving network devices.
    NetDevices,
    /// Hooks that run meanwhile.
    Hooks,
    /// Making the container's root the root.
    PivotRoot,
    /// Host name and domain name.
    Hostname,
    /// Kernel parameters.
    Sysctl,
    /// Standard input, output and error.
    Stdio,
    /// The working directory.
    Cwd,
    /// Session, key ring, personality, umask.
    Session,
    /// Reading the container's user data base and becoming the user.
    User,
    /// Resource limits.
    Rlimits,
    /// Capabilities and `no_new_privs`.
    Capabilities,
    /// The system call filter.
    Seccomp,
    /// The exec itself.
    Exec,
    /// The profile of AppArmor and the label of SELinux.
    SecurityModules,
}

impl Step {
    const ALL: [Step; 25] = [
        Step::Clone,
        Step::Cgroup,
        Step::Namespaces,
        Step::OomScore,
        Step::Scheduling,
        Step::RootMount,
        Step::Mounts,
        Step::Devices,
        Step::Terminal,
        Step::ReadonlyPaths,
        Step::MaskedPaths,
        Step::NetDevices,
        Step::Hooks,
        Step::PivotRoot,
        Step::Hostname,
        Step::Sysctl,
        Step::Stdio,
        Step::Cwd,
        Step::Session,
        Step::User,
        Step::Rlimits,
        Step::Capabilities,
        Step::Seccomp,
        Step::Exec,
        Step::SecurityModules,
    ];

    pub(crate) fn from_wire(value: u8) -> Option<Step> {
        Step::ALL.get(usize::from(value)).copied()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Clone => "clone",
            Step::Cgroup => "cgroup",
            Step::Namespaces => "namespaces",
            Step::OomScore => "process.oomScoreAdj",
            Step::Scheduling => "scheduling",
            Step::RootMount => "root",
            Step::Mounts => "mounts",
            Step::Devices => "devices",
            Step::Terminal => "terminal",
            Step::ReadonlyPaths => "linux.readonlyPaths",
            Step::MaskedPaths => "linux.maskedPaths",
            Step::NetDevices => "linux.netDevices",
            Step::Hooks => "hooks",
            Step::PivotRoot => "pivot_root",
            Step::Hostname => "hostname",
            Step::Sysctl => "linux.sysctl",
            Step::Stdio => "stdio",
            Step::Cwd => "process.cwd",
            Step::Session => "session",
            Step::User => "process.user",
            Step::Rlimits => "process.rlimits",
            Step::Capabilities => "process.capabilities",
            Step::Seccomp => "linux.seccomp",
            Step::Exec => "exec",
            Step::SecurityModules => "security modules",
        })
    }
}

/// Why a program cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandFault {
    /// There is no such file, or none in the directories that were searched.
    NotFound {
        /// The value of PATH; `None` when the program was named by path.
        searched: Option<String>,
    },
    /// It is a directory.
    Directory,
    /// It is a file that this user may not execute.
    NotExecutable,
    /// The file is there, but the interpreter or loader that it names is not.
    NoInterpreter,
    /// The file is no program that this kernel can run.
    WrongFormat,
}

impl fmt::Display for CommandFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandFault::NotFound { searched: None } => f.write_str("does not exist"),
            CommandFault::NotFound { searched: Some(path) } => write!(f, "was not found in PATH {path:?}"),
            CommandFault::Directory => f.write_str("is a directory; name a program"),
            CommandFault::NotExecutable => f.write_str("is not executable for this user"),
            CommandFault::NoInterpreter => {
                f.write_str("exists, but the interpreter or loader that it names does not")
            }
            CommandFault::WrongFormat => f.write_str("is no program that this machine can run"),
        }
    }
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The spec asks for something that cannot be.
    #[error("{field}: {problem}")]
    Spec {
        /// The field of the spec, with its index where it is a list.
        field: String,
        /// The value, and what would be right.
        problem: String,
    },
    /// The spec asks for something that this launcher does not do.
    #[error("{field}: {value} is not supported by the built-in launcher")]
    Unsupported {
        /// The field of the spec.
        field: String,
        /// What it asks for.
        value: String,
    },
    /// The machine cannot do what the spec asks for.
    #[error("{field}: {reason}")]
    Machine {
        /// The field of the spec.
        field: String,
        /// What is missing.
        reason: String,
    },
    /// `process.args` names no program that can be run.
    #[error("process.args[0]: {program:?} {fault}")]
    Command {
        /// The program as the spec names it.
        program: String,
        /// What is wrong with it.
        fault: CommandFault,
    },
    /// The user or group is malformed, or unknown to the container.
    #[error("user {user:?}: {problem}")]
    User {
        /// The user as it was asked for.
        user: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The kernel refused a part of the set-up.
    #[error("{step}: {subject}")]
    System {
        /// The part of the work.
        step: Step,
        /// What was being done, to what.
        subject: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The container that the process should run in has ended.
    #[error("the container's first process has ended, nothing can be executed in it")]
    TargetGone,
    /// The child ended, or was killed, before it was ready, without a report.
    #[error("the child ended during set-up without a report (killed, most likely)")]
    ChildGone,
    /// A hook failed.
    #[error("{hook} {problem}")]
    Hook {
        /// Which one, as in `hooks.createRuntime[0] ("/usr/bin/hook")`.
        hook: String,
        /// What became of it, as the end of a sentence.
        problem: String,
    },
    /// The child panicked, or said something that the parent does not understand. This is a fault in the launcher.
    #[error("internal fault of the launcher: {detail}")]
    Internal {
        /// What happened.
        detail: String,
    },
}

/// The result of a step of a launch.
pub type Result<T> = std::result::Result<T, LaunchError>;

/// An error for a field of the spec.
pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> LaunchError {
    LaunchError::Spec { field: field.into(), problem: problem.into() }
}

/// An error for a part of the spec that is not implemented.
pub(crate) fn unsupported(field: impl Into<String>, value: impl Into<String>) -> LaunchError {
    LaunchError::Unsupported { field: field.into(), value: value.into() }
}

/// An error for what this machine cannot do.
pub(crate) fn machine(field: impl Into<String>, reason: impl Into<String>) -> LaunchError {
    LaunchError::Machine { field: field.into(), reason: reason.into() }
}

/// Adds the step and its subject to an error of the kernel.
pub(crate) trait Context<T> {
    fn context(self, step: Step, subject: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, step: Step, subject: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| LaunchError::System { step, subject: subject(), source: source.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_keeps_its_number_on_the_wire() {
        for (index, step) in Step::ALL.iter().enumerate() {
            assert_eq!(*step as usize, index);
            assert_eq!(Step::from_wire(index as u8), Some(*step));
        }
        assert_eq!(Step::from_wire(Step::ALL.len() as u8), None);
    }
}
