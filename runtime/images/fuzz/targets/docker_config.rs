//! Docker's `config.json`: no panic, and no password is shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_registry::fuzzing::docker_config;

fuzz_target!(|bytes: &[u8]| {
    for (host, path) in
        [("registry.example", "team/app"), ("docker.io", "library/x"), ("localhost:5000", "a")]
    {
        let _ = docker_config(bytes, host, path);
    }
});
