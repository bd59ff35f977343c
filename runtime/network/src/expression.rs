//! The expressions that rules are made of.
//!
//! Owns: what each looks like to the kernel. Never: builds a rule.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::netfilter::attribute::Attributes;

const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = Register::First as u32;
const REGISTER_2: u32 = Register::Second as u32;
const VERDICT_DROP: u32 = 0;
const VERDICT_JUMP: i32 = -3;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const LINK_NAME_LENGTH: usize = 16;
const ADDRESS_TYPE_LOCAL: u32 = 2;
const STATUS_DESTINATION_CHANGED: u32 = 1 << 5;

/// A family of addresses, with the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4 = 2,
    V6 = 10,
}

impl Family {
    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// Which of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// Where a value is kept between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    First = 1,
    Second = 2,
}

/// What is found out about the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    InputLink = 6,
    OutputLink = 7,
    Family = 15,
    Protocol = 16,
}

/// One step of a rule. A step that compares ends the rule for a packet that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    LoadMeta(Meta),
    LoadAddress(Family, Side),
    LoadDestinationPort,
    /// The type of the destination, as the routes have it.
    LoadDestinationType,
    /// Of the connection: what was done to it.
    LoadConnectionStatus,
    Mask(Vec<u8>),
    IsEqual(Vec<u8>),
    IsNotEqual(Vec<u8>),
    Drop,
    Jump(&'static str),
    LoadValue(Register, Vec<u8>),
    /// Gives the packet, and all of its connection, the address of the first register and the port of the second.
    ChangeDestination(Family),
    Masquerade,
}

impl Expression {
    pub(crate) fn encode(&self) -> Attributes {
        let data = |value: &[u8]| Attributes::default().bytes(1, value);
        let compare = |operation, value: &[u8]| {
            let body = Attributes::default().number(1, REGISTER_1).number(2, operation);
            named("cmp", body.nested(3, data(value)))
        };
        match self {
            Self::LoadMeta(meta) => {
                named("meta", Attributes::default().number(1, REGISTER_1).number(2, *meta as u32))
            }
            Self::LoadAddress(family, side) => {
                let (offset, length) = match (family, side) {
                    (Family::V4, Side::Source) => (12, 4),
                    (Family::V4, Side::Destination) => (16, 4),
                    (Family::V6, Side::Source) => (8, 16),
                    (Family::V6, Side::Destination) => (24, 16),
                };
                payload(NETWORK_HEADER, offset, length)
            }
            Self::LoadDestinationPort => payload(TRANSPORT_HEADER, 2, 2),
            // Result 3 is the address type, flag 2 the destination.
            Self::LoadDestinationType => {
                named("fib", Attributes::default().number(1, REGISTER_1).number(2, 3).number(3, 2))
            }
            Self::LoadConnectionStatus => {
                named("ct", Attributes::default().number(1, REGISTER_1).number(2, 2))
            }
            Self::Mask(mask) => {
                let body = Attributes::default().number(1, REGISTER_1).number(2, REGISTER_1);
                let body = body.number(3, mask.len() as u32).nested(4, data(mask));
                named("bitwise", body.nested(5, data(&vec![0; mask.len()])))
            }
            Self::IsEqual(value) => compare(EQUAL, value),
            Self::IsNotEqual(value) => compare(NOT_EQUAL, value),
            Self::Drop => verdict(Attributes::default().number(1, VERDICT_DROP)),
            Self::Jump(chain) => verdict(Attributes::default().number(1, VERDICT_JUMP as u32).text(2, chain)),
            Self::LoadValue(register, value) => {
                let body = Attributes::default().number(1, *register as u32);
                named("immediate", body.nested(2, data(value)))
            }
            Self::ChangeDestination(family) => {
                let body = Attributes::default().number(1, 1).number(2, *family as u32);
                named("nat", body.number(3, REGISTER_1).number(5, REGISTER_2))
            }
            Self::Masquerade => named("masq", Attributes::default()),
        }
    }
}

fn payload(base: u32, offset: u32, length: u32) -> Attributes {
    let body =
        Attributes::default().number(1, REGISTER_1).number(2, base).number(3, offset).number(4, length);
    named("payload", body)
}

fn verdict(value: Attributes) -> Attributes {
    let data = Attributes::default().nested(2, value);
    named("immediate", Attributes::default().number(1, REGISTER_VERDICT).nested(2, data))
}

fn named(name: &str, body: Attributes) -> Attributes {
    Attributes::default().text(1, name).nested(2, body)
}

/// The next packets are those that pass by the link of this name.
pub(crate) fn link_is(meta: Meta, name: &str) -> [Expression; 2] {
    [Expression::LoadMeta(meta), Expression::IsEqual(link_name(name))]
}

/// The next packets are those that do not pass by the link of this name.
pub(crate) fn link_is_not(meta: Meta, name: &str) -> [Expression; 2] {
    [Expression::LoadMeta(meta), Expression::IsNotEqual(link_name(name))]
}

/// The next packets are those with an address in this range.
pub(crate) fn address_in(side: Side, range: IpNet) -> Vec<Expression> {
    let family = Family::of(range.addr());
    let mut expressions = vec![
        Expression::LoadMeta(Meta::Family),
        Expression::IsEqual(vec![family as u8]),
        Expression::LoadAddress(family, side),
    ];
    if range.prefix_len() < range.max_prefix_len() {
        expressions.push(Expression::Mask(octets(range.netmask())));
    }
    expressions.push(Expression::IsEqual(octets(range.network())));
    expressions
}

/// The next packets are those for an address of this machine.
pub(crate) fn destination_is_local() -> [Expression; 2] {
    // The type is a number in the order of this machine.
    let local = ADDRESS_TYPE_LOCAL.to_ne_bytes().to_vec();
    [Expression::LoadDestinationType, Expression::IsEqual(local)]
}

/// The next packets are those of a connection that was led elsewhere.
pub(crate) fn destination_was_changed() -> [Expression; 3] {
    let bit = STATUS_DESTINATION_CHANGED.to_ne_bytes().to_vec();
    [Expression::LoadConnectionStatus, Expression::Mask(bit), Expression::IsNotEqual(vec![0; 4])]
}

pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn link_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(LINK_NAME_LENGTH, 0);
    bytes
}
