//! How a stream ended, in the words of each version of the protocol.
//!
//! Owns: the text on the error stream. From version 4 on it is the JSON of a Kubernetes `Status`, with the exit code as a cause; before
//! that it is a sentence, and nothing when all went well.

use serde::Serialize;

use crate::backend::Exit;

/// A version of the protocol of exec and attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The first one, without a number in its name.
    V1,
    V2,
    /// With resizing.
    V3,
    /// With exit codes.
    V4,
    /// With half-close over WebSocket.
    V5,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The process did, or the attachment to it.
    Success,
    /// The process, and not well.
    Exited(u8),
    /// Something went wrong: a sentence.
    Failed(String),
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Details {
    causes: [Cause; 1],
}

#[derive(Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
}

impl Outcome {
    /// The end of a process that was started for its client.
    pub(crate) fn of(exit: Exit) -> Self {
        match exit {
            Exit::Code(0) => Self::Success,
            Exit::Code(code) => Self::Exited(code),
            Exit::Unknown(reason) => Self::Failed(reason),
        }
    }

    /// What is written to the error stream; empty for nothing.
    pub(crate) fn text(&self, version: Version) -> String {
        let message = match self {
            Self::Success => None,
            Self::Exited(code) => Some(format!("the command ended with exit code {code}")),
            Self::Failed(sentence) => Some(sentence.clone()),
        };
        if version < Version::V4 {
            return message.unwrap_or_default();
        }
        let (reason, details, code) = match self {
            Self::Success => (None, None, None),
            Self::Exited(code) => {
                let cause = Cause { reason: "ExitCode", message: code.to_string() };
                (Some("NonZeroExitCode"), Some(Details { causes: [cause] }), None)
            }
            Self::Failed(_) => (Some("InternalError"), None, Some(500)),
        };
        let status = if *self == Self::Success { "Success" } else { "Failure" };
        let status = Status { status, message: message.as_deref(), reason, details, code };
        // Texts and numbers always have a JSON form.
        serde_json::to_string(&status).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_words() {
        assert_eq!(Outcome::Success.text(Version::V3), "");
        assert_eq!(Outcome::Success.text(Version::V4), r#"{"status":"Success"}"#);
        assert_eq!(Outcome::Exited(3).text(Version::V1), "the command ended with exit code 3");
        assert_eq!(
            Outcome::Exited(3).text(Version::V5),
            r#"{"status":"Failure","message":"the command ended with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
        );
        assert_eq!(
            Outcome::Failed("it is \"gone\"".into()).text(Version::V4),
            r#"{"status":"Failure","message":"it is \"gone\"","reason":"InternalError","code":500}"#
        );
    }
}
