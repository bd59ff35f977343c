//! Pods as the interface shows them, from published snapshots.

use std::collections::HashMap;

use mainstay::{
    IdMapping, IpcMode, Network, PidMode, SandboxPhase, SandboxRecord, SandboxSnapshot, UserNamespace,
};
use mainstay_cri_api as api;
use mainstay_cri_api::{NamespaceMode, NamespaceOption, PodSandboxMetadata, PodSandboxState};
use serde_json::json;

use crate::times;

/// A pod in a list.
pub(crate) fn listed(record: &SandboxRecord) -> api::PodSandbox {
    api::PodSandbox {
        id: record.id.to_string(),
        metadata: Some(metadata(record)),
        state: state(record).into(),
        created_at: times::nanos(record.created_at),
        labels: record.spec.labels.clone().into_iter().collect(),
        annotations: record.spec.annotations.clone().into_iter().collect(),
        runtime_handler: handler(record),
    }
}

/// The handler that it was asked for with; empty for the usual one.
fn handler(record: &SandboxRecord) -> String {
    record.spec.handler.as_ref().map_or_else(String::new, ToString::to_string)
}

/// What there is to say of a pod.
pub(crate) fn status(record: &SandboxRecord) -> api::PodSandboxStatus {
    let api::PodSandbox { id, metadata, state, created_at, labels, annotations, runtime_handler } =
        listed(record);
    let namespaces = Some(api::Namespace { options: Some(namespaces(record)) });
    api::PodSandboxStatus {
        id,
        metadata,
        state,
        created_at,
        network: Some(network(record)),
        linux: Some(api::LinuxPodSandboxStatus { namespaces }),
        labels,
        annotations,
        runtime_handler,
    }
}

/// What people look for who look closely.
pub(crate) fn info(snapshot: &SandboxSnapshot, usual_cgroup_parent: &str) -> HashMap<String, String> {
    let record = &snapshot.record;
    let info = json!({
        "pid": record.shim.as_ref().map_or(0, |shim| shim.process.pid),
        "phase": record.phase,
        "reason": record.reason,
        "activity": snapshot.activity,
        "runtimeHandler": handler(record),
        "cgroupsPath": record.cgroup(usual_cgroup_parent),
        "shim": record.shim,
        "network": record.network,
        "config": record.spec,
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}

/// Who a pod is. One without an identity is not shown.
pub(crate) fn metadata(record: &SandboxRecord) -> PodSandboxMetadata {
    let identity = record.spec.identity.clone().unwrap_or_default();
    PodSandboxMetadata {
        name: identity.name,
        uid: identity.uid,
        namespace: identity.namespace,
        attempt: identity.attempt,
    }
}

/// Whether kubelet may count on it.
pub(crate) fn state(record: &SandboxRecord) -> PodSandboxState {
    match record.phase {
        SandboxPhase::Ready => PodSandboxState::SandboxReady,
        SandboxPhase::Starting
        | SandboxPhase::NotReady
        | SandboxPhase::Stopping
        | SandboxPhase::Stopped
        | SandboxPhase::Removing
        | SandboxPhase::Unknown => PodSandboxState::SandboxNotready,
    }
}

/// Its first address, and the others. On the host's network it has none of its own.
fn network(record: &SandboxRecord) -> api::PodSandboxNetworkStatus {
    let ips = record.network.iter().flat_map(|network| &network.ips).map(|own| own.ip.to_string());
    let mut ips = ips.map(|ip| api::PodIp { ip });
    let first = ips.next().unwrap_or_default();
    api::PodSandboxNetworkStatus { ip: first.ip, additional_ips: ips.collect() }
}

fn namespaces(record: &SandboxRecord) -> NamespaceOption {
    let spec = &record.spec;
    let mut options =
        NamespaceOption { userns_options: user_namespace(&spec.user_namespace), ..Default::default() };
    options.set_network(match spec.network {
        Network::Host => NamespaceMode::Node,
        Network::Default | Network::None | Network::Builtin | Network::Cni => NamespaceMode::Pod,
    });
    options.set_pid(match spec.pid {
        PidMode::Container => NamespaceMode::Container,
        PidMode::Pod => NamespaceMode::Pod,
        PidMode::Host => NamespaceMode::Node,
    });
    options.set_ipc(match spec.ipc {
        IpcMode::Pod => NamespaceMode::Pod,
        IpcMode::Host => NamespaceMode::Node,
    });
    options
}

fn user_namespace(given: &UserNamespace) -> Option<api::UserNamespace> {
    match given {
        UserNamespace::Host => None,
        UserNamespace::Auto => {
            Some(api::UserNamespace { mode: NamespaceMode::Pod.into(), ..Default::default() })
        }
        UserNamespace::Mapped(mappings) => Some(api::UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: ids(&mappings.uids),
            gids: ids(&mappings.gids),
        }),
    }
}

/// Mappings of ids, as the interface has them.
pub(crate) fn ids(mappings: &[IdMapping]) -> Vec<api::IdMapping> {
    let mapping = |mapping: &IdMapping| api::IdMapping {
        host_id: mapping.host,
        container_id: mapping.container,
        length: mapping.size,
    };
    mappings.iter().map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use mainstay::{SandboxId, Timestamp};

    use super::*;
    use crate::pods::spec::spec;

    /// What was asked for is given back as it was.
    #[test]
    fn a_pod_is_shown_as_it_was_asked_for() {
        let metadata = PodSandboxMetadata {
            name: "web".to_owned(),
            uid: "u/1".to_owned(),
            namespace: "shop".to_owned(),
            attempt: 2,
        };
        let mut options = NamespaceOption::default();
        options.set_network(NamespaceMode::Node);
        options.set_pid(NamespaceMode::Container);
        let security = api::LinuxSandboxSecurityContext {
            namespace_options: Some(options.clone()),
            ..Default::default()
        };
        let labels: HashMap<_, _> = [("a".to_owned(), "ü".to_owned())].into();
        let config = api::PodSandboxConfig {
            metadata: Some(metadata.clone()),
            labels: labels.clone(),
            annotations: [("k8s.io/x".to_owned(), "\n".to_owned())].into(),
            linux: Some(api::LinuxPodSandboxConfig {
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        };
        let id: SandboxId = "id".parse().expect("an id");
        let mut record = SandboxRecord::intent(id, spec(&config, "other").expect("good"), Timestamp(7));
        let shown = status(&record);
        assert_eq!((shown.state(), shown.created_at), (PodSandboxState::SandboxNotready, 7));
        assert_eq!((shown.metadata, shown.labels), (Some(metadata), labels));
        assert_eq!((shown.annotations, shown.runtime_handler), (config.annotations, "other".to_owned()));
        let namespaces = shown.linux.and_then(|linux| linux.namespaces).and_then(|shown| shown.options);
        assert_eq!(namespaces, Some(options));
        record.phase = SandboxPhase::Ready;
        assert_eq!(status(&record).state(), PodSandboxState::SandboxReady);
    }
}
