//! The `mainstay` command. All of it is in the library, so that tests can build a program of their own of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_cli::main()
}
