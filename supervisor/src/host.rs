//! What this machine, and this process on it, can give to containers.
//!
//! Owns: finding that out, once, so that a setting that cannot be honoured is refused before anything starts.
//! Never: decides what a container gets (that is [`crate::oci`]), and never changes anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use mainstay_messages::spec::{Device, RLIMIT_NAMES};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{Capabilities, LinuxDevice, LinuxDeviceType};

use crate::cdi::Edits;
use crate::disks::DiskNumbers;
use crate::lsm::{AppArmorFacts, SelinuxFacts};
use crate::oci::capabilities;

/// Where the machine's device nodes are.
pub(crate) const DEV: &str = "/dev";
/// The deepest directory below `/dev` that is looked into for device nodes.
const DEVICE_DEPTH_MAX: usize = 4;
/// Directories of `/dev` that hold no devices of the machine, or are made anew in each container.
const NOT_DEVICES: [&str; 5] = ["pts", "shm", "mqueue", "fd", "hugepages"];
/// Nodes that each container gets of its own.
const OWN_NODES: [&str; 3] = ["console", "ptmx", "tty"];

/// Where systemd-resolved says whom it asks.
pub(crate) const UPLINK_RESOLVER: &str = "/run/systemd/resolve/resolv.conf";
/// The largest `/etc/hosts` or `/etc/resolv.conf` that is copied, in bytes.
const NAME_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What the machine can give.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// The capabilities that this process has, and so can give.
    pub capabilities: Capabilities,
    /// The lowest `oom_score_adj` that can be set.
    pub oom_score_floor: i32,
    /// The hard limits (by name, without prefix) that cannot be raised. Empty when all can.
    pub hard_limits: BTreeMap<String, u64>,
    /// The machine's device nodes, looked up for each privileged container anew: they come and go.
    pub devices: Vec<LinuxDevice>,
    /// The devices that a container's spec names, those of each entry in its order, looked up for each container anew.
    pub named_devices: Vec<Vec<LinuxDevice>>,
    /// Its kernel.
    pub kernel: KernelVersion,
    /// Its `/etc/resolv.conf`, read for each container anew.
    pub resolver: Option<String>,
    /// What its resolver service itself asks, where `/etc/resolv.conf` leads to that service alone; read for each container
    /// anew.
    pub uplink_resolver: Option<String>,
    /// Its `/etc/hosts`, read for each container anew.
    pub hosts: Option<String>,
    /// The disks that a container's limits are for, looked up for each container anew.
    pub disks: DiskNumbers,
    /// Whether it has AppArmor, asked for each container anew: profiles come and go.
    pub apparmor: AppArmorFacts,
    /// Whether it has SELinux, asked for each container anew.
    pub selinux: SelinuxFacts,
    /// What the CDI devices that a container has by its spec and by plugins change, looked up for each container anew.
    pub cdi: Vec<Edits>,
}

/// The version of a kernel, as far as anything depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// As the 6 of 6.1.
    pub major: u32,
    /// As the 1 of 6.1.
    pub minor: u32,
}

impl KernelVersion {
    /// Reads `6.1`, or what begins so.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.trim().split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: major.parse().ok()?, minor: rest[..digits].parse().ok()? })
    }

    /// That of this machine.
    fn detect() -> Self {
        // What cannot be read is older than anything.
        rustix::system::uname().release().to_str().ok().and_then(Self::parse).unwrap_or_default()
    }
}

impl HostFacts {
    /// Asks the kernel.
    pub fn detect() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let oom_score: i32 =
            number(&fs::read_to_string("/proc/self/oom_score_adj")?, "/proc/self/oom_score_adj")?;
        let permitted = mask(&status, "CapPrm:")? & mask(&status, "CapBnd:")?;
        let capabilities = capabilities::from_mask(permitted);
        let may_raise = capabilities.contains(&oci_spec::runtime::Capability::SysResource);
        Ok(Self {
            oom_score_floor: if may_raise { -1000 } else { oom_score },
            hard_limits: if may_raise {
                BTreeMap::new()
            } else {
                hard_limits(&fs::read_to_string("/proc/self/limits")?)
            },
            capabilities,
            devices: Vec::new(),
            named_devices: Vec::new(),
            disks: DiskNumbers::new(),
            kernel: KernelVersion::detect(),
            resolver: None,
            uplink_resolver: None,
            hosts: None,
            cdi: Vec::new(),
            apparmor: AppArmorFacts::default(),
            selinux: SelinuxFacts::default(),
        })
    }
}

/// All device nodes of the machine below a directory that stands for `/dev`. What cannot be read is left out.
pub(crate) fn device_nodes(dev: &Path) -> Vec<LinuxDevice> {
    nodes_below(dev, Path::new(DEV), &NOT_DEVICES, &OWN_NODES)
}

