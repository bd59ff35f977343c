//! nftables by netlink: one table, changed in transactions.
//!
//! Owns: the messages of nf_tables that are needed, and no more. Never: decides which rules there are (`rules` does), nor
//! touches another table.
//!
//! Own code, because what there is calls the `nft` program, wraps a C library or is under the GPL. The numbers are those of
//! the kernel's `linux/netfilter/nf_tables.h`.

use std::io;
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE};

use crate::expression::Expression;
use crate::netfilter::attribute::{Attributes, read_attributes, read_text};
use crate::netfilter::{FAMILY_ANY, Message, NETLINK_NETFILTER};
use crate::netlink::Netlink;

const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM;
const GET_TABLE: u16 = SUBSYSTEM | 1;
const DELETE_TABLE: u16 = SUBSYSTEM | 2;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const GET_RULE: u16 = SUBSYSTEM | 7;
const DELETE_RULE: u16 = SUBSYSTEM | 8;
const FAMILY_INET: u8 = 1;
/// The type of a comment in user data, as the `nft` program reads and writes it.
const COMMENT_RULE: u8 = 0;
const COMMENT_TABLE: u8 = 0;
/// The hook of forwarded packets.
const HOOK_FORWARD: u32 = 2;
/// The verdict of a chain that lets nothing through.
const POLICY_DROP: u32 = 0;

/// A rule of our table, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundRule {
    pub(crate) chain: String,
    pub(crate) handle: u64,
    pub(crate) comment: Option<String>,
}

/// A chain of ours that packets come to by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

