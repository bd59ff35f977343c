//! What the network has on the host apart from any pod: the bridge, the table with its standing rules, the switches.
//!
//! Owns: making them, and the mark by which they are known again. Never: touches a bridge or a table without that mark.
//!
//! The mark is an alias of the bridge and a comment of the table, and names the directory of the leases. A bridge gets its
//! mark under a name of its own, and only then the name that was set: whatever has that name is whole or is not ours.

use std::io;

use ipnet::IpNet;
use netlink_packet_route::link::InfoKind;

use crate::error::{NetworkError, Trying};
use crate::faults;
use crate::holdings;
use crate::link::{self, Link};
use crate::name;
use crate::netlink::Netlink;
use crate::nft::{Change, FoundRule, Table};
use crate::pool::Pool;
use crate::rules;
use crate::settings::{Settings, overlap};
use crate::spec::mac_of;

/// The mark of a network.
pub(crate) fn mark(settings: &Settings) -> String {
    format!("mainstay {}", settings.directory.display())
}

/// The bridge, made and set up as far as it is not. Says nothing of what others have beside it.
pub(crate) fn bridge(
    netlink: &mut Netlink,
    settings: &Settings,
    pools: &[Pool],
) -> Result<Link, NetworkError> {
    let bridge = match own_bridge(netlink, settings)? {
        Some(bridge) => bridge,
        None => make_bridge(netlink, settings, pools)?,
    };
    let doing = |what: &str| format!("{what} of the bridge {}", settings.bridge);
    link::set_mtu(netlink, bridge.index, settings.mtu).trying(|| doing("set the MTU"))?;
    let wanted: Vec<_> = pools.iter().map(gateway_address).collect();
    let present = link::addresses(netlink, bridge.index).trying(|| doing("list the addresses"))?;
    // Addresses of the link itself are the kernel's; others are of an earlier setting.
    let earlier = present.iter().filter(|address| !wanted.contains(address) && !is_link_local(address));
    for address in earlier {
        link::remove_address(netlink, bridge.index, *address).trying(|| doing("remove an address"))?;
    }
    link::set_up(netlink, bridge.index).trying(|| doing("change the state"))?;
    Ok(bridge)
}

/// Gives the bridge the gateways' addresses. Apart, because IPv6 must be on for it by then.
pub(crate) fn gateways(netlink: &mut Netlink, bridge: &Link, pools: &[Pool]) -> Result<(), NetworkError> {
    pools.iter().try_for_each(|pool| {
        let address = gateway_address(pool);
        link::add_address(netlink, bridge.index, address)
            .trying(|| format!("give the bridge {} the address {address}", bridge.name))
    })
}

fn gateway_address(pool: &Pool) -> IpNet {
    // The prefix is that of a range, so it fits.
    IpNet::new_assert(pool.gateway(), pool.range.prefix_len())
}

fn is_link_local(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(address) if address.addr().is_unicast_link_local())
}

/// The bridge, if it is there.
pub(crate) fn own_bridge(netlink: &mut Netlink, settings: &Settings) -> Result<Option<Link>, NetworkError> {
    let found = link::find(netlink, &settings.bridge).trying(|| format!("look for {}", settings.bridge))?;
    let Some(link) = found else { return Ok(None) };
    if link.is(&InfoKind::Bridge) && link.alias.as_deref() == Some(&mark(settings)) {
        return Ok(Some(link));
    }
    let kind = link.kind.as_deref().unwrap_or("device");
    let alias = link.alias.as_deref().unwrap_or_default();
    Err(NetworkError::Foreign {
        key: "network.bridge",
        what: "link",
        name: settings.bridge.clone(),
        found: format!("a {kind} with the alias {alias:?} instead of {:?}", mark(settings)),
    })
}

