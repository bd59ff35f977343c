//! Numbers of tar headers: octal digits, or two's complement for what octal cannot hold (GNU).

/// A number of a header; none where the field holds none. An empty field is 0.
pub(crate) fn field(bytes: &[u8]) -> Option<i64> {
    match bytes.first() {
        Some(first) if first & 0x80 != 0 => binary(bytes),
        _ => octal(bytes),
    }
}

fn octal(bytes: &[u8]) -> Option<i64> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let digits = bytes[..end].trim_ascii();
    digits.iter().try_fold(0i64, |value, byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

fn binary(bytes: &[u8]) -> Option<i64> {
    // The topmost bit says "binary", the one after it is the sign.
    let negative = bytes[0] & 0x40 != 0;
    let first = if negative { bytes[0] } else { bytes[0] & 0x7f };
    let mut value: i128 = if negative { -1 } else { 0 };
    for byte in std::iter::once(first).chain(bytes[1..].iter().copied()) {
        // At most 12 bytes: 96 bits and the sign fit.
        value = (value << 8) | i128::from(byte);
    }
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_binary_negative_and_what_is_none() {
        assert_eq!(field(b"0000644\0"), Some(0o644));
        assert_eq!(field(b"   644 \0"), Some(0o644));
        assert_eq!(field(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(field(b"00000008"), None);
        assert_eq!(field(b"-0000001"), None);
        assert_eq!(field(&[0x80, 0, 0, 0, 0, 0, 1, 0]), Some(256));
        assert_eq!(field(&[0xff; 12]), Some(-1));
        assert_eq!(field(&[0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]), None, "beyond 63 bits");
    }
}
