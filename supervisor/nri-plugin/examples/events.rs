//! Prints everything that the runtime tells: `cargo run --example events`, as root.

use mainstay_nri_plugin::api::mux::Closed;
use mainstay_nri_plugin::api::{Container, ContainerUpdate, EventMask, PodSandbox};
use mainstay_nri_plugin::{Adjusted, Configuration, Identity, Options, Plugin, Result, async_trait};

struct Events;

#[async_trait]
impl Plugin for Events {
    fn events(&self) -> EventMask {
        EventMask::ALL
    }

    async fn configure(&self, configuration: Configuration) -> Result<EventMask> {
        let Configuration { runtime_name, runtime_version, nri_version, request_timeout, .. } = configuration;
        println!(
            "configured by {runtime_name} {runtime_version}, NRI {nri_version}, {request_timeout:?} a call"
        );
        Ok(self.events())
    }

    async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>> {
        println!("synchronised with {} pods and {} containers", pods.len(), containers.len());
        Ok(Vec::new())
    }

    async fn closed(&self, reason: Closed) {
        println!("disconnected: {reason}");
    }

    async fn run_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        println!("run pod {}/{} ({})", pod.namespace, pod.name, pod.id);
        Ok(())
    }

    async fn stop_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        println!("stopped pod {}", pod.id);
        Ok(())
    }

    async fn remove_pod_sandbox(&self, pod: PodSandbox) -> Result<()> {
        println!("remove pod {}", pod.id);
        Ok(())
    }

    async fn create_container(&self, pod: PodSandbox, container: Container) -> Result<Adjusted> {
        println!("create container {} in pod {}: {:?}", container.id, pod.id, container.args);
        Ok(Adjusted::default())
    }

    async fn start_container(&self, _: PodSandbox, container: Container) -> Result<()> {
        println!("start container {}", container.id);
        Ok(())
    }

    async fn post_start_container(&self, _: PodSandbox, container: Container) -> Result<()> {
        println!("started container {}, process {}", container.id, container.pid);
        Ok(())
    }

    async fn stop_container(&self, _: PodSandbox, container: Container) -> Result<Vec<ContainerUpdate>> {
        println!("stop container {}", container.id);
        Ok(Vec::new())
    }

    async fn remove_container(&self, _: PodSandbox, container: Container) -> Result<()> {
        println!("remove container {}", container.id);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_environment(Identity::new("10", "events"))?;
    let closed = mainstay_nri_plugin::run(Events, options).await?;
    println!("{closed}");
    Ok(())
}
