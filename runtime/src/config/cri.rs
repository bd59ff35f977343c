//! The section `[cri]` of the configuration: the Container Runtime Interface of Kubernetes.

mod streaming;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::streaming::{StreamTls, StreamingSettings};

/// The name of the socket, in the directory of the admin socket, when nothing else is set.
const SOCKET_FILE: &str = "cri.sock";
/// The handler of pods without a runtime class. It is always there.
pub const HANDLER_DEFAULT: &str = "mainstay";
/// How long a client that reads events may be away, in milliseconds, when nothing else is set.
pub const EVENTS_RESUME_DEFAULT_MS: u64 = 300_000;
/// The longest name of a handler, in bytes: a label of DNS.
const HANDLER_LENGTH_MAX: usize = 63;

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
    /// Handlers, which runtime classes name. [`HANDLER_DEFAULT`] is always there.
    pub handlers: BTreeMap<String, HandlerSettings>,
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

/// How the pods of a handler differ from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSettings {
    /// Annotations of pods that go on to the OCI runtime: keys, or beginnings of keys with a `*` at the end.
    pub pod_annotations: Vec<String>,
    /// The same of containers.
    pub container_annotations: Vec<String>,
}

impl Default for CriSettings {
    fn default() -> Self {
        Self {
            enable: true,
            socket: None,
            cgroup_driver: CgroupDriver::default(),
            events_resume_ms: EVENTS_RESUME_DEFAULT_MS,
            pinned_images: Vec::new(),
            handlers: BTreeMap::new(),
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

    /// The settings of a handler by the name that a runtime class has; none when there is no such one. The empty name is
    /// [`HANDLER_DEFAULT`].
    pub fn handler(&self, name: &str) -> Option<HandlerSettings> {
        let name = if name.is_empty() { HANDLER_DEFAULT } else { name };
        let set = self.handlers.get(name).cloned();
        set.or_else(|| (name == HANDLER_DEFAULT).then(HandlerSettings::default))
    }

    /// The names of all handlers.
    pub fn handler_names(&self) -> impl Iterator<Item = String> + '_ {
        let set = self.handlers.keys().map(String::as_str).filter(|name| *name != HANDLER_DEFAULT);
        std::iter::once(HANDLER_DEFAULT).chain(set).map(str::to_owned)
    }

    /// What cannot be right: the key, its value, and what would be.
    pub(super) fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let socket = self.socket.as_ref().filter(|path| !path.as_os_str().is_empty() && !path.is_absolute());
        if let Some(path) = socket {
            return Some(("socket", path.display().to_string(), "an absolute path, or \"\" for none"));
        }
        let expected = "a name of lower-case letters, digits and '-', as in a RuntimeClass";
        let handler = self.handlers.keys().find(|name| !is_handler_name(name));
        let handler = handler.map(|name| ("handlers", name.clone(), expected));
        handler.or_else(|| self.streaming.fault())
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
             # Handlers, which runtime classes name. \"mainstay\" is that of pods without a class. Annotations go on to the\n\
             # OCI runtime that are listed: whole keys, or beginnings with a * at the end.\n\
             # [cri.handlers.mainstay]\n\
             # pod_annotations = [\"example.com/*\"]\n\
             # container_annotations = []\n\
             \n\
             {streaming}"
        )
    }
}

impl HandlerSettings {
    /// Whether this annotation of a pod goes on.
    pub fn passes_of_pod(&self, key: &str) -> bool {
        lists(&self.pod_annotations, key)
    }

    /// Whether this annotation of a container goes on.
    pub fn passes_of_container(&self, key: &str) -> bool {
        lists(&self.container_annotations, key)
    }
}

fn lists(patterns: &[String], key: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => key == pattern,
    })
}

fn is_handler_name(name: &str) -> bool {
    (1..=HANDLER_LENGTH_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
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

    #[test]
    fn the_usual_handler_is_always_there() {
        let settings = CriSettings {
            handlers: [("other".to_owned(), HandlerSettings::default())].into(),
            ..CriSettings::default()
        };
        for name in ["", HANDLER_DEFAULT, "other"] {
            assert!(settings.handler(name).is_some(), "{name:?}");
        }
        assert_eq!(settings.handler("unknown"), None);
    }

    #[test]
    fn annotations_pass_that_are_listed() {
        let handler = HandlerSettings {
            pod_annotations: vec!["a.io/one".into(), "b.io/*".into()],
            ..HandlerSettings::default()
        };
        for (key, passes) in [("a.io/one", true), ("a.io/ones", false), ("b.io/any", true), ("c", false)] {
            assert_eq!(handler.passes_of_pod(key), passes, "{key}");
            assert!(!handler.passes_of_container(key), "{key}");
        }
    }
}
