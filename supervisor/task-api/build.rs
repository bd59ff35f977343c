//! Compiles the .proto files with a parser in Rust: no protoc is needed.

use std::path::PathBuf;

use ttrpc_codegen::{Codegen, Customize, ProtobufCustomize};

/// The files, and the Rust modules that come of them. The messages of `task_v3` are those of `task`.
const PROTOS: [&str; 10] = [
    "proto/task.proto",
    "proto/task_v3.proto",
    "proto/extension.proto",
    "proto/sandbox.proto",
    "proto/events.proto",
    "proto/bootstrap.proto",
    "proto/introspection.proto",
    "proto/metrics_v1.proto",
    "proto/metrics_v2.proto",
    "proto/shim_options.proto",
];
const MODULES: [&str; 14] = [
    "task",
    "task_ttrpc",
    "task_v3_ttrpc",
    "extension",
    "extension_ttrpc",
    "sandbox",
    "sandbox_ttrpc",
    "events",
    "events_ttrpc",
    "bootstrap",
    "introspection",
    "metrics_v1",
    "metrics_v2",
    "shim_options",
];

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
    }
    Codegen::new()
        .out_dir(&out)
        .inputs(PROTOS)
        .include("proto")
        .rust_protobuf()
        .customize(Customize { async_all: true, ..Default::default() })
        // Without descriptors: they would be relocated in, and so be private memory of, every shim.
        .rust_protobuf_customize(ProtobufCustomize::default().lite_runtime(true))
        .run()
        .expect("the .proto files are good");
    let modules: String = MODULES.iter().map(|name| format!("pub mod {name};\n")).collect();
    std::fs::write(out.join("modules.rs"), modules).expect("OUT_DIR can be written");
}
