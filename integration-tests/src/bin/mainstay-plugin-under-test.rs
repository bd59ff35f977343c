//! A plugin that the runtime starts, and that fails as its configuration says.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    mainstay_nri_plugin::faults::program().await
}
