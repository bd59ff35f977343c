//! `hosts.toml`: no panic, the registry itself is always among the hosts, and an error is one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_registry::fuzzing::hosts_toml;

fuzz_target!(|text: &str| {
    for registry in ["docker.io", "localhost:5000"] {
        match hosts_toml(text, registry) {
            Ok(hosts) => assert!(hosts > 0),
            Err(error) => assert!(!error.contains('\n'), "{error:?}"),
        }
    }
});
