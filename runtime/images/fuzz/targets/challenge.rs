//! `WWW-Authenticate`: no panic, and no more challenges than the header has words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_registry::challenge::parse;

fuzz_target!(|header: &str| {
    let found = parse(header).len();
    assert!(found <= header.len(), "{found} challenges");
});
