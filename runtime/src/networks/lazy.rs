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
    /// Held while it is opened or closed, so that the state is held by nobody who waits for a disk: whether it is open is asked for
    /// pods of the other network, too. Taken before it.
    opening: Mutex<()>,
}

#[derive(Debug)]
enum State<N> {
    Unopened,
    Open(Arc<N>),
    Closed,
}

impl<S: Clone, N> Lazy<S, N> {
    pub(super) fn new(settings: S, directory: PathBuf) -> Self {
        Self { settings, directory, state: Mutex::new(State::Unopened), opening: Mutex::new(()) }
    }

    pub(super) fn get(&self, open: impl FnOnce(S) -> Result<N>) -> Result<Arc<N>> {
        if let Some(network) = self.opened()? {
            return Ok(network);
        }
        let _opening = self.opening();
        if let Some(network) = self.opened()? {
            return Ok(network);
        }
        let network = Arc::new(open(self.settings.clone())?);
        *self.state() = State::Open(Arc::clone(&network));
        Ok(network)
    }

    fn opened(&self) -> Result<Option<Arc<N>>> {
        match &*self.state() {
            State::Open(network) => Ok(Some(Arc::clone(network))),
            State::Closed => Err(Error::unavailable("the runtime", "it was closed")),
            State::Unopened => Ok(None),
        }
    }

    /// Nothing opens it again. Answers it, if it was open.
    pub(super) fn close(&self) -> Option<Arc<N>> {
        let _opening = self.opening();
        match std::mem::replace(&mut *self.state(), State::Closed) {
            State::Open(network) => Some(network),
            State::Unopened | State::Closed => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open(_))
    }

    /// What it is opened with.
    pub(super) fn settings(&self) -> &S {
        &self.settings
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

    fn opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State<N>> {
        // Each change of it is one assignment, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
