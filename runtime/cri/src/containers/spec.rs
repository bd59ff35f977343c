//! A container as kubelet asks for it, as the runtime is asked for it.

use std::path::PathBuf;

use mainstay::{
    Access, ContainerSpec, Image, ImageRoot, Mount, Name, Privilege, ProcessSpec, Rootfs, SandboxSnapshot,
    Stdin, Terminal, WindowSize,
};
use mainstay_cri_api::ContainerConfig;

use super::signal;
use crate::failure::{Failure, Result};
use crate::notes;

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
pub(crate) fn spec(name: Name, asked: Asked<'_>) -> Result<ContainerSpec> {
    let Asked { config, pod, image } = asked;
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let privileged = security.is_some_and(|security| security.privileged);
    if privileged && !pod.record.spec.notes.contains_key(notes::PRIVILEGED) {
        let expected = "false: the pod was not asked for as privileged";
        return Err(Failure::invalid("config.linux.security_context.privileged", "true", expected));
    }
    let env =
        config.envs.iter().map(|env| (env.key.clone(), String::from_utf8_lossy(&env.value).into_owned()));
    let mut spec = ContainerSpec::new(name, config.args.iter().cloned());
    spec.rootfs = Rootfs::Image(ImageRoot {
        image: image.id.0.parse()?,
        entrypoint: (!config.command.is_empty()).then(|| config.command.clone()),
    });
    spec.process = ProcessSpec {
        env: env.collect(),
        workdir: (!config.working_dir.is_empty()).then(|| PathBuf::from(&config.working_dir)),
        terminal: if config.tty {
            Terminal::Tty(WindowSize { rows: 24, columns: 80 })
        } else {
            Terminal::None
        },
        ..spec.process
    };
    spec.mounts = config
        .mounts
        .iter()
        .map(|mount| {
            let access = if mount.readonly { Access::ReadOnly } else { Access::ReadWrite };
            Mount::bind(&mount.host_path, &mount.container_path, access)
        })
        .collect();
    spec.stdin = match (config.stdin, config.stdin_once) {
        (false, _) => Stdin::Null,
        (true, false) => Stdin::Open,
        (true, true) => Stdin::Once,
    };
    if privileged {
        spec.security.privilege = Privilege::Privileged;
    }
    spec.stop_signal = signal::asked(config.stop_signal());
    Ok(spec)
}
