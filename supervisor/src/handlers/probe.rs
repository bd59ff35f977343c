//! What runtimes are there, asked of themselves.
//!
//! A program is asked once, and again when its file has changed: an upgrade needs no restart, and one that was broken is found
//! when it has been mended.
//!
//! Owns: running `--version` and `features` with a limit, remembering the answers, and the warning about each program. Blocks.
//! Never: lets a program that hangs or fails harm another handler, or the daemon.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mainstay_cgroups::{Layout, Mode};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::Spec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::fit::{Abilities, Features, Lack};
use super::holes;
use super::version::Release;
use super::{OciProgram, Vulnerable, find};

/// How long a program may take for each of the two answers, in milliseconds.
pub const PROBE_MS: u64 = 5_000;
/// How long both may take.
pub(crate) const PROBES_MS: u64 = 2 * PROBE_MS + 1_000;
/// How long a program that failed is not asked again while its file is the same, in milliseconds.
const FAILED_AGAIN_MS: u64 = 10_000;
/// The longest answer that is read, in bytes.
const ANSWER_MAX_BYTES: u64 = 256 * 1024;
/// How much is shown of what a program has said when it failed, in bytes.
const WORDS_MAX_BYTES: usize = 256;

/// The runtimes that were asked, by the paths of their programs.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    programs: Mutex<BTreeMap<PathBuf, Arc<Place>>>,
    /// The versions of shims, by their programs.
    shims: Mutex<BTreeMap<PathBuf, (FileState, String)>>,
}

/// A program; locked while it is asked, so that it is asked once.
type Place = Mutex<Option<Arc<Known>>>;

/// What is known of a program.
#[derive(Debug)]
struct Known {
    file: FileState,
    at: Instant,
    abilities: std::result::Result<Abilities, String>,
}

