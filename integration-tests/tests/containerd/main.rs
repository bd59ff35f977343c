//! The shim under a containerd: what `ctr` does with a runtime of containerd's own, it does with `io.containerd.mainstay.v2`.

mod bootstrap;
mod deaths;
mod groups;
mod life;
mod refusals;
mod rig;
mod streams;

/// A containerd for this test, or an early return that says why there is none.
macro_rules! containerd {
    () => {
        match crate::rig::Containerd::start().await {
            Some(containerd) => containerd,
            None => return,
        }
    };
}
pub(crate) use containerd;
