//! Typed ids and names, so that one can never stand where another is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Bytes of randomness behind an id; shown as twice as many hexadecimal digits.
pub const ID_BYTES: usize = 16;
/// The longest name or id that is taken from a caller, in bytes.
pub const NAME_LENGTH_MAX: usize = 253;
/// The longest name of a handler, in bytes: a label of DNS.
pub const HANDLER_LENGTH_MAX: usize = 63;
/// The handler of pods that name none. It is always there.
pub const HANDLER_DEFAULT: &str = "mainstay";

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        id_type!($(#[$doc])* $name, $field, check_name);
    };
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// An id from random bytes; the caller owns the source of randomness.
            pub fn from_random(bytes: [u8; ID_BYTES]) -> Self {
                use fmt::Write;
                let mut text = String::with_capacity(2 * ID_BYTES);
                for byte in bytes {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "{byte:02x}");
                }
                Self(text.into_boxed_str())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The first 12 characters, as tables show ids.
            pub fn short(&self) -> &str {
                &self.0[..self.0.len().min(12)]
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                $check($field, text)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

id_type!(
    /// A pod sandbox.
    SandboxId,
    "sandbox id"
);
id_type!(
    /// A container in a sandbox.
    ContainerId,
    "container id"
);
id_type!(
    /// A process that was started in a running container beside its PID 1.
    ExecId,
    "exec id"
);
id_type!(
    /// A name that a caller gives to a sandbox or container: letters, digits, `_`, `.` and `-`, the first
    /// one a letter or digit, at most [`NAME_LENGTH_MAX`] bytes. It is safe as a file name.
    Name,
    "name"
);

id_type!(
    /// What the pods of a kind are run by, as the configuration calls it and as a RuntimeClass of Kubernetes names it: a
    /// label of DNS, of lower-case letters, digits and `-`, at most [`HANDLER_LENGTH_MAX`] bytes.
    Handler,
    "handler",
    check_handler
);

fn check_handler(field: &'static str, text: &str) -> Result<(), Error> {
    let good = (1..=HANDLER_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if good {
        return Ok(());
    }
    Err(refusal(
        field,
        text,
        format!(
            "1 to {HANDLER_LENGTH_MAX} lower-case letters, digits and '-', as in the name of a RuntimeClass"
        ),
    ))
}

fn check_name(field: &'static str, text: &str) -> Result<(), Error> {
    let good = text.len() <= NAME_LENGTH_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if good {
        return Ok(());
    }
    let expected =
        format!("1 to {NAME_LENGTH_MAX} letters, digits, '_', '.' or '-', the first one a letter or digit");
    Err(refusal(field, text, expected))
}

/// The error about a text that is not good, with the beginning of it.
fn refusal(field: &'static str, text: &str, expected: String) -> Error {
    let shown: String = text.chars().take(64).collect();
    Error::invalid(field, format!("{shown:?}"), expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("web")]
    #[case("a.b_c-d")]
    #[case("0")]
    fn takes(#[case] text: &str) {
        assert_eq!(text.parse::<Name>().expect("a good name").as_str(), text);
    }

    #[rstest]
    #[case("")]
    #[case(".")]
    #[case("..")]
    #[case("-x")]
    #[case("a/b")]
    #[case("a b")]
    #[case("a\0b")]
    #[case("é")]
    fn refuses(#[case] text: &str) {
        let error = text.parse::<Name>().expect_err("a bad name");
        assert!(error.to_string().contains("name"), "{error}");
    }

    #[test]
    fn refuses_a_long_name_without_echoing_all_of_it() {
        let error = "x".repeat(100_000).parse::<ContainerId>().expect_err("too long");
        assert!(error.to_string().len() < 400);
    }

    #[test]
    fn deserializing_checks_too() {
        assert!(serde_json::from_str::<SandboxId>("\"../../etc\"").is_err());
    }

    #[test]
    fn random_ids_are_hexadecimal() {
        assert_eq!(ContainerId::from_random([0xa5; ID_BYTES]).as_str(), "a5".repeat(16));
    }
}
