//! The flags that describe a container, an exec or a pod. The specs that they make are in `spec`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_messages::admin::Reference;
use mainstay_messages::image::PullPolicy;
use mainstay_messages::spec::{
    AppArmor, CgroupParent, Device, DeviceRule, HostEntry, HugepageLimit, IdMapping, Mac, Mount, NameServer,
    Network, NewPrivileges, PortMapping, Rlimit, Seccomp, UserNamespace,
};
use mainstay_messages::{Handler, Name, Signal};

use super::parse::{self, DiskRate, Variable};
use super::reference;

/// What `run --help` says at its end.
pub const RUN_AFTER_HELP: &str = "\
Examples:
  mainstay run -- sh -c 'echo hello; exit 3'
  mainstay run -it --memory 64m --network host -- bash
  mainstay run -d --name web -p 8080:80 -v /srv/www:/www:ro -- busybox httpd -f -h /www
  mainstay run --userns auto --rootfs /srv/image -- id

Without a daemon that answers, the container runs inside this command, and nothing is left of it at the end.

INT and TERM ask the container to stop, as `mainstay stop` does: with that signal, then with SIGKILL after its stop \
time-out, or at once when the signal comes a second time. HUP, QUIT, USR1, USR2 and ALRM are passed on to it. \
When nobody reads its output any more, it is killed. With -it, Ctrl-P Ctrl-Q leaves it running where a daemon has \
it and --rm was not given.

Exit status: that of the container's process; 128 + N when signal N ended it; 128 when it could not be started; 255 \
when nobody saw how it ended; 125 when mainstay itself failed; 2 when the command line is wrong.";

/// What `exec --help` says at its end.
pub const EXEC_AFTER_HELP: &str = "\
HUP, INT, QUIT, USR1, USR2, ALRM and TERM are passed on to the process.

Exit status: that of the process; 128 + N when signal N ended it; 128 when it could not be started; 255 when nobody \
saw how it ended; 125 when mainstay itself failed; 2 when the command line is wrong.";

/// Of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Leave it running in the daemon, and print its id
    #[arg(short, long, conflicts_with_all = ["remove", "embedded"])]
    pub detach: bool,
    /// Remove it at the end; without a daemon it always is
    #[arg(long = "rm")]
    pub remove: bool,
    /// Run it inside this command even if a daemon answers
    #[arg(long, conflicts_with = "pod")]
    pub embedded: bool,
    /// What is run.
    #[command(flatten)]
    pub what: CreateArguments,
}

/// Of `create`, and of `run`.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The pod to put it into; one of its own, named like it, when not given
    #[arg(long, value_parser = reference, conflicts_with = "SandboxArguments")]
    pub pod: Option<Reference>,
    /// A container of the pod whose processes it sees, and with whose end it ends
    #[arg(long, value_name = "CONTAINER", value_parser = reference, requires = "pod")]
    pub pid_of: Option<Reference>,
    /// Its name; a made-up one when not given
    #[arg(long)]
    pub name: Option<Name>,
    /// The pod of its own.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// The process.
    #[command(flatten)]
    pub process: ProcessArguments,
    /// Its limits.
    #[command(flatten)]
    pub resources: ResourceArguments,
    /// Its files.
    #[command(flatten)]
    pub files: FileArguments,
    /// What it may do.
    #[command(flatten)]
    pub security: SecurityArguments,
    /// Its end.
    #[command(flatten)]
    pub end: EndArguments,
    /// A resource limit, as in nofile=1024:4096
    #[arg(long = "ulimit", value_name = "NAME=SOFT[:HARD]", value_parser = parse::ulimit)]
    pub rlimits: Vec<Rlimit>,
    /// A label, for `inspect` and `--json`
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArguments,
    /// The image, with what to run instead of its own command; or, behind -- or with --rootfs, what to run on the host's
    /// root or on that one
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE|--", "COMMAND"], num_args = 1..)]
    pub words: Vec<String>,
    /// Whether the words stand behind `--`.
    #[arg(skip)]
    pub dashes: Dashes,
}

/// Whether `--` stands before the words of a command line that are no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dashes {
    /// It does not.
    #[default]
    Absent,
    /// It does.
    Present,
}

