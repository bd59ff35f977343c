//! The program that the shim's tests start: an embedding program with nothing but the shim in it.

fn main() {
    mainstay_shim::run_if_shim();
    eprintln!("usage: start this program under the name {}", mainstay_shim::SHIM_NAME);
    std::process::exit(2);
}
