//! The shim for containerd as a program of its own, with nothing but the shim in it: containerd executes each one anew, and so
//! what a program has to relocate is memory of every process.

fn main() {
    mainstay_shim::run_if_shim();
    eprintln!("usage: containerd starts this program under the name {}", mainstay_shim::CONTAINERD_SHIM_NAME);
    std::process::exit(2);
}
