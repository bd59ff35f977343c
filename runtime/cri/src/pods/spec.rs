//! A pod as kubelet asks for it, as the runtime is asked for it.
//!
//! Owns: the words on both sides, and which fields mean what. Never: looks at the machine, or decides what can be honoured: the
//! check of the spec does that, for all that ask.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mainstay::{
    IdMapping, IdMappings, IpcMode, NameLookup, NameServer, Network, PidMode, PodIdentity, PodPlan,
    PortMapping, Protocol, SandboxSpec, UserNamespace,
};
use mainstay_cri_api as api;
use mainstay_cri_api::{LinuxPodSandboxConfig, NamespaceMode, NamespaceOption, PodSandboxConfig};

use crate::failure::{Failure, Result};
use crate::{names, notes, resources};

/// The spec of a pod.
pub(crate) fn spec(config: &PodSandboxConfig, handler: &str) -> Result<SandboxSpec> {
    let identity = identity(config)?;
    let nothing = LinuxPodSandboxConfig::default();
    let linux = config.linux.as_ref().unwrap_or(&nothing);
    let security = linux.security_context.clone().unwrap_or_default();
    let namespaces = security.namespace_options.clone().unwrap_or_default();
    let network = network(&namespaces)?;
    let mut spec = SandboxSpec::new(names::of_pod(&identity));
    spec.handler = Some(handler).filter(|name| !name.is_empty()).map(str::parse).transpose()?;
    spec.hostname = (network != Network::Host).then(|| hostname(config, &identity));
    spec.network = network;
    spec.pid = pid(&namespaces)?;
    spec.ipc = ipc(&namespaces)?;
    spec.user_namespace = user_namespace(&namespaces)?;
    spec.labels = config.labels.clone().into_iter().collect();
    spec.annotations = config.annotations.clone().into_iter().collect();
    spec.sysctls = linux.sysctls.clone().into_iter().collect();
    spec.names = names(config.dns_config.as_ref())?;
    if network != Network::Host {
        spec.ports = ports(&config.port_mappings)?;
    }
    if !linux.cgroup_parent.is_empty() {
        spec.cgroup_parent = Some(linux.cgroup_parent.parse()?);
    }
    spec.plan = plan(linux);
    spec.notes = kept(config, security.privileged);
    spec.identity = Some(identity);
    Ok(spec)
}

/// What kubelet expects the pod to take. It limits the pod by the cgroup above the pod's.
fn plan(linux: &LinuxPodSandboxConfig) -> PodPlan {
    let limits = |asked: &Option<api::LinuxContainerResources>| {
        asked.as_ref().map(resources::limits).unwrap_or_default()
    };
    PodPlan { overhead: limits(&linux.overhead), containers: limits(&linux.resources) }
}

fn identity(config: &PodSandboxConfig) -> Result<PodIdentity> {
    let Some(api::PodSandboxMetadata { name, uid, namespace, attempt }) = config.metadata.clone() else {
        return Err(Failure::invalid(
            "config.metadata",
            "nothing",
            "the pod's name, namespace, uid and attempt",
        ));
    };
    if name.is_empty() {
        return Err(Failure::invalid("config.metadata.name", "\"\"", "the pod's name"));
    }
    Ok(PodIdentity { name, namespace, uid, attempt })
}

/// kubelet gives a name to every pod with a network of its own. Others who ask mean the pod's.
fn hostname(config: &PodSandboxConfig, identity: &PodIdentity) -> String {
    if !config.hostname.is_empty() {
        return config.hostname.clone();
    }
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let name: String =
        identity.name.chars().filter(plain).take(mainstay_messages::spec::HOSTNAME_LENGTH_MAX).collect();
    if name.is_empty() { "pod".to_owned() } else { name }
}

fn network(namespaces: &NamespaceOption) -> Result<Network> {
    match namespaces.network() {
        NamespaceMode::Pod => Ok(Network::Default),
        NamespaceMode::Node => Ok(Network::Host),
        other => Err(mode("network", other, "POD or NODE")),
    }
}

