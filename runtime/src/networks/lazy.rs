//! A network that is opened when somebody needs it.
//!
//! ```text
//!   unopened ── get ──► open
//!       │                │
//!       └──── close ─────┴──► closed     get is refused
//! ```
//!
//! Owns: whether it is open, and what its directory says of pods. Never: opens it for a look at whether it is in use.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_messages::{Error, Result, SandboxId};

/// See the module. An opening that did not work is tried again.
#[derive(Debug)]
pub(super) struct Lazy<S, N> {
    settings: S,
    directory: PathBuf,
    state: Mutex<State<N>>,
}

#[derive(Debug)]
enum State<N> {
    Unopened,
    Open(Arc<N>),
    Closed,
}

impl<S: Clone, N> Lazy<S, N> {
    pub(super) fn new(settings: S, directory: PathBuf) -> Self {
        Self { settings, directory, state: Mutex::new(State::Unopened) }
    }

    pub(super) fn get(&self, open: impl FnOnce(S) -> Result<N>) -> Result<Arc<N>> {
        let mut state = self.state();
        match &*state {
            State::Open(network) => return Ok(Arc::clone(network)),
            State::Closed => return Err(Error::unavailable("the runtime", "it was closed")),
            State::Unopened => {}
        }
        let network = Arc::new(open(self.settings.clone())?);
        *state = State::Open(Arc::clone(&network));
        Ok(network)
    }

    /// Nothing opens it again. Answers it, if it was open.
    pub(super) fn close(&self) -> Option<Arc<N>> {
        match std::mem::replace(&mut *self.state(), State::Closed) {
            State::Open(network) => Some(network),
            State::Unopened | State::Closed => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open(_))
    }

    /// Whether a pod may have something of it: it is open, or its directory has a file of a pod. Every other file there begins
    /// with a dot.
    pub(super) fn is_in_use(&self) -> bool {
        let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(b".");
        self.is_open()
            || match fs::read_dir(&self.directory) {
                Ok(entries) => entries.into_iter().any(|entry| entry.map_or(true, |file| !is_hidden(&file))),
                // What else is in the way, opening it says.
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            }
    }

    /// Whether there is a file for a pod in its directory, which is the case from before anything is made for the pod until
    /// all of it is gone.
    pub(super) fn has_file_of(&self, sandbox: &SandboxId) -> bool {
        self.directory.join(sandbox.as_str()).exists()
    }

    pub(super) fn file_of(&self, sandbox: &SandboxId) -> String {
        self.directory.join(sandbox.as_str()).display().to_string()
    }

    fn state(&self) -> MutexGuard<'_, State<N>> {
        // Each change of it is one assignment, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
