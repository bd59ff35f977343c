//! containerd's command line of a shim: flags with one dash or two, then an action.
//!
//! Owns: reading it. Never: opens what it names.

use std::ffi::OsString;
use std::path::PathBuf;

use mainstay_messages::ContainerId;
use thiserror::Error;

/// What a shim is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// containerd's namespace of the container.
    pub(super) namespace: String,
    /// The socket of containerd's API. Its text tells one containerd from another.
    pub(super) address: String,
    /// The container, or the sandbox.
    pub(super) id: String,
    /// Its bundle, where that is not the working directory.
    pub(super) bundle: Option<PathBuf>,
    /// What to do.
    pub(super) action: Action,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// See to it that there is a shim, and say where.
    Start,
    /// Clear away what is left of a container whose shim is dead.
    Delete,
    /// Say the version.
    Version,
    /// Say what this is, in protobuf.
    Info,
}

/// Why the command line is not acceptable.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum CommandError {
    /// A flag that there is not.
    #[error("flag {flag:?} is not known; expected {USAGE}")]
    Unknown {
        /// The flag.
        flag: String,
    },
    /// A flag without a value, or that must be there.
    #[error("flag -{flag} and its value are missing; expected {USAGE}")]
    Missing {
        /// The flag.
        flag: &'static str,
    },
    /// A value that does not fit.
    #[error("-{flag}: {value:?} is not valid: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No action, or another one.
    #[error("action {action:?} is not known; expected {USAGE}")]
    Action {
        /// What there was.
        action: String,
    },
}

const USAGE: &str = "-namespace NAME -address SOCKET -id ID [-bundle PATH] [-publish-binary PATH] [-debug] start|delete, -v or -info";
/// Flags with a value. The one named `publish-binary` is an older way to send events, and `socket` one to pass on a socket.
const VALUES: [&str; 6] = ["namespace", "address", "id", "bundle", "publish-binary", "socket"];

impl CommandLine {
    /// Reads the arguments after the program's name.
    pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, CommandError> {
        let mut values: [Option<String>; VALUES.len()] = Default::default();
        let mut action = None;
        let mut words = arguments.into_iter().map(|text| text.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                action = Some(word);
                break;
            };
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            match (name, VALUES.iter().position(|known| *known == name)) {
                (_, Some(index)) => values[index] = given.or_else(|| words.next()),
                ("v" | "version", _) => return Ok(Self::asking(Action::Version)),
                ("info", _) => return Ok(Self::asking(Action::Info)),
                ("debug", _) => {}
                _ => return Err(CommandError::Unknown { flag: word }),
            }
        }
        let action = match action.as_deref() {
            Some("start") => Action::Start,
            Some("delete") => Action::Delete,
            other => return Err(CommandError::Action { action: other.unwrap_or_default().to_owned() }),
        };
        let mut take = |flag: &'static str| {
            let index = VALUES.iter().position(|known| *known == flag);
            index.and_then(|index| values[index].take()).filter(|value| !value.is_empty())
        };
        let id = take("id").ok_or(CommandError::Missing { flag: "id" })?;
        if let Err(reason) = id.parse::<ContainerId>() {
            return Err(CommandError::Value { flag: "id", value: id, reason: reason.to_string() });
        }
        Ok(Self {
            namespace: take("namespace").ok_or(CommandError::Missing { flag: "namespace" })?,
            address: take("address").unwrap_or_default(),
            id,
            bundle: take("bundle").map(PathBuf::from),
            action,
        })
    }

    fn asking(action: Action) -> Self {
        Self { namespace: String::new(), address: String::new(), id: String::new(), bundle: None, action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CommandLine, CommandError> {
        CommandLine::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn reads_what_containerd_writes() {
        let line = "-namespace k8s.io -address /run/c.sock -publish-binary /usr/bin/containerd -id web";
        let start = parse(&format!("{line} -debug start")).expect("good");
        assert_eq!(
            (start.namespace.as_str(), start.id.as_str(), start.action),
            ("k8s.io", "web", Action::Start)
        );
        assert_eq!((start.address.as_str(), start.bundle), ("/run/c.sock", None));
        let delete = parse(&format!("{line} -bundle /run/b delete")).expect("good");
        assert_eq!((delete.bundle, delete.action), (Some("/run/b".into()), Action::Delete));
        let other = parse("--namespace=default --id=web delete").expect("the other ways to write a flag");
        assert_eq!((other.namespace.as_str(), other.id.as_str()), ("default", "web"));
        assert_eq!(parse("-v").expect("good").action, Action::Version);
        assert_eq!(parse("-info").expect("good").action, Action::Info);
    }

    #[test]
    fn names_what_is_wrong() {
        for (line, named) in [
            ("-id web start", "-namespace"),
            ("-namespace n start", "-id"),
            ("-namespace n -id ../up start", "-id"),
            ("-namespace n -id web -colour red start", "-colour"),
            ("-namespace n -id web restart", "restart"),
            ("-namespace n -id web", "start|delete"),
        ] {
            let error = parse(line).expect_err("bad").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