fn pid(namespaces: &NamespaceOption) -> Result<PidMode> {
    match namespaces.pid() {
        NamespaceMode::Pod => Ok(PidMode::Pod),
        NamespaceMode::Container => Ok(PidMode::Container),
        NamespaceMode::Node => Ok(PidMode::Host),
        other => Err(mode("pid", other, "POD, CONTAINER or NODE")),
    }
}

fn ipc(namespaces: &NamespaceOption) -> Result<IpcMode> {
    match namespaces.ipc() {
        NamespaceMode::Pod => Ok(IpcMode::Pod),
        NamespaceMode::Node => Ok(IpcMode::Host),
        other => Err(mode("ipc", other, "POD or NODE")),
    }
}

fn user_namespace(namespaces: &NamespaceOption) -> Result<UserNamespace> {
    let Some(options) = &namespaces.userns_options else { return Ok(UserNamespace::Host) };
    match options.mode() {
        NamespaceMode::Node => Ok(UserNamespace::Host),
        NamespaceMode::Pod => {
            Ok(UserNamespace::Mapped(IdMappings { uids: ids(&options.uids), gids: ids(&options.gids) }))
        }
        other => Err(mode("userns_options.mode", other, "POD or NODE")),
    }
}

fn ids(mappings: &[api::IdMapping]) -> Vec<IdMapping> {
    let mapping = |mapping: &api::IdMapping| IdMapping {
        container: mapping.container_id,
        host: mapping.host_id,
        size: mapping.length,
    };
    mappings.iter().map(mapping).collect()
}

fn mode(field: &str, given: NamespaceMode, expected: &str) -> Failure {
    let field = format!("config.linux.security_context.namespace_options.{field}");
    Failure::invalid(field, given.as_str_name(), expected)
}

fn names(dns: Option<&api::DnsConfig>) -> Result<NameLookup> {
    let Some(dns) = dns else { return Ok(NameLookup::default()) };
    let server = |(index, text): (usize, &String)| {
        let field = format!("config.dns_config.servers[{index}]");
        text.parse().map_err(|_| Failure::invalid(field, format!("{text:?}"), NameServer::EXPECTED))
    };
    Ok(NameLookup {
        servers: dns.servers.iter().enumerate().map(server).collect::<Result<_>>()?,
        searches: dns.searches.clone(),
        options: dns.options.clone(),
        hosts: Vec::new(),
    })
}

/// Ports of the host. kubelet lists the ports of containers that have none of the host's, too.
fn ports(mappings: &[api::PortMapping]) -> Result<Vec<PortMapping>> {
    let wanted = mappings.iter().enumerate().filter(|(_, mapping)| mapping.host_port != 0);
    wanted.map(|(index, mapping)| port(index, mapping)).collect()
}

fn port(index: usize, mapping: &api::PortMapping) -> Result<PortMapping> {
    let number = |field: &str, port: i32| {
        let refused = || {
            let field = format!("config.port_mappings[{index}].{field}");
            Failure::invalid(field, port.to_string(), "a port from 1 to 65535")
        };
        u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(refused)
    };
    let address = |text: &str| {
        let field = format!("config.port_mappings[{index}].host_ip");
        text.parse::<IpAddr>()
            .map_err(|_| Failure::invalid(field, format!("{text:?}"), "an address of the host"))
    };
    let host_ip = match mapping.host_ip.as_str() {
        "" => None,
        text => Some(address(text)?).filter(|ip| !ip.is_unspecified()),
    };
    Ok(PortMapping {
        protocol: match mapping.protocol() {
            api::Protocol::Tcp => Protocol::Tcp,
            api::Protocol::Udp => Protocol::Udp,
            api::Protocol::Sctp => Protocol::Sctp,
        },
        host_ip,
        host_port: number("host_port", mapping.host_port)?,
        pod_port: number("container_port", mapping.container_port)?,
    })
}

fn kept(config: &PodSandboxConfig, privileged: bool) -> BTreeMap<String, String> {
    let notes = [
        (notes::LOG_DIRECTORY, config.log_directory.as_str()),
        (notes::PRIVILEGED, if privileged { "yes" } else { "" }),
    ];
    let given = notes.into_iter().filter(|(_, value)| !value.is_empty());
    given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
