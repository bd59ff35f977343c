//! Starting the process of a shim: forked from the zygote, or executed where there is none.
//!
//! Owns: its sockets, descriptors, environment, session. What one that is executed is given:
//!
//! | descriptor | |
//! |---|---|
//! | 0 | `/dev/null` |
//! | 1, 2 | `shim.log` of the pod |
//! | 3 | the listening ttrpc socket |
//! | 4 | the listening stream socket |
//! | 5 | with [`Lifetime::WithRuntime`](crate::settings::Lifetime) the lifeline |
//!
//! and nothing else. One that is forked has the same at numbers of its own. Never: talks to it, or waits for it. All of it
//! blocks.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay_messages::record::ShimRecord;
use mainstay_messages::shortage::explained;
use mainstay_messages::{Error, ProcessIdentity, Result, SandboxId};
use mainstay_shim::leftovers::{CGROUP_OPTION, STATE_OPTION, THROW_AWAY_OPTION};
use mainstay_shim::zygote::{ForkError, Forked, ShimFiles, ZYGOTE_OPTION, padding};
use mainstay_task_api::EXTENSION_PROTOCOL;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    setrlimit, waitid,
};

use crate::files::{PRIVATE_FILE_MODE, append_private, at, write_identity};
use crate::identity::identity_of;
use crate::machine::Machine;
use crate::paths::SOCKET_PATH_LENGTH_MAX;
use crate::sealed::SHIM_NAME;
use crate::settings::Lifetime;
use crate::{open_files, user_namespaces, zygote};

/// The descriptors that a shim is given, in this order from the first on.
const FIRST_PASSED: RawFd = 3;
/// The most of them.
const PASSED_MAX: usize = PASSED.len();
/// The options that tell a shim which is which.
const PASSED: [&str; 3] = ["--listen-fd", "--streams-fd", "--lifeline-fd"];
/// Where their originals are moved, so that none is in the way of another's final place.
const ORIGINALS_FROM: RawFd = 10;

/// A process that was just started.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub record: ShimRecord,
    pub pidfd: OwnedFd,
}

/// Makes the sockets of a pod, and starts its shim.
pub(crate) fn spawn(machine: &Machine, sandbox: &SandboxId) -> Result<Spawned> {
    let directories = &machine.directories;
    let (socket, streams) = (directories.shim_socket(sandbox), directories.streams_socket(sandbox));
    let listener = listen(&socket).map_err(at(&socket))?;
    let stream_listener = listen(&streams).map_err(at(&streams))?;
    let log_path = directories.shim_log(sandbox);
    let log = append_private(&log_path).map_err(at(&log_path))?;

    let mut passed: Vec<OwnedFd> = vec![listener.into(), stream_listener.into()];
    if let Some(lifeline) = &machine.lifeline {
        passed.push(lifeline.read.try_clone().map_err(|error| Error::unavailable("the lifeline", error))?);
    }
    let arguments = arguments(machine, sandbox)?;
    let ids_path = directories.pod_ids(sandbox);
    let ids = user_namespaces::of_pod(directories, sandbox).map_err(at(&ids_path))?;
    let cannot =
        |error: io::Error| Error::unavailable(format!("the shim of pod {sandbox}"), explained(&error));
    let (process, pidfd) = start(machine, arguments, &log, &passed).map_err(cannot)?;
    spare(&process, machine.settings.shim_oom_score);
    let record = ShimRecord { process, socket, protocol: EXTENSION_PROTOCOL, ids };
    // From here on it is found again even if this process ends before its record is in the store.
    if let Err(error) = write_identity(directories, sandbox, &record) {
        undo(&pidfd);
        return Err(at(&directories.shim_identity(sandbox))(error));
    }
    Ok(Spawned { record, pidfd })
}

/// Starts the zygote, so that the first shim does not wait for it.
pub(crate) fn warm(machine: &Machine) {
    machine.zygote.warm(|| start_zygote(machine));
}

