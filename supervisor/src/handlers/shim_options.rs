//! The options of a handler's shim, as that shim is told them: `handler.NAME.options`.
//!
//! Owns: which options a kind of shim has, and their form on the wire. It is pure. Never: knows what one does.
//!
//! | shim | options | message |
//! |---|---|---|
//! | `containerd-shim-runc-*` | `BinaryName`, `Root`, `NoPivotRoot`, `NoNewKeyring`, `IoUid`, `IoGid` | `containerd.runc.v1.Options` |
//! | others | `TypeUrl`, `ConfigPath`, `ConfigBody` | `runtimeoptions.v1.Options`, where one is given |

use std::collections::BTreeMap;
use std::path::Path;

use mainstay_messages::{Error, Result};
use mainstay_task_api::Message;
use mainstay_task_api::shim_options::{RuncOptions, RuntimeOptions};

use super::OptionValue;

/// What the file names of runc's shims begin with.
const RUNC_SHIMS: &str = "containerd-shim-runc-";

/// What these call when they are told nothing else.
const RUNC: &str = "runc";

/// Options on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WireOptions {
    /// The type of the message; empty for none.
    pub(super) kind: String,
    /// The message.
    pub(super) value: Vec<u8>,
}

/// What the shim of this program is told. `field` names the table of options in an error.
pub(super) fn on_wire(
    field: &str,
    program: &str,
    options: &BTreeMap<String, OptionValue>,
) -> Result<WireOptions> {
    let file = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let (kind, value) = if file.starts_with(RUNC_SHIMS) {
        ("containerd.runc.v1.Options", runc(field, options)?.write_to_bytes())
    } else if options.is_empty() {
        return Ok(WireOptions::default());
    } else {
        ("runtimeoptions.v1.Options", runtime(field, options)?.write_to_bytes())
    };
    let value = value.map_err(|error| Error::invalid(field, error.to_string(), "shorter options"))?;
    Ok(WireOptions { kind: kind.to_owned(), value })
}

/// The runtime that a shim for runc calls; none for other shims.
pub(super) fn runtime_of(program: &str, options: &BTreeMap<String, OptionValue>) -> Option<String> {
    let file = Path::new(program).file_name()?.to_str()?;
    if !file.starts_with(RUNC_SHIMS) {
        return None;
    }
    match options.get("BinaryName") {
        Some(OptionValue::Text(name)) if !name.is_empty() => Some(name.clone()),
        _ => Some(RUNC.to_owned()),
    }
}

fn runc(field: &str, options: &BTreeMap<String, OptionValue>) -> Result<RuncOptions> {
    let mut message = RuncOptions::default();
    for (key, value) in options {
        let given = Given { field: format!("{field}.{key}"), value };
        match key.as_str() {
            "BinaryName" => message.binary_name = given.text()?,
            "Root" => message.root = given.text()?,
            "NoPivotRoot" => message.no_pivot_root = given.switch()?,
            "NoNewKeyring" => message.no_new_keyring = given.switch()?,
            "IoUid" => message.io_uid = given.number()?,
            "IoGid" => message.io_gid = given.number()?,
            "SystemdCgroup" if !given.switch()? => {}
            "SystemdCgroup" => {
                return Err(given.wrong("false: cgroups are made by this runtime, as directories"));
            }
            _ => {
                let expected = "BinaryName, Root, NoPivotRoot, NoNewKeyring, IoUid or IoGid";
                return Err(Error::invalid(field, format!("{key:?}"), expected));
            }
        }
    }
    Ok(message)
}

fn runtime(field: &str, options: &BTreeMap<String, OptionValue>) -> Result<RuntimeOptions> {
    let mut message = RuntimeOptions::default();
    for (key, value) in options {
        let given = Given { field: format!("{field}.{key}"), value };
        match key.as_str() {
            "TypeUrl" => message.type_url = given.text()?,
            "ConfigPath" => message.config_path = given.text()?,
            "ConfigBody" => message.config_body = given.text()?.into_bytes(),
            _ => return Err(Error::invalid(field, format!("{key:?}"), "TypeUrl, ConfigPath or ConfigBody")),
        }
    }
    Ok(message)
}

