//! Names as people write them, and as attackers do.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[rstest]
#[case("alpine", "docker.io/library/alpine:latest")]
#[case("alpine:3.20", "docker.io/library/alpine:3.20")]
#[case("library/alpine", "docker.io/library/alpine:latest")]
#[case("owner/image", "docker.io/owner/image:latest")]
#[case("docker.io/alpine", "docker.io/library/alpine:latest")]
#[case("index.docker.io/alpine", "docker.io/library/alpine:latest")]
#[case("localhost/image", "localhost/image:latest")]
#[case("localhost:5000/a/b:c", "localhost:5000/a/b:c")]
#[case("127.0.0.1:5000/image", "127.0.0.1:5000/image:latest")]
#[case("[::1]:5000/image:x", "[::1]:5000/image:x")]
#[case("Registry/image", "Registry/image:latest")]
#[case("ghcr.io/a/b_c/d__e/f-g/h---i/j.k:T_1.2-3", "ghcr.io/a/b_c/d__e/f-g/h---i/j.k:T_1.2-3")]
fn completes(#[case] text: &str, #[case] expected: &str) {
    let reference: Reference = text.parse().expect("a name");
    assert_eq!(reference.to_string(), expected);
    assert_eq!(expected.parse::<Reference>().expect("a name"), reference);
}

#[test]
fn a_digest_decides_and_a_tag_is_remembered() {
    let reference: Reference = format!("alpine:3.20@sha256:{HEX}").parse().expect("a name");
    assert_eq!(reference.tag(), Some("3.20"));
    assert_eq!(reference.target(), format!("sha256:{HEX}"));
    let reference: Reference = format!("alpine@sha256:{HEX}").parse().expect("a name");
    assert_eq!(reference.tag(), None, "a digest needs no tag");
    assert_eq!(reference.familiar(), format!("alpine@sha256:{HEX}"));
}

#[rstest]
#[case("docker.io/library/alpine:latest", "alpine:latest")]
#[case("docker.io/owner/image:latest", "owner/image:latest")]
#[case("docker.io/library/a/b:latest", "library/a/b:latest")]
#[case("docker.io/a.b/c:latest", "docker.io/a.b/c:latest")]
#[case("ghcr.io/library/a:latest", "ghcr.io/library/a:latest")]
fn the_familiar_name_names_the_same(#[case] text: &str, #[case] expected: &str) {
    let reference: Reference = text.parse().expect("a name");
    assert_eq!(reference.familiar(), expected);
    assert_eq!(expected.parse::<Reference>().expect("a name"), reference);
}

#[rstest]
#[case("", "is empty")]
#[case("Alpine", "path \"Alpine\" should be lower-case")]
#[case("alpine:", "tag \"\"")]
#[case("alpine:-x", "tag \"-x\"")]
#[case("alpine:a:b", "tag \"a:b\"")]
#[case("alpine@", "what follows '@' is not a digest")]
#[case("alpine@sha256:abc", "what follows '@' is not a digest")]
#[case("a//b", "path \"a//b\"")]
#[case("/alpine", "path \"/alpine\"")]
#[case("alpine/", "path \"alpine/\"")]
#[case("a/../b", "path \"a/../b\"")]
#[case("../a", "host \"..\"")]
#[case("a..b/c", "host \"a..b\"")]
#[case("a.b/c..d", "path \"c..d\"")]
#[case("a.b/c___d", "path \"c___d\"")]
#[case("a.b/-c", "path \"-c\"")]
#[case("host:port/image", "host \"host:port\"")]
#[case("host:/image", "host \"host:\"")]
#[case("host:0/image", "host \"host:0\"")]
#[case("host:65536/image", "host \"host:65536\"")]
#[case("-host.x/image", "host \"-host.x\"")]
#[case("[::1/image", "host \"[::1\"")]
#[case("user:password@host.x/image", "what follows '@' is not a digest")]
#[case("https://host.x/image", "host \"https:\"")]
#[case("a b", "path \"a b\"")]
#[case("é", "path \"é\"")]
#[case("a\n", "path \"a\\n\"")]
#[case("a?x=y", "path \"a?x=y\"")]
#[case("a%2e%2e", "path \"a%2e%2e\"")]
#[case(HEX, "is an id and no name")]
fn refuses(#[case] text: &str, #[case] expected: &str) {
    let error = text.parse::<Reference>().expect_err("no name").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn lengths_are_bounded() {
    let path = "a".repeat(PATH_LENGTH_MAX);
    assert!(format!("h.x/{path}").parse::<Reference>().is_ok());
    assert!(matches!(format!("h.x/{path}a").parse::<Reference>(), Err(ReferenceError::Path { .. })));
    let tag = "t".repeat(TAG_LENGTH_MAX);
    assert!(format!("a:{tag}").parse::<Reference>().is_ok());
    assert!(matches!(format!("a:{tag}t").parse::<Reference>(), Err(ReferenceError::Tag { .. })));
    let long = "a/".repeat(REFERENCE_LENGTH_MAX);
    assert!(matches!(long.parse::<Reference>(), Err(ReferenceError::TooLong { .. })));
}

fn good() -> impl Strategy<Value = String> {
    let host = "(([a-z]{1,8}\\.[a-z]{2,3}|localhost|127\\.0\\.0\\.1)(:[1-9][0-9]{0,3})?/)?";
    let path = "([a-z0-9]{1,8}/){0,2}[a-z0-9]{1,8}((\\.|_|__|-{1,3})[a-z0-9]{1,8}){0,2}";
    let tag = "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?";
    (host, path, tag, any::<bool>()).prop_map(|(host, path, tag, digest)| {
        let digest = if digest { format!("@sha256:{HEX}") } else { String::new() };
        format!("{host}{path}{tag}{digest}")
    })
}

proptest! {
    #[test]
    fn a_good_name_is_taken_and_complete_at_once(text in good()) {
        let reference: Reference = text.parse().expect("a name");
        let full = reference.to_string();
        prop_assert!(reference.tag().is_some() || reference.digest().is_some());
        prop_assert_eq!(full.parse::<Reference>().expect("a complete name"), reference.clone());
        prop_assert_eq!(reference.familiar().parse::<Reference>().expect("a familiar name"), reference);
    }

    #[test]
    fn whatever_is_taken_is_safe_in_a_url_and_names_itself(text in "[a-zA-Z0-9:/@._%?#\\-\\[\\] ]{0,60}") {
        if let Ok(reference) = text.parse::<Reference>() {
            let bad = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c));
            prop_assert!(!reference.path().contains(bad), "{}", reference.path());
            prop_assert!(!reference.path().split('/').any(|c| c.is_empty() || c.starts_with('.')));
            prop_assert_eq!(reference.to_string().parse::<Reference>().expect("itself"), reference);
        }
    }

    #[test]
    fn any_text_gives_a_name_or_an_error(text in any::<String>()) {
        let _ = text.parse::<Reference>();
    }
}
