//! Who pods and containers are to an orchestrator: what it calls them, given back exactly as it was given.
//!
//! Owns: the words and their limits. Never: decides what is unique; that is [`crate::id::Name`], which has an alphabet of its
//! own and is made from these by whoever speaks with the orchestrator.

use serde::{Deserialize, Serialize};

use super::check::check_text;
use crate::error::Result;

/// The longest name, namespace or uid of an orchestrator, in bytes.
pub const IDENTITY_LENGTH_MAX: usize = 1_024;

/// Who a pod is to the orchestrator that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Its name there.
    pub name: String,
    /// The namespace that the name is in.
    pub namespace: String,
    /// What tells it from others of that name, before and after it.
    pub uid: String,
    /// How often it was made before.
    pub attempt: u32,
}

/// Who a container is to the orchestrator that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerIdentity {
    /// Its name in its pod.
    pub name: String,
    /// How often it was made before.
    pub attempt: u32,
}

impl PodIdentity {
    pub(super) fn check(&self) -> Result<()> {
        let texts = [
            ("identity.name", &self.name),
            ("identity.namespace", &self.namespace),
            ("identity.uid", &self.uid),
        ];
        texts.into_iter().try_for_each(|(field, text)| check_text(field, text, IDENTITY_LENGTH_MAX))
    }
}

impl ContainerIdentity {
    pub(super) fn check(&self) -> Result<()> {
        check_text("identity.name", &self.name, IDENTITY_LENGTH_MAX)
    }
}
