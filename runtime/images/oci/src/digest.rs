//! Digests, and computing them over a stream.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use thiserror::Error;

/// The hash functions that an image may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256, which nearly every image uses.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Its name in a digest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// How many hexadecimal digits its values have.
    pub fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// A digest, `sha256:` and 64 lower-case hexadecimal digits, or `sha512:` and 128. Both halves are safe as file names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: Arc<str>,
}

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("digest {text:?} should be sha256: and 64, or sha512: and 128 lower-case hexadecimal digits")]
pub struct DigestError {
    /// The first characters of the text.
    pub text: String,
}

/// The longest part of a bad text that an error repeats, in characters.
const SHOWN_LENGTH_MAX: usize = 80;

impl Digest {
    /// The SHA-256 digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The hash function.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The value, in lower-case hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The first 12 digits, as tables show digests.
    pub fn short(&self) -> &str {
        &self.hex[..12]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let parts = text.split_once(':').and_then(|(name, hex)| {
            let algorithm = [Algorithm::Sha256, Algorithm::Sha512].into_iter().find(|a| a.name() == name)?;
            let digits = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            (digits && hex.len() == algorithm.hex_length()).then(|| Self { algorithm, hex: hex.into() })
        });
        parts.ok_or_else(|| DigestError { text: text.chars().take(SHOWN_LENGTH_MAX).collect() })
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Computes a digest over a stream. A clone goes on from the same point.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// A hasher that has seen nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest of everything that was taken.
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha256(state) => hex(Algorithm::Sha256, &state.finalize()),
            State::Sha512(state) => hex(Algorithm::Sha512, &state.finalize()),
        }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

fn hex(algorithm: Algorithm, value: &[u8]) -> Digest {
    use fmt::Write;
    let mut hex = String::with_capacity(algorithm.hex_length());
    for byte in value {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Digest { algorithm, hex: hex.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        let sha512 = Hasher::new(Algorithm::Sha512).finish();
        assert!(sha512.hex().starts_with("cf83e1357eefb8bd") && sha512.hex().len() == 128);
    }

    #[rstest]
    #[case("")]
    #[case("sha256")]
    #[case("sha256:")]
    #[case("sha256:../../../../etc/passwd")]
    #[case("sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855")]
    #[case("sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")]
    #[case("md5:d41d8cd98f00b204e9800998ecf8427e")]
    fn refuses(#[case] text: &str) {
        let error = text.parse::<Digest>().expect_err("no digest");
        assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back_as_it_was(text in "(sha256|sha512|md5)?:?[0-9a-fA-F/.]{0,140}") {
            if let Ok(digest) = text.parse::<Digest>() {
                prop_assert_eq!(digest.to_string(), text);
            }
        }

        #[test]
        fn pieces_make_no_difference(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let cut = cut.min(bytes.len());
            let mut hasher = Hasher::new(Algorithm::Sha256);
            hasher.update(&bytes[..cut]);
            let mut fork = hasher.clone();
            hasher.update(b"something else");
            fork.update(&bytes[cut..]);
            prop_assert_eq!(fork.finish(), Digest::of(&bytes));
        }
    }
}