/// Where the image comes from, and how it begins.
#[derive(Debug, Default, Args)]
pub struct ImageArguments {
    /// When to ask the registry for the image: missing, always or never
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, help_heading = "Image")]
    pub pull: Option<PullName>,
    /// The platform of the image, as in linux/arm64; this machine's when not given
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", help_heading = "Image")]
    pub platform: Option<String>,
    /// What to run instead of the image's entrypoint; the command follows it
    #[arg(long, value_name = "PROGRAM", help_heading = "Image")]
    pub entrypoint: Option<String>,
}

impl ImageArguments {
    /// When the image is pulled.
    pub fn policy(&self) -> PullPolicy {
        match self.pull {
            None | Some(PullName::Missing) => PullPolicy::Missing,
            Some(PullName::Always) => PullPolicy::Always,
            Some(PullName::Never) => PullPolicy::Never,
        }
    }
}

impl CreateArguments {
    /// Takes note of what stands before the words in the whole command line, which ends with them.
    pub fn look_before_words<T: AsRef<std::ffi::OsStr>>(&mut self, line: &[T]) {
        let before = line.len().checked_sub(self.words.len() + 1).and_then(|index| line.get(index));
        self.dashes = match before {
            Some(word) if word.as_ref() == "--" => Dashes::Present,
            _ => Dashes::Absent,
        };
    }

    /// The image and the command, or the command alone where the root is the host's or a directory.
    pub fn image_and_command(&self) -> (Option<&str>, &[String]) {
        let directory = self.files.rootfs.is_some() || self.files.rootfs_rw.is_some();
        match self.words.split_first() {
            Some((image, command)) if self.dashes == Dashes::Absent && !directory => (Some(image), command),
            _ => (None, &self.words),
        }
    }
}

/// When an image is pulled, as a flag names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PullName {
    /// When it is not here.
    Missing,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Of `exec`.
#[derive(Debug, Args)]
pub struct ExecArguments {
    /// The process.
    #[command(flatten)]
    pub process: ProcessArguments,
    /// The container
    #[arg(value_parser = reference)]
    pub container: Reference,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Flags that `run` and `exec` share.
#[derive(Debug, Default, Args)]
pub struct ProcessArguments {
    /// Pass standard input on to it
    #[arg(short, long)]
    pub interactive: bool,
    /// Give it a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// An environment variable; KEY alone takes its value from here
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = parse::variable)]
    pub env: Vec<Variable>,
    /// A file with a variable a line
    #[arg(long = "env-file", value_name = "FILE")]
    pub env_files: Vec<PathBuf>,
    /// The working directory; made when it is missing
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// USER, UID, USER:GROUP or UID:GID
    #[arg(short, long)]
    pub user: Option<String>,
    /// Another group, by number
    #[arg(long = "group-add", value_name = "GID", value_parser = parse::group)]
    pub groups: Vec<u32>,
}