/// The command line without descriptors; the shim is recognised by it when all records are lost.
fn arguments(machine: &Machine, sandbox: &SandboxId) -> Result<Vec<String>> {
    let directory = machine.directories.pod(sandbox);
    let Some(directory) = directory.to_str() else {
        return Err(Error::invalid("state_dir", format!("{directory:?}"), "a path in UTF-8"));
    };
    let cgroup = machine.pod_cgroup(sandbox)?.to_string();
    let arguments = ["--sandbox", sandbox.as_str(), "--dir", directory, "--cgroup", &cgroup];
    let throw_away = throw_away(machine).into_iter().flatten();
    Ok(arguments.map(str::to_owned).into_iter().chain(throw_away).collect())
}

/// The option with the directory that goes with everything else, where there is one.
fn throw_away(machine: &Machine) -> Option<[String; 2]> {
    let directory = machine.settings.throw_away.as_ref()?.to_str()?.to_owned();
    Some([THROW_AWAY_OPTION.to_owned(), directory])
}

/// A listening socket that only root can connect to.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.as_os_str().len() > SOCKET_PATH_LENGTH_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a socket's path has at most {SOCKET_PATH_LENGTH_MAX} bytes"),
        ));
    }
    // One that an earlier attempt left behind.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_FILE_MODE))?;
    Ok(listener)
}

/// `passed`: the two sockets, and the lifeline if there is one.
fn start(
    machine: &Machine,
    mut arguments: Vec<String>,
    log: &File,
    passed: &[OwnedFd],
) -> io::Result<(ProcessIdentity, OwnedFd)> {
    match fork(machine, &arguments, log, passed) {
        Ok(Forked { pid, pidfd }) => {
            let identity = identity_of(pid.as_raw_pid().unsigned_abs());
            return Ok((identity.inspect_err(|_| undo(&pidfd))?, pidfd));
        }
        // There may be a shim on these sockets. Another one beside it would be worse than none.
        Err(ForkError::Silent(error)) => return Err(error),
        Err(error) => tracing::debug!(%error, "the shim is executed"),
    }
    for ((option, _), place) in PASSED.into_iter().zip(passed).zip(FIRST_PASSED..) {
        arguments.extend([option.to_owned(), place.to_string()]);
    }
    execute(machine, &arguments, log, passed)
}

fn fork(
    machine: &Machine,
    arguments: &[String],
    log: &File,
    passed: &[OwnedFd],
) -> Result<Forked, ForkError> {
    let words: Vec<String> = [SHIM_NAME.to_owned()].into_iter().chain(arguments.iter().cloned()).collect();
    let [requests, streams, lifeline @ ..] = passed else { unreachable!("two sockets are always passed") };
    let files = ShimFiles {
        log: log.as_fd(),
        requests: requests.as_fd(),
        streams: streams.as_fd(),
        lifeline: lifeline.first().map(AsFd::as_fd),
    };
    machine.zygote.fork(|| start_zygote(machine), &words, &files)
}

fn start_zygote(machine: &Machine) -> io::Result<zygote::Process> {
    let (socket, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let state = machine.settings.state_dir.to_string_lossy().into_owned();
    let mut arguments =
        vec![ZYGOTE_OPTION.to_owned(), FIRST_PASSED.to_string(), STATE_OPTION.to_owned(), state];
    if machine.settings.lifetime == Lifetime::WithRuntime {
        arguments.extend([CGROUP_OPTION.to_owned(), machine.cgroup_parent().to_string()]);
        arguments.extend(throw_away(machine).into_iter().flatten());
    }
    arguments.push(padding());
    // What it has to say it says over the socket. An open standard error of ours would keep whoever reads that waiting.
    let nothing = File::options().write(true).open("/dev/null")?;
    let (_, pidfd) = execute(machine, &arguments, &nothing, &[theirs])?;
    Ok(zygote::Process { socket, pidfd })
}

fn execute(
    machine: &Machine,
    arguments: &[String],
    log: &File,
    passed: &[OwnedFd],
) -> io::Result<(ProcessIdentity, OwnedFd)> {
    let sealed = match machine.program() {
        Ok(program) => program.path().to_owned(),
        Err(error) => {
            tracing::warn!(%error, "the shim's program cannot be sealed in memory: its file is used");
            machine.program_file().to_owned()
        }
    };
    match start_program(sealed.clone(), arguments, log, passed) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && sealed != machine.program_file() => {
            tracing::warn!(%error, "this machine does not execute memory: the program's file is used");
            start_program(machine.program_file().to_owned(), arguments, log, passed)
        }
        result => result,
    }
}

