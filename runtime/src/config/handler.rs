//! The sections `[handler.NAME]` of the configuration: what runs the containers of which pods.

use std::collections::BTreeMap;

use mainstay_messages::Handler;
use mainstay_messages::id::HANDLER_DEFAULT;
use mainstay_supervisor::handlers::{self, Handlers, OciProgram, Runner, ShimProgram, Vulnerable};
use serde::{Deserialize, Serialize};

/// What runs the containers of pods that name a handler, and what goes on to it. Without `shim` and `runtime` it is Mainstay's own
/// shim by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSettings {
    /// A program with the command line of runc, which the pod's shim calls: a path, or a name that is looked for in `PATH`.
    pub runtime: Option<String>,
    /// Whether pods are refused when `runtime` is of a version that is known to have a hole.
    pub refuse_vulnerable: bool,
    /// A shim of containerd's, which the pod's own shim starts and asks: a path, a name that is looked for in `PATH`, or a type
    /// as in `io.containerd.runc.v2`.
    pub shim: Option<String>,
    /// What `shim` is told at the creation of each container.
    pub options: BTreeMap<String, OptionValue>,
    /// How `shim` gives the output of processes.
    pub output: ShimOutput,
    /// Annotations of pods that go on to the OCI runtime: keys, or beginnings of keys with a `*` at the end.
    pub pod_annotations: Vec<String>,
    /// The same of containers.
    pub container_annotations: Vec<String>,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// Yes or no.
    Switch(bool),
    /// A number.
    Number(i64),
}

/// How a shim of containerd's gives the output of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimOutput {
    /// It starts a logger of ours, which hands the pipes to the pod's own shim.
    #[default]
    Logger,
    /// It writes into named pipes: for shims that know no loggers.
    Fifo,
}

/// The handlers of a configuration. [`HANDLER_DEFAULT`] is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HandlerTable(pub BTreeMap<Handler, HandlerSettings>);

impl HandlerTable {
    /// The settings of a handler, by the name that a runtime class has; none when there is no such one. The empty name is
    /// [`HANDLER_DEFAULT`].
    pub fn settings(&self, name: &str) -> Option<HandlerSettings> {
        let name = if name.is_empty() { HANDLER_DEFAULT } else { name };
        let set = self.0.iter().find(|(handler, _)| handler.as_str() == name);
        let set = set.map(|(_, settings)| settings.clone());
        set.or_else(|| (name == HANDLER_DEFAULT).then(HandlerSettings::default))
    }

