//! The bytes of ttrpc, without any of the code that the shim and the supervisor share: what was said by a shim of another
//! version is said again byte by byte.
//!
//! A frame: length (4 bytes, big endian), stream (4), kind (1: 1 request, 2 answer), flags (1), then a protobuf message: a
//! request with service (1), method (2) and payload (3), an answer with status (1: code (1), message (2)) and payload (2).

use std::io::{self, Read, Write};

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// More than any of these tests says.
const FRAME_LENGTH_MAX: usize = 1 << 20;

/// A request as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub stream: u32,
    pub service: String,
    pub method: String,
    pub payload: Vec<u8>,
}

/// An answer: a payload, or a code with a message.
pub type Said = Result<Vec<u8>, (u64, String)>;

pub fn read_request(from: &mut impl Read) -> io::Result<Asked> {
    let (stream, _, body) = read_frame(from)?;
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap_or_default()).expect("text");
    Ok(Asked {
        stream,
        service: text(field(&body, 1)),
        method: text(field(&body, 2)),
        payload: field(&body, 3).unwrap_or_default(),
    })
}

pub fn write_answer(to: &mut impl Write, stream: u32, said: &Said) -> io::Result<()> {
    let body = match said {
        Ok(payload) => bytes_field(2, payload),
        Err((code, message)) => {
            let status = [number_field(1, *code), bytes_field(2, message.as_bytes())].concat();
            bytes_field(1, &status)
        }
    };
    write_frame(to, stream, ANSWER, &body)
}

/// Asks, and waits for the answer, which has to be one without an error.
pub fn ask(over: &mut (impl Read + Write), service: &str, method: &str, payload: &[u8]) -> Vec<u8> {
    let body = [
        bytes_field(1, service.as_bytes()),
        bytes_field(2, method.as_bytes()),
        bytes_field(3, payload),
        number_field(4, 10_000_000_000),
    ];
    write_frame(over, 1, REQUEST, &body.concat()).expect("sent");
    let (_, kind, body) = read_frame(over).expect("answered");
    assert_eq!(kind, ANSWER);
    if let Some(status) = field(&body, 1) {
        assert!(field(&status, 1).is_none() && number(&status, 1).unwrap_or(0) == 0, "{method}: {status:?}");
    }
    field(&body, 2).unwrap_or_default()
}

/// A field of bytes, for the end of a message: of a number that is there twice, readers take the last.
pub fn bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A field with a number.
pub fn number_field(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let text = text.trim();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn read_frame(from: &mut impl Read) -> io::Result<(u32, u8, Vec<u8>)> {
    let mut header = [0; 10];
    from.read_exact(&mut header)?;
    let length = u32::from_be_bytes(header[..4].try_into().expect("four bytes")) as usize;
    assert!(length <= FRAME_LENGTH_MAX, "{length} bytes");
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((u32::from_be_bytes(header[4..8].try_into().expect("four bytes")), header[8], body))
}

fn write_frame(to: &mut impl Write, stream: u32, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).expect("small").to_be_bytes();
    let frame = [&length[..], &stream.to_be_bytes(), &[kind, 0], body].concat();
    to.write_all(&frame)
}

/// The bytes of the last field of this number.
fn field(message: &[u8], wanted: u64) -> Option<Vec<u8>> {
    fields(message).into_iter().rev().find_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

fn number(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).into_iter().rev().find_map(|(number, value)| match value {
        Value::Number(value) if number == wanted => Some(value),
        _ => None,
    })
}

enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

fn fields(mut message: &[u8]) -> Vec<(u64, Value)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = take_varint(&mut message);
        let value = match tag & 7 {
            0 => Value::Number(take_varint(&mut message)),
            2 => {
                let length = take_varint(&mut message) as usize;
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Value::Bytes(bytes.to_vec())
            }
            other => panic!("a field of wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn take_varint(message: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = message.split_first().expect("a whole number");
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}
