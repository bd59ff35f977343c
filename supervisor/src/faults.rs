//! Places where tests strike: before and after every step of every saga, and before and after every durable write.
//!
//! Compiled to nothing without the feature `faults`, which only tests turn on. Owns: the names of the places, and what
//! happens there. Never: decides anything of its own; a place at which no fault is set is passed as if it were not there.
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

use mainstay_messages::Result;
use mainstay_messages::event::Way;

#[cfg(feature = "faults")]
mod steered;

#[cfg(feature = "faults")]
pub(crate) use steered::step_point;
#[cfg(feature = "faults")]
pub use steered::{FAULTS_DIRECTORY, HELD, Moment, Passed, is_set, points, reach};

/// Takes one way of one step, with what a test wants to happen around it.
#[cfg(not(feature = "faults"))]
pub(crate) async fn around_step(
    _saga: &str,
    _step: &str,
    _way: Way,
    work: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    work().await
}

/// Takes one way of one step, with what a test wants to happen around it.
#[cfg(feature = "faults")]
pub(crate) async fn around_step(
    saga: &str,
    step: &str,
    way: Way,
    work: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    reach(&step_point(saga, step, way, Moment::Before)).await?;
    work().await?;
    match reach(&step_point(saga, step, way, Moment::After)).await? {
        Passed::Again => work().await,
        Passed::Once => Ok(()),
    }
}
