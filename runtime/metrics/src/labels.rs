//! Labels, and a limit on the values that they can have: each value is a series for ever, here and in whoever scrapes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;

/// The most names from outside (steps, plugins, actors) that one label shows; further ones are `other` together.
pub const NAMES_MAX: usize = 64;
/// The longest name that is shown, in bytes.
pub const NAME_LENGTH_MAX: usize = 64;
/// What is shown for a name beyond the limits.
pub const OTHER: &str = "other";

/// The names that a label has shown.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeSet<String>>);

impl Names {
    /// The name as it is shown.
    pub(crate) fn shown(&self, name: &str) -> String {
        // Each change of the set is one call, so that a poisoned lock holds a sound set.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) {
            return name.to_owned();
        }
        if known.len() >= NAMES_MAX || name.len() > NAME_LENGTH_MAX {
            return OTHER.to_owned();
        }
        known.insert(name.to_owned());
        name.to_owned()
    }
}

/// A phase as a label: `not ready` is `not_ready`.
pub(crate) fn word(phase: &str) -> String {
    phase.replace(' ', "_")
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SagaOutcome {
    pub saga: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SagaStep {
    pub saga: String,
    pub step: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StepWay {
    pub saga: String,
    pub step: String,
    pub way: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StepOutcome {
    pub saga: String,
    pub step: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Plugin {
    pub plugin: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessOutcome {
    pub process: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessKind {
    pub process: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Actor {
    pub actor: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Phase {
    pub phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct By {
    pub source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Deviating {
    pub deviation: String,
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginHook {
    pub plugin: String,
    pub hook: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginMove {
    pub plugin: String,
    pub event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginOutcome {
    pub plugin: String,
    pub hook: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Version {
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plugin that registers under a new name each time would be a new series each time, for ever.
    #[test]
    fn names_from_outside_are_limited() {
        let names = Names::default();
        for number in 0..1_000 {
            names.shown(&format!("plugin-{number}"));
        }
        assert_eq!(names.shown("plugin-63"), "plugin-63");
        assert_eq!(names.shown("plugin-64"), OTHER);
        assert_eq!(Names::default().shown(&"x".repeat(NAME_LENGTH_MAX + 1)), OTHER);
    }
}
