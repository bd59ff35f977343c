//! The configuration of an image: what to run, as whom, where, and the DiffIDs of its layers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::document::{DocumentError, or_default, read};
use crate::manifest::LAYERS_MAX;
use crate::{Digest, Platform};

/// The configuration of an image (OCI image specification, "Image Configuration").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// When it was made, as RFC 3339 has it; not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The processor; empty where the image does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    /// The variant of the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The system; empty where the image does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    /// How to run it.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Execution,
    /// The layers.
    #[serde(default, deserialize_with = "or_default")]
    pub rootfs: RootFs,
    /// How it was made.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<History>,
}

/// How to run the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Execution {
    /// `USER[:GROUP]`, names or numbers; empty is root.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Ports it listens on, as `80/tcp`. They open nothing.
    #[serde(default, with = "set_as_map", skip_serializing_if = "BTreeSet::is_empty")]
    pub exposed_ports: BTreeSet<String>,
    /// `NAME=VALUE` each.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The program with its first arguments.
    #[serde(default, deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments after the entrypoint, or the program where there is none.
    #[serde(default, deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Directories whose contents outlive a container.
    #[serde(default, with = "set_as_map", skip_serializing_if = "BTreeSet::is_empty")]
    pub volumes: BTreeSet<String>,
    /// Where the program starts; empty is `/`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Labels.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The signal that asks it to stop, a name or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// The layers of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// The digests of the layers' tar files, not compressed, the lowest first.
    #[serde(default, deserialize_with = "or_default")]
    pub diff_ids: Vec<Digest>,
}

/// One step of how an image was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// By which command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the step made no layer.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

impl ImageConfig {
    /// Reads a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let config: Self = read("image configuration", bytes)?;
        let count = config.rootfs.diff_ids.len();
        if count > LAYERS_MAX {
            let what = "the image configuration";
            return Err(DocumentError::TooMany { what, items: "diff_ids", count, max: LAYERS_MAX });
        }
        Ok(config)
    }

    /// The platform it is for; none where it does not say.
    pub fn platform(&self) -> Option<Platform> {
        (!self.os.is_empty() && !self.architecture.is_empty())
            .then(|| Platform::new(&self.os, &self.architecture, self.variant.as_deref()))
    }
}

/// A list of words. Old images have one text instead, which is one word.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::deserialize(from)? {
        None => Vec::new(),
        Some(Words::One(word)) => vec![word],
        Some(Words::Many(words)) => words,
    })
}

/// A set, which Go writes as a map whose values say nothing.
mod set_as_map {
    use super::*;
    use serde::de::IgnoredAny;

    pub fn serialize<S: Serializer>(set: &BTreeSet<String>, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Nothing {}
        to.collect_map(set.iter().map(|key| (key, Nothing {})))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<String>, D::Error> {
        let map = Option::<BTreeMap<String, IgnoredAny>>::deserialize(from)?;
        Ok(map.unwrap_or_default().into_keys().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_absent_fields_are_what_is_empty() {
        let text = br#"{"config":{"Entrypoint":null,"Cmd":"/bin/true","Env":null,"Volumes":{"/data":{}},
            "ExposedPorts":null,"Labels":null},"rootfs":{"type":"layers","diff_ids":null},"history":null,"x":[{}]}"#;
        let config = ImageConfig::parse(text).expect("a configuration");
        assert_eq!(config.config.cmd, ["/bin/true"]);
        assert_eq!(config.config.volumes, BTreeSet::from(["/data".to_owned()]));
        assert_eq!(config.platform(), None);
        let again = ImageConfig::parse(&serde_json::to_vec(&config).expect("JSON")).expect("itself");
        assert_eq!(again, config);
    }

    #[test]
    fn a_diff_id_that_is_a_path_is_refused() {
        let error = ImageConfig::parse(br#"{"rootfs":{"diff_ids":["../../etc"]}}"#).expect_err("no digest");
        let source = std::error::Error::source(&error).expect("a source").to_string();
        assert!(source.contains("\"../../etc\""), "{source}");
    }
}
