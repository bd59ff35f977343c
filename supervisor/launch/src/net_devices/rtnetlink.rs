//! The few questions to the kernel that moving a network device takes, on one socket that stays in its network name space.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How long the kernel may take to answer, in milliseconds.
const ANSWER_MS: u64 = 5_000;

pub(super) struct Rtnetlink {
    socket: Socket,
    sequence: u32,
}

/// A device as it is.
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) is_up: bool,
}

impl Rtnetlink {
    /// A socket in the network name space that this process is in.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(std::time::Duration::from_millis(ANSWER_MS)))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The device of this name.
    pub(super) fn find(&mut self, name: &str) -> io::Result<Device> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let answers = self.ask(NLM_F_ACK, Message::GetLink(message))?;
        let found = answers.into_iter().find_map(|answer| match answer {
            Message::NewLink(link) => {
                Some(Device { index: link.header.index, is_up: link.header.flags.contains(LinkFlags::Up) })
            }
            _ => None,
        });
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// The addresses that somebody gave it; the kernel makes those of the link itself.
    pub(super) fn addresses(&mut self, index: u32) -> io::Result<Vec<AddressMessage>> {
        let answers = self.ask(NLM_F_DUMP, Message::GetAddress(AddressMessage::default()))?;
        let own = answers.into_iter().filter_map(|answer| match answer {
            Message::NewAddress(address) if address.header.index == index => Some(address),
            _ => None,
        });
        Ok(own.filter(|address| address.header.scope != AddressScope::Link).collect())
    }

    /// Moves a device to another network name space, where it has this name.
    pub(super) fn hand_over(&mut self, index: u32, there: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes =
            vec![LinkAttribute::NetNsFd(there.as_raw_fd()), LinkAttribute::IfName(name.into())];
        self.ask(NLM_F_ACK, Message::NewLink(message)).map(drop)
    }

    /// Gives a device an address that it had elsewhere.
    pub(super) fn add_address(&mut self, index: u32, mut address: AddressMessage) -> io::Result<()> {
        address.header.index = index;
        // Times, flags and labels are of the old place.
        address.attributes.retain(|attribute| {
            matches!(
                attribute,
                AddressAttribute::Address(_) | AddressAttribute::Local(_) | AddressAttribute::Broadcast(_)
            )
        });
        self.ask(NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, Message::NewAddress(address)).map(drop)
    }

    /// Brings a device up.
    pub(super) fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.ask(NLM_F_ACK, Message::NewLink(message)).map(drop)
    }

    fn ask(&mut self, flags: u16, message: Message) -> io::Result<Vec<Message>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, from) = self.socket.recv_from_full()?;
            // Only the kernel, port 0, is listened to.
            if from.port_number() != 0 {
                continue;
            }
            let mut rest = datagram.as_slice();
            while let Some(length) = message_length(rest) {
                let (one, after) = rest.split_at(length);
                rest = &after[after.len().min(length.next_multiple_of(4) - length)..];
                let answer = match NetlinkMessage::<Message>::deserialize(one) {
                    Ok(answer) if answer.header.sequence_number == self.sequence => answer,
                    // What cannot be read is no device that is looked for.
                    _ => continue,
                };
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(io::Error::from_raw_os_error(-error.raw_code()));
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The length of the first message, if it is all there.
fn message_length(bytes: &[u8]) -> Option<usize> {
    /// Of a message's header.
    const HEADER_BYTES: usize = 16;
    let length = u32::from_ne_bytes(*bytes.first_chunk::<4>()?) as usize;
    (HEADER_BYTES..=bytes.len()).contains(&length).then_some(length)
}