/// All device nodes below a directory, as if it were at `place`. Those directories and nodes that are named are left out at its
/// top.
fn nodes_below(top: &Path, place: &Path, no_directories: &[&str], no_nodes: &[&str]) -> Vec<LinuxDevice> {
    let mut found = Vec::new();
    let mut open: Vec<(PathBuf, usize)> = vec![(top.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is = |names: &[&str]| depth == 0 && names.iter().any(|known| name == *known);
            // Of the entry itself: links are not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < DEVICE_DEPTH_MAX && !is(no_directories) {
                open.push((entry.path(), depth + 1));
            } else if !is(no_nodes)
                && let Ok(below) = entry.path().strip_prefix(top)
                && let Some(device) = node(&place.join(below), &metadata)
            {
                found.push(device);
            }
        }
    }
    found.sort_by(|a, b| a.path().cmp(b.path()));
    found
}

/// What is in a file of the host's that containers get a copy of; none when it cannot be read, or is too large.
pub(crate) fn name_file(path: &str) -> Option<String> {
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(NAME_FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.is_ok_and(|bytes| bytes as u64 <= NAME_FILE_BYTES_MAX).then_some(text)
}

/// The devices that a container's spec names, in its order, and where they are in the container. Links are followed: the device is
/// what they lead to. A directory stands for all devices in it.
pub(crate) fn named_devices(devices: &[Device]) -> Result<Vec<Vec<LinuxDevice>>> {
    let found = devices.iter().enumerate().map(|(index, device)| {
        let refused = |why: &str| {
            let field = format!("devices[{index}].path");
            Error::invalid(field, format!("{:?}", device.path), format!("a device node of the host ({why})"))
        };
        let metadata = fs::metadata(&device.path).map_err(|error| refused(&error.to_string()))?;
        let target = device.target.as_deref().unwrap_or(&device.path);
        if metadata.is_dir() {
            return match nodes_below(&device.path, target, &[], &[]) {
                none if none.is_empty() => Err(refused("it is a directory without one")),
                nodes => Ok(nodes),
            };
        }
        node(target, &metadata).map(|node| vec![node]).ok_or_else(|| refused("it is no device"))
    });
    found.collect()
}

fn node(path: &Path, metadata: &fs::Metadata) -> Option<LinuxDevice> {
    let kind = if metadata.file_type().is_char_device() {
        LinuxDeviceType::C
    } else if metadata.file_type().is_block_device() {
        LinuxDeviceType::B
    } else {
        return None;
    };
    let mut device = LinuxDevice::default();
    device
        .set_path(path.to_owned())
        .set_typ(kind)
        .set_major(i64::from(rustix::fs::major(metadata.rdev())))
        .set_minor(i64::from(rustix::fs::minor(metadata.rdev())))
        .set_file_mode(Some(metadata.mode() & 0o777))
        .set_uid(Some(metadata.uid()))
        .set_gid(Some(metadata.gid()));
    Some(device)
}

/// The hard limits of `/proc/self/limits`, whose rows are as in `Max open files  1024  4096  files`.
fn hard_limits(limits: &str) -> BTreeMap<String, u64> {
    limits.lines().skip(1).filter_map(hard_limit).collect()
}

fn hard_limit(row: &str) -> Option<(String, u64)> {
    let (title, name) = LIMIT_TITLES.iter().find(|(title, _)| row.starts_with(title))?;
    debug_assert!(RLIMIT_NAMES.contains(name));
    let hard = row[title.len()..].split_ascii_whitespace().nth(1)?;
    Some(((*name).to_owned(), if hard == "unlimited" { u64::MAX } else { hard.parse().ok()? }))
}

/// How `/proc/PID/limits` calls what setrlimit(2) knows.
const LIMIT_TITLES: [(&str, &str); 16] = [
    ("Max cpu time", "CPU"),
    ("Max file size", "FSIZE"),
    ("Max data size", "DATA"),
    ("Max stack size", "STACK"),
    ("Max core file size", "CORE"),
    ("Max resident set", "RSS"),
    ("Max processes", "NPROC"),
    ("Max open files", "NOFILE"),
    ("Max locked memory", "MEMLOCK"),
    ("Max address space", "AS"),
    ("Max file locks", "LOCKS"),
    ("Max pending signals", "SIGPENDING"),
    ("Max msgqueue size", "MSGQUEUE"),
    ("Max nice priority", "NICE"),
    ("Max realtime priority", "RTPRIO"),
    ("Max realtime timeout", "RTTIME"),
];

fn mask(status: &str, key: &str) -> io::Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    value
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .ok_or_else(|| malformed(&format!("{key} of /proc/self/status")))
}

fn number(text: &str, file: &str) -> io::Result<i32> {
    text.trim().parse().map_err(|_| malformed(file))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_machine() {
        let facts = HostFacts::detect().expect("/proc is mounted");
        assert!(facts.oom_score_floor <= 1000);
        let devices = device_nodes(Path::new(DEV));
        let null =
            devices.iter().find(|device| device.path() == Path::new("/dev/null")).expect("a /dev/null");
        assert_eq!((null.major(), null.minor()), (1, 3));
        assert!(devices.iter().all(|device| device.path() != Path::new("/dev/ptmx")));
    }

    #[test]
    fn reads_the_table_of_limits() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max cpu time              unlimited            unlimited            seconds   \n\
                     Max open files            1024                 524288               files     \n\
                     Max nice priority         0                    0                    \n";
        let limits = hard_limits(table);
        assert_eq!(limits["NOFILE"], 524_288);
        assert_eq!(limits["CPU"], u64::MAX);
        assert_eq!(limits["NICE"], 0);
    }
}