/// The shape of a pod.
#[derive(Debug, Default, Args)]
pub struct SandboxArguments {
    /// The network: the runtime's own bridge, that of CNI plugins, a loopback alone, or the host's; as the daemon is
    /// configured when not given, and a loopback alone without a daemon
    #[arg(long, value_enum, value_name = "builtin|cni|none|host", hide_possible_values = true)]
    pub network: Option<NetworkName>,
    /// A port of the host that leads to one of the pod, as in 8080:80 or 127.0.0.1:53:53/udp
    #[arg(
        short,
        long,
        value_name = "[IP:]HOST:POD[/udp|tcp|sctp]",
        value_parser = parse::port_mapping,
        help_heading = "Network"
    )]
    pub publish: Vec<PortMapping>,
    /// An address that the pod is to have, one of a family
    #[arg(long, value_name = "ADDRESS", help_heading = "Network")]
    pub ip: Vec<IpAddr>,
    /// The Ethernet address that the pod is to have
    #[arg(long, value_name = "ADDRESS", help_heading = "Network")]
    pub mac: Option<Mac>,
    /// The host name; the pod's name when not given
    #[arg(long)]
    pub hostname: Option<String>,
    /// What runs its containers, as the configuration calls it; Mainstay's own shim when not given
    #[arg(long, value_name = "NAME")]
    pub handler: Option<Handler>,
    /// Whose processes are seen: its own, those of the whole pod, or the host's
    #[arg(long, value_enum, value_name = "container|pod|host", hide_possible_values = true)]
    pub pid: Option<PidName>,
    /// Whose System V IPC, message queues and /dev/shm are shared: the pod's, or the host's
    #[arg(long, value_enum, value_name = "pod|host", hide_possible_values = true)]
    pub ipc: Option<IpcName>,
    /// The cgroup to make the pod's in, as a path or as the name of a slice of systemd; the daemon's own when not given
    #[arg(long, value_name = "CGROUP")]
    pub cgroup_parent: Option<CgroupParent>,
    /// The user namespace: the host's; one with ids that no other pod has; or one with these ids of users and groups, each
    /// range as CONTAINER:HOST:SIZE, separated by commas
    #[arg(
        long,
        value_name = "host|auto|CONTAINER:HOST:SIZE",
        value_parser = parse::user_namespace,
        help_heading = "Ids"
    )]
    pub userns: Option<UserNamespace>,
    /// A range of ids of users, in a user namespace; of groups, too, without --gidmap
    #[arg(
        long,
        value_name = "CONTAINER:HOST:SIZE",
        value_parser = parse::id_mapping,
        conflicts_with = "userns",
        help_heading = "Ids"
    )]
    pub uidmap: Vec<IdMapping>,
    /// A range of ids of groups; of users, too, without --uidmap
    #[arg(
        long,
        value_name = "CONTAINER:HOST:SIZE",
        value_parser = parse::id_mapping,
        conflicts_with = "userns",
        help_heading = "Ids"
    )]
    pub gidmap: Vec<IdMapping>,
    /// A kernel parameter of its network or IPC
    #[arg(long = "sysctl", value_name = "NAME=VALUE", value_parser = parse::sysctl)]
    pub sysctls: Vec<(String, String)>,
    /// A name server
    #[arg(long, value_name = "ADDRESS", help_heading = "Names")]
    pub dns: Vec<NameServer>,
    /// A domain that short names are looked up in
    #[arg(long, value_name = "DOMAIN", help_heading = "Names")]
    pub dns_search: Vec<String>,
    /// An option of the resolver, as in ndots:2
    #[arg(long, value_name = "OPTION", help_heading = "Names")]
    pub dns_option: Vec<String>,
    /// A name with a fixed address
    #[arg(long, value_name = "NAME:ADDRESS", value_parser = parse::host, help_heading = "Names")]
    pub add_host: Vec<HostEntry>,
}

/// A network, as a flag names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkName {
    /// A loopback of its own.
    #[value(alias = "private")]
    None,
    /// The runtime's own bridge.
    Builtin,
    /// As CNI plugins make it.
    Cni,
    /// The host's.
    Host,
}

impl NetworkName {
    /// The kind of network.
    pub fn kind(self) -> Network {
        match self {
            Self::None => Network::None,
            Self::Builtin => Network::Builtin,
            Self::Cni => Network::Cni,
            Self::Host => Network::Host,
        }
    }
}

/// A pid namespace, as a flag names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PidName {
    /// Of its own.
    Container,
    /// The pod's.
    Pod,
    /// The host's.
    Host,
}

/// An IPC namespace, as a flag names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IpcName {
    /// The pod's.
    Pod,
    /// The host's.
    Host,
}

