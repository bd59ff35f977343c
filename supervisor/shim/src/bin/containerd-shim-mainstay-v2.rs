//! The shim for containerd as a program of its own: a tenth of the `mainstay` command, and so less memory that each of its
//! processes has for itself.

fn main() {
    mainstay_shim::run_if_shim();
    eprintln!("usage: containerd starts this program under the name {}", mainstay_shim::CONTAINERD_SHIM_NAME);
    std::process::exit(2);
}
