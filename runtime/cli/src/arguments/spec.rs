//! From flags to specs. Pure: what has to be looked up on the machine comes in by [`Surroundings`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_messages::spec::{
    Access, BlockDeviceLimit, BlockIo, CpuTime, IdMapping, IdMappings, ImageRoot, IpcMode, Mount,
    MountSource, NameLookup, Network, PidMode, Privilege, ProcessSpec, Resources, Rootfs, Seccomp, Security,
    Stdin, SupplementaryGroups, Terminal, UserNamespace, WindowSize,
};
use mainstay_messages::{ContainerSpec, ExecSpec, Name, SandboxSpec};

use super::container::{
    CreateArguments, ExecArguments, FileArguments, GroupsName, IpcName, PidName, ProcessArguments,
    ResourceArguments, SandboxArguments, SecurityArguments, SecurityOption,
};

/// What specs need from the machine.
pub struct Surroundings<'a> {
    /// The environment that `--env-file` and `--env` make.
    pub environment: BTreeMap<String, String>,
    /// The size of our terminal, or a usual one.
    pub window: WindowSize,
    /// Makes a path absolute.
    pub absolute: &'a dyn Fn(&Path) -> PathBuf,
    /// The system call profile that a flag names, as its file has it.
    pub seccomp_profile: Option<String>,
}

impl CreateArguments {
    /// The container. `stdin` is what `--interactive` means here. Fails when the name of the image is none.
    pub fn container_spec(
        &self,
        name: Name,
        stdin: Stdin,
        surroundings: Surroundings<'_>,
    ) -> mainstay_messages::Result<ContainerSpec> {
        let absolute = surroundings.absolute;
        let (image, command) = self.image_and_command();
        let rootfs = match image {
            Some(image) => Rootfs::Image(ImageRoot {
                image: image.parse()?,
                entrypoint: self.image.entrypoint.as_ref().map(|program| words_of(program)),
            }),
            None => self.files.rootfs(absolute),
        };
        Ok(ContainerSpec {
            rootfs,
            mounts: self.files.mounts(absolute),
            resources: self.resources.resources(),
            security: self.security.security(
                if self.files.read_only { Access::ReadOnly } else { Access::ReadWrite },
                surroundings.seccomp_profile.as_deref(),
            ),
            devices: self.files.devices.clone(),
            device_rules: self.files.device_rules.clone(),
            cdi_devices: self.files.cdi_devices.clone(),
            stdin: if self.process.interactive { stdin } else { Stdin::Null },
            stop_signal: self.end.stop_signal,
            stop_grace_ms: self.end.stop_timeout.map(millis),
            oom_score_adj: self.end.oom_score_adj,
            rlimits: self.rlimits.clone(),
            labels: self.labels.iter().cloned().collect(),
            process: self.process.process_spec(command, surroundings),
            ..ContainerSpec::new(name, std::iter::empty::<String>())
        })
    }

    /// The pod of the container's own, named like it.
    pub fn sandbox_spec(&self, name: Name) -> SandboxSpec {
        self.sandbox.sandbox_spec(name)
    }
}

impl ExecArguments {
    /// The exec.
    pub fn exec_spec(&self, surroundings: Surroundings<'_>) -> ExecSpec {
        ExecSpec {
            process: self.process.process_spec(&self.command, surroundings),
            stdin: if self.process.interactive { Stdin::Once } else { Stdin::Null },
        }
    }
}

impl SandboxArguments {
    /// A pod of this shape, without limits.
    pub fn sandbox_spec(&self, name: Name) -> SandboxSpec {
        SandboxSpec {
            hostname: self.hostname.clone(),
            handler: self.handler.clone(),
            network: match self.network {
                None => Network::Default,
                Some(name) => name.kind(),
            },
            pid: match self.pid {
                None | Some(PidName::Container) => PidMode::Container,
                Some(PidName::Pod) => PidMode::Pod,
                Some(PidName::Host) => PidMode::Host,
            },
            ipc: match self.ipc {
                None | Some(IpcName::Pod) => IpcMode::Pod,
                Some(IpcName::Host) => IpcMode::Host,
            },
            cgroup_parent: self.cgroup_parent.clone(),
            sysctls: self.sysctls.iter().cloned().collect(),
            names: NameLookup {
                servers: self.dns.clone(),
                searches: self.dns_search.clone(),
                options: self.dns_option.clone(),
                hosts: self.add_host.clone(),
            },
            user_namespace: self.user_namespace(),
            ports: self.publish.clone(),
            ips: self.ip.clone(),
            mac: self.mac,
            ..SandboxSpec::new(name)
        }
    }

    fn user_namespace(&self) -> UserNamespace {
        let (uids, gids) = (&self.uidmap, &self.gidmap);
        let other = |own: &Vec<IdMapping>, other: &Vec<IdMapping>| {
            if own.is_empty() { other.clone() } else { own.clone() }
        };
        match &self.userns {
            Some(namespace) => namespace.clone(),
            None if uids.is_empty() && gids.is_empty() => UserNamespace::Host,
            None => UserNamespace::Mapped(IdMappings { uids: other(uids, gids), gids: other(gids, uids) }),
        }
    }
}

