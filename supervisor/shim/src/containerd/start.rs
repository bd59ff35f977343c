//! `start`: sees to it that there is a shim for a container's group, and says where it listens.
//!
//! ```text
//!  containerd ──start──▶ this process ── somebody listens already ──▶ answers
//!                             │
//!                             └── fork ──▶ the shim ── ready, or a sentence ──▶ this process answers, or fails
//! ```
//!
//! Owns: the fork, and what the shim is born with. Never: leaves a shim behind that was not announced; holds what containerd
//! waits for the end of (its pipes) in the shim.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use super::command::CommandLine;
use super::serve::{Birth, serve};
use super::socket::{self, Place};
use super::{Sentence, bootstrap, bundle, failed, program};

/// The most that is read of what containerd writes to standard input, in bytes.
const INPUT_MAX_BYTES: u64 = 1024 * 1024;
/// How long a shim may take until it serves, in milliseconds. It takes a few.
const START_MS: i64 = 10_000;
/// What a shim says when it serves.
const READY: &[u8] = b"ready";
/// The variable with the newest version of the Task API that containerd speaks.
const MAX_VERSION_VARIABLE: &str = "MAX_SHIM_VERSION";
/// The variable with the socket on which containerd takes events.
const EVENTS_VARIABLE: &str = "TTRPC_ADDRESS";

/// Which of the two processes goes on.
pub(super) enum Side {
    /// The one that containerd started.
    Caller {
        /// What it is to be told.
        answer: Vec<u8>,
    },
    /// The shim, at its end.
    Shim,
}

/// Starts a shim, or finds it.
pub(super) fn start(line: &CommandLine) -> Result<Side, Sentence> {
    // First of all: what is opened from here on, by the shim too, has other numbers.
    program::reserve_numbers().map_err(failed("reserving the numbers of a program's descriptors"))?;
    let bundle =
        std::env::current_dir().map_err(failed("finding the bundle, which is the working directory"))?;
    let input = read_input().map_err(failed("reading standard input"))?;
    let max_version = std::env::var(MAX_VERSION_VARIABLE).ok();
    let form = bootstrap::form(&input, &line.id, &line.namespace, max_version.as_deref());
    let group =
        bundle::group(&bundle, &line.id).map_err(failed(format!("reading config.json in {bundle:?}")))?;
    let path = socket::path(&line.address, &line.namespace, &group);
    let address = socket::address(&path);
    // Before there is a shim, so that it is found whatever becomes of us.
    bundle::write(&bundle, bundle::ADDRESS, &address)
        .map_err(failed(format!("writing the address to {bundle:?}")))?;
    if let Place::Free(listener) = socket::take(&path)? {
        let birth = Birth {
            namespace: line.namespace.clone(),
            group,
            bundle: bundle.clone(),
            socket: path.clone(),
            events: std::env::var(EVENTS_VARIABLE).ok().filter(|address| !address.is_empty()),
        };
        match fork(birth, listener) {
            Ok(Parting::Shim) => return Ok(Side::Shim),
            Ok(Parting::Caller) => {}
            Err(sentence) => {
                // By now it may be that of another, who found it dead. One that is killed this moment may still be taken for
                // one that lives: whoever asks next finds it dead.
                let _ = socket::remove_dead(&path);
                return Err(sentence);
            }
        }
    }
    bootstrap::answer(form, &address).map(|answer| Side::Caller { answer })
}

/// What containerd has written, which is nothing where it is a terminal or the null device.
fn read_input() -> io::Result<Vec<u8>> {
    let mut input = Vec::new();
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        stdin.lock().take(INPUT_MAX_BYTES).read_to_end(&mut input)?;
    }
    Ok(input)
}

enum Parting {
    Caller,
    Shim,
}

fn fork(birth: Birth, listener: UnixListener) -> Result<Parting, Sentence> {
    let (news, teller) = pipe_with(PipeFlags::CLOEXEC).map_err(failed("making a pipe"))?;
    // SAFETY: this process has one thread, and the child goes on with ordinary Rust as the parent would.
    match unsafe { libc::fork() } {
        -1 => Err(failed("forking the shim")(io::Error::last_os_error())),
        0 => {
            drop(news);
            be_shim(birth, listener, teller);
            Ok(Parting::Shim)
        }
        pid => {
            drop((teller, listener));
            hear(news).inspect_err(|_| {
                if let Some(pid) = Pid::from_raw(pid) {
                    // Our own child, which nobody has reaped: it is the one.
                    let _ = kill_process(pid, Signal::KILL);
                }
            })?;
            Ok(Parting::Caller)
        }
    }
}

/// Waits until the shim serves, or says why it does not.
fn hear(news: OwnedFd) -> Result<(), Sentence> {
    let limit = Timespec { tv_sec: START_MS / 1_000, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN)];
    let ready = retry_on_intr(|| poll(&mut fds, Some(&limit))).map_err(failed("waiting for the shim"))?;
    if ready == 0 {
        return Err(Sentence(format!("the shim does not serve within {START_MS} ms")));
    }
    let mut said = Vec::new();
    std::fs::File::from(news).read_to_end(&mut said).map_err(failed("hearing the shim"))?;
    match said.as_slice() {
        READY => Ok(()),
        b"" => Err(Sentence("the shim ended before it served".to_owned())),
        sentence => Err(Sentence(String::from_utf8_lossy(sentence).into_owned())),
    }
}

/// The shim's end of the pipe on which the caller waits; closed when something was said.
struct Teller(Option<std::fs::File>);

impl Teller {
    fn tell(&mut self, text: &[u8]) {
        if let Some(mut pipe) = self.0.take() {
            // Who does not hear it has given up waiting, and kills this process.
            let _ = pipe.write_all(text);
        }
    }
}

/// The shim's life. What containerd reads the end of is let go first.
fn be_shim(birth: Birth, listener: UnixListener, teller: OwnedFd) {
    let mut teller = Teller(Some(teller.into()));
    let outcome = redirect(&birth.bundle).and_then(|()| serve(birth, listener, || teller.tell(READY)));
    if let Err(sentence) = outcome {
        crate::logger::error!("{sentence}");
        teller.tell(sentence.to_string().as_bytes());
    }
}

fn redirect(bundle: &Path) -> Result<(), Sentence> {
    let redirect = || -> io::Result<()> {
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        match bundle::log(bundle) {
            Ok(log) => rustix::stdio::dup2_stderr(&log)?,
            // Nobody reads it, or nobody made one.
            Err(_) => rustix::stdio::dup2_stderr(&null)?,
        }
        Ok(())
    };
    redirect().map_err(failed("redirecting the shim's standard streams"))
}
