//! The supervisor's settings, and whether this machine can honour them.
//!
//! Owns: names, defaults and checks of everything that can be set. Never: starts anything.

use std::path::{Path, PathBuf};

use mainstay_cgroups::{CgroupPath, Layout};
use mainstay_messages::id::ID_BYTES;
use mainstay_messages::shortage::explained;
use mainstay_messages::{Error, Result};
use mainstay_task_api::EXEC_OUTPUT_HOLD_MAX_MS;
use serde::{Deserialize, Serialize};

use crate::cdi;
use crate::handlers::Handlers;
use crate::netns::{NETNS_DIRECTORY_DEFAULT, NamespaceNames};
use crate::paths::{Directories, SOCKET_PATH_LENGTH_MAX};
use crate::user_namespaces::UserNamespaces;

/// The cgroup above the pods' when none is set.
pub const CGROUP_PARENT_DEFAULT: &str = "/mainstay";

/// Time to start a shim's process and hear from it, and to make its pod, in milliseconds.
pub const LAUNCH_DEFAULT_MS: u64 = 10_000;
/// Time to connect to a shim's socket, in milliseconds.
pub const CONNECT_DEFAULT_MS: u64 = 2_000;
/// Time to set up a container's PID 1, in milliseconds. The shim gives up after 60 s, takes back what there is, and says
/// where it hung, so this is more.
pub const CREATE_DEFAULT_MS: u64 = 80_000;
/// Time to let PID 1 run, and to start an exec, in milliseconds.
pub const START_DEFAULT_MS: u64 = 15_000;
/// Time to send a signal, in milliseconds.
pub const SIGNAL_DEFAULT_MS: u64 = 5_000;
/// Time that a shim has to kill a container before the supervisor does it itself, in milliseconds.
pub const KILL_BY_SHIM_DEFAULT_MS: u64 = 1_000;
/// Time to remove a task, in milliseconds: output is drained, and the kernel takes mounts apart.
pub const DELETE_DEFAULT_MS: u64 = 15_000;
/// Time for questions and small changes, in milliseconds.
pub const QUERY_DEFAULT_MS: u64 = 5_000;
/// Time to find a shim again, in milliseconds.
pub const ADOPT_DEFAULT_MS: u64 = 5_000;
/// Time that a shim has to end by itself before it is killed, in milliseconds.
pub const STOP_DEFAULT_MS: u64 = 3_000;
/// Time for the sign of life that is asked of a shim whose last call timed out, in milliseconds.
pub const PROBE_DEFAULT_MS: u64 = 1_000;
/// Time for the work on files and cgroups that a request needs, in milliseconds.
pub const FILES_DEFAULT_MS: u64 = 30_000;
/// Time for a network to take a pod, or to let it go, in milliseconds. CNI plugins have deadlines of their own within it.
pub const NETWORK_DEFAULT_MS: u64 = 40_000;
/// Time that the output of an exec waits for its first client, in milliseconds. Until then it stays in its pipe, and holds
/// the process back when that is full; after that it is discarded, and the shim's log says so. At most a day.
pub const EXEC_OUTPUT_HOLD_DEFAULT_MS: u64 = 60_000;

/// What a supervisor works with.
#[derive(Clone, Debug)]
pub struct SupervisorSettings {
    /// Sockets, bundles, exit records: gone after a reboot, as in `/run/mainstay`.
    pub state_dir: PathBuf,
    /// Layers and logs, as in `/var/lib/mainstay`.
    pub root_dir: PathBuf,
    /// The cgroup above those of the pods.
    pub cgroup_parent: String,
    /// The program that shims are executed from.
    pub program: Program,
    /// How long shims live.
    pub lifetime: Lifetime,
    /// A directory, both others in it, that is removed with the last shim when this process was killed. Only with
    /// [`Lifetime::WithRuntime`]. A path that is not UTF-8 stays.
    pub throw_away: Option<PathBuf>,
    /// Where the network namespaces of pods have their names. Made when it is missing.
    pub netns_dir: PathBuf,
    /// What to do about an `oom_score_adj` that this process may not set.
    pub oom_score: OomScorePolicy,
    /// `oom_score_adj` of shims, set if the kernel allows it: one that is killed takes its containers along.
    pub shim_oom_score: i32,
    /// Which ids of the host pods with a user namespace get.
    pub user_namespaces: UserNamespaces,
    /// Where CDI files are, the weakest first.
    pub cdi_dirs: Vec<PathBuf>,
    /// What runs the containers of which pods.
    pub handlers: Handlers,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// The program that shims are executed from. Its `main` begins with `mainstay_shim::run_if_shim()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// This very program.
    SelfExe,
    /// Another one.
    Path(PathBuf),
}

