//! A containerd shim that fails as the plan beside its name says.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_shim_testing::program()
}
