//! Places where tests strike, and what happens there.
//!
//! Compiled to nothing without the feature `faults`, which only tests turn on. Owns: the names of the places of durable
//! writes, and what is done at a place. Never: decides anything of its own; a place at which no fault is set is passed as if
//! it were not there.
//!
//! A program that has them is steered through the directory that `FAULTS_DIRECTORY` names. A file there, called like a
//! point, sets a fault:
//!
//! | content | what happens at the point |
//! |---|---|
//! | `fail` or `fail N` | the next one time, or N times, it fails |
//! | `repeat` | what came before it is done a second time; only for `after` |
//! | `hang` | the file gets the ending `.held`, and nothing goes on until that file is removed |
//! | `kill` | the program gets SIGKILL |
//!
//! The file is removed when its fault happens, so that a test can tell that it did.

use std::io;

#[cfg(feature = "faults")]
mod steered;

#[cfg(feature = "faults")]
pub use steered::{FAULTS_DIRECTORY, HELD, Moment, Passed, directory, is_set, reach, reach_now, write_point};

/// The durable write of a shim.
pub const EXIT_RECORD: &str = "exit-record";

/// Makes a durable write of this name, with what a test wants to happen around it.
#[cfg(not(feature = "faults"))]
pub fn around_write(_name: &str, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    write()
}

/// Makes a durable write of this name, with what a test wants to happen around it.
#[cfg(feature = "faults")]
pub fn around_write(name: &str, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let pass = |moment| reach_now(&write_point(name, moment)).map_err(io::Error::other);
    pass(Moment::Before)?;
    write()?;
    match pass(Moment::After)? {
        Passed::Again => write(),
        Passed::Once => Ok(()),
    }
}
