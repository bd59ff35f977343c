//! An image of one file as an OCI layout, made with GNU tar.

use std::fs;
use std::path::Path;
use std::process::Command;

use mainstay_oci_image::{Digest, media};

use crate::content::Content;

/// Bytes of the file, which is no pattern.
const DATA_BYTES: usize = 3_000_000;

/// What is in a layout.
#[derive(Clone, Debug)]
pub struct Layout {
    /// What the file `data` of the image has.
    pub data: Vec<u8>,
    /// The layer, compressed.
    pub layer: Vec<u8>,
    /// The digest of the manifest.
    pub manifest: Digest,
}

/// Makes a layout, a new directory, whose one image has the tag `latest`.
pub fn make(layout: &Path) -> Layout {
    let files = tempfile::tempdir().expect("a directory");
    let data = Content::bytes(DATA_BYTES, 5);
    fs::write(files.path().join("data"), &data).expect("written");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("made");
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).expect("written");
        serde_json::json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let layer = tar("-czf", files.path());
    let config = serde_json::json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&tar("-cf", files.path()))]},
    });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media::OCI_MANIFEST,
        "config": put(media::OCI_CONFIG, config.to_string().as_bytes()),
        "layers": [put(&format!("{}+gzip", media::OCI_LAYER), &layer)],
    });
    let manifest = manifest.to_string();
    let mut entry = put(media::OCI_MANIFEST, manifest.as_bytes());
    entry["annotations"] = serde_json::json!({"org.opencontainers.image.ref.name": "latest"});
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [entry]});
    fs::write(layout.join("index.json"), index.to_string()).expect("written");
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    Layout { data, layer, manifest: Digest::of(manifest.as_bytes()) }
}

fn tar(flags: &str, files: &Path) -> Vec<u8> {
    let output = Command::new("tar").args([flags, "-", "-C"]).arg(files).arg(".").output().expect("tar runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
