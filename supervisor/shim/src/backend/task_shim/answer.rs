//! What another shim answers to `start`: where it listens and what it speaks.
//!
//! Owns: reading the three forms that there are. It is pure. Never: connects.
//!
//! | containerd | form |
//! |---|---|
//! | up to 1.7 | the address alone; the Task API in version 2 |
//! | 2.0 to 2.2 | JSON: `{"version":3,"address":…,"protocol":"ttrpc"}` |
//! | from 2.3 on | protobuf: `BootstrapResult` |

use std::path::PathBuf;

use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::BootstrapResult;
use serde::Deserialize;
use thiserror::Error;

/// The longest answer that is looked at, in bytes.
pub(crate) const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// The longest path of a socket, in bytes: what `sun_path` holds beside its end.
pub(crate) const SOCKET_PATH_MAX_BYTES: usize = 107;
/// How much of an answer that is none is shown, in bytes.
const SHOWN_MAX_BYTES: usize = 200;

/// The version of the Task API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskVersion {
    V2,
    V3,
}

/// Where a shim listens, and what it speaks there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// What it speaks.
    pub(crate) version: TaskVersion,
}

/// Why an answer is not acceptable.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum AnswerError {
    /// Nothing at all.
    #[error("it answered nothing; expected the address of its socket")]
    Empty,
    /// More than is looked at.
    #[error("it answered more than {ANSWER_MAX_BYTES} bytes; expected the address of its socket")]
    TooLong,
    /// None of the three forms.
    #[error(
        "it answered {shown:?}; expected the address of its socket, alone, in JSON or in a BootstrapResult"
    )]
    Form {
        /// The beginning of it.
        shown: String,
    },
    /// An address that is not that of a socket in the file system.
    #[error(
        "its address {address:?} cannot be used; expected unix:// and an absolute path of at most {SOCKET_PATH_MAX_BYTES} bytes"
    )]
    Address {
        /// What was there.
        address: String,
    },
    /// It speaks another protocol.
    #[error("it speaks {protocol:?}; expected ttrpc")]
    Protocol {
        /// Which.
        protocol: String,
    },
    /// It speaks another version.
    #[error("it speaks version {version} of the Task API; expected 2 or 3")]
    Version {
        /// Which.
        version: i64,
    },
}

#[derive(Debug, Deserialize)]
struct Fields {
    version: i64,
    address: String,
    #[serde(default)]
    protocol: String,
}

impl Answer {
    /// Reads what a shim wrote to its standard output.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        if bytes.len() > ANSWER_MAX_BYTES {
            return Err(AnswerError::TooLong);
        }
        if bytes.trim_ascii().is_empty() {
            return Err(AnswerError::Empty);
        }
        let fields = protobuf(bytes).or_else(|| serde_json::from_slice(bytes).ok()).or_else(|| plain(bytes));
        fields.ok_or_else(|| AnswerError::Form { shown: beginning(bytes) })?.check()
    }
}

impl Fields {
    fn check(self) -> Result<Answer, AnswerError> {
        if !matches!(self.protocol.as_str(), "" | "ttrpc") {
            return Err(AnswerError::Protocol { protocol: self.protocol });
        }
        let version = match self.version {
            // Nobody speaks version 1 any more, and 0 is what a field has that is not set.
            0 | 2 => TaskVersion::V2,
            3 => TaskVersion::V3,
            version => return Err(AnswerError::Version { version }),
        };
        let path = self.address.strip_prefix("unix://").filter(|path| {
            path.starts_with('/') && path.len() <= SOCKET_PATH_MAX_BYTES && !path.contains('\0')
        });
        match path {
            Some(path) => Ok(Answer { socket: path.into(), version }),
            None => Err(AnswerError::Address { address: beginning(self.address.as_bytes()) }),
        }
    }
}

/// Neither JSON nor an address happens to be such a message: their first byte would be a field of a kind that it has not.
fn protobuf(bytes: &[u8]) -> Option<Fields> {
    let result = BootstrapResult::parse_from_bytes(bytes).ok()?;
    let fields =
        Fields { version: result.version.into(), address: result.address, protocol: result.protocol };
    (!fields.address.is_empty()).then_some(fields)
}

fn plain(bytes: &[u8]) -> Option<Fields> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let address = text.contains("://") && !text.contains(char::is_whitespace);
    address.then(|| Fields { version: 2, address: text.to_owned(), protocol: String::new() })
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "unix:///run/containerd/s/62165c8f";

    fn read(bytes: &[u8]) -> (String, TaskVersion) {
        let answer = Answer::parse(bytes).expect("good");
        (answer.socket.display().to_string(), answer.version)
    }

    #[test]
    fn the_three_forms() {
        let path = "/run/containerd/s/62165c8f".to_owned();
        assert_eq!(read(ADDRESS.as_bytes()), (path.clone(), TaskVersion::V2));
        assert_eq!(read(format!("{ADDRESS}\n").as_bytes()), (path.clone(), TaskVersion::V2));
        for (version, expected) in [(2, TaskVersion::V2), (3, TaskVersion::V3)] {
            let json = format!(r#"{{"version":{version},"address":"{ADDRESS}","protocol":"ttrpc"}}"#);
            assert_eq!(read(json.as_bytes()), (path.clone(), expected));
            let result = BootstrapResult {
                version,
                address: ADDRESS.to_owned(),
                protocol: "ttrpc".to_owned(),
                ..Default::default()
            };
            assert_eq!(read(&result.write_to_bytes().expect("small")), (path.clone(), expected));
        }
    }

    #[test]
    fn names_what_is_wrong() {
        let json = |version: u32, address: &str, protocol: &str| {
            format!(r#"{{"version":{version},"address":"{address}","protocol":"{protocol}"}}"#)
        };
        for (bytes, named) in [
            (String::new(), "nothing"),
            (" \n".to_owned(), "nothing"),
            ("x".repeat(ANSWER_MAX_BYTES + 1), "more than"),
            ("rubbish".to_owned(), "rubbish"),
            (format!("{ADDRESS} and more"), "and more"),
            ("unix://relative".to_owned(), "absolute path"),
            ("vsock://3:1024".to_owned(), "absolute path"),
            (format!("unix:///{}", "x".repeat(SOCKET_PATH_MAX_BYTES)), "absolute path"),
            (json(3, ADDRESS, "grpc"), "grpc"),
            (json(4, ADDRESS, "ttrpc"), "version 4"),
            (json(3, "", "ttrpc"), "address"),
        ] {
            let error = Answer::parse(bytes.as_bytes()).expect_err("bad").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
