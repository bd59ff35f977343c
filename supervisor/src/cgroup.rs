//! Killing, removing and measuring the cgroups of pods and containers from outside of their shim.
//!
//! Owns: waiting for what a kill has begun, and what an error of a cgroup is called towards callers. Never: is
//! called on an actor's thread; all of it blocks.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupError, Controller, Controllers, Occupancy};
use mainstay_messages::supervisor::Stats;
use mainstay_messages::{Error, Result};
use oci_spec::runtime::LinuxResources;

use crate::machine::now;

/// Time for all processes of a killed cgroup to be gone, in milliseconds. One that the kernel holds in an
/// uninterruptible wait stays longer; its cgroup is then removed later.
pub(crate) const KILL_WAIT_MS: u64 = 2_500;
/// Time to remove a cgroup whose last process has just died, in milliseconds.
pub(crate) const REMOVE_WAIT_MS: u64 = 5_000;
/// The first pause between two looks, in milliseconds; it doubles up to [`LOOK_MAX_MS`].
const LOOK_MIN_MS: u64 = 1;
/// The longest pause between two looks, in milliseconds.
const LOOK_MAX_MS: u64 = 50;

/// Pauses that grow, until a deadline.
struct Looks {
    deadline: Instant,
    pause: Duration,
}

impl Looks {
    fn within(limit_ms: u64) -> Self {
        Self {
            deadline: Instant::now() + Duration::from_millis(limit_ms),
            pause: Duration::from_millis(LOOK_MIN_MS),
        }
    }

    /// Pauses; none when the time is over.
    fn again(&mut self) -> Option<()> {
        if Instant::now() >= self.deadline {
            return None;
        }
        sleep(self.pause);
        self.pause = (self.pause * 2).min(Duration::from_millis(LOOK_MAX_MS));
        Some(())
    }
}

/// Kills everything in a cgroup and waits until it is gone.
pub(crate) fn kill(group: &Cgroup) -> Result<()> {
    let mut looks = Looks::within(KILL_WAIT_MS);
    loop {
        group.kill().map_err(error)?;
        if group.occupancy().map_err(error)? == Occupancy::Empty {
            return Ok(());
        }
        if looks.again().is_none() {
            return Err(Error::DeadlineExceeded {
                what: format!("the end of the processes in cgroup {}", group.path()),
                after_ms: KILL_WAIT_MS,
            });
        }
    }
}

/// Kills what is left in a cgroup and removes it.
pub(crate) fn remove(group: &Cgroup) -> Result<()> {
    let mut looks = Looks::within(REMOVE_WAIT_MS);
    loop {
        group.kill().map_err(error)?;
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(CgroupError::Busy { .. }) if looks.again().is_some() => {}
            Err(failed) => return Err(error(failed)),
        }
    }
}

/// Makes the cgroup of a pod with limits; undone when it fails.
pub(crate) fn create(
    group: &Cgroup,
    layout: &mainstay_cgroups::Layout,
    resources: &LinuxResources,
) -> Result<()> {
    // What containers need in any case is there from the beginning, so that a pod has no more groups after its first container.
    let needs: Controllers = layout.check(resources).map_err(error)?.with(Controller::Devices);
    let made = Cgroup::create(layout, group.path(), needs).and_then(|group| group.apply(resources));
    match made {
        Ok(warnings) => {
            for warning in warnings {
                tracing::warn!(cgroup = %group.path(), %warning, "limit left out");
            }
            Ok(())
        }
        Err(failed) => {
            if let Err(left) = remove(group) {
                tracing::warn!(cgroup = %group.path(), error = %left, "cgroup not removed");
            }
            Err(error(failed))
        }
    }
}

/// What a cgroup uses now.
pub(crate) fn measure(group: &Cgroup) -> Result<Stats> {
    let used = group.stats().map_err(error)?;
    Ok(Stats {
        at: now(),
        cpu_usage_ns: used.cpu_usage_ns,
        cpu_user_ns: used.cpu_user_ns,
        cpu_system_ns: used.cpu_system_ns,
        memory_usage_bytes: used.memory_usage,
        memory_working_set_bytes: used.memory_working_set,
        memory_rss_bytes: used.memory_rss,
        memory_limit_bytes: used.memory_limit,
        pids: used.pids_current,
        pids_limit: used.pids_limit,
        oom_kills: used.oom_kills,
        log_bytes_lost: 0,
    })
}

/// A failure as callers see it: a setting that cannot be honoured, or cgroups that do not work.
pub(crate) fn error(failed: CgroupError) -> Error {
    let reason = failed.to_string();
    match failed {
        CgroupError::ControllerMissing { field, .. }
        | CgroupError::Unsupported { field, .. }
        | CgroupError::FileMissing { field, .. } => Error::Unsupported { setting: setting(&field), reason },
        CgroupError::Invalid { field, value, expected } => Error::invalid(setting(&field), value, expected),
        CgroupError::Refused { field, value, expected, .. } => {
            Error::invalid(setting(&field), value, expected)
        }
        CgroupError::MemoryBelowUsage { field, limit, usage } => Error::invalid(
            setting(&field),
            limit.to_string(),
            format!("at least the {usage} bytes that are in use"),
        ),
        _ => Error::unavailable("a cgroup", with_sources(&failed)),
    }
}

/// The name that the field has in our specs.
fn setting(field: &str) -> String {
    let ours = match field.strip_prefix("linux.resources.") {
        Some("memory.limit") => "memory",
        Some("memory.swap") => "memory_swap",
        Some("memory.reservation") => "memory_reservation",
        Some("blockIO.weight") => "block_io.weight",
        Some(other) if other.starts_with("blockIO.") => "block_io.devices",
        Some(other) if other.starts_with("hugepageLimits") => "hugepages",
        Some("cpu.quota" | "cpu.period") => "cpus",
        Some("cpu.shares") => "cpu_shares",
        Some("cpu.cpus") => "cpuset_cpus",
        Some("cpu.mems") => "cpuset_mems",
        Some("pids.limit") => "pids_limit",
        _ => field,
    };
    ours.to_owned()
}

/// An error with all its causes, in one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
