//! Compiles the .proto files with a parser in Rust: no protoc is needed.

/// The files that have a service; they import all others.
const SERVICES: [&str; 2] = ["proto/runtime_service.proto", "proto/image_service.proto"];

fn main() {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(SERVICES, ["proto"]).expect("the .proto files are good");
    tonic_prost_build::configure()
        // It has secrets, which must not get into a log.
        .skip_debug(["AuthConfig"])
        .compile_fds(files)
        .expect("OUT_DIR can be written");
}
