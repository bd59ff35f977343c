//! Links, addresses and routes, one request to the kernel each.
//!
//! Owns: how these requests look. Never: decides which are made, or whose a link is.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use crate::netlink::Netlink;
use crate::spec::{Mac, POD_LINK};

/// A link as the kernel shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) bridge: Option<u32>,
    /// The other end of a pair, by its index in its own namespace.
    pub(crate) peer: Option<u32>,
    pub(crate) mac: Option<Mac>,
}

impl Link {
    pub(crate) fn is(&self, kind: &InfoKind) -> bool {
        self.kind.as_deref() == Some(&kind.to_string())
    }

    fn read(message: LinkMessage) -> Self {
        let mut link = Self { index: message.header.index, ..Self::default() };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
                LinkAttribute::Controller(index) => link.bridge = Some(index),
                LinkAttribute::Link(index) => link.peer = Some(index),
                LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(Mac),
                LinkAttribute::LinkInfo(infos) => {
                    link.kind = infos.into_iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        link
    }
}

/// A route of the main table that is not a default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) destination: IpNet,
    pub(crate) link: Option<u32>,
}

/// The link of this name, if there is one.
pub(crate) fn find(netlink: &mut Netlink, name: &str) -> io::Result<Option<Link>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.into()));
    let answer = match netlink.ask(0, Message::GetLink(message)) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        answer => answer?,
    };
    let found = answer.into_iter().find_map(|message| match message {
        Message::NewLink(link) => Some(Link::read(link)),
        _ => None,
    });
    found
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("its answer about the link {name} cannot be read")))
}

/// All links.
pub(crate) fn all(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    let messages = netlink.dump(Message::GetLink(LinkMessage::default()))?;
    let links = messages.into_iter().filter_map(|message| match message {
        Message::NewLink(link) => Some(Link::read(link)),
        _ => None,
    });
    Ok(links.collect())
}

/// Makes a bridge, down and without a port.
pub(crate) fn make_bridge(netlink: &mut Netlink, name: &str, mac: Mac) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    netlink.ask(NLM_F_CREATE | NLM_F_EXCL, Message::NewLink(message)).map(drop)
}

/// Gives a link an alias.
pub(crate) fn set_alias(netlink: &mut Netlink, index: u32, alias: &str) -> io::Result<()> {
    change(netlink, index, vec![LinkAttribute::IfAlias(alias.into())])
}

/// Gives a link that is down another name.
pub(crate) fn rename(netlink: &mut Netlink, index: u32, name: &str) -> io::Result<()> {
    change(netlink, index, vec![LinkAttribute::IfName(name.into())])
}

/// Sets a link's largest packet.
pub(crate) fn set_mtu(netlink: &mut Netlink, index: u32, mtu: u32) -> io::Result<()> {
    change(netlink, index, vec![LinkAttribute::Mtu(mtu)])
}

/// Marks a port of a bridge as a pod's, and lets packets leave by the port by which they came: a pod that calls its own port
/// of the host needs it where bridges show their packets to the firewall.
pub(crate) fn set_port(netlink: &mut Netlink, name: &str, alias: &str) -> io::Result<()> {
    let port = InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(true)]);
    let info = vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(port)];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::IfAlias(alias.into()),
        LinkAttribute::LinkInfo(info),
    ];
    netlink.ask(0, Message::NewLink(message)).map(drop)
}

/// Switches a link on.
pub(crate) fn set_up(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    switch_on(netlink, message)
}

/// Switches on the link of this name.
pub(crate) fn set_up_named(netlink: &mut Netlink, name: &str) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.into())];
    switch_on(netlink, message)
}

fn switch_on(netlink: &mut Netlink, mut message: LinkMessage) -> io::Result<()> {
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    netlink.ask(0, Message::SetLink(message)).map(drop)
}

fn change(netlink: &mut Netlink, index: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    netlink.ask(0, Message::SetLink(message)).map(drop)
}

/// One end on the bridge, up, and the other one in the pod: made in one request, so that neither is ever anywhere else. The
/// kernel does not yet know that they are a pair when it could switch on the other one.
pub(crate) fn make_pair(
    netlink: &mut Netlink,
    name: &str,
    bridge: u32,
    netns: BorrowedFd<'_>,
    mac: Mac,
    mtu: u32,
) -> io::Result<()> {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(POD_LINK.into()),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NetNsFd(netns.as_raw_fd()),
    ];
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::Controller(bridge),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    netlink.ask(NLM_F_CREATE | NLM_F_EXCL, Message::NewLink(message)).map(drop)
}

/// Removes a link; with a pair goes its other end. Fine when it is gone.
pub(crate) fn remove(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    match netlink.ask(0, Message::DelLink(message)) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Gives a link an address. Fine when it has it.
pub(crate) fn add_address(netlink: &mut Netlink, index: u32, address: IpNet) -> io::Result<()> {
    let mut message = address_message(index, address);
    if let IpNet::V4(address) = address {
        message.attributes.push(AddressAttribute::Broadcast(address.broadcast()));
    }
    netlink.ask(NLM_F_CREATE | NLM_F_REPLACE, Message::NewAddress(message)).map(drop)
}

/// Takes an address from a link.
pub(crate) fn remove_address(netlink: &mut Netlink, index: u32, address: IpNet) -> io::Result<()> {
    netlink.ask(0, Message::DelAddress(address_message(index, address))).map(drop)
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    // Leases see to it that nobody else has it; a search for duplicates would make it unusable for a second.
    if address.addr().is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes =
        vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    message
}

/// The addresses of a link.
pub(crate) fn addresses(netlink: &mut Netlink, index: u32) -> io::Result<Vec<IpNet>> {
    let messages = netlink.dump(Message::GetAddress(AddressMessage::default()))?;
    let addresses = messages.into_iter().filter_map(|message| match message {
        Message::NewAddress(address) if address.header.index == index => {
            let ip = address.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            });
            IpNet::new(ip?, address.header.prefix_len).ok()
        }
        _ => None,
    });
    Ok(addresses.collect())
}

/// Sends what goes nowhere else to a gateway.
pub(crate) fn set_default_route(netlink: &mut Netlink, index: u32, gateway: IpAddr) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    let gateway = match gateway {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    };
    message.attributes = vec![RouteAttribute::Gateway(gateway), RouteAttribute::Oif(index)];
    netlink.ask(NLM_F_CREATE | NLM_F_REPLACE, Message::NewRoute(message)).map(drop)
}

/// The routes of the main table that lead somewhere in particular.
pub(crate) fn routes(netlink: &mut Netlink, like: IpAddr) -> io::Result<Vec<Route>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(like);
    let messages = netlink.dump(Message::GetRoute(message))?;
    Ok(messages.into_iter().filter_map(read_route).collect())
}

fn read_route(message: Message) -> Option<Route> {
    let Message::NewRoute(route) = message else { return None };
    if route.header.table != RouteHeader::RT_TABLE_MAIN || route.header.destination_prefix_length == 0 {
        return None;
    }
    let mut destination = None;
    let mut link = None;
    for attribute in route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => destination = Some(IpAddr::V4(ip)),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => destination = Some(IpAddr::V6(ip)),
            RouteAttribute::Oif(index) => link = Some(index),
            _ => {}
        }
    }
    let destination = IpNet::new(destination?, route.header.destination_prefix_length).ok()?;
    Some(Route { destination, link })
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
