//! What a container of Kubernetes is to be, in the words of the core.
//!
//! Owns: which field of `ContainerConfig` becomes which of [`ContainerSpec`], and what is wrong with one that cannot. Pure but for the
//! profiles of the node ([`profile`]). Never: decides what a container gets where the interface says nothing; that is the
//! core's, but where the two differ in what nothing means (below).
//!
//! | nothing said of | is |
//! |---|---|
//! | seccomp | no filter |
//! | masked and read-only paths, beside other settings of security | none |
//! | a path of the host that is not there | a directory that is made |
//! | the mounts below one that can only be read | as on the host |

mod mounts;
mod profile;
mod resources;
mod security;

use std::collections::BTreeMap;
use std::path::Path;

use mainstay::{
    ContainerPid, ContainerSpec, Device, Image, ImageName, ImageRoot, Name, PidMode, ProcessSpec, Rootfs,
    SandboxSnapshot, SandboxSpec, Stdin, Terminal, WindowSize,
};
use mainstay_cri_api::{
    self as api, ContainerConfig, KeyValue, LinuxContainerConfig, LinuxContainerSecurityContext,
    NamespaceMode, NamespaceOption,
};

use super::signal;
use crate::failure::{Failure, Result};

pub(crate) use resources::resources;

/// The size of a terminal until somebody who attaches says another.
const WINDOW: WindowSize = WindowSize { rows: 24, columns: 80 };

/// What a container is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The request.
    pub(crate) config: &'a ContainerConfig,
    /// Its pod. What that was asked for is in its spec, and in its notes ([`crate::notes`]).
    pub(crate) pod: &'a SandboxSnapshot,
    /// Its image.
    pub(crate) image: &'a Image,
}

/// The spec of a container. Its labels, annotations, log, identity and notes are filled in by the caller.
pub(crate) async fn spec(name: Name, asked: Asked<'_>) -> Result<ContainerSpec> {
    let Asked { config, pod, image } = asked;
    let read = match security::seccomp_file(config) {
        Some(file) => profile::read(file).await,
        None => Err("it was not read".to_owned()),
    };
    // There is one such file at most.
    container_spec(name, config, &pod.record.spec, image.id.0.parse()?, |_| read.clone())
}

fn container_spec(
    name: Name,
    config: &ContainerConfig,
    pod: &SandboxSpec,
    image: ImageName,
    profile_of: impl Fn(&Path) -> std::result::Result<String, String>,
) -> Result<ContainerSpec> {
    let linux = config.linux.clone().unwrap_or_default();
    let LinuxContainerConfig { resources: limits, security_context } = &linux;
    let security = security_context.clone().unwrap_or_default();
    let process = ProcessSpec {
        command: config.args.clone(),
        env: environment(&config.envs)?,
        workdir: (!config.working_dir.is_empty()).then(|| config.working_dir.clone().into()),
        user: security::user(&security)?,
        groups: security::groups(&security)?,
        terminal: if config.tty { Terminal::Tty(WINDOW) } else { Terminal::None },
    };
    Ok(ContainerSpec {
        rootfs: Rootfs::Image(ImageRoot {
            image,
            entrypoint: (!config.command.is_empty()).then(|| config.command.clone()),
        }),
        process,
        mounts: mounts::mounts(&config.mounts, &pod.user_namespace)?,
        resources: limits.as_ref().map(resources).transpose()?.unwrap_or_default(),
        security: security::security(security_context.as_ref(), profile_of)?,
        stdin: match (config.stdin, config.stdin_once) {
            (false, _) => Stdin::Null,
            (true, false) => Stdin::Open,
            (true, true) => Stdin::Once,
        },
        stop_signal: signal::asked(known("config.stop_signal", config.stop_signal)?),
        oom_score_adj: limits.as_ref().map(resources::oom_score).transpose()?,
        devices: config.devices.iter().map(device).collect(),
        cdi_devices: config.cdi_devices.iter().map(|device| device.name.clone()).collect(),
        pid: pid(&security, pod.pid)?,
        ..ContainerSpec::new(name, std::iter::empty::<String>())
    })
}

fn environment(variables: &[KeyValue]) -> Result<BTreeMap<String, String>> {
    let variable = |variable: &KeyValue| {
        let value = String::from_utf8(variable.value.clone()).map_err(|_| {
            let field = format!("config.envs[{:?}].value", variable.key);
            Failure::invalid(field, "bytes that are no text", "text in UTF-8")
        })?;
        Ok((variable.key.clone(), value))
    };
    variables.iter().map(variable).collect()
}

fn device(device: &api::Device) -> Device {
    let or = |given: &str, usual: &str| if given.is_empty() { usual.to_owned() } else { given.to_owned() };
    Device {
        path: device.host_path.clone().into(),
        target: Some(or(&device.container_path, &device.host_path).into()),
        access: or(&device.permissions, "rwm"),
    }
}

/// Whose processes it sees. A pod that has none in common gives each container its own, whatever the container says.
fn pid(security: &LinuxContainerSecurityContext, pod: PidMode) -> Result<ContainerPid> {
    let none = NamespaceOption { pid: NamespaceMode::Pod.into(), ..NamespaceOption::default() };
    let options = security.namespace_options.as_ref().unwrap_or(&none);
    let mode = known::<NamespaceMode>("config.linux.security_context.namespace_options.pid", options.pid)?;
    Ok(match (mode, pod) {
        (NamespaceMode::Pod, _)
        | (NamespaceMode::Container, PidMode::Container)
        | (NamespaceMode::Node, PidMode::Host) => ContainerPid::Pod,
        (NamespaceMode::Container, PidMode::Pod | PidMode::Host) => ContainerPid::Own,
        (NamespaceMode::Node, PidMode::Pod | PidMode::Container) => ContainerPid::Host,
        (NamespaceMode::Target, _) => ContainerPid::Container { container: options.target_id.parse()? },
    })
}

/// A value of an enumeration. One that a newer interface has is not taken for another.
fn known<E: TryFrom<i32>>(field: &str, number: i32) -> Result<E> {
    E::try_from(number)
        .map_err(|_| Failure::invalid(field, number.to_string(), "a value that the interface has"))
}

#[cfg(test)]
mod tests;
