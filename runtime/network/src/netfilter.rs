//! Messages of netfilter: the header that its parts share, and attributes.
//!
//! Owns: the frame around a part's attributes. Never: knows what a part does.

pub(crate) mod attribute;

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};

use self::attribute::Attributes;

/// The netlink protocol of netfilter.
pub(crate) const NETLINK_NETFILTER: i32 = libc::NETLINK_NETFILTER;
/// Whatever the family.
pub(crate) const FAMILY_ANY: u8 = 0;
const HEADER_LENGTH: usize = 4;

/// A message of netfilter, undigested.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) family: u8,
    pub(crate) resource: u16,
    pub(crate) attributes: Vec<u8>,
}

impl Message {
    pub(crate) fn new(kind: u16, family: u8, attributes: Attributes) -> Self {
        Self { kind, family, resource: 0, attributes: attributes.into_bytes() }
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        HEADER_LENGTH + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let resource = self.resource.to_be_bytes();
        buffer[..HEADER_LENGTH].copy_from_slice(&[self.family, 0, resource[0], resource[1]]);
        buffer[HEADER_LENGTH..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let Some((&[family, _, high, low], attributes)) = payload.split_first_chunk::<HEADER_LENGTH>() else {
            return Err(DecodeError::from("a message of netfilter without its header"));
        };
        let resource = u16::from_be_bytes([high, low]);
        Ok(Self { kind: header.message_type, family, resource, attributes: attributes.to_vec() })
    }
}