fn start_program(
    program: PathBuf,
    arguments: &[String],
    log: &File,
    passed: &[OwnedFd],
) -> io::Result<(ProcessIdentity, OwnedFd)> {
    debug_assert!(passed.len() <= PASSED_MAX);
    let _occupied = occupy_places()?;
    let originals: Vec<OwnedFd> =
        passed.iter().map(|fd| Ok(fcntl_dupfd_cloexec(fd, ORIGINALS_FROM)?)).collect::<io::Result<_>>()?;
    let moves: Vec<(RawFd, RawFd)> = originals.iter().map(AsRawFd::as_raw_fd).zip(FIRST_PASSED..).collect();
    let mut command = Command::new(program);
    command
        .arg0(SHIM_NAME)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    #[cfg(feature = "faults")]
    command.envs(crate::faults::directory().map(|directory| (crate::faults::FAULTS_DIRECTORY, directory)));
    let open_files = open_files::for_children();
    // SAFETY: the closure only makes system calls on descriptors that it owns copies of; it allocates nothing and takes
    // no lock, as is needed between fork and exec of a program with threads.
    unsafe {
        command.pre_exec(move || settle_child(&moves, open_files));
    }
    let mut child = command.spawn()?;
    hold(child.id()).inspect_err(|_| {
        // It is our child and not reaped, so that its number is its own.
        let _ = child.kill().and_then(|()| child.wait());
    })
}

fn hold(child: u32) -> io::Result<(ProcessIdentity, OwnedFd)> {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a child without a process id"))?;
    Ok((identity_of(child)?, pidfd_open(pid, PidfdFlags::empty())?))
}

/// Runs in the child: a session of its own, the descriptors at their places, and none beside them; of open files as many as this
/// program was started with.
fn settle_child(moves: &[(RawFd, RawFd)], open_files: Option<Rlimit>) -> io::Result<()> {
    rustix::process::setsid()?;
    if let Some(limit) = open_files {
        setrlimit(Resource::Nofile, limit)?;
    }
    for (original, place) in moves {
        // SAFETY: plain system call; what was open at `place` in this child is a placeholder of `occupy_places`.
        if unsafe { libc::dup2(*original, *place) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let first_other = FIRST_PASSED as libc::c_uint + moves.len() as libc::c_uint;
    // Only marked: the standard library reports a failed exec over one of them.
    // SAFETY: plain system call without pointers.
    let marked = unsafe {
        libc::syscall(libc::SYS_close_range, first_other, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes sure that the places of passed descriptors are in use, so that none of those that the standard library opens
/// for starting a process lies there and is overwritten in the child.
fn occupy_places() -> io::Result<Vec<OwnedFd>> {
    let mut held = Vec::new();
    loop {
        let fd: OwnedFd = File::open("/dev/null")?.into();
        if fd.as_raw_fd() >= FIRST_PASSED + PASSED_MAX as RawFd {
            return Ok(held);
        }
        held.push(fd);
    }
}

/// Tells the out-of-memory killer to look elsewhere first, where this process may.
fn spare(process: &ProcessIdentity, score: i32) {
    let file = format!("/proc/{}/oom_score_adj", process.pid);
    if let Err(error) = fs::write(&file, score.to_string()) {
        tracing::debug!(pid = process.pid, score, %error, "oom_score_adj of the shim is left as it is");
    }
}

/// Ends a process that was just started.
fn undo(pidfd: &OwnedFd) {
    // Both fail only when it has ended by itself and was reaped by someone who waits for any child.
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
}
