//! Network devices of the host that a container is given (`linux.netDevices`), and that go back when it is gone.
//!
//! Owns: moving devices between two network name spaces, with their addresses, and whether they are up. Never: makes or removes
//! devices. It runs in a process of its own, since a thread is in one network name space at a time.
//!
//! A device that is moved loses its addresses and goes down; both are put back. One that is not moved stays as it was. When a
//! move fails in the middle, the devices before it are moved back.

mod rtnetlink;

use std::os::fd::BorrowedFd;

use oci_spec::runtime::Spec;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::clone::{self, CgroupEntry};
use crate::control::Launching;
use crate::error::{Context, Result, Step, invalid};
use crate::syscall::exit_now;
use rtnetlink::Rtnetlink;

/// The most devices of a container.
pub const NET_DEVICES_MAX: usize = 64;
/// The longest name of a device, in bytes (IFNAMSIZ without its NUL).
const NAME_MAX_BYTES: usize = 15;

/// Which way devices go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// From the host into the container. All of them, or none and an error.
    ToContainer,
    /// From the container back to the host. Those that are not there any more, or cannot be moved, are warnings.
    ToHost,
}

/// Devices to be moved.
#[derive(Debug)]
pub struct NetDevicesRequest<'a> {
    /// The container's spec.
    pub spec: &'a Spec,
    /// The network name space of the container.
    pub container: BorrowedFd<'a>,
    /// That of the host.
    pub host: BorrowedFd<'a>,
    /// Which way.
    pub handover: Handover,
}

/// A device: its name on the host, and in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    host: String,
    container: String,
}

/// Whether a spec names any.
pub fn has_net_devices(spec: &Spec) -> bool {
    let devices = spec.linux().as_ref().and_then(|linux| linux.net_devices().as_ref());
    devices.is_some_and(|devices| !devices.is_empty())
}

/// Moves devices in a process of its own. It reports `Ready` or `Failed`, and has ended then; it is the caller's to reap.
///
/// # Errors
/// When that process cannot be made.
pub fn move_net_devices(request: NetDevicesRequest<'_>) -> Result<Launching> {
    let pairs = pairs(request.spec)?;
    let keep = [request.container, request.host];
    clone::start(0, None, CgroupEntry::default(), &keep, |control| {
        let mut warnings = Vec::new();
        match request.handover {
            Handover::ToContainer => give(&pairs, request.host, request.container)?,
            Handover::ToHost => {
                for Pair { host, container } in &pairs {
                    if let Err(error) = move_one(container, host, request.container, request.host) {
                        let text = std::error::Error::source(&error)
                            .map_or_else(String::new, |why| format!(": {why}"));
                        warnings.push(format!("{error}{text}"));
                    }
                }
            }
        }
        control.ready(None, &warnings);
        exit_now(0)
    })
}

/// Refuses devices that cannot be moved.
pub(crate) fn check_net_devices(spec: &Spec) -> Result<()> {
    pairs(spec).map(drop)
}

fn give(pairs: &[Pair], host: BorrowedFd<'_>, container: BorrowedFd<'_>) -> Result<()> {
    for (index, pair) in pairs.iter().enumerate() {
        if let Err(error) = move_one(&pair.host, &pair.container, host, container) {
            for earlier in pairs[..index].iter().rev() {
                // What cannot be moved back goes with the name space; the error that is told is the first.
                let _ = move_one(&earlier.container, &earlier.host, container, host);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn move_one(from: &str, to: &str, here: BorrowedFd<'_>, there: BorrowedFd<'_>) -> Result<()> {
    let subject = |doing: &'static str| move || format!("linux.netDevices[{from:?}]: {doing}");
    let enter =
        |namespace: BorrowedFd<'_>| move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
    enter(here).context(Step::NetDevices, subject("going to its network name space"))?;
    let mut source = Rtnetlink::open().context(Step::NetDevices, subject("asking for it"))?;
    let device = source.find(from).context(Step::NetDevices, subject("finding it"))?;
    let addresses = source.addresses(device.index).context(Step::NetDevices, subject("its addresses"))?;
    enter(there).context(Step::NetDevices, subject("going to the other network name space"))?;
    let mut target = Rtnetlink::open().context(Step::NetDevices, subject("asking for it there"))?;
    if target.find(to).is_ok() {
        let problem = format!("there is a device {to:?} already where it is to go");
        return Err(invalid(format!("linux.netDevices[{from:?}].name"), problem));
    }
    source.hand_over(device.index, there, to).context(Step::NetDevices, subject("moving it"))?;
    let moved = target.find(to).context(Step::NetDevices, subject("finding it there"))?;
    for address in addresses {
        target.add_address(moved.index, address).context(Step::NetDevices, subject("an address of it"))?;
    }
    if device.is_up {
        target.set_up(moved.index).context(Step::NetDevices, subject("bringing it up"))?;
    }
    Ok(())
}

/// In the order of their names, so that the first one that is wrong is always the same.
fn pairs(spec: &Spec) -> Result<Vec<Pair>> {
    let devices = spec.linux().as_ref().and_then(|linux| linux.net_devices().as_ref());
    let mut pairs: Vec<Pair> = Vec::new();
    for (host, device) in devices.into_iter().flatten() {
        let named = device.name().as_deref().filter(|name| !name.is_empty());
        let container = named.unwrap_or(host).to_owned();
        for name in [host, &container] {
            let is_good = (1..=NAME_MAX_BYTES).contains(&name.len())
                && !matches!(name.as_str(), "." | "..")
                && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'));
            if !is_good {
                let problem =
                    format!("{name:?} must be a name of a network device, of 1 to {NAME_MAX_BYTES} bytes");
                return Err(invalid(format!("linux.netDevices[{host:?}]"), problem));
            }
        }
        if pairs.iter().any(|other| other.container == container) {
            let problem = format!("two devices would be called {container:?}");
            return Err(invalid(format!("linux.netDevices[{host:?}].name"), problem));
        }
        pairs.push(Pair { host: host.clone(), container });
    }
    if pairs.len() > NET_DEVICES_MAX {
        let problem = format!("{} devices are more than {NET_DEVICES_MAX}", pairs.len());
        return Err(invalid("linux.netDevices", problem));
    }
    pairs.sort_by(|a, b| a.host.cmp(&b.host));
    Ok(pairs)
}
