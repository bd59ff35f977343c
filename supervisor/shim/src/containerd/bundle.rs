//! The files of a bundle of containerd's, besides `config.json`.
//!
//! | file | says | written by | read by |
//! |---|---|---|---|
//! | `address` | the shim's address | `start` | containerd up to 1.7, when it was restarted; `delete` |
//! | `init.pid` | the process id of PID 1 | Create | people, `delete` |
//! | `mainstay-cgroup` | the cgroup that is this container's alone | Create, before the cgroup is made | `delete` |
//! | `exit`, `exec-ID.exit` | how a process ended (EXIT_RECORD.md) | the shim, before it is announced | `delete` |
//! | `log` | a FIFO of containerd's for the shim's log | the shim | containerd |
//!
//! Owns: their names. Never: removes a bundle, which is containerd's.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mainstay_cgroups::CgroupPath;
use serde::Deserialize;

/// The file with the shim's address.
pub(super) const ADDRESS: &str = "address";
const INIT_PID: &str = "init.pid";
const CGROUP: &str = "mainstay-cgroup";
const LOG: &str = "log";
/// Annotations that name the group of containers that a shim is for, the first one first.
const GROUP_ANNOTATIONS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// What is read of a spec to find the group.
#[derive(Deserialize)]
struct Annotated {
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// The group of containers that the one of this bundle belongs to: `id` where it is alone.
pub(super) fn group(bundle: &Path, id: &str) -> io::Result<String> {
    let text = match std::fs::read(bundle.join("config.json")) {
        Ok(text) => text,
        // That of a sandbox that is no container.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(id.to_owned()),
        Err(error) => return Err(error),
    };
    let spec: Annotated = serde_json::from_slice(&text)?;
    let annotations = spec.annotations.unwrap_or_default();
    let group =
        GROUP_ANNOTATIONS.iter().find_map(|name| annotations.get(*name)).filter(|group| !group.is_empty());
    Ok(group.cloned().unwrap_or_else(|| id.to_owned()))
}

/// Writes a file so that a reader sees all of it or nothing.
pub(super) fn write(bundle: &Path, name: &str, text: &str) -> io::Result<()> {
    let temporary = bundle.join(format!(".{name}"));
    std::fs::write(&temporary, text)?;
    std::fs::rename(&temporary, bundle.join(name))
}

/// Notes the cgroup that will be this container's.
pub(super) fn note_cgroup(bundle: &Path, cgroup: &CgroupPath) -> io::Result<()> {
    write(bundle, CGROUP, &cgroup.to_string())
}

/// Takes that back, where the cgroup was not made.
pub(super) fn forget_cgroup(bundle: &Path) {
    // Noting it may be what has failed.
    let _ = std::fs::remove_file(bundle.join(CGROUP));
}

/// The cgroup that is, or was to be, this container's.
pub(super) fn cgroup(bundle: &Path) -> Option<CgroupPath> {
    CgroupPath::parse(&std::fs::read_to_string(bundle.join(CGROUP)).ok()?).ok()
}

/// Notes the process id of PID 1.
pub(super) fn note_pid(bundle: &Path, pid: u32) -> io::Result<()> {
    write(bundle, INIT_PID, &pid.to_string())
}

/// The process id of PID 1.
pub(super) fn pid(bundle: &Path) -> Option<u32> {
    std::fs::read_to_string(bundle.join(INIT_PID)).ok()?.trim().parse().ok()
}

/// The shim's log, for writing. Nobody may be reading it; what is written then is lost, and nobody waits for a reader.
pub(super) fn log(bundle: &Path) -> io::Result<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let log = File::options().write(true).custom_flags(flags).open(bundle.join(LOG))?;
    Ok(log.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_what_the_annotations_say() {
        let bundle = tempfile::tempdir().expect("a directory");
        let group_of = |spec: &str| {
            std::fs::write(bundle.path().join("config.json"), spec).expect("written");
            group(bundle.path(), "web")
        };
        assert_eq!(group(bundle.path(), "web").expect("no container"), "web");
        assert_eq!(group_of("{}").expect("good"), "web");
        assert_eq!(group_of(r#"{"annotations":null}"#).expect("good"), "web");
        let pod = r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#;
        assert_eq!(group_of(pod).expect("good"), "pod");
        let both =
            r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod","io.containerd.runc.v2.group":"g"}}"#;
        assert_eq!(group_of(both).expect("good"), "g");
        assert!(group_of("nonsense").is_err());
    }
}
