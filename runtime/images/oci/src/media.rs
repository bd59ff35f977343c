//! Media types, and what they say of a layer's compression.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// An OCI image configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// An OCI layer that is not compressed; `+gzip` and `+zstd` follow where it is.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// A Docker manifest of schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// A Docker manifest list.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// A Docker image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// A Docker layer, compressed with gzip.
pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// The manifests that a client asks a registry for.
pub const ACCEPTED_MANIFESTS: [&str; 4] = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// The media type of a blob, as its descriptor names it. Any text is kept; the questions say what it means.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MediaType(String);

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, as RFC 1952 has it; several members may follow one another.
    Gzip,
    /// Zstandard, as RFC 8878 has it; several frames may follow one another.
    Zstd,
}

impl MediaType {
    /// The type without parameters (`; charset=utf-8`), as an HTTP header has it.
    pub fn from_header(value: &str) -> Self {
        Self(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is a manifest of one image.
    pub fn is_manifest(&self) -> bool {
        matches!(self.as_str(), OCI_MANIFEST | DOCKER_MANIFEST)
    }

    /// Whether this is an index or a manifest list.
    pub fn is_index(&self) -> bool {
        matches!(self.as_str(), OCI_INDEX | DOCKER_LIST)
    }

    /// Whether this is a configuration of an image that can be run.
    pub fn is_config(&self) -> bool {
        matches!(self.as_str(), OCI_CONFIG | DOCKER_CONFIG)
    }

    /// Whether this is Docker's schema 1, which nobody should use any more and which has no digest of its own.
    pub fn is_schema_1(&self) -> bool {
        self.0.starts_with("application/vnd.docker.distribution.manifest.v1+")
    }

    /// How a layer of this type is compressed; none for what is no layer that can be unpacked.
    pub fn compression(&self) -> Option<Compression> {
        let kind = [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.nondistributable.v1.tar",
        ]
        .into_iter()
        .chain([
            "application/vnd.docker.image.rootfs.diff.tar",
            "application/vnd.docker.image.rootfs.foreign.diff.tar",
            "application/vnd.docker.container.image.rootfs.diff.tar",
        ])
        .find_map(|prefix| self.0.strip_prefix(prefix))?;
        match kind {
            "" => Some(Compression::None),
            "+gzip" | ".gzip" => Some(Compression::Gzip),
            "+zstd" | ".zstd" => Some(Compression::Zstd),
            _ => None,
        }
    }
}

impl From<&str> for MediaType {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaType({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("application/vnd.oci.image.layer.v1.tar", Some(Compression::None))]
    #[case("application/vnd.oci.image.layer.v1.tar+gzip", Some(Compression::Gzip))]
    #[case("application/vnd.oci.image.layer.v1.tar+zstd", Some(Compression::Zstd))]
    #[case("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", Some(Compression::Gzip))]
    #[case("application/vnd.docker.image.rootfs.diff.tar", Some(Compression::None))]
    #[case("application/vnd.docker.image.rootfs.diff.tar.gzip", Some(Compression::Gzip))]
    #[case("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Some(Compression::Gzip))]
    #[case("application/vnd.docker.image.rootfs.diff.tar.zstd", Some(Compression::Zstd))]
    #[case("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", None)]
    #[case("application/vnd.in-toto+json", None)]
    #[case("", None)]
    fn a_layers_type_tells_its_compression(#[case] text: &str, #[case] expected: Option<Compression>) {
        assert_eq!(MediaType::from(text).compression(), expected);
    }

    #[test]
    fn parameters_of_a_header_are_no_part_of_the_type() {
        assert!(
            MediaType::from_header(" Application/vnd.oci.image.index.v1+json ; charset=utf-8").is_index()
        );
    }
}
