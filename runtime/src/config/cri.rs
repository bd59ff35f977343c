//! The section `[cri]` of the configuration: the Container Runtime Interface of Kubernetes.

mod streaming;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::streaming::{StreamTls, StreamingSettings};

/// The name of the socket, in the directory of the admin socket, when nothing else is set.
const SOCKET_FILE: &str = "cri.sock";
/// How long a client that reads events may be away, in milliseconds, when nothing else is set.
pub const EVENTS_RESUME_DEFAULT_MS: u64 = 300_000;

/// How a daemon serves the Container Runtime Interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CriSettings {
    /// Whether it is served at all.
    pub enable: bool,
    /// The unix socket; `cri.sock` beside the admin socket when not given, none when empty.
    pub socket: Option<PathBuf>,
    /// How the cgroups of pods are named and made; kubelet is told.
    pub cgroup_driver: CgroupDriver,
    /// How long a client that reads events may be away and still get those that it has missed, in milliseconds.
    pub events_resume_ms: u64,
    /// Images that kubelet never removes, by name.
    pub pinned_images: Vec<String>,
    /// Exec, attach and port-forward.
    pub streaming: StreamingSettings,
}

/// How the cgroups of pods are named and made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupDriver {
    /// As directories.
    #[default]
    Cgroupfs,
    /// As slices and scopes of systemd.
    Systemd,
}

impl Default for CriSettings {
    fn default() -> Self {
        Self {
            enable: true,
            socket: None,
            cgroup_driver: CgroupDriver::default(),
            events_resume_ms: EVENTS_RESUME_DEFAULT_MS,
            pinned_images: Vec::new(),
            streaming: StreamingSettings::default(),
        }
    }
}

impl CriSettings {
    /// The socket, for a daemon with this admin socket; none when it is not served.
    pub fn socket_beside(&self, admin_socket: &Path) -> Option<PathBuf> {
        match &self.socket {
            _ if !self.enable => None,
            None => Some(admin_socket.with_file_name(SOCKET_FILE)),
            Some(path) if path.as_os_str().is_empty() => None,
            Some(path) => Some(path.clone()),
        }
    }

    /// What cannot be right: the key, its value, and what would be.
    pub(super) fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let socket = self.socket.as_ref().filter(|path| !path.as_os_str().is_empty() && !path.is_absolute());
        if let Some(path) = socket {
            return Some(("socket", path.display().to_string(), "an absolute path, or \"\" for none"));
        }
        self.streaming.fault()
    }

    /// The section as a commented text.
    pub(super) fn text(&self) -> String {
        let Self { enable, events_resume_ms, pinned_images, streaming, .. } = self;
        let streaming = streaming.text();
        format!(
            "# The Container Runtime Interface, for kubelet and crictl.\n\
             [cri]\n\
             enable = {enable}\n\
             # A unix socket, mode 0600: cri.sock beside admin_socket when not given, none when \"\".\n\
             # socket = \"/run/mainstay/cri.sock\"\n\
             # How the cgroups of pods are named and made: \"cgroupfs\", or \"systemd\". kubelet is told, and does the same.\n\
             cgroup_driver = \"cgroupfs\"\n\
             # How long a client that reads events may be away and still get those that it has missed, in milliseconds.\n\
             events_resume_ms = {events_resume_ms}\n\
             # Images that kubelet never removes, as in [\"registry.k8s.io/pause:3.10\"].\n\
             pinned_images = {pinned_images:?}\n\
             \n\
             {streaming}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_beside_the_admin_socket_unless_it_is_elsewhere_or_nowhere() {
        let of = |enable: bool, socket: Option<&str>| {
            CriSettings { enable, socket: socket.map(Into::into), ..CriSettings::default() }
                .socket_beside(Path::new("/run/m/admin.sock"))
        };
        assert_eq!(of(true, None), Some("/run/m/cri.sock".into()));
        assert_eq!(of(true, Some("/x")), Some("/x".into()));
        assert_eq!(of(true, Some("")), None);
        assert_eq!(of(false, Some("/x")), None);
    }
}
