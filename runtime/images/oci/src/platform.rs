//! Platforms, and which of them suits this machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A platform, in the words of Go: `linux/amd64`, `linux/arm64`, `linux/arm/v7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The processor, as `GOARCH` has it.
    #[serde(default)]
    pub architecture: String,
    /// The system, as `GOOS` has it.
    #[serde(default)]
    pub os: String,
    /// The variant of the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The version of the system; only Windows has one.
    #[serde(default, rename = "os.version", skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
}

/// An index without an image for the platform that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no image for {wanted}; there is one for {}", list(.offered))]
pub struct NoPlatform {
    /// What was asked for.
    pub wanted: Platform,
    /// What there is.
    pub offered: Vec<Platform>,
}

/// A text that is no platform.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "platform {text:?} should be OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/amd64 or linux/arm/v7"
)]
pub struct PlatformError {
    /// The text.
    pub text: String,
}

/// The most platforms that an error lists.
const LISTED_MAX: usize = 16;

fn list(platforms: &[Platform]) -> String {
    match platforms.len() {
        0 => "none that it names".to_owned(),
        n => {
            let shown: Vec<_> = platforms.iter().take(LISTED_MAX).map(Platform::to_string).collect();
            let more = n.saturating_sub(LISTED_MAX);
            let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{tail}", shown.join(", "))
        }
    }
}

impl Platform {
    /// The platform of this program.
    pub fn host() -> Self {
        Self::new("linux", std::env::consts::ARCH, None)
    }

    /// A platform with the words of uname and Debian turned into those of Go, and a variant that is the usual one left out.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let variant = variant.filter(|v| !v.is_empty());
        let (architecture, variant) = match (architecture, variant) {
            ("x86_64" | "x86-64" | "amd64", v) => ("amd64", v.filter(|v| *v != "v1")),
            ("aarch64" | "arm64", v) => ("arm64", v.filter(|v| !matches!(*v, "v8" | "8"))),
            ("i386" | "i486" | "i586" | "i686" | "x86" | "386", _) => ("386", None),
            ("armhf", _) | ("arm", None | Some("7")) => ("arm", Some("v7")),
            ("armel", _) | ("arm", Some("6")) => ("arm", Some("v6")),
            ("powerpc64le", v) => ("ppc64le", v),
            (other, v) => (other, v),
        };
        Self {
            architecture: architecture.to_owned(),
            os: os.to_owned(),
            variant: variant.map(str::to_owned),
            os_version: None,
        }
    }

    /// How well an image for `offered` runs here: 0 is best, none means not at all. Older variants of the processor
    /// and the 32-bit side of a 64-bit one come after the exact one, as containerd has it.
    pub fn rank(&self, offered: &Self) -> Option<u32> {
        let offered = Self::new(&offered.os, &offered.architecture, offered.variant.as_deref());
        let wanted = Self::new(&self.os, &self.architecture, self.variant.as_deref());
        if offered.os != wanted.os {
            return None;
        }
        if offered.architecture == wanted.architecture {
            return match (wanted.level(), offered.level()) {
                (Some(have), Some(need)) => have.checked_sub(need),
                _ => (wanted.variant == offered.variant).then_some(0),
            };
        }
        match (wanted.architecture.as_str(), offered.architecture.as_str()) {
            ("amd64", "386") => Some(RANK_OTHER_WIDTH),
            ("arm64", "arm") => Some(RANK_OTHER_WIDTH + 8u32.checked_sub(offered.level()?)?),
            _ => None,
        }
    }

    /// Whether it says anything; attestations in an index are for `unknown/unknown`.
    pub fn is_known(&self) -> bool {
        !self.os.is_empty() && self.os != "unknown"
    }

    /// The variant as a number: a processor runs all lower ones.
    fn level(&self) -> Option<u32> {
        let usual = match self.architecture.as_str() {
            "amd64" => 1,
            "arm64" => 8,
            "arm" => 7,
            _ => return None,
        };
        match &self.variant {
            None => Some(usual),
            Some(text) => text.strip_prefix('v')?.parse().ok(),
        }
    }
}

/// Where the ranks of the 32-bit side begin, after every variant.
const RANK_OTHER_WIDTH: u32 = 100;

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let parts: Vec<_> = text.split('/').collect();
        let good = |part: &&str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        };
        match parts.as_slice() {
            [os, architecture, rest @ ..] if rest.len() <= 1 && parts.iter().all(good) => Ok(Self::new(
                &os.to_ascii_lowercase(),
                &architecture.to_ascii_lowercase(),
                rest.first().map(|v| v.to_ascii_lowercase()).as_deref(),
            )),
            _ => Err(PlatformError { text: text.chars().take(64).collect() }),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn platform(text: &str) -> Platform {
        text.parse().expect("a platform")
    }

    #[rstest]
    #[case("linux/amd64", "linux/amd64", Some(0))]
    #[case("linux/x86_64", "linux/amd64", Some(0))]
    #[case("linux/amd64", "linux/amd64/v3", None)]
    #[case("linux/amd64/v3", "linux/amd64", Some(2))]
    #[case("linux/amd64", "linux/386", Some(100))]
    #[case("linux/386", "linux/amd64", None)]
    #[case("linux/arm64", "linux/arm64/v8", Some(0))]
    #[case("linux/arm64", "linux/arm/v7", Some(101))]
    #[case("linux/arm/v7", "linux/arm/v6", Some(1))]
    #[case("linux/arm/v6", "linux/arm", None)]
    #[case("linux/riscv64", "linux/riscv64", Some(0))]
    #[case("linux/amd64", "windows/amd64", None)]
    #[case("linux/amd64", "unknown/unknown", None)]
    fn ranks(#[case] wanted: &str, #[case] offered: &str, #[case] expected: Option<u32>) {
        assert_eq!(platform(wanted).rank(&platform(offered)), expected);
    }

    #[rstest]
    #[case("")]
    #[case("linux")]
    #[case("linux/")]
    #[case("linux/arm/v7/x")]
    #[case("linux/a b")]
    fn refuses(#[case] text: &str) {
        assert!(text.parse::<Platform>().is_err());
    }

    #[test]
    fn the_hosts_platform_is_in_the_words_of_go() {
        assert!(matches!(Platform::host().to_string().as_str(), "linux/amd64" | "linux/arm64"));
    }
}
