//! The shim's command line, which only the supervisor writes.
//!
//! Owns: reading it. Never: opens or checks what it names.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use mainstay_cgroups::CgroupPath;
use mainstay_launch::CallerEnd;
use mainstay_messages::SandboxId;
use thiserror::Error;

use crate::leftovers::THROW_AWAY_OPTION;

/// What a shim is told when it is started.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The pod.
    pub(crate) sandbox: SandboxId,
    /// The shim's directory.
    pub(crate) directory: PathBuf,
    /// The pod's cgroup.
    pub(crate) cgroup: CgroupPath,
    /// The listening socket for ttrpc.
    pub(crate) listen: RawFd,
    /// The listening socket for streams.
    pub(crate) streams: RawFd,
    /// The pipe whose end is the shim's end.
    pub(crate) lifeline: Option<RawFd>,
    /// The directory that goes with the last shim when the pipe has ended.
    pub(crate) throw_away: Option<PathBuf>,
}

/// Why the command line is not acceptable.
#[derive(Debug, Error)]
pub(crate) enum ArgumentError {
    /// An option that there is not.
    #[error("option {option:?} is not known; expected {USAGE}")]
    Unknown {
        /// The option.
        option: String,
    },
    /// An option without a value, or that must be there.
    #[error("option {option} and its value are missing; expected {USAGE}")]
    Missing {
        /// The option.
        option: &'static str,
    },
    /// A value that does not fit.
    #[error("{option}: {value:?} is not valid: {reason}")]
    Value {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

const USAGE: &str = "--sandbox ID --dir DIR --cgroup PATH --listen-fd N --streams-fd N [--lifeline-fd N] \
                     [--throw-away DIR]";
const OPTIONS: [&str; 7] =
    ["--sandbox", "--dir", "--cgroup", "--listen-fd", "--streams-fd", "--lifeline-fd", THROW_AWAY_OPTION];

impl Arguments {
    /// Reads the arguments after the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ArgumentError> {
        let mut values: [Option<String>; OPTIONS.len()] = Default::default();
        let mut arguments = arguments.into_iter().map(|text| text.to_string_lossy().into_owned());
        while let Some(option) = arguments.next() {
            let Some(index) = OPTIONS.iter().position(|known| *known == option) else {
                return Err(ArgumentError::Unknown { option });
            };
            values[index] = arguments.next();
        }
        let mut take = |option: &'static str| {
            let index = OPTIONS.iter().position(|known| *known == option);
            index.and_then(|index| values[index].take()).ok_or(ArgumentError::Missing { option })
        };
        let lifeline = take("--lifeline-fd").ok();
        Ok(Self {
            sandbox: value("--sandbox", take("--sandbox")?)?,
            directory: value("--dir", take("--dir")?)?,
            cgroup: value("--cgroup", take("--cgroup")?)?,
            listen: value("--listen-fd", take("--listen-fd")?)?,
            streams: value("--streams-fd", take("--streams-fd")?)?,
            lifeline: lifeline.map(|text| value("--lifeline-fd", text)).transpose()?,
            throw_away: take(THROW_AWAY_OPTION).ok().map(PathBuf::from),
        })
    }
}

impl Arguments {
    /// Those of a shim that works for containerd, and has neither a pod nor what belongs to one. What is below the
    /// directory of its bundles is looked up in its own mount namespace, where their roots are.
    pub(crate) fn under_containerd(bundle: &Path) -> Self {
        const NAME: &str = "containerd";
        // Both are good names.
        let (sandbox, cgroup) = (NAME.parse().ok(), CgroupPath::parse("/mainstay-no-pod").ok());
        let (Some(sandbox), Some(cgroup)) = (sandbox, cgroup) else { unreachable!("constants") };
        Self {
            sandbox,
            directory: bundle.parent().unwrap_or(bundle).to_owned(),
            cgroup,
            listen: -1,
            streams: -1,
            lifeline: None,
            throw_away: None,
        }
    }

    /// What becomes of containers when the shim ends. Where it does not outlive the daemon, nobody would end them who was
    /// killed together with it.
    pub(crate) fn caller_end(&self) -> CallerEnd {
        if self.lifeline.is_some() { CallerEnd::Fatal } else { CallerEnd::Survived }
    }
}

fn value<T: std::str::FromStr<Err: std::fmt::Display>>(
    option: &'static str,
    text: String,
) -> Result<T, ArgumentError> {
    text.parse().map_err(|reason: T::Err| ArgumentError::Value {
        option,
        reason: reason.to_string(),
        value: text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "--sandbox s --dir /run/s --cgroup /mainstay/s --listen-fd 3 --streams-fd 4";

    fn parse(line: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn reads_what_the_supervisor_writes() {
        let arguments = parse(GOOD).expect("good");
        assert_eq!((arguments.listen, arguments.streams, arguments.lifeline), (3, 4, None));
        assert_eq!(parse(&format!("{GOOD} --lifeline-fd 5")).expect("good").lifeline, Some(5));
    }

    #[test]
    fn names_what_is_wrong() {
        for (line, named) in [
            ("--sandbox s", "--dir"),
            ("--colour red", "--colour"),
            (&GOOD.replace("/mainstay/s", "/"), "--cgroup"),
            (&GOOD.replace("fd 3", "fd three"), "--listen-fd"),
        ] {
            let error = parse(line).expect_err("bad").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
