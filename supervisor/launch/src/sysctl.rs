//! Kernel parameters of the container's name spaces.
//!
//! Only parameters that belong to a name space of the container's own (or its pod's) are written; any other would change the
//! host. They are written through the host's `/proc`, which shows each process the values of its own name spaces.

use std::collections::HashMap;
use std::hash::BuildHasher;

use oci_spec::runtime::LinuxNamespaceType;

use crate::error::{Context, Result, Step, invalid};
use crate::procfs::HostProc;

/// Parameters of the IPC name space beside `fs.mqueue.*`.
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// Writes the parameters. `owns` tells whether the container has a name space of a kind other than the host's.
pub(crate) fn set<S: BuildHasher>(
    proc: &HostProc,
    parameters: &HashMap<String, String, S>,
    owns: impl Fn(LinuxNamespaceType) -> bool,
) -> Result<()> {
    for (name, value) in parameters {
        let field = format!("linux.sysctl[{name:?}]");
        let path = path_of(name)
            .ok_or_else(|| invalid(&field, "it is no name of a parameter, such as net.core.somaxconn"))?;
        match name_space(&path) {
            Some(kind) if owns(kind) => {}
            Some(kind) => {
                return Err(invalid(
                    field,
                    format!("it belongs to the {kind} name space, which is the host's"),
                ));
            }
            None => {
                return Err(invalid(
                    field,
                    "it belongs to no name space of a container; setting it would change the host",
                ));
            }
        }
        proc.write(&format!("sys/{path}"), value.as_bytes())
            .context(Step::Sysctl, || format!("{field}: {value:?}"))?;
    }
    Ok(())
}

/// The path below `/proc/sys`. Either separator is taken; the one that comes first separates, the other is part of a name
/// (`net.ipv4.conf.eth0/100.forwarding`).
fn path_of(name: &str) -> Option<String> {
    let separator = name.chars().find(|c| matches!(c, '.' | '/'))?;
    let path: String = if separator == '/' {
        name.to_owned()
    } else {
        name.chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect()
    };
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    path.split('/').all(is_plain).then_some(path)
}

fn name_space(path: &str) -> Option<LinuxNamespaceType> {
    if path.starts_with("net/") {
        Some(LinuxNamespaceType::Network)
    } else if path.starts_with("fs/mqueue/") || IPC.iter().any(|known| known.replace('.', "/") == path) {
        Some(LinuxNamespaceType::Ipc)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_and_cannot_leave_the_tree() {
        assert_eq!(path_of("net.core.somaxconn").unwrap(), "net/core/somaxconn");
        assert_eq!(path_of("net/core/somaxconn").unwrap(), "net/core/somaxconn");
        assert_eq!(
            path_of("net.ipv4.conf.eth0/100.forwarding").unwrap(),
            "net/ipv4/conf/eth0.100/forwarding"
        );
        for bad in ["", "net", "net..x", "/net/x", "net/../kernel/core_pattern", "net.//.x", "a.b\0"] {
            assert_eq!(path_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_the_hosts_belongs_to_no_name_space() {
        assert_eq!(name_space("net/ipv4/ip_forward"), Some(LinuxNamespaceType::Network));
        assert_eq!(name_space("kernel/shmmax"), Some(LinuxNamespaceType::Ipc));
        assert_eq!(name_space("fs/mqueue/msg_max"), Some(LinuxNamespaceType::Ipc));
        for host in ["kernel/core_pattern", "vm/swappiness", "kernel/shmmax2", "fs/file-max", "network/x"] {
            assert_eq!(name_space(host), None, "{host}");
        }
    }
}
