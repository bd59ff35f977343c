//! Pods and containers as kubelet would have asked for them, made by the admin RPC on the host's own root: no image is needed.

use mainstay::{ContainerIdentity, ContainerSpec, Network, PodIdentity, SandboxSpec};
use mainstay_integration_tests::{script_spec, wait};
use mainstay_messages::admin;
use mainstay_messages::admin::Reference;

use crate::rig::Rig;

impl Rig {
    /// A pod that the interface shows.
    pub async fn made_pod(&self, name: &str, network: Network) -> String {
        let mut spec = SandboxSpec::new(name.parse().expect("a good name"));
        spec.network = network;
        spec.labels.insert("pod".to_owned(), name.to_owned());
        spec.identity = Some(PodIdentity {
            name: name.to_owned(),
            namespace: "tests".to_owned(),
            uid: format!("{name}-uid"),
            attempt: 0,
        });
        let run = self.admin().await.run_sandbox(spec).await;
        run.expect("it runs").to_string()
    }

    /// A container that the interface shows, waiting to be started.
    pub async fn made_container(
        &self,
        pod: &str,
        name: &str,
        script: &str,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> String {
        let mut spec = script_spec(name, script);
        spec.labels.insert("container".to_owned(), name.to_owned());
        spec.identity = Some(ContainerIdentity { name: name.to_owned(), attempt: 3 });
        change(&mut spec);
        let made = async { self.admin().await.create_container(Reference(pod.to_owned()), spec).await };
        wait::finish("a container is made", made).await.expect("made").to_string()
    }

    /// The same, started.
    pub async fn started_container(
        &self,
        pod: &str,
        name: &str,
        script: &str,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> String {
        let id = self.made_container(pod, name, script, change).await;
        let start = async { self.admin().await.start_container(Reference(id.clone())).await };
        wait::finish("a container starts", start).await.expect("started");
        id
    }

    /// Waits for its end.
    pub async fn ended_container(&self, id: &str) {
        let end = async { self.admin().await.wait(Reference(id.to_owned())).await };
        wait::finish("a container ends", end).await.expect("it has an exit");
    }

    pub async fn removed_container(&self, id: &str) {
        let admin = self.admin().await;
        admin.remove_container(Reference(id.to_owned()), admin::IfRunning::Kill).await.expect("removed");
    }

    pub async fn stopped_pod(&self, id: &str) {
        self.admin().await.stop_sandbox(Reference(id.to_owned()), Some(0)).await.expect("stopped");
    }

    pub async fn removed_pod(&self, id: &str) {
        self.admin().await.remove_sandbox(Reference(id.to_owned())).await.expect("removed");
    }
}
