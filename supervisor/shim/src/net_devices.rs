//! Network devices of the host that a container has.
//!
//! Owns: that they are moved into it, and go back when it is gone: its network namespace is its pod's, which lives on. Never:
//! blocks; the moving is done by a process of its own.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mainstay_launch::{Handover, NetDevicesRequest, has_net_devices, move_net_devices};
use oci_spec::runtime::Spec;
use tokio::time::timeout;

use crate::container::Container;
use crate::errand;
use crate::failure::Failure;
use crate::logger;

/// How long the moving of a container's devices may take, in milliseconds.
const MOVE_MS: u64 = 5_000;

/// Moves them into a container whose first process has its namespaces.
pub(crate) async fn give(container: &Container, spec: &Spec) -> Result<(), Failure> {
    if !has_net_devices(spec) {
        return Ok(());
    }
    let namespace: OwnedFd = File::open(format!("/proc/{}/ns/net", container.init.pid_or_zero()))
        .map_err(Failure::system("opening a container's network namespace"))?
        .into();
    hand_over(spec, &namespace, Handover::ToContainer).await?;
    container.holds_devices_in(namespace);
    Ok(())
}

/// Moves back those that are still there. Whatever becomes of that, the container is gone.
pub(crate) async fn take_back(container: &Container) {
    let Some(namespace) = container.take_device_namespace() else { return };
    let moved = async { hand_over(&container.spec()?, &namespace, Handover::ToHost).await };
    match moved.await {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| logger::warning!("container {}: {warning}", container.id));
        }
        Err(failure) => logger::warning!("container {}: {}", container.id, failure.sentence()),
    }
}

async fn hand_over(spec: &Spec, container: &OwnedFd, handover: Handover) -> Result<Vec<String>, Failure> {
    let host =
        File::open("/proc/self/ns/net").map_err(Failure::system("opening the host's network namespace"))?;
    let request = NetDevicesRequest { spec, container: container.as_fd(), host: host.as_fd(), handover };
    let moved = timeout(Duration::from_millis(MOVE_MS), errand::done(move_net_devices(request)?)).await;
    moved.unwrap_or_else(|_| {
        Err(Failure::Deadline {
            what: "moving network devices".to_owned(),
            after_ms: MOVE_MS,
            place: String::new(),
        })
    })
}
