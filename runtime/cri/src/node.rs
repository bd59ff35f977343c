//! The node: what all calls share, and what is said of the runtime itself.
//!
//! Owns: `Version`, `Status`, `RuntimeConfig`, `UpdateRuntimeConfig`. Never: touches a pod, a container or an image.

mod condition;
mod pod_cidr;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use mainstay::{CriSettings, Runtime, Timestamp};
use mainstay_cri_api::{
    API_VERSION, CgroupDriver, LinuxRuntimeConfiguration, RuntimeConfigRequest, RuntimeConfigResponse,
    RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus, StatusRequest, StatusResponse,
    UpdateRuntimeConfigRequest, UpdateRuntimeConfigResponse, VersionRequest, VersionResponse,
};
use mainstay_messages::Error;
use serde_json::{Value, json};

use crate::events::{self, Book};
use crate::failure::{Failure, Result};
use crate::streams::Streams;

/// What the runtime is called.
pub const RUNTIME_NAME: &str = "mainstay";
/// The version of kubelet's own interface, which nobody looks at any more.
const KUBELET_API_VERSION: &str = "0.1.0";
/// How many user namespaces the kernel allows.
const USER_NAMESPACES_MAX: &str = "/proc/sys/user/max_user_namespaces";

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Node {
    /// The runtime.
    pub(crate) runtime: Runtime,
    /// Who reads events.
    pub(crate) events: Book,
    /// Exec, attach and port-forward.
    pub(crate) streams: Streams,
    /// Since when it is served.
    since: Timestamp,
    /// The addresses that the cluster has for pods of this node, as it said.
    pod_cidr: Mutex<Option<String>>,
}

impl Node {
    /// A node over a runtime.
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            events: events::book(&runtime),
            runtime,
            streams: Streams::default(),
            since: Timestamp::from_system(SystemTime::now()),
            pod_cidr: Mutex::default(),
        }
    }

    /// How the interface is set up.
    pub(crate) fn settings(&self) -> &CriSettings {
        &self.runtime.config().cri
    }

    fn pod_cidr(&self) -> Option<String> {
        // The lock guards one assignment.
        self.pod_cidr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `Version`
pub(crate) async fn version(_node: Arc<Node>, _request: VersionRequest) -> Result<VersionResponse> {
    Ok(VersionResponse {
        version: KUBELET_API_VERSION.to_owned(),
        runtime_name: RUNTIME_NAME.to_owned(),
        runtime_version: mainstay::VERSION.to_owned(),
        runtime_api_version: API_VERSION.to_owned(),
    })
}

/// `Status`
pub(crate) async fn status(node: Arc<Node>, request: StatusRequest) -> Result<StatusResponse> {
    let conditions = vec![condition::runtime(&node.runtime), condition::network(&node.runtime).await];
    let features = RuntimeHandlerFeatures {
        // Of every kernel that is new enough for Mainstay.
        recursive_read_only_mounts: true,
        user_namespaces: user_namespaces(),
    };
    let names = std::iter::once(String::new()).chain(node.runtime.config().handler.names());
    let runtime_handlers = names.map(|name| RuntimeHandler { name, features: Some(features) }).collect();
    let info = if request.verbose { info(&node).await? } else { HashMap::new() };
    Ok(StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        info,
        runtime_handlers,
        features: Some(RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: false,
            mount_options: true,
        }),
    })
}

/// `RuntimeConfig`
pub(crate) async fn runtime_config(
    node: Arc<Node>,
    _request: RuntimeConfigRequest,
) -> Result<RuntimeConfigResponse> {
    let driver = match node.settings().cgroup_driver {
        mainstay::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        mainstay::CgroupDriver::Systemd => CgroupDriver::Systemd,
    };
    Ok(RuntimeConfigResponse { linux: Some(LinuxRuntimeConfiguration { cgroup_driver: driver.into() }) })
}

/// `UpdateRuntimeConfig`
pub(crate) async fn update_runtime_config(
    node: Arc<Node>,
    request: UpdateRuntimeConfigRequest,
) -> Result<UpdateRuntimeConfigResponse> {
    let network = request.runtime_config.and_then(|config| config.network_config);
    let Some(cidr) = network.map(|network| network.pod_cidr).filter(|cidr| !cidr.is_empty()) else {
        return Ok(UpdateRuntimeConfigResponse {});
    };
    pod_cidr::check(&cidr)?;
    let before = {
        let mut known = node.pod_cidr.lock().unwrap_or_else(PoisonError::into_inner);
        known.replace(cidr.clone())
    };
    if before.as_ref() != Some(&cidr) {
        pod_cidr::compare(node.runtime.config(), &cidr);
    }
    Ok(UpdateRuntimeConfigResponse {})
}

/// What `crictl info` shows beside the conditions, each as JSON.
async fn info(node: &Node) -> Result<HashMap<String, String>> {
    let runtime = &node.runtime;
    let parts = [
        ("config", value(runtime.config())?),
        ("counters", value(&runtime.counters().into_iter().collect::<HashMap<_, _>>())?),
        ("network", json!({ "kind": runtime.config().network.default, "podCIDR": node.pod_cidr() })),
        ("plugins", value(&runtime.plugins().await?)?),
        (
            "runtime",
            json!({
                "name": RUNTIME_NAME,
                "version": mainstay::VERSION,
                "pid": std::process::id(),
                "servedSince": node.since.to_string(),
                "pods": runtime.sandboxes().len(),
                "containers": runtime.containers().len(),
            }),
        ),
    ];
    Ok(parts.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect())
}

fn value(of: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|error| Failure::from(Error::internal("the status", error)))
}

fn user_namespaces() -> bool {
    let text = std::fs::read_to_string(USER_NAMESPACES_MAX);
    text.is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|max| max > 0))
}
