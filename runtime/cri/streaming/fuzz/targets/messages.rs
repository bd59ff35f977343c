//! Messages of channels, and sizes of terminals: no panic, and nothing kept beyond a size that is not complete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_cri_streaming::testing::read_strangers_message;

fuzz_target!(|bytes: &[u8]| read_strangers_message(bytes));
