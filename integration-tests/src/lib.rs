//! Worlds for tests on real processes: a runtime below directories and a cgroup of its own, and a ledger of what
//! it may leak.
//!
//! A test takes a world with [`world!`], and gets none when it cannot run here; it has then said why. Dropping a
//! world kills whatever is left in its cgroup, so that a test that fails leaves nothing either.

pub mod daemon;
pub mod disk;
pub mod ledger;
pub mod registry;
mod session;
pub mod wait;
mod world;

pub use daemon::Daemon;
pub use disk::Disk;
pub use mainstay_images_testing::peer;
pub use mainstay_network_testing as net;
pub use session::echoed;
pub use world::{Shorthand, World, run, says, script_spec, waiting};

/// A world for this test, or an early return that says why there is none.
#[macro_export]
macro_rules! world {
    () => {
        match $crate::World::new(env!("CARGO_BIN_EXE_mainstay-under-test")) {
            Some(world) => world,
            None => return,
        }
    };
}
