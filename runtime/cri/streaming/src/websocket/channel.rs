//! Messages of the channel protocols over WebSocket.
//!
//! ```text
//!   binary   channel:1 │ bytes                    v5, from the client:  255 │ channel:1   it sends no more there
//!   base64   '0' + channel │ base64 of the bytes
//! ```
//!
//! Owns: what a message says. Never: knows what the channels are for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The number in the place of a channel that closes one.
const CLOSE: u8 = 255;

/// How messages carry bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As they are.
    Binary,
    /// As text, for what cannot do better.
    Base64,
}

/// Whether a client can say that it sends no more on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfClose {
    /// From version 5 on.
    Yes,
    /// Before.
    No,
}

/// What a message of a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelMessage {
    /// Bytes for a channel.
    Data { channel: u8, bytes: Bytes },
    /// There is no more for a channel.
    Close { channel: u8 },
    /// Nothing.
    Empty,
}

/// A message that is none. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a message is not base64 after its channel")]
    Base64,
    #[error("a message that closes a channel does not have 2 bytes")]
    Close,
    #[error("a message begins with what is no channel")]
    Channel,
}

/// Reads a message.
pub(crate) fn decode(
    message: &Bytes,
    encoding: Encoding,
    half_close: HalfClose,
) -> Result<ChannelMessage, Malformed> {
    let Some(first) = message.first().copied() else { return Ok(ChannelMessage::Empty) };
    match encoding {
        Encoding::Binary if first == CLOSE && half_close == HalfClose::Yes => match message[1..] {
            [channel] => Ok(ChannelMessage::Close { channel }),
            _ => Err(Malformed::Close),
        },
        Encoding::Binary => Ok(ChannelMessage::Data { channel: first, bytes: message.slice(1..) }),
        Encoding::Base64 => {
            let channel = first.checked_sub(b'0').ok_or(Malformed::Channel)?;
            let bytes = STANDARD.decode(&message[1..]).map_err(|_| Malformed::Base64)?;
            Ok(ChannelMessage::Data { channel, bytes: bytes.into() })
        }
    }
}

/// Writes a message.
pub(crate) fn encode(channel: u8, bytes: &[u8], encoding: Encoding) -> Message {
    match encoding {
        Encoding::Binary => {
            let mut message = BytesMut::with_capacity(1 + bytes.len());
            message.put_u8(channel);
            message.extend_from_slice(bytes);
            Message::Binary(message.freeze())
        }
        Encoding::Base64 => {
            let mut message = String::from(char::from(b'0' + channel));
            STANDARD.encode_string(bytes, &mut message);
            Message::Text(Utf8Bytes::from(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &'static [u8], encoding: Encoding) -> Result<ChannelMessage, Malformed> {
        super::decode(&Bytes::from_static(bytes), encoding, HalfClose::Yes)
    }

    #[test]
    fn messages_are_read() {
        let hello = ChannelMessage::Data { channel: 0, bytes: Bytes::from_static(b"foo\n") };
        assert_eq!(decode(b"\0foo\n", Encoding::Binary), Ok(hello.clone()));
        assert_eq!(decode(b"0Zm9vCg==", Encoding::Base64), Ok(hello));
        assert_eq!(decode(b"", Encoding::Base64), Ok(ChannelMessage::Empty));
        assert_eq!(decode(b"\xff\0", Encoding::Binary), Ok(ChannelMessage::Close { channel: 0 }));
        assert_eq!(decode(b"\xff", Encoding::Binary), Err(Malformed::Close));
        assert_eq!(decode(b"0Zm9v!", Encoding::Base64), Err(Malformed::Base64));
        assert_eq!(decode(b"\x01Zm9v", Encoding::Base64), Err(Malformed::Channel));
        let before = super::decode(&Bytes::from_static(b"\xff\0"), Encoding::Binary, HalfClose::No);
        assert_eq!(before, Ok(ChannelMessage::Data { channel: 255, bytes: Bytes::from_static(b"\0") }));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(channel in 0u8..10, bytes in vec(any::<u8>(), 0..500), is_base64 in any::<bool>()) {
            let encoding = if is_base64 { Encoding::Base64 } else { Encoding::Binary };
            let message = match encode(channel, &bytes, encoding) {
                Message::Text(text) => Bytes::from(text),
                message => message.into_data(),
            };
            let read = super::decode(&message, encoding, HalfClose::Yes);
            prop_assert_eq!(read, Ok(ChannelMessage::Data { channel, bytes: bytes.into() }));
        }

        #[test]
        fn no_message_does_harm(bytes in vec(any::<u8>(), 0..100)) {
            for encoding in [Encoding::Binary, Encoding::Base64] {
                let _ = super::decode(&Bytes::copy_from_slice(&bytes), encoding, HalfClose::Yes);
            }
        }
    }

    #[test]
    fn messages_are_written() {
        assert_eq!(encode(1, b"a", Encoding::Binary), Message::Binary(Bytes::from_static(b"\x01a")));
        assert_eq!(encode(1, b"\n", Encoding::Base64), Message::Text("1Cg==".into()));
    }
}