fn make_bridge(netlink: &mut Netlink, settings: &Settings, pools: &[Pool]) -> Result<Link, NetworkError> {
    let doing = || format!("make the bridge {}", settings.bridge);
    let unfinished = name::unfinished_bridge(settings);
    // One that a killed process left before it had its name.
    if let Some(left) = link::find(netlink, &unfinished).trying(doing)? {
        link::remove(netlink, left.index).trying(doing)?;
    }
    // Fixed, because a bridge without an address of its own changes it with its ports. There is a pool.
    let mac = mac_of(pools[0].gateway());
    link::make_bridge(netlink, &unfinished, mac).trying(doing)?;
    faults::reach("bridge-made");
    let found = link::find(netlink, &unfinished).trying(doing)?;
    let bridge = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).trying(doing)?;
    link::set_alias(netlink, bridge.index, &mark(settings)).trying(doing)?;
    link::rename(netlink, bridge.index, &settings.bridge).trying(doing)?;
    faults::reach("bridge-named");
    Ok(Link { name: settings.bridge.clone(), ..bridge })
}

/// Refuses a range into which the host has a route that is not the bridge's.
pub(crate) fn check_routes(
    netlink: &mut Netlink,
    bridge: Option<&Link>,
    pools: &[Pool],
) -> Result<(), NetworkError> {
    for pool in pools {
        let routes = link::routes(netlink, pool.range.addr()).trying(|| "list the routes".into())?;
        let foreign = |index: Option<u32>| index.is_none() || index != bridge.map(|bridge| bridge.index);
        let clash =
            routes.iter().find(|route| foreign(route.link) && overlap(&route.destination, &pool.range));
        if let Some(route) = clash {
            let links = link::all(netlink).trying(|| "list the links".into())?;
            let link = links.into_iter().find(|link| Some(link.index) == route.link);
            return Err(NetworkError::Overlap {
                key: pool.key,
                range: pool.range,
                route: route.destination,
                link: link.map_or_else(|| "several links".into(), |link| link.name),
            });
        }
    }
    Ok(())
}

/// The table with its standing rules, made or made anew.
pub(crate) fn table(table: &mut Table, settings: &Settings) -> Result<(), NetworkError> {
    own_table(table, settings)?;
    let standing = rules::standing(settings);
    table
        .change(&rules::restore(&standing, &mark(settings)))
        .trying(|| format!("set up the nftables table inet {}", settings.table))
}

/// Whether the table is there; an error when it is another's.
pub(crate) fn own_table(table: &mut Table, settings: &Settings) -> Result<bool, NetworkError> {
    match table.comment().trying(|| format!("look for the nftables table inet {}", settings.table))? {
        None => Ok(false),
        Some(comment) if comment.as_deref() == Some(&mark(settings)) => Ok(true),
        Some(comment) => Err(NetworkError::Foreign {
            key: "network.table",
            what: "nftables table inet",
            name: settings.table.clone(),
            found: format!(
                "its comment is {:?} instead of {:?}",
                comment.unwrap_or_default(),
                mark(settings)
            ),
        }),
    }
}

/// The rules of pods in the table, if that is there and ours. A kernel without nftables has none.
pub(crate) fn rules_of_pods(settings: &Settings) -> Result<Vec<FoundRule>, NetworkError> {
    let connected = Table::connect(&settings.table, settings.request_timeout);
    let mut table = match connected {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        connected => connected.trying(|| "open a netlink socket for nftables".into())?,
    };
    match own_table(&mut table, settings) {
        Ok(true) => holdings::rules(&mut table),
        Ok(false) | Err(NetworkError::Foreign { .. }) => Ok(Vec::new()),
        // What the kernel answers that knows no such subsystem.
        Err(error) if error.errno() == Some(libc::EINVAL) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Removes the bridge and the table.
pub(crate) fn remove(
    netlink: &mut Netlink,
    table: &mut Table,
    settings: &Settings,
) -> Result<(), NetworkError> {
    if own_table(table, settings)? {
        table.change(&[Change::NoTable]).trying(|| format!("remove the table {}", settings.table))?;
    }
    if let Some(bridge) = own_bridge(netlink, settings)? {
        link::remove(netlink, bridge.index).trying(|| format!("remove the bridge {}", settings.bridge))?;
    }
    Ok(())
}
