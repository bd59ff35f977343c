//! A connection to a plugin, as its actor needs it.
//!
//! Owns: the requests and replies in one shape. Never: decides what a failure costs.

use futures::future::BoxFuture;
use mainstay_messages::spec::Resources;
use mainstay_messages::{ContainerId, Error, SandboxId};
use mainstay_nri_api::{
    Container, ContainerUpdate, CreateContainerRequest, CreateContainerResponse, Event, EventMask,
    PodSandbox, StopContainerResponse, UpdateContainerRequest, UpdateContainerResponse,
    UpdatePodSandboxRequest, ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

use crate::adjust::Eviction;
use crate::plugin::state::Ending;

/// A connection to a plugin that has registered and is configured.
pub trait Line: Send + Sync {
    /// The events that it asked for.
    fn events(&self) -> EventMask;

    /// Asks it, for no longer than so many milliseconds.
    fn call(&self, request: Request, limit_ms: u64) -> BoxFuture<'static, Result<Reply, Trouble>>;

    /// Tells it of all there is. The deadline is the line's own: it grows with the number of parts.
    fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> BoxFuture<'static, Result<Vec<ContainerUpdate>, Trouble>>;

    /// Waits for its end, and says why it came.
    fn ended(&self) -> BoxFuture<'static, String>;

    /// Ends it. A plugin that this program has started is ended with it.
    fn close(&self, reason: &str);

    /// The process at the other end, where it is known.
    fn pid(&self) -> Option<u32>;
}

/// What a plugin is asked.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and most are of the largest kind")]
pub enum Request {
    /// An event of a pod that carries nothing else.
    Pod(Event, PodSandbox),
    /// An event of a container that carries nothing else.
    Container(Event, PodSandbox, Container),
    /// Other limits for a pod.
    UpdatePod(UpdatePodSandboxRequest),
    /// A container is to be made.
    Create(CreateContainerRequest),
    /// Other limits for a container.
    Update(UpdateContainerRequest),
    /// What all plugins together have made of a container.
    Validate(ValidateContainerAdjustmentRequest),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To all other requests.
    Done,
    /// To [`Request::Create`].
    Created(CreateContainerResponse),
    /// To [`Request::Update`].
    Updated(UpdateContainerResponse),
    /// To StopContainer.
    Stopped(StopContainerResponse),
    /// To [`Request::Validate`].
    Validated(ValidateContainerAdjustmentResponse),
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The plugin answered with an error.
    Refused(String),
    /// It did not answer in time, or nobody can read what it answered.
    Silent(String),
    /// The connection has ended.
    Gone(String),
}

/// Where plugins find what there is, and what they may do beside answering. Implemented by the runtime.
pub trait Node: Send + Sync {
    /// A pod as plugins see it; none when it is gone.
    fn pod(&self, pod: &SandboxId) -> Option<PodSandbox>;

    /// A container as plugins see it; none when it is gone.
    fn container(&self, container: &ContainerId) -> Option<Container>;

    /// Changes limits of a container for a plugin.
    fn update(&self, container: ContainerId, limits: Resources) -> BoxFuture<'static, Result<(), Error>>;

    /// Stops a container for a plugin. Answered when it has ended.
    fn evict(&self, eviction: Eviction) -> BoxFuture<'static, Result<(), Error>>;
}

impl Request {
    /// The event that it is about.
    pub fn event(&self) -> Event {
        match self {
            Self::Pod(event, _) | Self::Container(event, ..) => *event,
            Self::UpdatePod(_) => Event::UPDATE_POD_SANDBOX,
            Self::Create(_) => Event::CREATE_CONTAINER,
            Self::Update(_) => Event::UPDATE_CONTAINER,
            Self::Validate(_) => Event::VALIDATE_CONTAINER_ADJUSTMENT,
        }
    }
}

impl From<Trouble> for Ending {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused(reason) => Self::Refused(reason),
            Trouble::Silent(reason) => Self::Silent(reason),
            Trouble::Gone(reason) => Self::Gone(reason),
        }
    }
}