/// How long shims live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until they are stopped: they outlive this process, and are found again.
    Outlive,
    /// As long as this process: when it ends, however it does, they end and everything in them.
    WithRuntime,
}

/// What to do about an `oom_score_adj` that is too low for this process to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomScorePolicy {
    /// Set the lowest that can be set.
    Clamp,
    /// Refuse the container.
    Refuse,
}

/// How long things may take, in milliseconds. See the constant of the same name for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// [`LAUNCH_DEFAULT_MS`]
    pub launch_ms: u64,
    /// [`CONNECT_DEFAULT_MS`]
    pub connect_ms: u64,
    /// [`CREATE_DEFAULT_MS`]
    pub create_ms: u64,
    /// [`START_DEFAULT_MS`]
    pub start_ms: u64,
    /// [`SIGNAL_DEFAULT_MS`]
    pub signal_ms: u64,
    /// [`KILL_BY_SHIM_DEFAULT_MS`]
    pub kill_by_shim_ms: u64,
    /// [`DELETE_DEFAULT_MS`]
    pub delete_ms: u64,
    /// [`QUERY_DEFAULT_MS`]
    pub query_ms: u64,
    /// [`ADOPT_DEFAULT_MS`]
    pub adopt_ms: u64,
    /// [`STOP_DEFAULT_MS`]
    pub stop_ms: u64,
    /// [`PROBE_DEFAULT_MS`]
    pub probe_ms: u64,
    /// [`FILES_DEFAULT_MS`]
    pub files_ms: u64,
    /// [`NETWORK_DEFAULT_MS`]
    pub network_ms: u64,
    /// [`EXEC_OUTPUT_HOLD_DEFAULT_MS`]
    pub exec_output_hold_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            launch_ms: LAUNCH_DEFAULT_MS,
            connect_ms: CONNECT_DEFAULT_MS,
            create_ms: CREATE_DEFAULT_MS,
            start_ms: START_DEFAULT_MS,
            signal_ms: SIGNAL_DEFAULT_MS,
            kill_by_shim_ms: KILL_BY_SHIM_DEFAULT_MS,
            delete_ms: DELETE_DEFAULT_MS,
            query_ms: QUERY_DEFAULT_MS,
            adopt_ms: ADOPT_DEFAULT_MS,
            stop_ms: STOP_DEFAULT_MS,
            probe_ms: PROBE_DEFAULT_MS,
            files_ms: FILES_DEFAULT_MS,
            network_ms: NETWORK_DEFAULT_MS,
            exec_output_hold_ms: EXEC_OUTPUT_HOLD_DEFAULT_MS,
        }
    }
}

