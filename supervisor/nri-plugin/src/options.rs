//! Who a plugin is, and where it connects.
//!
//! Owns: what the environment of a pre-installed plugin says. Never: connects.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use mainstay_nri_api::{PLUGIN_INDEX_VARIABLE, PLUGIN_NAME_VARIABLE, PLUGIN_SOCKET_VARIABLE, SOCKET_DEFAULT};

/// What a plugin is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Two digits: plugins are called in this order.
    pub index: String,
    /// Letters, digits, `.`, `_`, `+` and `-`.
    pub name: String,
}

/// Where a plugin finds its runtime.
#[derive(Debug)]
pub enum Door {
    /// A socket to connect to.
    Socket(PathBuf),
    /// A connection that the runtime gave it.
    Connection(UnixStream),
}

/// What becomes of a plugin whose connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// It ends as well.
    Never,
    /// It connects again, as soon as it can. A connection that the runtime gave is not to be had again.
    Always,
}

/// How a plugin runs.
#[derive(Debug)]
pub struct Options {
    /// What it is called.
    pub identity: Identity,
    /// Where it connects.
    pub door: Door,
    /// What it does when the connection ends.
    pub reconnect: Reconnect,
    /// What it does wrong.
    #[cfg(feature = "faults")]
    pub faults: crate::faults::Faults,
}

/// The environment says something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{PLUGIN_SOCKET_VARIABLE} is {value:?}; expected the number of an open descriptor from 3 on")]
pub struct EnvironmentError {
    value: String,
}

impl Identity {
    /// From its parts; the runtime checks them.
    pub fn new(index: impl Into<String>, name: impl Into<String>) -> Self {
        Self { index: index.into(), name: name.into() }
    }
}

impl Options {
    /// Connects to this door, again and again.
    pub fn new(identity: Identity, door: Door) -> Self {
        Self {
            identity,
            door,
            reconnect: Reconnect::Always,
            #[cfg(feature = "faults")]
            faults: crate::faults::Faults::default(),
        }
    }

    /// As the runtime says that started this program; `identity` and the usual socket where none did. To be called once,
    /// before the program opens anything: the connection is a descriptor that it was given.
    pub fn from_environment(identity: Identity) -> Result<Self, EnvironmentError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let identity = Identity {
            index: variable(PLUGIN_INDEX_VARIABLE).unwrap_or(identity.index),
            name: variable(PLUGIN_NAME_VARIABLE).unwrap_or(identity.name),
        };
        let door = match variable(PLUGIN_SOCKET_VARIABLE) {
            Some(value) => Door::Connection(given(value)?),
            None => Door::Socket(SOCKET_DEFAULT.into()),
        };
        Ok(Self::new(identity, door))
    }
}

fn given(value: String) -> Result<UnixStream, EnvironmentError> {
    // Numbers below are the standard streams.
    let Some(number) = value.parse::<RawFd>().ok().filter(|number| *number > 2) else {
        return Err(EnvironmentError { value });
    };
    if std::fs::read_link(format!("/proc/self/fd/{number}")).is_err() {
        return Err(EnvironmentError { value });
    }
    // SAFETY: it is open, and by the agreement between runtime and plugin it is this program's, who takes it only here.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) }))
}
