//! Compiles the .proto files with a parser in Rust: no protoc is needed.

use std::path::PathBuf;

use ttrpc_codegen::{Codegen, Customize, ProtobufCustomize};

/// The files, and the Rust modules that come of them.
const PROTOS: [&str; 4] =
    ["proto/value.proto", "proto/container.proto", "proto/adjustment.proto", "proto/nri.proto"];
const MODULES: [&str; 5] = ["value", "container", "adjustment", "nri", "nri_ttrpc"];

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
        // Without descriptors: nothing looks at them.
        .rust_protobuf_customize(ProtobufCustomize::default().lite_runtime(true))
        .run()
        .expect("the .proto files are good");
    let modules: String = MODULES.iter().map(|name| format!("pub mod {name};\n")).collect();
    std::fs::write(out.join("modules.rs"), modules).expect("OUT_DIR can be written");
}