/// Limits.
#[derive(Debug, Default, Args)]
pub struct ResourceArguments {
    /// The most memory, as in 64m or 1.5g
    #[arg(
        short,
        long,
        value_name = "SIZE",
        value_parser = parse::size_or_unlimited,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub memory: Option<u64>,
    /// The most memory and swap together; needs --memory
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse::size_or_unlimited,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub memory_swap: Option<u64>,
    /// Memory that is left to it when memory is short
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse::size_or_unlimited,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub memory_reservation: Option<u64>,
    /// The most CPU time, in CPUs, as in 1.5
    #[arg(
        long,
        value_name = "N",
        value_parser = parse::cpus_or_unlimited,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub cpus: Option<u64>,
    /// The weight when CPU time is short; 1024 is usual
    #[arg(long, value_name = "N", value_parser = parse::number, help_heading = "Limits")]
    pub cpu_shares: Option<u64>,
    /// The CPUs to run on, as in 0-2,4
    #[arg(long, value_name = "LIST", help_heading = "Limits")]
    pub cpuset_cpus: Option<String>,
    /// The memory nodes to use, as in 0,1
    #[arg(long, value_name = "LIST", help_heading = "Limits")]
    pub cpuset_mems: Option<String>,
    /// The most processes and threads
    #[arg(
        long,
        value_name = "N",
        value_parser = parse::count_or_unlimited,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    pub pids_limit: Option<u64>,
    /// The most memory in huge pages of a size, as in 2MB=64m
    #[arg(
        long = "hugepages",
        value_name = "SIZE=BYTES",
        value_parser = parse::hugepages,
        help_heading = "Limits"
    )]
    pub hugepages: Vec<HugepageLimit>,
    /// A file of cgroup v2 and what is written to it, as in memory.high=67108864
    #[arg(long = "cgroup-conf", value_name = "FILE=VALUE", value_parser = parse::unified, help_heading = "Limits")]
    pub unified: Vec<(String, String)>,
    /// The weight when a disk is busy, 10 to 1000
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub blkio_weight: Option<u16>,
    /// The same for one disk
    #[arg(long, value_name = "DISK:N", value_parser = parse::disk_weight, help_heading = "Limits")]
    pub blkio_weight_device: Vec<(PathBuf, u16)>,
    /// The most bytes a second that are read from a disk
    #[arg(long, value_name = "DISK:SIZE", value_parser = parse::disk_bytes, help_heading = "Limits")]
    pub device_read_bps: Vec<DiskRate>,
    /// The most bytes a second that are written to a disk
    #[arg(long, value_name = "DISK:SIZE", value_parser = parse::disk_bytes, help_heading = "Limits")]
    pub device_write_bps: Vec<DiskRate>,
    /// The most reads a second from a disk
    #[arg(long, value_name = "DISK:N", value_parser = parse::disk_number, help_heading = "Limits")]
    pub device_read_iops: Vec<DiskRate>,
    /// The most writes a second to a disk
    #[arg(long, value_name = "DISK:N", value_parser = parse::disk_number, help_heading = "Limits")]
    pub device_write_iops: Vec<DiskRate>,
}

/// Root file system and mounts.
#[derive(Debug, Default, Args)]
pub struct FileArguments {
    /// A directory as root, changes kept apart and dropped at the end; the host's root when not given
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub rootfs: Option<PathBuf>,
    /// A directory as root, used as it is: changes stay in it, and what is made for mounts, as proc and dev
    #[arg(long, value_name = "DIR", conflicts_with = "rootfs", help_heading = "Files")]
    pub rootfs_rw: Option<PathBuf>,
    /// The root cannot be written to
    #[arg(long, help_heading = "Files")]
    pub read_only: bool,
    /// A file or directory of the host to mount; options: ro, private, slave, shared, noidmap (with --userns: its files keep
    /// the host's owners)
    #[arg(
        short = 'v',
        long = "volume",
        value_name = "SOURCE:TARGET[:OPTIONS]",
        value_parser = parse::volume,
        help_heading = "Files"
    )]
    pub volumes: Vec<Mount>,
    /// An empty file system in memory to mount
    #[arg(
        long = "tmpfs",
        value_name = "TARGET[:size=SIZE]",
        value_parser = parse::tmpfs,
        help_heading = "Files"
    )]
    pub tmpfs: Vec<Mount>,
    /// An image to mount, or the file or directory of it at PATH; it can only be read
    #[arg(
        long = "mount-image",
        value_name = "TARGET=IMAGE[,PATH]",
        value_parser = parse::image_mount,
        help_heading = "Files"
    )]
    pub images: Vec<Mount>,
    /// A device by its name in the Container Device Interface, as in vendor.example/gpu=0
    #[arg(long = "cdi-device", value_name = "NAME", help_heading = "Files")]
    pub cdi_devices: Vec<String>,
    /// A device of the host, or a directory of them
    #[arg(
        long = "device",
        value_name = "SOURCE[:TARGET[:rwm]]",
        value_parser = parse::device,
        help_heading = "Files"
    )]
    pub devices: Vec<Device>,
    /// Devices that it may use, as in 'c 10:* rw'
    #[arg(
        long = "device-cgroup-rule",
        value_name = "RULE",
        value_parser = parse::device_rule,
        help_heading = "Files"
    )]
    pub device_rules: Vec<DeviceRule>,
}

