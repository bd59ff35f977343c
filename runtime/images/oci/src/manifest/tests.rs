//! Documents as they are in the field, and as attackers write them.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::{DOCUMENT_LENGTH_MAX, media};

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn manifest(rest: &str) -> Vec<u8> {
    format!(r#"{{"schemaVersion":2,"config":{{"mediaType":"x","digest":"{DIGEST}","size":7}}{rest}}}"#)
        .into_bytes()
}

fn entry(rest: &str) -> String {
    format!(r#"{{"mediaType":"{}","digest":"{DIGEST}","size":1{rest}}}"#, media::OCI_MANIFEST)
}

fn entry_for(architecture: &str) -> String {
    entry(&format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}"#))
}

fn index(entries: &[String]) -> Vec<u8> {
    format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(",")).into_bytes()
}

#[test]
fn the_kind_is_told_by_header_or_by_fields() {
    let header = MediaType::from(media::OCI_MANIFEST);
    for declared in [None, Some(&header), Some(&MediaType::from("application/json"))] {
        assert!(
            matches!(Document::parse(&manifest(""), declared), Ok(Document::Manifest(_))),
            "{declared:?}"
        );
    }
    assert!(matches!(Document::parse(&index(&[entry("")]), None), Ok(Document::Index(_))));
    assert!(matches!(Document::parse(&manifest(r#","layers":null"#), None), Ok(Document::Manifest(_))));
}

/// CVE-2021-41190: one reader took the document for an index, the other for a manifest, and the two saw different
/// images under one digest.
#[test]
fn a_document_of_two_kinds_is_refused() {
    let both = manifest(r#","layers":[],"manifests":[]"#);
    assert!(matches!(Document::parse(&both, None), Err(DocumentError::Ambiguous { .. })));
    let own = manifest(&format!(r#","mediaType":"{}""#, media::OCI_INDEX));
    let declared = MediaType::from(media::OCI_MANIFEST);
    assert!(matches!(Document::parse(&own, Some(&declared)), Err(DocumentError::Ambiguous { .. })));
}

#[rstest]
#[case(br#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#)]
#[case(br#"{"schemaVersion":2}"#)]
fn other_kinds_are_unsupported(#[case] text: &[u8]) {
    assert!(matches!(Document::parse(text, None), Err(DocumentError::Unsupported { .. })));
}

#[rstest]
#[case::not_json("<html>".to_owned())]
#[case::a_negative_size(manifest_text(r#""size":-1"#))]
#[case::no_size(manifest_text(r#""x":1"#))]
#[case::a_digest_that_is_a_path(r#"{"schemaVersion":2,"config":{"digest":"sha256:../../x","size":1}}"#.to_owned())]
#[case::deep(format!(r#"{{"schemaVersion":2,"config":{}"#, "[".repeat(100_000)))]
fn malformed_is_an_error(#[case] text: String) {
    assert!(matches!(Document::parse(text.as_bytes(), None), Err(DocumentError::Malformed { .. })));
}

fn manifest_text(size: &str) -> String {
    format!(r#"{{"schemaVersion":2,"config":{{"mediaType":"x","digest":"{DIGEST}",{size}}}}}"#)
}

#[test]
fn lengths_are_bounded() {
    let long = vec![b' '; DOCUMENT_LENGTH_MAX + 1];
    assert!(matches!(Document::parse(&long, None), Err(DocumentError::TooLong { .. })));
    let layers = vec![entry(""); LAYERS_MAX + 1].join(",");
    let many = manifest(&format!(r#","layers":[{layers}]"#));
    assert!(matches!(Document::parse(&many, None), Err(DocumentError::TooMany { .. })));
}

#[test]
fn an_index_gives_what_suits_best() {
    let text = index(&[
        entry(r#","platform":{"os":"unknown","architecture":"unknown"}"#),
        entry_for("386"),
        entry_for("arm64"),
        entry_for("amd64"),
    ]);
    let index = Index::parse(&text).expect("an index");
    let select = |text: &str| index.select(&text.parse().expect("a platform"));
    let chosen = select("linux/amd64").expect("there is one");
    assert_eq!(chosen.platform.as_ref().map(|p| p.architecture.as_str()), Some("amd64"));
    let error = select("linux/s390x").expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "there is no image for linux/s390x; there is one for linux/386, linux/arm64, linux/amd64"
    );
}

#[test]
fn an_entry_without_a_platform_is_the_last_resort() {
    let index = Index::parse(&index(&[entry(""), entry_for("arm64")])).expect("an index");
    let amd64 = index.select(&"linux/amd64".parse().expect("a platform")).expect("the one without");
    assert_eq!(amd64.platform, None);
    let arm64 = index.select(&"linux/arm64".parse().expect("a platform")).expect("the one with");
    assert!(arm64.platform.is_some());
}

#[test]
fn layers_and_diff_ids_have_to_be_as_many() {
    let manifest = Manifest::parse(&manifest(&format!(r#","layers":[{}]"#, entry("")))).expect("a manifest");
    let one = format!(r#"{{"rootfs":{{"diff_ids":["{DIGEST}"]}}}}"#);
    let one = ImageConfig::parse(one.as_bytes()).expect("a configuration");
    assert_eq!(manifest.layers_with_diff_ids(&one).expect("one each").count(), 1);
    let error = manifest.layers_with_diff_ids(&ImageConfig::default()).err().expect("none");
    assert!(error.to_string().contains("1 layers and its configuration 0 diff_ids"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_give_a_document_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Document::parse(&bytes, None);
        let _ = ImageConfig::parse(&bytes);
    }

    #[test]
    fn a_damaged_document_never_panics(at in 0usize..150, byte in any::<u8>()) {
        let mut text = manifest(&format!(r#","layers":[{}]"#, entry("")));
        let at = at % text.len();
        text[at] = byte;
        let _ = Document::parse(&text, None);
    }
}
