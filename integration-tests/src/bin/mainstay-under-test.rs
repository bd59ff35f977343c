//! The `mainstay` command, built with the tests so that they always run the one of this tree.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_cli::main()
}
