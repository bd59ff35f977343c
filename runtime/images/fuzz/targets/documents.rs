//! Manifests, indexes and configurations: no panic, and what was read is read the same after it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_oci_image::{Document, ImageConfig, Index, Manifest, MediaType, Platform};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let written = serde_json::to_vec(&manifest).expect("a manifest can be written");
        assert_eq!(Manifest::parse(&written).expect("it was read before"), manifest);
    }
    if let Ok(index) = Index::parse(bytes) {
        let written = serde_json::to_vec(&index).expect("an index can be written");
        assert_eq!(Index::parse(&written).expect("it was read before"), index);
        let _ = index.select(&Platform::new("linux", "amd64", None)).map_err(|error| error.to_string());
    }
    if let Ok(config) = ImageConfig::parse(bytes) {
        let written = serde_json::to_vec(&config).expect("a configuration can be written");
        assert_eq!(ImageConfig::parse(&written).expect("it was read before"), config);
        if let Ok(manifest) = Manifest::parse(bytes) {
            let _ = manifest.layers_with_diff_ids(&config).map(Iterator::count);
        }
    }
    let declared = MediaType::from("application/vnd.oci.image.manifest.v1+json");
    for declared in [None, Some(&declared)] {
        let _ = Document::parse(bytes, declared).map_err(|error| error.to_string());
    }
});
