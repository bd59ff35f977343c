//! NRI plugins on the side of the runtime.

pub mod adjust;
