//! What a plugin is.
//!
//! Owns: the trait, and the types of its answers that are not on the wire as such. Never: knows of connections.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_nri_api::mux::Closed;
use mainstay_nri_api::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, EventMask, LinuxResources,
    PodSandbox, ValidateContainerAdjustmentRequest,
};

use crate::session::Runtime;

/// Why a plugin refuses something; the runtime is told its text with that of its causes.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// The answer of a plugin.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// What the runtime says of itself, and what is set for the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// In a form of the plugin's own; empty if nothing is set.
    pub config: String,
    /// The name of the runtime.
    pub runtime_name: String,
    /// Its version.
    pub runtime_version: String,
    /// How long plugins may take to register.
    pub registration_timeout: Duration,
    /// How long plugins may take to answer.
    pub request_timeout: Duration,
    /// The version of NRI that the runtime speaks; empty if it is older than 0.12.
    pub nri_version: String,
}

/// What a plugin changes when a container is created.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjusted {
    /// About the container itself.
    pub adjust: ContainerAdjustment,
    /// About others.
    pub update: Vec<ContainerUpdate>,
    /// Others that are to be stopped.
    pub evict: Vec<ContainerEviction>,
}

/// What a plugin changes when a container is updated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Updated {
    /// About it and others.
    pub update: Vec<ContainerUpdate>,
    /// Others that are to be stopped.
    pub evict: Vec<ContainerEviction>,
}

/// A plugin. Its methods are called at the same time for different pods, and must be quick: the runtime waits, and
/// goes on without the plugin after its time-out. An error refuses the request, or is only noted where it comes too late.
#[async_trait]
#[allow(unused_variables)]
pub trait Plugin: Send + Sync + 'static {
    /// What it wants to hear of. Only the methods of these are called.
    fn events(&self) -> EventMask;

    /// It is connected and registered. `runtime` is there to ask for updates at any time.
    async fn connected(&self, runtime: Runtime) {}

    /// It is configured, and says again what it wants to hear of.
    async fn configure(&self, configuration: Configuration) -> Result<EventMask> {
        Ok(self.events())
    }

    /// It is told everything that there is. What comes later comes as an event.
    async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>> {
        Ok(Vec::new())
    }

    /// The runtime goes down.
    async fn shutdown(&self) {}

    /// The connection has ended.
    async fn closed(&self, reason: Closed) {}

    /// A pod is being started.
    async fn run_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        Ok(())
    }

    /// The resources of a pod are being changed.
    async fn update_pod_sandbox(
        &self,
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
    ) -> Result<()> {
        Ok(())
    }

    /// They were changed.
    async fn post_update_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        Ok(())
    }

    /// A pod was stopped.
    async fn stop_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        Ok(())
    }

    /// A pod is being removed.
    async fn remove_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        Ok(())
    }

    /// A container is being created.
    async fn create_container(&self, pod: PodSandbox, container: Container) -> Result<Adjusted> {
        Ok(Adjusted::default())
    }

    /// It was created.
    async fn post_create_container(&self, pod: PodSandbox, container: Container) -> Result<()> {
        Ok(())
    }

    /// It is being started.
    async fn start_container(&self, pod: PodSandbox, container: Container) -> Result<()> {
        Ok(())
    }

    /// It was started.
    async fn post_start_container(&self, pod: PodSandbox, container: Container) -> Result<()> {
        Ok(())
    }

    /// Its resources are being changed.
    async fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Result<Updated> {
        Ok(Updated::default())
    }

    /// They were changed.
    async fn post_update_container(&self, pod: PodSandbox, container: Container) -> Result<()> {
        Ok(())
    }

    /// A container is being stopped.
    async fn stop_container(&self, pod: PodSandbox, container: Container) -> Result<Vec<ContainerUpdate>> {
        Ok(Vec::new())
    }

    /// A container is being removed.
    async fn remove_container(&self, pod: PodSandbox, container: Container) -> Result<()> {
        Ok(())
    }

    /// All plugins were asked about a container; an error refuses what they made of it.
    async fn validate_container_adjustment(&self, request: ValidateContainerAdjustmentRequest) -> Result<()> {
        Ok(())
    }
}
