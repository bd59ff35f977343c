//! What runtimes are there, asked of themselves.
//!
//! A program is asked once, and again when its file has changed: an upgrade needs no restart, and one that was broken is found
//! when it has been mended.
//!
//! Owns: what is asked, remembering the answers, and the warning about each program. Blocks. `run` runs a program with limits,
//! `turns` says whose turn it is to ask.
//! Never: lets a program that hangs or fails harm another handler, or the daemon.

mod run;
mod turns;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Layout, Mode};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::Spec;

use super::fit::{Abilities, Features, Lack};
use super::holes;
use super::version::Release;
use super::{OciProgram, Vulnerable, find};

use run::{WORDS_MAX_BYTES, run, words};
use turns::{Place, Places};

/// How long a program may take for each of the two answers, in milliseconds.
pub const PROBE_MS: u64 = 5_000;
/// How long both may take.
pub(crate) const PROBES_MS: u64 = 2 * PROBE_MS + 1_000;
/// How long a program that failed is not asked again while its file is the same, in milliseconds.
const FAILED_AGAIN_MS: u64 = 10_000;

/// The runtimes that were asked, by the names of their programs.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    programs: Places<Arc<Known>>,
    /// The versions of shims, by their programs.
    shims: Places<(FileState, String)>,
}

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
        let place = self.shims.of(&program.to_string_lossy());
        let Ok(turn) = place.turn() else { return String::new() };
        let Ok(file) = FileState::of(program) else { return String::new() };
        if let Some((_, version)) = turn.known().filter(|(known, _)| *known == file) {
            return version;
        }
        let answer = run(program, "-v").unwrap_or_default();
        let version = said_version(&String::from_utf8_lossy(&answer)).unwrap_or_default();
        turn.learn((file, version.clone()));
        version
    }

    fn of(&self, handler: &str, program: &str, layout: &Layout) -> Result<Arc<Known>> {
        // Its own file may be what hangs, so the turn begins before that is looked at.
        let place: Arc<Place<Arc<Known>>> = self.programs.of(program);
        let turn = place.turn().map_err(|taken| {
            let reason = format!("{program:?} was asked {} s ago and has not answered", taken.as_secs());
            Error::unavailable(format!("handler {handler}"), reason)
        })?;
        let path = PathBuf::from(find(&format!("handler.{handler}.runtime"), program)?);
        let unavailable = |error| Error::unavailable(format!("handler {handler}: {path:?}"), error);
        let file = FileState::of(&path).map_err(unavailable)?;
        if let Some(known) = turn.known().filter(|known| known.is_of(file)) {
            return Ok(known);
        }
        let known = Arc::new(Known { file, at: Instant::now(), abilities: ask(&path, layout) });
        known.warn(handler, &path);
        turn.learn(Arc::clone(&known));
        Ok(known)
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

/// What stands behind the word "version" and a colon, however it is spelt.
fn said_version(answer: &str) -> Option<String> {
    let place = answer.to_ascii_lowercase().find("version:")?;
    let rest = answer.get(place + "version:".len()..)?.trim_start();
    let version: String =
        rest.chars().take_while(|c| !c.is_whitespace() && *c != ',').take(WORDS_MAX_BYTES).collect();
    (!version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests;
