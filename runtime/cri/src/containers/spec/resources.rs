//! Limits. In the interface nothing is 0, and no limit is negative.

use mainstay::Resources;
use mainstay_cri_api::LinuxContainerResources;

use crate::failure::{Failure, Result};
use crate::resources::limits;

/// The limits of a new container, in those of the core.
pub(crate) fn resources(asked: &LinuxContainerResources) -> Result<Resources> {
    if asked.cpu_period < 0 {
        let field = "config.linux.resources.cpu_period";
        return Err(Failure::invalid(field, asked.cpu_period.to_string(), "a period in microseconds"));
    }
    let mut resources = limits(asked);
    if resources.memory_bytes.is_none() {
        // It counts both together, and says nothing without a limit of memory.
        resources.memory_swap_bytes = None;
    }
    Ok(resources)
}

/// The score that the kernel chooses its victims by.
pub(super) fn oom_score(limits: &LinuxContainerResources) -> Result<i32> {
    i32::try_from(limits.oom_score_adj).map_err(|_| {
        let field = "config.linux.resources.oom_score_adj";
        Failure::invalid(field, limits.oom_score_adj.to_string(), "a number from -1000 to 1000")
    })
}
