//! Images that can be pulled and unpacked, made in memory.

use mainstay_oci_image::{Descriptor, media};

use crate::content::Content;

/// A layer with one file of so many bytes.
pub fn layer(name: &str, bytes: usize, seed: u64) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let content = Content::bytes(bytes, seed);
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, &content[..]).expect("an entry");
    archive.into_inner().expect("an archive")
}

/// An image of these layers under a tag, which says that their content has these digests.
pub fn image_with(
    content: &mut Content,
    tag: &str,
    layers: &[&Descriptor],
    diff_ids: &[String],
) -> Descriptor {
    let config = serde_json::json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {"Env": [format!("TAG={tag}")]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = content.blob(config.to_string().into_bytes());
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media::OCI_MANIFEST,
        "config": {"mediaType": media::OCI_CONFIG, "digest": config.digest, "size": config.size},
        "layers": layers,
    });
    content.document(media::OCI_MANIFEST, manifest.to_string(), Some(tag))
}

/// An image of these layers, which are not compressed, under a tag.
pub fn image(content: &mut Content, tag: &str, layers: &[&Descriptor]) -> Descriptor {
    let diff_ids: Vec<String> = layers.iter().map(|layer| layer.digest.to_string()).collect();
    image_with(content, tag, layers, &diff_ids)
}
