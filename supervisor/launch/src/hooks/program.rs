//! One hook as a process: made, given the state, waited for, and killed when its time is over.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use oci_spec::runtime::Hook;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, SeekFrom, memfd_create, seek};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, pidfd_send_signal,
    set_parent_process_death_signal, setsid, umask, waitid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::time::{ClockId, clock_gettime};

use super::{HOOK_TIMEOUT_DEFAULT_MS, HOOK_TIMEOUT_MAX_S};
use crate::syscall::{Cloned, clone_process, close_on_exec_from, execve, exit_now};

/// So much of what a hook said last is in the sentence about its failure, in bytes.
const HOOK_WORDS_MAX_BYTES: usize = 1_024;
/// The exit status of a hook that could not be executed.
const NOT_EXECUTED_STATUS: i32 = 127;

/// Runs one hook; the error is the end of a sentence about it.
pub(super) fn run_hook(hook: &Hook, state: &[u8]) -> std::result::Result<(), String> {
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
