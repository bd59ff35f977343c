//! Lists of plugins, as operators write them.
//!
//! Owns: reading and checking them, and what a plugin gets of them. Never: runs anything.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::error::CniError;

/// The largest file of configuration, in bytes.
pub const CONFIG_LENGTH_MAX: u64 = 1024 * 1024;
/// Plugins of one list at most.
const PLUGINS_MAX: usize = 64;
/// The versions of the specification that are spoken, the best one last.
pub const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

/// A list of plugins.
#[derive(Clone, Debug)]
pub(super) struct NetworkList {
    pub(super) name: String,
    pub(super) version: &'static str,
    pub(super) plugins: Vec<Map<String, Value>>,
    pub(super) is_check_disabled: bool,
    pub(super) is_gc_disabled: bool,
    pub(super) text: String,
}

impl NetworkList {
    /// The first list of a directory, by the names of the files.
    pub(super) fn load(directory: &Path) -> Result<Self, CniError> {
        let fault = |path: &Path, source| CniError::File { path: path.to_owned(), operation: "read", source };
        let entries = std::fs::read_dir(directory).map_err(|source| fault(directory, source))?;
        let is_config = |path: &PathBuf| {
            path.extension().is_some_and(|end| end == "conflist" || end == "conf" || end == "json")
        };
        let mut paths: Vec<_> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_config).collect();
        paths.sort();
        let path = paths.first().ok_or_else(|| CniError::NoNetwork { directory: directory.to_owned() })?;
        let mut text = String::new();
        let file = File::open(path).map_err(|source| fault(path, source))?;
        file.take(CONFIG_LENGTH_MAX + 1).read_to_string(&mut text).map_err(|source| fault(path, source))?;
        Self::parse(&text, path)
    }

    /// Reads a list, or a single plugin, which is a list of one.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, CniError> {
        let wrong = |field: &str, expected: String| CniError::Config {
            path: path.to_owned(),
            field: field.into(),
            expected,
        };
        if text.len() as u64 > CONFIG_LENGTH_MAX {
            return Err(wrong("the file", format!("at most {CONFIG_LENGTH_MAX} bytes")));
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| wrong("the file", format!("JSON ({error})")))?;
        let name = value["name"].as_str().filter(|name| is_name(name));
        let name = name.ok_or_else(|| wrong("name", "letters, digits, '_', '.' or '-'".into()))?;
        let version =
            version(&value).ok_or_else(|| wrong("cniVersion", format!("one of {}", VERSIONS.join(", "))))?;
        let plugins = match value.get("plugins") {
            Some(Value::Array(plugins)) => plugins.clone(),
            Some(_) => return Err(wrong("plugins", "a list".into())),
            None => vec![value.clone()],
        };
        if plugins.is_empty() || plugins.len() > PLUGINS_MAX {
            return Err(wrong("plugins", format!("1 to {PLUGINS_MAX} plugins")));
        }
        let plugin = |(index, plugin): (usize, Value)| match plugin {
            // The name of a program beside the others, never a path to somewhere else.
            Value::Object(plugin) if plugin.get("type").and_then(Value::as_str).is_some_and(is_name) => {
                Ok(plugin)
            }
            _ => Err(wrong(&format!("plugins[{index}].type"), "the name of a program".into())),
        };
        Ok(Self {
            name: name.into(),
            version,
            plugins: plugins.into_iter().enumerate().map(plugin).collect::<Result<_, _>>()?,
            is_check_disabled: is_on(&value["disableCheck"]),
            is_gc_disabled: is_on(&value["disableGC"]),
            text: text.into(),
        })
    }

    /// The program of a plugin.
    pub(super) fn kind(&self, index: usize) -> &str {
        self.plugins[index].get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// STATUS and GC came with 1.1.0.
    pub(super) fn has_status_and_gc(&self) -> bool {
        self.version == "1.1.0"
    }

    /// Of the capabilities that are asked for, those that the plugin says it has.
    pub(super) fn runtime_config(&self, index: usize, asked: &Value) -> Value {
        let able = |name: &str| {
            self.plugins[index].get("capabilities").is_some_and(|capabilities| is_on(&capabilities[name]))
        };
        let asked = asked.as_object().into_iter().flatten();
        let granted: Map<_, _> =
            asked.filter(|(name, _)| able(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
        if granted.is_empty() { Value::Null } else { json!({ "runtimeConfig": granted }) }
    }

    /// What a plugin reads.
    pub(super) fn input(&self, index: usize, extra: &Value, previous: Option<&Value>) -> Value {
        let mut input = self.plugins[index].clone();
        input.remove("capabilities");
        input.insert("name".into(), self.name.clone().into());
        input.insert("cniVersion".into(), self.version.into());
        for (key, value) in extra.as_object().into_iter().flatten() {
            input.insert(key.clone(), value.clone());
        }
        if let Some(previous) = previous {
            input.insert("prevResult".into(), previous.clone());
        }
        Value::Object(input)
    }
}

/// The best version that the list and this program know.
fn version(list: &Value) -> Option<&'static str> {
    let offered = list["cniVersions"].as_array().into_iter().flatten().chain([&list["cniVersion"]]);
    let offered: Vec<_> = offered.filter_map(Value::as_str).collect();
    VERSIONS.into_iter().rev().find(|version| offered.contains(version))
}

fn is_on(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str() == Some("true"))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(text: &str) -> Result<NetworkList, CniError> {
        NetworkList::parse(text, Path::new("a.conflist"))
    }

    #[rstest]
    #[case("{", "the file")]
    #[case(r#"{"cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#, "name")]
    #[case(r#"{"name": "../x", "cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#, "name")]
    #[case(r#"{"name": "n", "cniVersion": "0.2.0", "plugins": [{"type": "a"}]}"#, "cniVersion")]
    #[case(r#"{"name": "n", "cniVersion": "1.0.0", "plugins": []}"#, "plugins")]
    #[case(r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "/bin/sh"}]}"#, "plugins[0].type")]
    #[case(r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "a"}, 7]}"#, "plugins[1].type")]
    fn a_bad_list_is_refused_by_its_field(#[case] text: &str, #[case] field: &str) {
        let error = parse(text).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("a.conflist: {field}:")), "{error}");
    }

    #[test]
    fn the_best_common_version_is_spoken() {
        let list = parse(
            r#"{"name": "n", "cniVersion": "0.4.0", "cniVersions": ["1.0.0", "1.1.0", "9.0.0"], "type": "a"}"#,
        );
        let list = list.expect("good");
        assert!(list.has_status_and_gc());
        assert_eq!(list.input(0, &Value::Null, None)["cniVersion"], "1.1.0");
    }

    #[test]
    fn a_plugin_gets_the_capabilities_that_it_has() {
        let text = r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [
            {"type": "a", "capabilities": {"mac": true, "ips": false}}, {"type": "b"}]}"#;
        let list = parse(text).expect("good");
        let asked = json!({ "mac": "02:00:00:00:00:01", "ips": ["10.0.0.2"] });
        let extra = list.runtime_config(0, &asked);
        let input = list.input(0, &extra, None);
        assert_eq!(input["runtimeConfig"], json!({ "mac": "02:00:00:00:00:01" }));
        assert_eq!(input.get("capabilities"), None);
        assert_eq!(list.runtime_config(1, &asked), Value::Null);
    }
}
