//! Images: what is asked for, what a pull tells while it goes on, and what is known of each.
//!
//! Names and digests are text here, as people and manifests write them; whoever works with images parses them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// The longest image name that is taken, in bytes: a host, a path, a tag and a digest with room to spare.
pub const IMAGE_NAME_LENGTH_MAX: usize = 1_024;
/// The longest platform that is taken, as in `linux/arm64/v8`, in bytes.
pub const PLATFORM_LENGTH_MAX: usize = 64;
/// The longest user name, password or token that is taken, in bytes.
pub const CREDENTIAL_LENGTH_MAX: usize = 64 * 1_024;

/// An image as a person names it: `busybox`, `ghcr.io/owner/image:tag`, `image@sha256:…`; or, of one that is here, its
/// id or the beginning of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(Box<str>);

/// The id of an image that is here: the digest of its configuration, `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(pub String);

/// What a pull is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullSpec {
    /// Which image, by name; an id cannot be pulled.
    pub image: ImageName,
    /// The platform, as in `linux/arm64/v8`; this machine's when not given.
    #[serde(default)]
    pub platform: Option<String>,
    /// Who asks, at the registry; what the credential file of the runtime has for it when not given.
    #[serde(default)]
    pub credentials: Option<Credentials>,
}

/// Who asks, at a registry. Its debug form tells no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credentials {
    /// A user.
    Password {
        /// Its name.
        user: String,
        /// Its password, or an access token that stands for one.
        password: String,
    },
    /// A refresh token, which the registry's token server takes.
    IdentityToken(String),
    /// A bearer token, which the registry takes as it is.
    RegistryToken(String),
}

/// When an image is pulled that a container is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// When it is not here.
    #[default]
    Missing,
    /// Always: the registry is asked whether the name means another image now.
    Always,
    /// Never.
    Never,
}

/// What happens in a pull, as a caller sees it. Every one of them shows that the pull is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullProgress {
    /// The name was found out to mean this manifest, with these layers, the lowest first.
    Resolved {
        /// The manifest's digest.
        digest: String,
        /// The layers.
        layers: Vec<LayerSize>,
    },
    /// A part of it got on.
    Part {
        /// Which: `manifest`, or the digest of a blob.
        part: String,
        /// What it does now.
        activity: PullActivity,
        /// Bytes that are here: fetched, or with [`PullActivity::Unpacking`] unpacked.
        bytes: u64,
        /// Bytes that there will be, where that is known.
        of: Option<u64>,
    },
    /// Something failed and is tried again.
    Retry {
        /// Which part: `manifest`, or the digest of a blob.
        part: String,
        /// What failed, in one sentence.
        reason: String,
        /// The pause before the next try, in milliseconds.
        after_ms: u64,
    },
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSize {
    /// The digest of its blob.
    pub digest: String,
    /// The length of its blob in bytes.
    pub bytes: u64,
}

/// What a part of a pull does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullActivity {
    /// It waits for others to make room.
    Waiting,
    /// A registry is asked.
    Connecting,
    /// Bytes come.
    Fetching,
    /// What was here already is checked.
    Verifying,
    /// It is unpacked.
    Unpacking,
    /// It is made durable.
    Syncing,
    /// It is here.
    Done,
}

/// An image that is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its names with a tag, whole, as in `docker.io/library/busybox:latest`.
    pub tags: Vec<String>,
    /// Its names with the digest of a manifest, whole, as in `docker.io/library/busybox@sha256:…`.
    pub digests: Vec<String>,
    /// The platform it is for, as in `linux/amd64`.
    pub platform: String,
    /// When it was made, as it says itself.
    pub created_at: Option<Timestamp>,
    /// When it came here last.
    pub pulled_at: Timestamp,
    /// Its blobs, in bytes.
    pub blob_bytes: u64,
    /// Its layers unpacked, in bytes. Layers that other images have too are counted in each.
    pub unpacked_bytes: u64,
    /// The digests of its layers as they are unpacked (DiffIDs), the lowest first.
    pub layers: Vec<String>,
    /// How it is run.
    pub run: ImageRun,
}

/// How an image is run, as its configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRun {
    /// The program with its first arguments.
    pub entrypoint: Vec<String>,
    /// What follows it when the caller gives nothing.
    pub command: Vec<String>,
    /// `KEY=VALUE` each.
    pub environment: Vec<String>,
    /// `USER[:GROUP]`; root when empty.
    pub user: String,
    /// The working directory; `/` when empty.
    pub working_directory: String,
    /// The signal that asks it to stop.
    pub stop_signal: Option<String>,
    /// Directories whose contents outlive a container, in its own view.
    pub volumes: Vec<String>,
    /// Ports it listens on, as in `80/tcp`. They open nothing.
    pub ports: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// What removing a name, or an image, has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Names that no longer stand for an image.
    pub names: Vec<String>,
    /// Images that are gone, since they have no name any more.
    pub images: Vec<ImageId>,
}

