//! The checks of devices, kernel parameters and the look-up of names.

use super::*;

/// Parameters of the IPC namespace beside `fs.mqueue.*`.
const IPC_SYSCTLS: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];
/// The longest name, and the longest value, of a kernel parameter, in bytes.
const SYSCTL_LENGTH_MAX: usize = 1_024;
/// The longest name of a host or domain (RFC 1035), in bytes.
const DOMAIN_LENGTH_MAX: usize = 253;

pub(super) fn check_devices(devices: &[Device], rules: &[DeviceRule]) -> Result<()> {
    for (field, count) in [("devices", devices.len()), ("device_rules", rules.len())] {
        if count > DEVICES_MAX {
            return Err(Error::invalid(field, count.to_string(), format!("at most {DEVICES_MAX}")));
        }
    }
    for (index, device) in devices.iter().enumerate() {
        check_absolute(&format!("devices[{index}].path"), &device.path)?;
        if let Some(target) = &device.target {
            check_absolute(&format!("devices[{index}].target"), target)?;
        }
        check_device_access(&format!("devices[{index}].access"), &device.access)?;
    }
    rules.iter().enumerate().try_for_each(|(index, rule)| {
        let field = format!("device_rules[{index}]");
        if rule.kind == DeviceKind::All && (rule.major, rule.minor) != (None, None) {
            let expected = "a kind of its own (character or block) for a rule with numbers";
            return Err(Error::invalid(field, "all kinds", expected));
        }
        check_device_access(&format!("{field}.access"), &rule.access)
    })
}

/// Names as CDI has them, `VENDOR/CLASS=DEVICE`. Whether there is such a device is found out where it is used.
pub(super) fn check_cdi_devices(names: &[String]) -> Result<()> {
    if names.len() > CDI_DEVICES_MAX {
        let count = names.len().to_string();
        return Err(Error::invalid("cdi_devices", count, format!("at most {CDI_DEVICES_MAX}")));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    let good = |name: &str| {
        let parts = name.split_once('/').and_then(|(vendor, rest)| {
            let (class, device) = rest.split_once('=')?;
            Some([vendor, class, device])
        });
        let part = |part: &str| !part.is_empty() && part.bytes().all(plain);
        name.len() < PATH_LENGTH_MAX && parts.is_some_and(|parts| parts.into_iter().all(part))
    };
    match names.iter().position(|name| !good(name)) {
        None => Ok(()),
        Some(index) => {
            let expected = "a device as VENDOR/CLASS=DEVICE, as in \"vendor.example/gpu=0\"";
            Err(Error::invalid(format!("cdi_devices[{index}]"), quoted(&names[index]), expected))
        }
    }
}

fn check_device_access(field: &str, access: &str) -> Result<()> {
    let letters = access.bytes().all(|letter| b"rwm".contains(&letter));
    let once = access.bytes().enumerate().all(|(at, letter)| !access.as_bytes()[..at].contains(&letter));
    if letters && once && !access.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        quoted(access),
        "letters of \"rwm\" (read, write, make nodes), each at most once",
    ))
}

pub(super) fn check_sysctls(
    sysctls: &BTreeMap<String, String>,
    network: Network,
    ipc: IpcMode,
) -> Result<()> {
    if sysctls.len() > SYSCTLS_MAX {
        return Err(Error::invalid("sysctls", sysctls.len().to_string(), format!("at most {SYSCTLS_MAX}")));
    }
    for (name, value) in sysctls {
        let field = || format!("sysctls.{}", name.chars().take(64).collect::<String>());
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/');
        let parts_good = name.split('.').all(|part| !part.is_empty() && part.chars().all(plain));
        let of_network = name.starts_with("net.");
        let of_ipc = name.starts_with("fs.mqueue.") || IPC_SYSCTLS.contains(&name.as_str());
        if name.len() > SYSCTL_LENGTH_MAX || !parts_good || !(of_network || of_ipc) {
            return Err(Error::invalid(
                field(),
                quoted(name),
                format!(
                    "a parameter of the pod's own namespaces: net.*, fs.mqueue.* or {}; others would change the host",
                    IPC_SYSCTLS.join(", ")
                ),
            ));
        }
        if of_network && network == Network::Host {
            let expected = "no net.* parameter: the network is the host's";
            return Err(Error::invalid(field(), quoted(value), expected));
        }
        if of_ipc && ipc == IpcMode::Host {
            let expected = "no parameter of IPC: it is the host's";
            return Err(Error::invalid(field(), quoted(value), expected));
        }
        if value.len() > SYSCTL_LENGTH_MAX || value.contains(['\0', '\n']) {
            let expected = format!("one line of at most {SYSCTL_LENGTH_MAX} bytes");
            return Err(Error::invalid(field(), quoted(value), expected));
        }
    }
    Ok(())
}

impl NameLookup {
    pub(super) fn check(&self) -> Result<()> {
        let counts = [
            ("names.servers", self.servers.len(), DNS_SERVERS_MAX),
            ("names.searches", self.searches.len(), DNS_SEARCHES_MAX),
            ("names.options", self.options.len(), DNS_OPTIONS_MAX),
            ("names.hosts", self.hosts.len(), HOST_ENTRIES_MAX),
        ];
        for (field, count, most) in counts {
            if count > most {
                return Err(Error::invalid(field, count.to_string(), format!("at most {most}")));
            }
        }
        for (index, domain) in self.searches.iter().enumerate() {
            check_domain(&format!("names.searches[{index}]"), domain)?;
        }
        for (index, option) in self.options.iter().enumerate() {
            let plain = option.bytes().all(|b| b.is_ascii_graphic()) && !option.is_empty();
            if !plain || option.len() > DOMAIN_LENGTH_MAX {
                let field = format!("names.options[{index}]");
                return Err(Error::invalid(field, quoted(option), "one word, as in \"ndots:2\""));
            }
        }
        for (index, entry) in self.hosts.iter().enumerate() {
            check_domain(&format!("names.hosts[{index}].name"), &entry.name)?;
        }
        Ok(())
    }
}

/// A name as it can stand in a line of a file: what it means is the resolver's affair.
fn check_domain(field: &str, name: &str) -> Result<()> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if plain && (1..=DOMAIN_LENGTH_MAX).contains(&name.len()) {
        return Ok(());
    }
    let expected = format!("1 to {DOMAIN_LENGTH_MAX} letters, digits, '-', '.' or '_'");
    Err(Error::invalid(field, quoted(name), expected))
}
