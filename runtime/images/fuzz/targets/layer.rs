//! A layer of any entries into a directory: no panic, and nothing beside the directory is touched.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_images_fuzz::{Entry, archive, unpack};

fuzz_target!(|entries: Vec<Entry>| {
    unpack(archive(&entries), &[]);
});