/// What a collection of garbage has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Blobs that are gone.
    pub blobs: u64,
    /// Unpacked layers that are gone.
    pub layers: u64,
    /// Bytes that were freed.
    pub bytes: u64,
}

/// Something of an image that is not as it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// What: the digest of a blob, or of a layer.
    pub digest: String,
    /// What is wrong with it, in one sentence.
    pub reason: String,
    /// The images that need it.
    pub images: Vec<ImageId>,
}

impl ImageName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty()
            || text.len() > IMAGE_NAME_LENGTH_MAX
            || text.bytes().any(|b| b <= b' ' || b >= 0x7f)
        {
            let shown: String = text.chars().take(64).collect();
            let expected = format!(
                "a name as busybox, ghcr.io/owner/image:tag or image@sha256:…, at most {IMAGE_NAME_LENGTH_MAX} bytes"
            );
            return Err(Error::invalid("image", format!("{shown:?}"), expected));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for ImageName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> String {
        name.0.into()
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ImageId {
    /// The first 12 digits, as tables show ids.
    pub fn short(&self) -> &str {
        let digits = self.0.split_once(':').map_or(self.0.as_str(), |(_, digits)| digits);
        digits.get(..12).unwrap_or(digits)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(f, "Password {{ user: {user:?}, .. }}"),
            Self::IdentityToken(_) => f.write_str("IdentityToken(..)"),
            Self::RegistryToken(_) => f.write_str("RegistryToken(..)"),
        }
    }
}

impl PullSpec {
    /// A pull for this machine, with what the runtime knows of the registry.
    pub fn new(image: ImageName) -> Self {
        Self { image, platform: None, credentials: None }
    }

    /// Checks what does not depend on any registry.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that names the field.
    pub fn check(&self) -> Result<()> {
        if let Some(platform) = &self.platform {
            let parts: Vec<_> = platform.split('/').collect();
            let word = |part: &&str| {
                !part.is_empty()
                    && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
            };
            let good = platform.len() <= PLATFORM_LENGTH_MAX
                && (2..=3).contains(&parts.len())
                && parts.iter().all(word);
            if !good {
                let shown: String = platform.chars().take(PLATFORM_LENGTH_MAX).collect();
                return Err(Error::invalid(
                    "platform",
                    format!("{shown:?}"),
                    "OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/arm64/v8",
                ));
            }
        }
        let secrets: &[(&str, &str)] = match &self.credentials {
            None => &[],
            Some(Credentials::Password { user, password }) => {
                &[("credentials.user", user), ("credentials.password", password)]
            }
            Some(Credentials::IdentityToken(token)) => &[("credentials.identity_token", token)],
            Some(Credentials::RegistryToken(token)) => &[("credentials.registry_token", token)],
        };
        for (field, secret) in secrets {
            if secret.len() > CREDENTIAL_LENGTH_MAX || secret.bytes().any(|b| b.is_ascii_control()) {
                let value = format!("{} bytes that are not shown", secret.len());
                return Err(Error::invalid(
                    *field,
                    value,
                    format!("at most {CREDENTIAL_LENGTH_MAX} bytes, none of them a control character"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("")]
    #[case("bad name")]
    #[case("name\n")]
    #[case("ünicode")]
    fn what_is_no_name_is_refused(#[case] text: &str) {
        let error = text.parse::<ImageName>().expect_err("no name").to_string();
        assert!(error.starts_with("image: "), "{error}");
    }

    #[test]
    fn a_long_name_is_shown_in_part() {
        let error =
            "x".repeat(IMAGE_NAME_LENGTH_MAX + 1).parse::<ImageName>().expect_err("too long").to_string();
        assert!(error.len() < 300, "{error}");
    }

    #[rstest]
    #[case(Some("linux"), false)]
    #[case(Some("linux/amd64"), true)]
    #[case(Some("linux/arm/v7"), true)]
    #[case(Some("linux//v7"), false)]
    #[case(Some("linux/arm/v7/x"), false)]
    #[case(None, true)]
    fn platforms(#[case] platform: Option<&str>, #[case] good: bool) {
        let spec = PullSpec {
            platform: platform.map(str::to_owned),
            ..PullSpec::new("busybox".parse().expect("a name"))
        };
        assert_eq!(spec.check().is_ok(), good);
    }

    /// A password must not end up in a log.
    #[test]
    fn secrets_are_not_shown() {
        let credentials = Credentials::Password { user: "me".into(), password: "hunter2".into() };
        assert!(!format!("{credentials:?}").contains("hunter2"));
        let spec = PullSpec {
            credentials: Some(Credentials::RegistryToken("hunter2\n".into())),
            ..PullSpec::new("busybox".parse().expect("a name"))
        };
        assert!(!spec.check().expect_err("a control character").to_string().contains("hunter2"));
    }

    #[test]
    fn ids_are_shown_short() {
        assert_eq!(ImageId(format!("sha256:{}", "ab".repeat(32))).short(), "abababababab");
        assert_eq!(ImageId("x".into()).short(), "x");
    }
}
