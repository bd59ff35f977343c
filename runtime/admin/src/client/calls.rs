//! One method for each request, with the type that answers it.

use mainstay_messages::admin::{
    ContainerStats, IfRunning, MetricsFormat, Object, Reference, Request, Response, VersionInfo,
};
use mainstay_messages::audit::{Finding, Repair};
use mainstay_messages::event::{Bearer, Event};
use mainstay_messages::image::{Collected, Damage, Image, ImageName, Removed};
use mainstay_messages::plugin::PluginStatus;
use mainstay_messages::record::{ContainerSnapshot, SandboxSnapshot};
use mainstay_messages::sandbox::SandboxChange;
use mainstay_messages::shim::ShimStatus;
use mainstay_messages::spec::{Resources, WindowSize};
use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, Exit, Result, SandboxId, SandboxSpec, Signal,
};

use super::Client;

/// Takes the one kind of answer that a request has.
macro_rules! answer {
    ($response:expr, $request:literal, $pattern:pat => $value:expr) => {
        match $response {
            $pattern => Ok($value),
            _ => {
                Err(Error::internal("the daemon", concat!("it answered ", $request, " with something else")))
            }
        }
    };
}

impl Client {
    /// Who is there?
    pub async fn version(&self) -> Result<VersionInfo> {
        answer!(self.call(Request::Version).await?, "Version", Response::Version(info) => info)
    }

    /// Makes a pod.
    pub async fn run_sandbox(&self, spec: SandboxSpec) -> Result<SandboxId> {
        answer!(self.call(Request::RunSandbox(Box::new(spec))).await?, "RunSandbox", Response::Sandbox(id) => id)
    }

    /// Stops a pod and its containers.
    pub async fn stop_sandbox(&self, sandbox: Reference, grace_ms: Option<u64>) -> Result<()> {
        let request = Request::StopSandbox { sandbox, grace_ms };
        answer!(self.call(request).await?, "StopSandbox", Response::Done => ())
    }

    /// Removes a pod and its containers.
    pub async fn remove_sandbox(&self, sandbox: Reference) -> Result<()> {
        let request = Request::RemoveSandbox { sandbox };
        answer!(self.call(request).await?, "RemoveSandbox", Response::Done => ())
    }

    /// Changes the limits of a pod.
    pub async fn update_sandbox(&self, sandbox: Reference, change: SandboxChange) -> Result<()> {
        let request = Request::UpdateSandbox { sandbox, change: Box::new(change) };
        answer!(self.call(request).await?, "UpdateSandbox", Response::Done => ())
    }

    /// All pods.
    pub async fn list_sandboxes(&self) -> Result<Vec<SandboxSnapshot>> {
        answer!(self.call(Request::ListSandboxes).await?, "ListSandboxes", Response::Sandboxes(list) => list)
    }

    /// Makes a container in a pod.
    pub async fn create_container(&self, sandbox: Reference, spec: ContainerSpec) -> Result<ContainerId> {
        let request = Request::CreateContainer { sandbox, spec: Box::new(spec) };
        answer!(self.call(request).await?, "CreateContainer", Response::Container(id) => id)
    }

    /// Starts a container.
    pub async fn start_container(&self, container: Reference) -> Result<()> {
        let request = Request::StartContainer { container };
        answer!(self.call(request).await?, "StartContainer", Response::Done => ())
    }

    /// Stops a container; answered when it has ended.
    pub async fn stop_container(
        &self,
        container: Reference,
        signal: Option<Signal>,
        grace_ms: Option<u64>,
    ) -> Result<()> {
        let request = Request::StopContainer { container, signal, grace_ms };
        answer!(self.call(request).await?, "StopContainer", Response::Done => ())
    }

    /// Sends a signal to a container.
    pub async fn kill_container(&self, container: Reference, signal: Signal) -> Result<()> {
        let request = Request::KillContainer { container, signal };
        answer!(self.call(request).await?, "KillContainer", Response::Done => ())
    }

    /// Removes a container.
    pub async fn remove_container(&self, container: Reference, running: IfRunning) -> Result<()> {
        let request = Request::RemoveContainer { container, running };
        answer!(self.call(request).await?, "RemoveContainer", Response::Done => ())
    }

    /// Freezes a container.
    pub async fn pause_container(&self, container: Reference) -> Result<()> {
        let request = Request::PauseContainer { container };
        answer!(self.call(request).await?, "PauseContainer", Response::Done => ())
    }

    /// Lets a paused container go on.
    pub async fn resume_container(&self, container: Reference) -> Result<()> {
        let request = Request::ResumeContainer { container };
        answer!(self.call(request).await?, "ResumeContainer", Response::Done => ())
    }

    /// Changes limits of a container that runs.
    pub async fn update_container(&self, container: Reference, change: Resources) -> Result<()> {
        let request = Request::UpdateContainer { container, change: Box::new(change) };
        answer!(self.call(request).await?, "UpdateContainer", Response::Done => ())
    }

    /// All containers.
    pub async fn list_containers(&self) -> Result<Vec<ContainerSnapshot>> {
        answer!(self.call(Request::ListContainers).await?, "ListContainers", Response::Containers(list) => list)
    }

