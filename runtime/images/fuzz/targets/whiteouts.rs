//! A layer over another one: hiding, hard links and directories lean on what is below. No panic, nothing beside is touched, and
//! what was taken once is taken again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_images_fuzz::{Entry, archive, unpack};

fuzz_target!(|layers: (Vec<Entry>, Vec<Entry>)| {
    let (below, above) = (archive(&layers.0), archive(&layers.1));
    if unpack(above.clone(), &[below.clone()]) {
        assert!(unpack(above, &[below]), "it was taken before");
    }
});