impl SupervisorSettings {
    /// The usual settings for two directories.
    pub fn new(state_dir: impl Into<PathBuf>, root_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            root_dir: root_dir.into(),
            cgroup_parent: CGROUP_PARENT_DEFAULT.to_owned(),
            program: Program::SelfExe,
            lifetime: Lifetime::Outlive,
            throw_away: None,
            netns_dir: NETNS_DIRECTORY_DEFAULT.into(),
            oom_score: OomScorePolicy::Clamp,
            shim_oom_score: -999,
            user_namespaces: UserNamespaces::default(),
            cdi_dirs: cdi::DIRECTORIES.map(PathBuf::from).into(),
            handlers: Handlers::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// The directories that follow from the settings.
    pub fn directories(&self) -> Directories {
        Directories::new(&self.state_dir, &self.root_dir)
    }

    /// The names of the network namespaces of pods.
    pub fn namespace_names(&self) -> NamespaceNames {
        NamespaceNames::new(&self.netns_dir, &self.state_dir)
    }

    /// The cgroup above those of the pods.
    pub fn cgroup_parent(&self) -> Result<CgroupPath> {
        CgroupPath::parse(&self.cgroup_parent).map_err(|error| {
            Error::invalid(
                "cgroup_parent",
                format!("{:?}", self.cgroup_parent),
                format!("the path of a cgroup ({error})"),
            )
        })
    }

    /// Checks the settings against this machine and makes the directories. The error is the first thing that is in
    /// the way, in one sentence.
    pub fn check(&self) -> Result<()> {
        for (field, path) in [
            ("state_dir", &self.state_dir),
            ("root_dir", &self.root_dir),
            ("network.netns_dir", &self.netns_dir),
        ] {
            if !path.is_absolute() {
                return Err(Error::invalid(field, format!("{path:?}"), "an absolute path"));
            }
        }
        let hold_ms = self.timeouts.exec_output_hold_ms;
        if hold_ms > EXEC_OUTPUT_HOLD_MAX_MS {
            let expected = format!("at most {EXEC_OUTPUT_HOLD_MAX_MS} milliseconds, which is a day");
            return Err(Error::invalid("timeouts.exec_output_hold_ms", hold_ms.to_string(), expected));
        }
        self.check_socket_length()?;
        self.cgroup_parent()?;
        if let Some((key, value, expected)) = self.user_namespaces.fault() {
            return Err(Error::invalid(format!("user_namespaces.{key}"), value.to_string(), expected));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Error::PermissionDenied {
                what: "starting containers".to_owned(),
                reason: "the runtime has to run as root".to_owned(),
            });
        }
        Layout::detect().map_err(|error| Error::unavailable("cgroups", error))?;
        if let Program::Path(path) = &self.program {
            check_program(path)?;
        }
        self.directories().prepare().map_err(|(path, error)| {
            Error::unavailable(format!("the directory {}", path.display()), explained(&error))
        })
    }

    /// A socket's path must fit `sun_path`, for a pod id of the usual length.
    fn check_socket_length(&self) -> Result<()> {
        let usual = mainstay_messages::SandboxId::from_random([0; ID_BYTES]);
        let longest = self.directories().streams_socket(&usual);
        let length = longest.as_os_str().len();
        if length <= SOCKET_PATH_LENGTH_MAX {
            return Ok(());
        }
        let excess = length - SOCKET_PATH_LENGTH_MAX;
        Err(Error::invalid(
            "state_dir",
            format!("{:?}", self.state_dir),
            format!(
                "a path that is at least {excess} bytes shorter, so that the sockets of pods fit into {SOCKET_PATH_LENGTH_MAX} bytes"
            ),
        ))
    }
}

fn check_program(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path).map_err(|error| {
        Error::invalid("program", format!("{path:?}"), format!("the shim's program ({error})"))
    })?;
    if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
        return Ok(());
    }
    Err(Error::invalid("program", format!("{path:?}"), "an executable file"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("run", "/cgroup", "state_dir")]
    #[case(
        "/run/with/a/name/that/is/so/very/long/that/no/socket/could/ever/be/bound",
        "/cgroup",
        "state_dir"
    )]
    #[case("/run/mainstay", "cgroup", "cgroup_parent")]
    #[case("/run/mainstay", "/", "cgroup_parent")]
    fn refuses(#[case] state: &str, #[case] cgroup: &str, #[case] field: &str) {
        let mut settings = SupervisorSettings::new(state, "/var/lib/mainstay");
        settings.cgroup_parent = cgroup.to_owned();
        let error = settings.check().expect_err("a bad setting").to_string();
        assert!(error.starts_with(field), "{error}");
    }

    #[test]
    fn refuses_a_program_that_is_none() {
        assert!(check_program(Path::new("/nonexistent")).is_err());
        let data = tempfile::NamedTempFile::new().expect("a file, not executable");
        assert!(check_program(data.path()).is_err());
        assert!(check_program(Path::new("/bin/sh")).is_ok());
    }
}
