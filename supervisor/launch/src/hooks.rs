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

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use oci_spec::runtime::{ContainerState, Hook, Hooks, Spec, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, SeekFrom, memfd_create, seek};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, pidfd_send_signal,
    set_parent_process_death_signal, setsid, umask, waitid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

use crate::clone::{self, CgroupEntry};
use crate::control::Launching;
use crate::error::{Context, LaunchError, Result, Step, invalid};
use crate::syscall::{Cloned, clone_process, close_on_exec_from, execve, exit_now};

/// How long a hook may take that names no limit, in milliseconds. A creation, or a start, has a limit of its own beside it.
pub const HOOK_TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// The longest limit that a hook may name, in seconds; a longer one is cut to it.
pub const HOOK_TIMEOUT_MAX_S: u64 = 3_600;
/// The most hooks of one point.
pub const HOOKS_MAX: usize = 256;
/// So much of what a hook said last is in the sentence about its failure, in bytes.
const HOOK_WORDS_MAX_BYTES: usize = 1_024;
/// The exit status of a hook that could not be executed.
const NOT_EXECUTED_STATUS: i32 = 127;

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

    fn name(self) -> &'static str {
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
    let devices = spec.linux().as_ref().and_then(|linux| linux.net_devices().as_ref());
    !HookPoint::Prestart.of(spec).is_empty()
        || !HookPoint::CreateRuntime.of(spec).is_empty()
        || devices.is_some_and(|devices| !devices.is_empty())
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

/// Runs one hook; the error is the end of a sentence about it.
fn run_hook(hook: &Hook, state: &[u8]) -> std::result::Result<(), String> {
    let failed = |doing: &'static str| move |error: io::Error| format!("cannot be run: {doing}: {error}");
    let program = Program::of(hook)?;
    let input = input(state).map_err(failed("its standard input"))?;
    let (words, said) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| failed("a pipe")(error.into()))?;
    let own = getpid();
    // SAFETY: this process is a fork with one thread, and the child ends by exec or `exit_now`.
    let (pid, pidfd) = match unsafe { clone_process(0, None) }.map_err(failed("a process"))? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => program.become_it(own, &input, &said),
    };
    drop((input, said));
    let limit_ms = hook
        .timeout()
        .map_or(HOOK_TIMEOUT_DEFAULT_MS, |seconds| seconds.unsigned_abs().min(HOOK_TIMEOUT_MAX_S) * 1_000);
    let mut heard = Vec::new();
    let in_time = wait(&pidfd, &words, limit_ms, &mut heard).map_err(failed("waiting for it"))?;
    if !in_time {
        // It leads a session of its own, so that what it has started goes with it.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    let status = reap(&pidfd).map_err(failed("waiting for its end"))?;
    hear(&words, &mut heard);
    let said = String::from_utf8_lossy(&heard);
    let said = match said.trim() {
        "" => String::new(),
        words => format!("; it said: {words:?}"),
    };
    if !in_time {
        return Err(format!("did not end within {limit_ms} ms and was killed{said}"));
    }
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("ended with status {code}{said}")),
        (None, signal) => Err(format!("was ended by signal {}{said}", signal.unwrap_or_default())),
    }
}

fn reap(pidfd: &OwnedFd) -> io::Result<rustix::process::WaitIdStatus> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) | Ok(None) => {}
            Ok(Some(status)) => return Ok(status),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A file with the state: a hook that does not read it holds nobody up.
fn input(state: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(c"state", MemfdFlags::CLOEXEC)?;
    let mut rest = state;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

/// Waits until the process has ended, or the time is over.
fn wait(pidfd: &OwnedFd, words: &OwnedFd, limit_ms: u64, heard: &mut Vec<u8>) -> io::Result<bool> {
    let end_ms = now_ms().saturating_add(limit_ms);
    let mut listens = true;
    loop {
        let left_ms = end_ms.saturating_sub(now_ms());
        let left =
            Timespec { tv_sec: (left_ms / 1_000) as i64, tv_nsec: (left_ms % 1_000 * 1_000_000) as i64 };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN), PollFd::new(words, PollFlags::IN)];
        let count = if listens { 2 } else { 1 };
        match poll(&mut fds[..count], Some(&left)) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        if !fds[0].revents().is_empty() {
            return Ok(true);
        }
        if listens && !fds[1].revents().is_empty() {
            listens = hear(words, heard);
        }
        if left_ms == 0 {
            return Ok(false);
        }
    }
}

/// Reads what there is, and keeps the last of it. False when nobody can say more.
fn hear(words: &OwnedFd, heard: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4_096];
    loop {
        match rustix::io::read(words, &mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                heard.extend_from_slice(&buffer[..length]);
                let surplus = heard.len().saturating_sub(HOOK_WORDS_MAX_BYTES);
                heard.drain(..surplus);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// A hook, ready to be executed.
struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    fn of(hook: &Hook) -> std::result::Result<Program, String> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| "cannot be run: a text of it has a NUL byte".to_owned())
        };
        let list = |texts: &[String]| {
            texts.iter().map(|entry| text(entry.as_bytes())).collect::<std::result::Result<Vec<_>, _>>()
        };
        let path = text(hook.path().as_os_str().as_bytes())?;
        let arguments = match hook.args().as_deref() {
            None | Some([]) => vec![path.clone()],
            Some(arguments) => list(arguments)?,
        };
        Ok(Program { arguments, environment: list(hook.env().as_deref().unwrap_or_default())?, path })
    }

    /// The child: becomes the hook.
    fn become_it(&self, parent: Pid, input: &OwnedFd, said: &OwnedFd) -> ! {
        let prepare = || -> io::Result<()> {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                exit_now(NOT_EXECUTED_STATUS);
            }
            setsid()?;
            umask(Mode::from_raw_mode(0o022));
            dup2_stdin(input)?;
            dup2_stdout(said)?;
            dup2_stderr(said)?;
            rustix::fs::fcntl_setfl(said, rustix::fs::OFlags::empty())?;
            close_on_exec_from(3)
        };
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let error = match prepare() {
            Ok(()) => execve(&self.path, &pointers(&self.arguments), &pointers(&self.environment)),
            Err(error) => error,
        };
        // The parent hears it as the hook's own last words.
        let _ = rustix::io::write(said, format!("it cannot be executed: {error}").as_bytes());
        exit_now(NOT_EXECUTED_STATUS)
    }
}
