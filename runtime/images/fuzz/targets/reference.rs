//! References: no panic, what was read is shown so that it is read the same, and its repository is one too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_oci_image::Reference;

fuzz_target!(|text: &str| {
    if let Ok(reference) = text.parse::<Reference>() {
        let shown = reference.to_string();
        let again: Reference = shown.parse().expect("what is shown can be read");
        assert_eq!(again, reference);
        assert_eq!(again.to_string(), shown);
        reference.repository().to_string().parse::<Reference>().expect("a repository is a reference");
        let all = [reference.host(), reference.path()];
        assert!(all.iter().all(|part| !part.contains("..") && !part.contains(['\0', '\n', ' ', '?', '#'])));
    }
});
