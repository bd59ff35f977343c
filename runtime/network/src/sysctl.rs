//! The kernel's switches that a pod network needs.
//!
//! Owns: which they are. Never: switches one back, because nobody can tell who relies on it by then; each change is logged and
//! told to the caller.
//!
//! These files show the namespace of the thread that opens them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::NetworkError;
use crate::settings::Settings;

const ROOT: &str = "/proc/sys/net";

/// A switch that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysctlChange {
    /// The switch, as sysctl(8) names it.
    pub name: String,
    /// What it was.
    pub from: String,
    /// What it is now.
    pub to: String,
}

/// Sets what the settings need; the changes that were made.
pub(crate) fn prepare(settings: &Settings) -> Result<Vec<SysctlChange>, NetworkError> {
    let mut changes = Vec::new();
    if settings.ipv4.is_some() {
        set("ipv4/ip_forward", "1", &mut changes)?;
        // Lets the host reach a pod's port as 127.0.0.1; the rules keep pods from the host's own loopback.
        set(&format!("ipv4/conf/{}/route_localnet", settings.bridge), "1", &mut changes)?;
    }
    if settings.ipv6.is_some() {
        set(&format!("ipv6/conf/{}/disable_ipv6", settings.bridge), "0", &mut changes)?;
        if read("ipv6/conf/all/forwarding")? == "0" {
            keep_router_advertisements(&mut changes)?;
        }
        set("ipv6/conf/all/forwarding", "1", &mut changes)?;
    }
    for SysctlChange { name, from, to } in &changes {
        tracing::info!(name, from, to, "a sysctl was changed for the pod network");
    }
    Ok(changes)
}

/// A host that forwards IPv6 stops listening to routers, and loses its own default route, unless it is told to go on.
fn keep_router_advertisements(changes: &mut Vec<SysctlChange>) -> Result<(), NetworkError> {
    let directory = Path::new(ROOT).join("ipv6/conf");
    for entry in fs::read_dir(&directory).map_err(|source| fault(&directory, "read", source))? {
        let name = entry.map_err(|source| fault(&directory, "read", source))?.file_name();
        let name = name.to_string_lossy().into_owned();
        let switch = format!("ipv6/conf/{name}/accept_ra");
        if !matches!(name.as_str(), "all" | "default" | "lo") && read(&switch).is_ok_and(|value| value == "1")
        {
            set(&switch, "2", changes)?;
        }
    }
    Ok(())
}

fn set(switch: &str, value: &str, changes: &mut Vec<SysctlChange>) -> Result<(), NetworkError> {
    let from = read(switch)?;
    if from == value {
        return Ok(());
    }
    let path = path(switch);
    fs::write(&path, value).map_err(|source| fault(&path, "written", source))?;
    changes.push(SysctlChange { name: format!("net.{}", switch.replace('/', ".")), from, to: value.into() });
    Ok(())
}

fn read(switch: &str) -> Result<String, NetworkError> {
    let path = path(switch);
    let text = fs::read_to_string(&path).map_err(|source| fault(&path, "read", source))?;
    Ok(text.trim().to_owned())
}

fn path(switch: &str) -> PathBuf {
    Path::new(ROOT).join(switch)
}

fn fault(path: &Path, operation: &'static str, source: io::Error) -> NetworkError {
    NetworkError::File { path: path.to_owned(), operation, source }
}