    /// A pod, container or exec.
    pub async fn inspect(&self, object: Reference) -> Result<Object> {
        let request = Request::Inspect { object };
        answer!(self.call(request).await?, "Inspect", Response::Object(object) => *object)
    }

    /// Waits until a container has ended.
    pub async fn wait(&self, container: Reference) -> Result<Exit> {
        let request = Request::Wait { container };
        answer!(self.call(request).await?, "Wait", Response::Exited(exit) => exit)
    }

    /// What a container uses, or all that run.
    pub async fn stats(&self, container: Option<Reference>) -> Result<Vec<ContainerStats>> {
        let request = Request::Stats { container };
        answer!(self.call(request).await?, "Stats", Response::Stats(list) => list)
    }

    /// What a container has on the disk beside what it is made of.
    pub async fn disk_usage(&self, container: Reference) -> Result<DiskUsage> {
        let request = Request::DiskUsage { container };
        answer!(self.call(request).await?, "DiskUsage", Response::DiskUsage(usage) => usage)
    }

    /// The whole life of a pod or container.
    pub async fn explain(&self, object: Reference) -> Result<Vec<Event>> {
        let request = Request::Explain { object };
        answer!(self.call(request).await?, "Explain", Response::Events(list) => list)
    }

    /// Those who have or had a name, the newest first; also those that are gone, as long as the journal has something of them.
    pub async fn who_had(&self, name: Reference) -> Result<Vec<Bearer>> {
        let request = Request::WhoHad { name };
        answer!(self.call(request).await?, "WhoHad", Response::Bearers(list) => list)
    }

    /// Opens a container's log file again, after it was rotated.
    pub async fn reopen_log(&self, container: Reference) -> Result<()> {
        let request = Request::ReopenLog { container };
        answer!(self.call(request).await?, "ReopenLog", Response::Done => ())
    }

    /// Sets the size of a container's or exec's terminal.
    pub async fn resize(&self, container: Reference, exec: Option<ExecId>, size: WindowSize) -> Result<()> {
        let request = Request::Resize { container, exec, size };
        answer!(self.call(request).await?, "Resize", Response::Done => ())
    }

    /// Sends a signal to an exec.
    pub async fn kill_exec(&self, container: Reference, exec: ExecId, signal: Signal) -> Result<()> {
        let request = Request::KillExec { container, exec, signal };
        answer!(self.call(request).await?, "KillExec", Response::Done => ())
    }

    /// Compares what the machine has with what the daemon believes, and cleans up where that is asked for.
    pub async fn audit(&self, repair: Repair) -> Result<Vec<Finding>> {
        answer!(self.call(Request::Audit { repair }).await?, "Audit", Response::Findings(list) => list)
    }

    /// What the daemon counts, as text.
    pub async fn metrics(&self, format: MetricsFormat) -> Result<String> {
        answer!(self.call(Request::Metrics { format }).await?, "Metrics", Response::Metrics(text) => text)
    }

    /// All images that are here.
    pub async fn list_images(&self) -> Result<Vec<Image>> {
        answer!(self.call(Request::ListImages).await?, "ListImages", Response::Images(list) => list)
    }

    /// One image.
    pub async fn inspect_image(&self, image: ImageName) -> Result<Image> {
        let images = answer!(
            self.call(Request::InspectImage { image }).await?, "InspectImage", Response::Images(list) => list
        )?;
        let [image] = <[Image; 1]>::try_from(images).map_err(|_| {
            Error::internal("the daemon", "it answered InspectImage with other than one image")
        })?;
        Ok(image)
    }

    /// Takes a name from its image, or removes an image with all its names.
    pub async fn remove_image(&self, image: ImageName) -> Result<Removed> {
        let request = Request::RemoveImage { image };
        answer!(self.call(request).await?, "RemoveImage", Response::ImageRemoved(removed) => removed)
    }

    /// Gives back the room of what no image and no container needs.
    pub async fn collect_images(&self) -> Result<Collected> {
        let answer = self.call(Request::CollectImages).await?;
        answer!(answer, "CollectImages", Response::ImagesCollected(collected) => collected)
    }

    /// Reads an image, or all, against the digests. What is damaged is put out of use.
    pub async fn verify_images(&self, image: Option<ImageName>) -> Result<Vec<Damage>> {
        let request = Request::VerifyImages { image };
        answer!(self.call(request).await?, "VerifyImages", Response::ImagesVerified(list) => list)
    }

    /// All plugins.
    pub async fn list_plugins(&self) -> Result<Vec<PluginStatus>> {
        answer!(self.call(Request::ListPlugins).await?, "ListPlugins", Response::Plugins(list) => list)
    }

    /// The shims that run.
    pub async fn list_shims(&self) -> Result<Vec<ShimStatus>> {
        answer!(self.call(Request::ListShims).await?, "ListShims", Response::Shims(list) => list)
    }

    /// Ends the connection of a plugin, which may come again, or is started again.
    pub async fn restart_plugin(&self, plugin: String) -> Result<()> {
        let request = Request::RestartPlugin { plugin };
        answer!(self.call(request).await?, "RestartPlugin", Response::Done => ())
    }
}
