//! The smallest program that shims can be executed from, for the tests of this crate.

fn main() {
    mainstay_shim::run_if_shim();
    eprintln!("this program is only executed as a shim, by the tests of mainstay-supervisor");
    std::process::exit(2);
}