/// What a container may do.
#[derive(Debug, Default, Args)]
pub struct SecurityArguments {
    /// All that root on the host may do
    #[arg(long, help_heading = "Security")]
    pub privileged: bool,
    /// A capability to add, or ALL
    #[arg(long = "cap-add", value_name = "CAP", value_parser = parse::capability, help_heading = "Security")]
    pub capabilities_add: Vec<String>,
    /// A capability to take away, or ALL
    #[arg(long = "cap-drop", value_name = "CAP", value_parser = parse::capability, help_heading = "Security")]
    pub capabilities_drop: Vec<String>,
    /// A capability that programs of other users than root have, too, or ALL
    #[arg(
        long = "cap-ambient",
        value_name = "CAP",
        value_parser = parse::capability,
        help_heading = "Security"
    )]
    pub capabilities_ambient: Vec<String>,
    /// seccomp=default, seccomp=unconfined, seccomp=FILE (a profile as Docker's or OCI's), apparmor=default,
    /// apparmor=unconfined, apparmor=PROFILE, no-new-privileges
    #[arg(long = "security-opt", value_name = "OPTION", value_parser = security_option, help_heading = "Security")]
    pub options: Vec<SecurityOption>,
    /// Where supplementary groups come from: also from the container's /etc/group, or from --group-add alone
    #[arg(
        long,
        value_enum,
        value_name = "merge|strict",
        hide_possible_values = true,
        help_heading = "Security"
    )]
    pub supplementary_groups: Option<GroupsName>,
}

/// Where supplementary groups come from, as a flag names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupsName {
    /// From the flags and the container's own files.
    Merge,
    /// From the flags.
    Strict,
}

/// A value of `--security-opt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityOption {
    /// The system call filter.
    Seccomp(Seccomp),
    /// The same, in a file.
    SeccompFile(PathBuf),
    /// The profile of AppArmor.
    AppArmor(AppArmor),
    /// Gaining rights by executing a file.
    NewPrivileges(NewPrivileges),
}

/// How a container ends.
#[derive(Debug, Default, Args)]
pub struct EndArguments {
    /// The signal that asks it to stop; TERM when not given
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<Signal>,
    /// Time from there to SIGKILL; 10 s when not given
    #[arg(long, value_name = "SECONDS", value_parser = parse::duration)]
    pub stop_timeout: Option<Duration>,
    /// How soon the kernel ends it when memory is short, -1000 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub oom_score_adj: Option<i32>,
}

fn security_option(text: &str) -> Result<SecurityOption, String> {
    match text {
        "seccomp=unconfined" => Ok(SecurityOption::Seccomp(Seccomp::Unconfined)),
        "seccomp=default" => Ok(SecurityOption::Seccomp(Seccomp::Default)),
        "no-new-privileges" | "no-new-privileges=true" => {
            Ok(SecurityOption::NewPrivileges(NewPrivileges::Forbidden))
        }
        "apparmor=unconfined" => Ok(SecurityOption::AppArmor(AppArmor::Unconfined)),
        "apparmor=default" => Ok(SecurityOption::AppArmor(AppArmor::Default)),
        "no-new-privileges=false" => Ok(SecurityOption::NewPrivileges(NewPrivileges::Allowed)),
        _ => match text.split_once('=') {
            Some(("seccomp", file)) if !file.is_empty() => Ok(SecurityOption::SeccompFile(file.into())),
            Some(("apparmor", name)) if !name.is_empty() => {
                Ok(SecurityOption::AppArmor(AppArmor::Profile { name: name.to_owned() }))
            }
            _ => Err("expected seccomp=default, seccomp=unconfined, seccomp=FILE, apparmor=default, apparmor=unconfined, \
                      apparmor=PROFILE or no-new-privileges"
                .to_owned()),
        },
    }
}
