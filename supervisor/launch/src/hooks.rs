//! Hooks of the OCI runtime specification: programs that are run at certain points of a container's life.
//!
//! | hook | runs | when it fails |
//! |---|---|---|
//! | prestart, createRuntime | on the host, when all is mounted and the root is not entered yet | the creation fails |
//! | createContainer | in the container's name spaces, found on the host; right after those | the creation fails |
//! | startContainer | in the container as its user, before its filter is loaded and its program runs | the start fails |
//! | poststart | on the host, when the program runs | a warning |
//! | poststop | on the host, when the container is deleted | a warning, and the others run |
//!
//! Owns: running them one after the other, each with the container's state as JSON on its standard input and with a limit of
//! time. Never: decides when a point is reached on the host; that is the caller's ([`run_hooks`]). A hook's standard output and
//! error are kept for the sentence about its failure, and go nowhere else.

mod program;

use std::os::fd::BorrowedFd;
use std::path::Path;

use oci_spec::runtime::{ContainerState, Hook, Hooks, Spec, State};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::clone::{self, CgroupEntry};
use crate::control::Launching;
use crate::error::{Context, LaunchError, Result, Step, invalid};
use crate::net_devices::has_net_devices;
use crate::syscall::exit_now;
use program::run_hook;

/// How long a hook may take that names no limit, in milliseconds. A creation, or a start, has a limit of its own beside it.
pub const HOOK_TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// The longest limit that a hook may name, in seconds; a longer one is cut to it.
pub const HOOK_TIMEOUT_MAX_S: u64 = 3_600;
/// The most hooks of one point.
pub const HOOKS_MAX: usize = 256;

/// A point in a container's life at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// See the module.
    Prestart,
    /// See the module.
    CreateRuntime,
    /// See the module.
    CreateContainer,
    /// See the module.
    StartContainer,
    /// See the module.
    Poststart,
    /// See the module.
    Poststop,
}

impl HookPoint {
    const ALL: [HookPoint; 6] = [
        HookPoint::Prestart,
        HookPoint::CreateRuntime,
        HookPoint::CreateContainer,
        HookPoint::StartContainer,
        HookPoint::Poststart,
        HookPoint::Poststop,
    ];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            HookPoint::Prestart => "prestart",
            HookPoint::CreateRuntime => "createRuntime",
            HookPoint::CreateContainer => "createContainer",
            HookPoint::StartContainer => "startContainer",
            HookPoint::Poststart => "poststart",
            HookPoint::Poststop => "poststop",
        }
    }

    /// The state of the container that its hooks are told.
    fn status(self) -> ContainerState {
        match self {
            HookPoint::Prestart | HookPoint::CreateRuntime | HookPoint::CreateContainer => {
                ContainerState::Creating
            }
            HookPoint::StartContainer => ContainerState::Created,
            HookPoint::Poststart => ContainerState::Running,
            HookPoint::Poststop => ContainerState::Stopped,
        }
    }

    fn is_needed(self) -> bool {
        !matches!(self, HookPoint::Poststart | HookPoint::Poststop)
    }

    /// The hooks of this point.
    pub fn of(self, spec: &Spec) -> &[Hook] {
        spec.hooks().as_ref().and_then(|hooks| self.list(hooks)).unwrap_or_default()
    }

    fn list(self, hooks: &Hooks) -> Option<&[Hook]> {
        #[allow(deprecated, reason = "hooks of the old kind are still in use")]
        let list = match self {
            HookPoint::Prestart => hooks.prestart(),
            HookPoint::CreateRuntime => hooks.create_runtime(),
            HookPoint::CreateContainer => hooks.create_container(),
            HookPoint::StartContainer => hooks.start_container(),
            HookPoint::Poststart => hooks.poststart(),
            HookPoint::Poststop => hooks.poststop(),
        };
        list.as_deref()
    }
}

