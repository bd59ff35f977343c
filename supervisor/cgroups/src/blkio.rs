//! Limits on block devices: `blkio` in v1, `io` in v2.
//!
//! Owns: the check of `blockIO` and its spelling in both generations. Never: writes.

use oci_spec::runtime::{LinuxBlockIo, LinuxThrottleDevice};

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::layout::{HierarchyId, Home, Layout};
use crate::plan::{Plan, Setting, Step};

/// The smallest weight of the OCI spec.
const WEIGHT_MIN: u16 = 10;
/// The largest weight of the OCI spec.
const WEIGHT_MAX: u16 = 1000;
const WEIGHT_EXPECTED: &str = "10 to 1000, and a scheduler that knows weights (BFQ or io.cost)";
const DEVICE_EXPECTED: &str = "the major:minor of a whole disk of this machine";

pub(crate) fn plan(plan: &mut Plan, layout: &Layout, io: &LinuxBlockIo) -> Result<(), CgroupError> {
    let leaf_weights = io.weight_device().iter().flatten().filter_map(|device| device.leaf_weight());
    if let Some(weight) = io.leaf_weight().into_iter().chain(leaf_weights).find(|weight| *weight != 0) {
        plan.warn("linux.resources.blockIO.leafWeight", weight, "the kernel has no leaf weights since 5.0");
    }
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        plan_weight(plan, layout, "linux.resources.blockIO.weight".to_owned(), None, weight)?;
    }
    for (index, device) in io.weight_device().iter().flatten().enumerate() {
        if let Some(weight) = device.weight().filter(|weight| *weight != 0) {
            let field = format!("linux.resources.blockIO.weightDevice[{index}]");
            let disk = disk(&field, device.major(), device.minor())?;
            plan_weight(plan, layout, field, Some(disk), weight)?;
        }
    }
    let throttles = [
        ("throttleReadBpsDevice", io.throttle_read_bps_device(), "blkio.throttle.read_bps_device", "rbps"),
        ("throttleWriteBpsDevice", io.throttle_write_bps_device(), "blkio.throttle.write_bps_device", "wbps"),
        (
            "throttleReadIOPSDevice",
            io.throttle_read_iops_device(),
            "blkio.throttle.read_iops_device",
            "riops",
        ),
        (
            "throttleWriteIOPSDevice",
            io.throttle_write_iops_device(),
            "blkio.throttle.write_iops_device",
            "wiops",
        ),
    ];
    for (name, devices, v1_file, v2_key) in throttles {
        for (index, device) in devices.iter().flatten().enumerate() {
            let field = format!("linux.resources.blockIO.{name}[{index}]");
            plan_throttle(plan, layout, field, device, v1_file, v2_key)?;
        }
    }
    Ok(())
}

fn plan_weight(
    plan: &mut Plan,
    layout: &Layout,
    field: String,
    disk: Option<String>,
    weight: u16,
) -> Result<(), CgroupError> {
    if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
        return Err(CgroupError::invalid(field, weight, "10 to 1000"));
    }
    let home = plan.home(layout, Controller::Io, field.clone(), weight)?;
    let of_disk = |weight: u64| disk.as_ref().map_or(weight.to_string(), |disk| format!("{disk} {weight}"));
    let setting = |hierarchy: HierarchyId, file: &'static str, weight: u64| {
        Setting::new(field.clone(), hierarchy, file, of_disk(weight), WEIGHT_EXPECTED)
    };
    let weight = u64::from(weight);
    let spellings = match (home, &disk) {
        (Home::V1(h), None) => {
            vec![setting(h, "blkio.weight", weight), setting(h, "blkio.bfq.weight", weight)]
        }
        (Home::V1(h), Some(_)) => {
            vec![setting(h, "blkio.weight_device", weight), setting(h, "blkio.bfq.weight_device", weight)]
        }
        (Home::V2(h), _) => {
            vec![setting(h, "io.bfq.weight", weight), setting(h, "io.weight", io_weight(weight))]
        }
    };
    plan.steps.push(Step::FirstPresent(spellings));
    Ok(())
}

fn plan_throttle(
    plan: &mut Plan,
    layout: &Layout,
    field: String,
    device: &LinuxThrottleDevice,
    v1_file: &'static str,
    v2_key: &str,
) -> Result<(), CgroupError> {
    let disk = disk(&field, device.major(), device.minor())?;
    let rate = device.rate();
    let setting = match plan.home(layout, Controller::Io, field.clone(), rate)? {
        Home::V1(hierarchy) => {
            Setting::new(field, hierarchy, v1_file, format!("{disk} {rate}"), DEVICE_EXPECTED)
        }
        Home::V2(hierarchy) => {
            // Zero lifts the bound in v1; v2 would take it for "nothing at all".
            let rate = if rate == 0 { "max".to_owned() } else { rate.to_string() };
            Setting::new(field, hierarchy, "io.max", format!("{disk} {v2_key}={rate}"), DEVICE_EXPECTED)
        }
    };
    plan.write(setting);
    Ok(())
}

/// 10..1000 spread evenly over 1..10000, the range of `io.weight`.
fn io_weight(weight: u64) -> u64 {
    1 + (weight - u64::from(WEIGHT_MIN)) * 9999 / u64::from(WEIGHT_MAX - WEIGHT_MIN)
}

fn disk(field: &str, major: i64, minor: i64) -> Result<String, CgroupError> {
    if major < 0 || minor < 0 {
        return Err(CgroupError::invalid(field.to_owned(), format!("{major}:{minor}"), DEVICE_EXPECTED));
    }
    Ok(format!("{major}:{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_span_both_ranges() {
        assert_eq!(io_weight(10), 1);
        assert_eq!(io_weight(1000), 10_000);
    }
}
