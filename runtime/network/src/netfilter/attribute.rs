//! Attributes of netlink as netfilter has them: numbers are big endian, lists are nested.
//!
//! Owns: writing and reading of kind, length, value. Never: knows what a kind means.

const KIND_MASK: u16 = (1 << 14) - 1;
const HEADER_LENGTH: usize = 4;

/// Attributes that are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Marks a kind whose value is attributes.
    pub(crate) const NESTED: u16 = 1 << 15;

    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // The longest value is the list of expressions of one rule, a few hundred bytes.
        let length = (HEADER_LENGTH + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn nested(self, kind: u16, value: Attributes) -> Self {
        self.bytes(kind | Self::NESTED, &value.0)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The attributes in some bytes, up to the first that is not whole.
pub(crate) fn read_attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = bytes.first_chunk::<HEADER_LENGTH>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(HEADER_LENGTH..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & KIND_MASK, value))
    })
}

/// A text that ends with a zero.
pub(crate) fn read_text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}