    /// The names of all handlers.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let set = self.0.keys().map(Handler::as_str).filter(|name| *name != HANDLER_DEFAULT);
        std::iter::once(HANDLER_DEFAULT).chain(set).map(str::to_owned)
    }

    /// As the supervisor knows them.
    pub(crate) fn handlers(&self) -> Handlers {
        self.0.iter().map(|(name, settings)| (name.clone(), settings.runner())).collect()
    }

    /// What cannot be right: the key, its value, and what would be.
    pub(super) fn fault(&self) -> Option<(String, String, &'static str)> {
        self.0.iter().find_map(|(name, settings)| {
            let (key, value, expected) = settings.fault()?;
            Some((format!("{name}.{key}"), value, expected))
        })
    }

    /// The section as a commented text.
    pub(super) fn text() -> &'static str {
        "# Handlers: what runs the containers of a pod (`--handler NAME`, or a RuntimeClass). \"mainstay\" is that of pods that name\n\
         # none. Without `runtime` and `shim` it is Mainstay's own shim by itself, with nothing to install.\n\
         # [handler.runc]\n\
         # A program with the command line of runc, which the pod's shim calls: a path, or a name in PATH.\n\
         # runtime = \"runc\"\n\
         # Whether pods are refused when it is of a version that is known to have a hole; else the log warns of it.\n\
         # refuse_vulnerable = false\n\
         # [handler.kata]\n\
         # A shim of containerd's, which the pod's own shim starts and asks: a path, a name in PATH, or a type.\n\
         # shim = \"io.containerd.kata.v2\"\n\
         # What it is told at the creation of each container.\n\
         # options = { ConfigPath = \"/etc/kata/configuration.toml\" }\n\
         # How it gives the output of processes: \"logger\", or \"fifo\" for shims that know no loggers.\n\
         # output = \"logger\"\n\
         # Annotations that go on to it: whole keys, or beginnings with a * at the end.\n\
         # pod_annotations = [\"io.katacontainers.*\"]\n\
         # container_annotations = []\n"
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

    fn runner(&self) -> Runner {
        match (&self.runtime, &self.shim) {
            (Some(program), _) => Runner::Oci(OciProgram {
                program: program.clone(),
                vulnerable: if self.refuse_vulnerable { Vulnerable::Refuse } else { Vulnerable::Warn },
            }),
            (None, Some(program)) => Runner::Shim(ShimProgram {
                program: program.clone(),
                options: self.options.iter().map(|(key, value)| (key.clone(), value.into())).collect(),
                output: match self.output {
                    ShimOutput::Logger => handlers::ShimOutput::Logger,
                    ShimOutput::Fifo => handlers::ShimOutput::Fifo,
                },
            }),
            (None, None) => Runner::Own,
        }
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let empty = |value: &Option<String>| value.as_ref().is_some_and(String::is_empty);
        match (&self.runtime, &self.shim) {
            (Some(_), Some(shim)) => Some(("shim", shim.clone(), "no shim, since `runtime` is given")),
            (runtime, _) if empty(runtime) => {
                Some(("runtime", String::new(), "a path, or the name of a program in PATH"))
            }
            (_, shim) if empty(shim) => {
                Some(("shim", String::new(), "a path, or the name of a program in PATH"))
            }
            (None, _) if self.refuse_vulnerable => {
                Some(("refuse_vulnerable", "true".to_owned(), "false, since there is no `runtime`"))
            }
            (_, None) if !self.options.is_empty() => {
                let keys: Vec<_> = self.options.keys().map(String::as_str).collect();
                Some(("options", keys.join(", "), "no options, since there is no `shim`"))
            }
            (_, None) if self.output != ShimOutput::default() => {
                Some(("output", "fifo".to_owned(), "\"logger\", since there is no `shim`"))
            }
            _ => None,
        }
    }
}

impl From<&OptionValue> for handlers::OptionValue {
    fn from(value: &OptionValue) -> Self {
        match value {
            OptionValue::Text(text) => Self::Text(text.clone()),
            OptionValue::Switch(on) => Self::Switch(*on),
            OptionValue::Number(number) => Self::Number(*number),
        }
    }
}

fn lists(patterns: &[String], key: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => key == pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> HandlerTable {
        toml::from_str(text).expect("a good table")
    }

    #[test]
    fn the_usual_handler_is_always_there() {
        let table = table("[other]");
        for name in ["", HANDLER_DEFAULT, "other"] {
            assert!(table.settings(name).is_some(), "{name:?}");
        }
        assert_eq!(table.settings("unknown"), None);
        assert_eq!(table.names().collect::<Vec<_>>(), ["mainstay", "other"]);
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

    #[rstest::rstest]
    #[case("[a]\nshim = \"x\"\nruntime = \"y\"", "a.shim")]
    #[case("[a]\nshim = \"\"", "a.shim")]
    #[case("[a]\nruntime = \"\"", "a.runtime")]
    #[case("[a]\nrefuse_vulnerable = true", "a.refuse_vulnerable")]
    #[case("[a]\nruntime = \"y\"\noptions = { A = 1 }", "a.options")]
    #[case("[a]\noutput = \"fifo\"", "a.output")]
    fn what_does_not_go_together_is_a_fault(#[case] text: &str, #[case] key: &str) {
        assert_eq!(table(text).fault().expect("a fault").0, key);
    }

    #[test]
    fn a_shim_takes_options() {
        let table = table("[a]\nshim = \"x\"\noptions = { A = \"1\", B = true, C = 3 }\noutput = \"fifo\"");
        assert_eq!(table.fault(), None);
        let Runner::Shim(shim) = table.0.values().next().expect("one").runner() else { panic!("a shim") };
        assert_eq!(shim.options["B"], handlers::OptionValue::Switch(true));
        assert_eq!(shim.output, handlers::ShimOutput::Fifo);
    }
}
