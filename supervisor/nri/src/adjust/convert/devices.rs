//! Devices: nodes, those of the Container Device Interface, and network devices.

use std::collections::{BTreeMap, HashMap};

use mainstay_messages::adjustment::{DeviceChange, DeviceNode};
use mainstay_nri_api as api;

use super::{Result, check_entries, path};
use crate::adjust::error::{Fault, quoted};
use crate::adjust::keyed::removal;

/// `vendor/class=name`, as the Container Device Interface has it.
pub(super) fn cdi_device(field: String, device: &api::CDIDevice) -> Result<String> {
    let is_word = |text: &str, more: &[u8]| {
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte))
    };
    let parts = device.name.split_once('=').and_then(|(kind, name)| {
        let (vendor, class) = kind.split_once('/')?;
        Some((vendor, class, name))
    });
    match parts {
        Some((vendor, class, name))
            if is_word(vendor, b"-_.") && is_word(class, b"-_") && is_word(name, b"-_.:") =>
        {
            Ok(device.name.clone())
        }
        _ => {
            let expected = "a name as in vendor.com/class=device";
            Err(Fault::invalid(format!("{field}.name"), quoted(&device.name), expected))
        }
    }
}

pub(super) fn device(field: String, device: &api::LinuxDevice) -> Result<DeviceChange> {
    let place = format!("{field}.path");
    if let Some(key) = removal(&device.path) {
        return Ok(DeviceChange::Remove { path: path(place, key)? });
    }
    if !matches!(device.type_.as_str(), "b" | "c" | "u" | "p") {
        return Err(Fault::invalid(format!("{field}.type"), quoted(&device.type_), "b, c, u or p"));
    }
    for (name, number) in [("major", device.major), ("minor", device.minor)] {
        if u32::try_from(number).is_err() {
            return Err(Fault::invalid(format!("{field}.{name}"), number.to_string(), "a number of 32 bits"));
        }
    }
    let id = |value: Option<u32>, name: &str| match value {
        Some(u32::MAX) => {
            Err(Fault::invalid(format!("{field}.{name}"), u32::MAX.to_string(), "a smaller id"))
        }
        value => Ok(value),
    };
    Ok(DeviceChange::Put(DeviceNode {
        path: path(place, &device.path)?,
        kind: device.type_.clone(),
        major: device.major,
        minor: device.minor,
        mode: device.file_mode.as_ref().map(|mode| mode.value & 0o777),
        uid: id(device.uid.as_ref().map(|uid| uid.value), "uid")?,
        gid: id(device.gid.as_ref().map(|gid| gid.value), "gid")?,
    }))
}

pub(super) fn net_devices(from: &HashMap<String, api::LinuxNetDevice>) -> Result<BTreeMap<String, String>> {
    /// The longest name of a network device, in bytes (IFNAMSIZ without its NUL).
    const NAME_MAX_BYTES: usize = 15;
    check_entries("linux.net_devices", from.len())?;
    let is_name = |name: &str| {
        (1..=NAME_MAX_BYTES).contains(&name.len())
            && !matches!(name, "." | "..")
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'))
    };
    let mut all = BTreeMap::new();
    for (host, device) in from.iter().filter(|(host, _)| removal(host).is_none()) {
        let name = if device.name.is_empty() { host } else { &device.name };
        if !is_name(host) || !is_name(name) {
            let value = format!("{} as {}", quoted(host), quoted(name));
            let expected = format!("names of network devices, of 1 to {NAME_MAX_BYTES} bytes");
            return Err(Fault::invalid("linux.net_devices", value, expected));
        }
        all.insert(host.clone(), name.clone());
    }
    Ok(all)
}
