//! Archives, byte by byte: no panic, an end, and no more members than blocks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_images_fuzz::with_checksums;

fuzz_target!(|bytes: &[u8]| {
    let archive = with_checksums(bytes.to_vec());
    assert!(mainstay_images::fuzzing::members(&archive) <= archive.len().div_ceil(512) as u64);
});