/// A file as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl FileState {
    fn of(path: &Path) -> io::Result<Self> {
        let file = path.metadata()?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

impl Runtimes {
    /// Says whether pods of a handler may be made with this program; its version.
    ///
    /// # Errors
    /// The sentence that says why not.
    pub(crate) fn admit(&self, handler: &str, program: &OciProgram, layout: &Layout) -> Result<String> {
        let known = self.of(handler, &program.program, layout)?;
        let abilities = match &known.abilities {
            Ok(abilities) => abilities,
            Err(reason) => return Err(Error::unavailable(format!("handler {handler}"), reason)),
        };
        match (program.vulnerable, holes::sentence(&abilities.release)) {
            (Vulnerable::Refuse, Some(sentence)) => Err(Error::Unsupported {
                setting: format!("handler {handler} with refuse_vulnerable"),
                reason: sentence,
            }),
            _ => Ok(abilities.release.text.clone()),
        }
    }

    /// Refuses a spec with something in it that the program of a handler does not do.
    ///
    /// # Errors
    /// With the name of the field.
    pub(crate) fn check(
        &self,
        handler: &str,
        program: &OciProgram,
        layout: &Layout,
        spec: &Spec,
    ) -> Result<()> {
        let known = self.of(handler, &program.program, layout)?;
        match &known.abilities {
            Ok(abilities) => match abilities.lack(spec) {
                None => Ok(()),
                Some(Lack { field, reason }) => Err(Error::Unsupported { setting: field, reason }),
            },
            Err(reason) => Err(Error::unavailable(format!("handler {handler}"), reason)),
        }
    }

    /// Asks a program, and says in the log what is wrong with it, before anybody wants a pod of it.
    pub(crate) fn look(&self, handler: &str, program: &OciProgram, layout: &Layout) {
        if let Err(error) = self.of(handler, &program.program, layout) {
            tracing::warn!(handler, %error, "pods of this handler are refused until it is there");
        }
    }

    /// The version of a shim of containerd's; empty when it does not say.
    pub(crate) fn shim_version(&self, program: &Path) -> String {
        let Ok(file) = FileState::of(program) else { return String::new() };
        let shims = || self.shims.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shims().get(program).filter(|(known, _)| *known == file).cloned();
        if let Some((_, version)) = known {
            return version;
        }
        // One that hangs holds up nobody's but its own.
        let answer = run(program, "-v").unwrap_or_default();
        let version = said_version(&String::from_utf8_lossy(&answer)).unwrap_or_default();
        shims().insert(program.to_owned(), (file, version.clone()));
        version
    }

    fn of(&self, handler: &str, program: &str, layout: &Layout) -> Result<Arc<Known>> {
        let path = PathBuf::from(find(&format!("handler.{handler}.runtime"), program)?);
        let unavailable = |error| Error::unavailable(format!("handler {handler}: {path:?}"), error);
        let file = FileState::of(&path).map_err(unavailable)?;
        let place = {
            let mut places = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(places.entry(path.clone()).or_default())
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = place.as_ref().filter(|known| known.is_of(file)) {
            return Ok(Arc::clone(known));
        }
        let known = Known { file, at: Instant::now(), abilities: ask(&path, layout) };
        known.warn(handler, &path);
        Ok(Arc::clone(place.insert(Arc::new(known))))
    }
}

impl Known {
    fn is_of(&self, file: FileState) -> bool {
        let again = Duration::from_millis(FAILED_AGAIN_MS);
        self.file == file && (self.abilities.is_ok() || self.at.elapsed() < again)
    }

    fn warn(&self, handler: &str, path: &Path) {
        match &self.abilities {
            Ok(abilities) => match holes::sentence(&abilities.release) {
                Some(holes) => tracing::warn!(handler, program = %path.display(), "{holes}"),
                None => tracing::info!(
                    handler,
                    program = %path.display(),
                    version = %abilities.release.text,
                    "this runtime is there"
                ),
            },
            Err(reason) => tracing::warn!(
                handler,
                program = %path.display(),
                %reason,
                "pods of this handler are refused until it works"
            ),
        }
    }
}

/// Asks a program what it is and can do.
fn ask(path: &Path, layout: &Layout) -> std::result::Result<Abilities, String> {
    let answer = run(path, "--version").map_err(|reason| format!("{path:?} --version {reason}"))?;
    let text = String::from_utf8_lossy(&answer);
    let release = Release::parse(&text)
        .ok_or_else(|| format!("{path:?} --version says {:?}, which has no version in it", words(&answer)))?;
    if release.name == "crun" && layout.mode() == Mode::Hybrid && has_v2_controllers(layout) {
        return Err(format!(
            "{path:?} ({} {}) does not run on a machine with v1 hierarchies and a v2 tree that has controllers",
            release.name, release.text
        ));
    }
    // Older ones have no such command; what they can do is told by their versions.
    let features = run(path, "features").ok().and_then(|json| Features::parse(&json)).unwrap_or_default();
    Ok(Abilities { release, features })
}

fn has_v2_controllers(layout: &Layout) -> bool {
    let file = layout.v2_mount_point().map(|place| place.join("cgroup.controllers"));
    file.and_then(|file| std::fs::read_to_string(file).ok()).is_some_and(|listed| !listed.trim().is_empty())
}

/// Runs a program to its end; its output, or why there is none.
fn run(path: &Path, argument: &str) -> std::result::Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot be run: {error}");
    let mut output = memory().map_err(failed)?;
    let mut errors = memory().map_err(failed)?;
    let mut child = Command::new(path)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(errors.try_clone().map_err(failed)?)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let in_time = has_ended(&child, Duration::from_millis(PROBE_MS));
    if !in_time {
        kill_group(&child);
    }
    let status = child.wait().map_err(failed)?;
    if !in_time {
        return Err(format!("did not answer within {PROBE_MS} ms, and was killed"));
    }
    let answer = read(&mut output).map_err(failed)?;
    if status.success() {
        return Ok(answer);
    }
    let said = read(&mut errors).map_err(failed)?;
    Err(format!("failed ({status}) and said {:?}", words(if said.is_empty() { &answer } else { &said })))
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("answer", MemfdFlags::CLOEXEC)?.into())
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(ANSWER_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn has_ended(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // A child that was not waited for is there, dead or alive.
    let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

/// Its group has its number for as long as it was not waited for.
fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// What stands behind the word "version" and a colon, however it is spelt.
fn said_version(answer: &str) -> Option<String> {
    let place = answer.to_ascii_lowercase().find("version:")?;
    let rest = answer.get(place + "version:".len()..)?.trim_start();
    let version: String =
        rest.chars().take_while(|c| !c.is_whitespace() && *c != ',').take(WORDS_MAX_BYTES).collect();
    (!version.is_empty()).then_some(version)
}

/// The last line of an answer, short.
fn words(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(&answer[answer.len().saturating_sub(4 * WORDS_MAX_BYTES)..]);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(WORDS_MAX_BYTES).collect()
}

#[cfg(test)]
mod tests;
