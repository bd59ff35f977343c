//! The records of POSIX extended headers: `LENGTH KEY=VALUE\n`.

use std::str::FromStr;

use crate::tar::Time;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Reads all records of an extended header; none where it is malformed.
pub(crate) fn records(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
        let length: usize = number(&bytes[..space])?;
        if length <= space + 1 || length > bytes.len() {
            return None;
        }
        let (record, rest) = bytes.split_at(length);
        let body = record[space + 1..].strip_suffix(b"\n")?;
        let equals = body.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        records.push(Record { key: body[..equals].to_vec(), value: body[equals + 1..].to_vec() });
        bytes = rest;
    }
    Some(records)
}

/// A decimal number without sign.
pub(crate) fn number<T: FromStr>(bytes: &[u8]) -> Option<T> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// Seconds with a fraction, before 1970 with a minus.
pub(crate) fn time(bytes: &[u8]) -> Option<Time> {
    let (negative, bytes) = match bytes.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, bytes),
    };
    let (whole, fraction) = match bytes.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&bytes[..dot], &bytes[dot + 1..]),
        None => (bytes, &b""[..]),
    };
    let seconds: i64 = number(whole)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanoseconds = digits.fold(0u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanoseconds) {
        (false, _) => Time { seconds, nanoseconds },
        (true, 0) => Time { seconds: -seconds, nanoseconds: 0 },
        (true, _) => Time { seconds: (-seconds).checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_hold_anything_and_must_be_whole() {
        let found = records(b"12 path=a=b\n16 x=\0\n\xff 1 y=z\n\n").expect("good");
        assert_eq!(found[0], Record { key: b"path".to_vec(), value: b"a=b".to_vec() });
        assert_eq!(found[1].value, b"\0\n\xff 1 y=z\n");
        for bad in [
            &b"12 path=a=b"[..],
            b"x path=a\n",
            b"3 \n",
            b"99 path=a\n",
            b"5 =a\n",
            b"0 a=b\n",
            b"12path=a=b\n",
        ] {
            assert_eq!(records(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let at = |seconds, nanoseconds| Some(Time { seconds, nanoseconds });
        assert_eq!(time(b"1700000000"), at(1_700_000_000, 0));
        assert_eq!(time(b"1.5"), at(1, 500_000_000));
        assert_eq!(time(b"1.1234567899"), at(1, 123_456_789));
        assert_eq!(time(b"-1.25"), at(-2, 750_000_000));
        assert_eq!(time(b"-3"), at(-3, 0));
        for bad in [&b""[..], b".", b"1e3", b"1.x", b"--1", b"99999999999999999999"] {
            assert_eq!(time(bad), None, "{bad:?}");
        }
    }
}
