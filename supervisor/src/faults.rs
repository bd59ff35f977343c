//! Places where tests strike: before and after every step of every saga, and before and after every durable write.
//!
//! Compiled to nothing without the feature `faults`, which only tests turn on. Owns: the names of the places. Never: decides
//! anything of its own. How a fault is set, and what happens then, is in [`mainstay_shim::faults`]: shims have such places too.

use mainstay_messages::Result;
use mainstay_messages::event::Way;

#[cfg(feature = "faults")]
mod steered;

#[cfg(feature = "faults")]
pub(crate) use steered::step_point;
#[cfg(feature = "faults")]
pub use steered::{FAULTS_DIRECTORY, HELD, Moment, Passed, directory, is_set, points, reach, shim_points};

/// A file that is written to be found again after the end of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The record of a pod, in its directory.
    PodRecord,
    /// The ids of the host that a pod with a user namespace has.
    PodIds,
    /// Which process the shim of a pod is.
    ShimIdentity,
    /// What is mounted into a container as its `/etc/hosts` and the like.
    NameFile,
    /// The OCI spec of a container.
    Spec,
    /// The record of a container, in its bundle.
    ContainerRecord,
    /// Which plugins are told of a pod.
    Told,
}

impl Written {
    /// All of them, in the order in which they are written.
    #[cfg(feature = "faults")]
    pub const ALL: [Self; 7] = [
        Self::PodRecord,
        Self::PodIds,
        Self::ShimIdentity,
        Self::NameFile,
        Self::Spec,
        Self::ContainerRecord,
        Self::Told,
    ];

    /// Its part of a point's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodRecord => "pod-record",
            Self::PodIds => "pod-ids",
            Self::ShimIdentity => "shim-identity",
            Self::NameFile => "name-file",
            Self::Spec => "spec",
            Self::ContainerRecord => "container-record",
            Self::Told => "told",
        }
    }
}

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