/// Whether something is to be done on the host before the root is entered ([`crate::Reply::Environment`]).
pub fn needs_environment(spec: &Spec) -> bool {
    !HookPoint::Prestart.of(spec).is_empty()
        || !HookPoint::CreateRuntime.of(spec).is_empty()
        || has_net_devices(spec)
}

/// Hooks to be run on the host.
#[derive(Debug)]
pub struct HooksRequest<'a> {
    /// Which ones.
    pub points: &'a [HookPoint],
    /// The container's spec.
    pub spec: &'a Spec,
    /// The container's id.
    pub id: &'a str,
    /// Its bundle.
    pub bundle: &'a Path,
    /// Its first process, as the caller sees it; none when that has ended.
    pub pid: Option<Pid>,
    /// The mount name space of the host, where the programs are found.
    pub host_mounts: Option<BorrowedFd<'a>>,
}

/// Runs hooks in a process of their own, one after the other. It reports `Ready`, with the failures that count as warnings, or
/// `Failed`, and has ended then; it is the caller's to reap. Killing it kills the hook that runs.
///
/// # Errors
/// When that process cannot be made.
pub fn run_hooks(request: HooksRequest<'_>) -> Result<Launching> {
    let keep: Vec<BorrowedFd<'_>> = request.host_mounts.into_iter().collect();
    clone::start(0, None, CgroupEntry::default(), &keep, |control| {
        if let Some(host) = request.host_mounts {
            move_into_link_name_space(host, Some(LinkNameSpaceType::Mount))
                .context(Step::Hooks, || "going to the host's mounts".to_owned())?;
        }
        let mut warnings = Vec::new();
        for point in request.points {
            let state = state(*point, request.spec, request.id, request.pid, request.bundle);
            run_point(*point, request.spec, &state, &mut warnings)?;
        }
        control.ready(None, &warnings);
        exit_now(0)
    })
}

/// Refuses hooks that cannot be run as they are.
pub(crate) fn check_hooks(spec: &Spec) -> Result<()> {
    for point in HookPoint::ALL {
        let list = point.of(spec);
        if list.len() > HOOKS_MAX {
            let field = format!("hooks.{}", point.name());
            return Err(invalid(field, format!("{} hooks are more than {HOOKS_MAX}", list.len())));
        }
        for (index, hook) in list.iter().enumerate() {
            let field = |name: &str| format!("hooks.{}[{index}].{name}", point.name());
            if !hook.path().is_absolute() {
                return Err(invalid(field("path"), format!("{:?} must be an absolute path", hook.path())));
            }
            if let Some(seconds) = hook.timeout().filter(|seconds| *seconds <= 0) {
                return Err(invalid(field("timeout"), format!("{seconds} must be above 0 seconds")));
            }
        }
    }
    Ok(())
}

/// What the hooks of a point are told of the container.
pub(crate) fn state(point: HookPoint, spec: &Spec, id: &str, pid: Option<Pid>, bundle: &Path) -> State {
    let mut state = State::default();
    state
        .set_version(spec.version().clone())
        .set_id(id.to_owned())
        .set_status(point.status())
        .set_pid(pid.map(Pid::as_raw_pid))
        .set_bundle(bundle.to_owned())
        .set_annotations(spec.annotations().clone());
    state
}

/// Runs the hooks of a point as this process, which waits for each.
pub(crate) fn run_point(
    point: HookPoint,
    spec: &Spec,
    state: &State,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let hooks = point.of(spec);
    if hooks.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_vec(state)
        .map_err(|error| LaunchError::Internal { detail: format!("the state for a hook: {error}") })?;
    for (index, hook) in hooks.iter().enumerate() {
        let name = format!("hooks.{}[{index}] ({:?})", point.name(), hook.path());
        match run_hook(hook, &text) {
            Ok(()) => {}
            Err(problem) if point.is_needed() => return Err(LaunchError::Hook { hook: name, problem }),
            Err(problem) => warnings.push(format!("{name} {problem}")),
        }
    }
    Ok(())
}