/// A value, and where it stands.
struct Given<'a> {
    field: String,
    value: &'a OptionValue,
}

impl Given<'_> {
    fn text(&self) -> Result<String> {
        match self.value {
            OptionValue::Text(text) => Ok(text.clone()),
            _ => Err(self.wrong("a text")),
        }
    }

    fn switch(&self) -> Result<bool> {
        match self.value {
            OptionValue::Switch(switch) => Ok(*switch),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn number(&self) -> Result<u32> {
        match self.value {
            OptionValue::Number(number) => {
                u32::try_from(*number).map_err(|_| self.wrong("a number from 0 to 4294967295"))
            }
            _ => Err(self.wrong("a number")),
        }
    }

    fn wrong(&self, expected: &'static str) -> Error {
        let shown = match self.value {
            OptionValue::Text(text) => format!("{text:?}"),
            OptionValue::Switch(switch) => switch.to_string(),
            OptionValue::Number(number) => number.to_string(),
        };
        Error::invalid(&self.field, shown, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, OptionValue)]) -> BTreeMap<String, OptionValue> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }

    fn text(text: &str) -> OptionValue {
        OptionValue::Text(text.to_owned())
    }

    #[test]
    fn the_shim_of_runc_has_options_of_its_own() {
        let given = options(&[("BinaryName", text("crun")), ("NoPivotRoot", OptionValue::Switch(true))]);
        let wire = on_wire("handler.x.options", "/usr/bin/containerd-shim-runc-v2", &given).expect("good");
        assert_eq!(wire.kind, "containerd.runc.v1.Options");
        let message = RuncOptions::parse_from_bytes(&wire.value).expect("one");
        assert_eq!((message.binary_name.as_str(), message.no_pivot_root), ("crun", true));
        let none = on_wire("handler.x.options", "/usr/bin/containerd-shim-runc-v2", &options(&[]));
        assert_eq!(none.expect("good").kind, "containerd.runc.v1.Options");
    }

    #[test]
    fn a_shim_for_runc_calls_what_it_is_told() {
        let of = |program, given: &[(&str, OptionValue)]| runtime_of(program, &options(given));
        assert_eq!(of("/usr/bin/containerd-shim-runc-v2", &[]).as_deref(), Some("runc"));
        assert_eq!(of("containerd-shim-runc-v2", &[("BinaryName", text("crun"))]).as_deref(), Some("crun"));
        assert_eq!(of("containerd-shim-kata-v2", &[]), None);
    }

    #[test]
    fn others_have_a_file_or_nothing() {
        assert_eq!(on_wire("o", "/opt/containerd-shim-kata-v2", &options(&[])), Ok(WireOptions::default()));
        let given = options(&[("ConfigPath", text("/etc/kata.toml"))]);
        let wire = on_wire("o", "/opt/containerd-shim-kata-v2", &given).expect("good");
        assert_eq!(wire.kind, "runtimeoptions.v1.Options");
        let message = RuntimeOptions::parse_from_bytes(&wire.value).expect("one");
        assert_eq!(message.config_path, "/etc/kata.toml");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (pairs, named) in [
            (vec![("Colour", text("red"))], "handler.x.options: \"Colour\""),
            (vec![("BinaryName", OptionValue::Number(1))], "handler.x.options.BinaryName: 1"),
            (vec![("IoUid", OptionValue::Number(-1))], "handler.x.options.IoUid: -1"),
            (vec![("SystemdCgroup", OptionValue::Switch(true))], "handler.x.options.SystemdCgroup: true"),
        ] {
            let error = on_wire("handler.x.options", "containerd-shim-runc-v2", &options(&pairs));
            let error = error.expect_err("bad").to_string();
            assert!(error.starts_with(named), "{error}");
        }
    }
}