impl ProcessArguments {
    fn process_spec(&self, command: &[String], surroundings: Surroundings<'_>) -> ProcessSpec {
        ProcessSpec {
            command: command.to_vec(),
            env: surroundings.environment,
            workdir: self.workdir.clone(),
            user: self.user.clone(),
            groups: self.groups.clone(),
            terminal: if self.tty { Terminal::Tty(surroundings.window) } else { Terminal::None },
        }
    }
}

impl ResourceArguments {
    /// The limits.
    pub fn resources(&self) -> Resources {
        Resources {
            memory_bytes: self.memory,
            cpu_time: self.cpus.map(CpuTime::of_millis),
            cpu_shares: self.cpu_shares,
            cpuset_cpus: self.cpuset_cpus.clone(),
            cpuset_mems: self.cpuset_mems.clone(),
            pids: self.pids_limit,
            memory_swap_bytes: self.memory_swap,
            memory_reservation_bytes: self.memory_reservation,
            hugepages: self.hugepages.clone(),
            block_io: BlockIo { weight: self.blkio_weight, devices: self.disks() },
            unified: self.unified.iter().cloned().collect(),
        }
    }

    /// One entry for each disk that a flag names, in the order of the flags.
    fn disks(&self) -> Vec<BlockDeviceLimit> {
        let mut disks: Vec<BlockDeviceLimit> = Vec::new();
        let mut disk = |path: &Path, set: &dyn Fn(&mut BlockDeviceLimit)| {
            let known = disks.iter().position(|disk| disk.path == path);
            let index = known.unwrap_or_else(|| {
                disks.push(BlockDeviceLimit::new(path));
                disks.len() - 1
            });
            set(&mut disks[index]);
        };
        for (path, weight) in &self.blkio_weight_device {
            disk(path, &|disk| disk.weight = Some(*weight));
        }
        for (path, rate) in &self.device_read_bps {
            disk(path, &|disk| disk.read_bps = Some(*rate));
        }
        for (path, rate) in &self.device_write_bps {
            disk(path, &|disk| disk.write_bps = Some(*rate));
        }
        for (path, rate) in &self.device_read_iops {
            disk(path, &|disk| disk.read_iops = Some(*rate));
        }
        for (path, rate) in &self.device_write_iops {
            disk(path, &|disk| disk.write_iops = Some(*rate));
        }
        disks
    }
}

impl FileArguments {
    fn rootfs(&self, absolute: &dyn Fn(&Path) -> PathBuf) -> Rootfs {
        match (&self.rootfs, &self.rootfs_rw) {
            (Some(path), _) => Rootfs::CopyOnWrite { path: absolute(path) },
            (None, Some(path)) => Rootfs::Directory { path: absolute(path) },
            (None, None) => Rootfs::Host,
        }
    }

    /// Memory file systems first, so that volumes can be mounted below them.
    fn mounts(&self, absolute: &dyn Fn(&Path) -> PathBuf) -> Vec<Mount> {
        let volumes = self.volumes.iter().cloned().map(|mut volume| {
            if let MountSource::Bind { path } = &mut volume.source {
                *path = absolute(path);
            }
            volume
        });
        self.tmpfs.iter().chain(&self.images).cloned().chain(volumes).collect()
    }
}

impl SecurityArguments {
    /// The file with the system call profile, if a flag names one.
    pub fn seccomp_file(&self) -> Option<&Path> {
        self.options.iter().rev().find_map(|option| match option {
            SecurityOption::SeccompFile(path) => Some(path.as_path()),
            SecurityOption::Seccomp(_) | SecurityOption::AppArmor(_) | SecurityOption::NewPrivileges(_) => {
                None
            }
        })
    }

    fn security(&self, root: Access, profile: Option<&str>) -> Security {
        let mut security = Security {
            privilege: if self.privileged { Privilege::Privileged } else { Privilege::Confined },
            capabilities_add: self.capabilities_add.clone(),
            capabilities_drop: self.capabilities_drop.clone(),
            capabilities_ambient: self.capabilities_ambient.clone(),
            root,
            supplementary_groups: match self.supplementary_groups {
                None | Some(GroupsName::Merge) => SupplementaryGroups::Merge,
                Some(GroupsName::Strict) => SupplementaryGroups::Strict,
            },
            ..Security::default()
        };
        for option in &self.options {
            match option {
                SecurityOption::Seccomp(seccomp) => security.seccomp = seccomp.clone(),
                SecurityOption::SeccompFile(_) => {
                    security.seccomp = Seccomp::Profile { json: profile.unwrap_or_default().to_owned() };
                }
                SecurityOption::AppArmor(profile) => security.apparmor = profile.clone(),
                SecurityOption::NewPrivileges(rule) => security.new_privileges = *rule,
            }
        }
        security
    }
}

/// An entrypoint is one program; an empty one is none.
fn words_of(program: &str) -> Vec<String> {
    if program.is_empty() { Vec::new() } else { vec![program.to_owned()] }
}

/// Whole milliseconds; more than can be counted is as long as can be.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