/// One change of a transaction. All of a transaction happen, or none.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// Makes the table, unless it is there.
    Table { comment: &'a str },
    /// Removes the table with all that is in it.
    NoTable,
    /// Makes a chain, unless it is there.
    Chain { name: &'a str, hook: Option<Hook> },
    /// Removes all rules of a chain.
    Flush { chain: &'a str },
    /// Adds a rule at the end of a chain.
    Rule { chain: &'a str, expressions: &'a [Expression], comment: Option<&'a str> },
    /// Removes one rule.
    NoRule { chain: &'a str, handle: u64 },
}

/// The table of one network.
#[derive(Debug)]
pub(crate) struct Table {
    netlink: Netlink,
    name: String,
}

impl Table {
    /// A connection for the namespace of this thread; makes nothing.
    pub(crate) fn connect(name: &str, timeout: Duration) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open(NETLINK_NETFILTER, timeout)?, name: name.into() })
    }

    /// The comment of the table, which says whose it is; the outer none: there is no such table.
    pub(crate) fn comment(&mut self) -> io::Result<Option<Option<String>>> {
        let request = Message::new(GET_TABLE, FAMILY_INET, Attributes::default().text(1, &self.name));
        let answer = match self.netlink.ask(0, request) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let Some(table) = answer.first() else { return Ok(None) };
        let data = read_attributes(&table.attributes).find(|(kind, _)| *kind == 6);
        Ok(Some(data.and_then(|(_, bytes)| read_comment(bytes, COMMENT_TABLE))))
    }

    /// The rules of a chain. None when the table or the chain is gone.
    pub(crate) fn rules(&mut self, chain: &str) -> io::Result<Vec<FoundRule>> {
        let attributes = Attributes::default().text(1, &self.name).text(2, chain);
        let answer = match self.netlink.dump(Message::new(GET_RULE, FAMILY_INET, attributes)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
            answer => answer?,
        };
        // Kernels differ in what they filter.
        let rules = answer.iter().filter_map(|message| read_rule(message, &self.name));
        Ok(rules.filter(|rule| rule.chain == chain).collect())
    }

    /// The chains of other tables that drop forwarded packets unless a rule of theirs accepts them.
    pub(crate) fn chains_that_drop(&mut self) -> io::Result<Vec<String>> {
        let answer = self.netlink.dump(Message::new(GET_CHAIN, FAMILY_ANY, Attributes::default()))?;
        Ok(answer.iter().filter_map(read_dropping_chain).collect())
    }

    /// Makes all of the changes, or none.
    pub(crate) fn change(&mut self, changes: &[Change<'_>]) -> io::Result<()> {
        let batch =
            |kind| Message { kind, family: FAMILY_ANY, resource: SUBSYSTEM >> 8, attributes: Vec::new() };
        let (first, mut bytes) = self.netlink.frame(0, batch(BATCH_BEGIN));
        let mut last = first;
        for (index, change) in changes.iter().enumerate() {
            let (flags, message) = self.message(change);
            // One consent for all: thousands, one for each rule, would not fit into the socket. Refusals come unasked.
            let consent = if index + 1 == changes.len() { NLM_F_ACK } else { 0 };
            let (sequence, frame) = self.netlink.frame(flags | consent, message);
            bytes.extend(frame);
            last = sequence;
        }
        bytes.extend(self.netlink.frame(0, batch(BATCH_END)).1);
        self.netlink.send(&bytes)?;
        self.netlink.hear_batch::<Message>(first, last)
    }

    fn message(&self, change: &Change<'_>) -> (u16, Message) {
        let table = || Attributes::default().text(1, &self.name);
        let (flags, kind, attributes) = match change {
            Change::Table { comment } => {
                (NLM_F_CREATE, NEW_TABLE, table().bytes(6, &write_comment(comment, COMMENT_TABLE)))
            }
            Change::NoTable => (0, DELETE_TABLE, table()),
            Change::Chain { name, hook } => {
                let mut attributes = table().text(3, name);
                if let Some(hook) = hook {
                    // A priority is a signed number that travels like any other.
                    let place = Attributes::default().number(1, hook.number).number(2, hook.priority as u32);
                    attributes = attributes.nested(4, place).text(7, hook.kind);
                }
                (NLM_F_CREATE, NEW_CHAIN, attributes)
            }
            Change::Flush { chain } => (0, DELETE_RULE, table().text(2, chain)),
            Change::Rule { chain, expressions, comment } => {
                let list =
                    expressions.iter().fold(Attributes::default(), |list, e| list.nested(1, e.encode()));
                let mut attributes = table().text(2, chain).nested(4, list);
                if let Some(comment) = comment {
                    attributes = attributes.bytes(7, &write_comment(comment, COMMENT_RULE));
                }
                (NLM_F_CREATE | NLM_F_APPEND, NEW_RULE, attributes)
            }
            Change::NoRule { chain, handle } => {
                (0, DELETE_RULE, table().text(2, chain).bytes(3, &handle.to_be_bytes()))
            }
        };
        (flags, Message::new(kind, FAMILY_INET, attributes))
    }
}

fn read_rule(message: &Message, table: &str) -> Option<FoundRule> {
    let (mut of_table, mut chain, mut handle, mut comment) = (None, None, None, None);
    for (kind, value) in read_attributes(&message.attributes) {
        match kind {
            1 => of_table = read_text(value),
            2 => chain = read_text(value),
            3 => handle = value.try_into().ok().map(u64::from_be_bytes),
            7 => comment = read_comment(value, COMMENT_RULE),
            _ => {}
        }
    }
    (of_table? == table).then_some(FoundRule { chain: chain?, handle: handle?, comment })
}

fn read_dropping_chain(message: &Message) -> Option<String> {
    let number = |value: &[u8]| value.try_into().ok().map(u32::from_be_bytes);
    let (mut table, mut chain, mut hook, mut policy) = (None, None, None, None);
    for (kind, value) in read_attributes(&message.attributes) {
        match kind {
            1 => table = read_text(value),
            3 => chain = read_text(value),
            4 => {
                hook =
                    read_attributes(value).find(|(kind, _)| *kind == 1).and_then(|(_, value)| number(value))
            }
            5 => policy = number(value),
            _ => {}
        }
    }
    let family = match message.family {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    (hook? == HOOK_FORWARD && policy? == POLICY_DROP).then_some(format!("{family} {} {}", table?, chain?))
}

/// A comment as `nft list` shows it: kind, length with the zero at the end, text.
fn write_comment(comment: &str, kind: u8) -> Vec<u8> {
    // Ids and paths are shorter than 255 bytes.
    let mut bytes = vec![kind, (comment.len() + 1) as u8];
    bytes.extend_from_slice(comment.as_bytes());
    bytes.push(0);
    bytes
}

fn read_comment(mut bytes: &[u8], wanted: u8) -> Option<String> {
    while let Some((&[kind, length], rest)) = bytes.split_first_chunk::<2>() {
        let value = rest.get(..length.into())?;
        if kind == wanted {
            return read_text(value);
        }
        bytes = &rest[length.into()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_among_other_data() {
        let mut bytes = vec![3, 2, 9, 9];
        bytes.extend(write_comment("pod-1", COMMENT_RULE));
        assert_eq!(read_comment(&bytes, COMMENT_RULE).as_deref(), Some("pod-1"));
        assert_eq!(read_comment(&[0, 200, 1], COMMENT_RULE), None, "cut short");
    }

    #[test]
    fn the_longest_pod_id_fits_in_a_comment() {
        let id = "x".repeat(mainstay_messages::id::NAME_LENGTH_MAX);
        assert_eq!(read_comment(&write_comment(&id, COMMENT_RULE), COMMENT_RULE), Some(id));
    }

    #[test]
    fn attributes_are_padded_and_nested() {
        let bytes =
            Attributes::default().text(1, "ab").nested(2, Attributes::default().number(3, 7)).into_bytes();
        let read: Vec<_> = read_attributes(&bytes).collect();
        assert_eq!(read, [(1, b"ab\0".as_slice()), (2, &[8, 0, 3, 0, 0, 0, 0, 7][..])]);
    }
}
