//! Maps of files with holes. GNU tar writes them in four ways: in the header and blocks behind it, as pairs of records
//! (0.0), as one record (0.1), and as text before the data (1.0).

use crate::tar::pax;

/// The most pieces of data that a sparse file may have.
pub(crate) const PIECES_MAX: usize = 1 << 20;

/// Where the data of a file with holes goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SparseMap {
    /// The length of the file.
    pub(crate) length: u64,
    /// Offset and length of each piece, rising and apart.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl SparseMap {
    /// A map from strangers' numbers; none where they contradict one another or the amount of data.
    pub(crate) fn checked(length: u64, pieces: Vec<(u64, u64)>, data: u64) -> Option<Self> {
        let (mut end, mut sum) = (0u64, 0u64);
        for (offset, size) in &pieces {
            if *offset < end {
                return None;
            }
            end = offset.checked_add(*size)?;
            sum = sum.checked_add(*size)?;
        }
        let sound = end <= length && sum == data && pieces.len() <= PIECES_MAX;
        sound.then_some(Self { length, pieces })
    }
}

/// The pairs of a record of version 0.1: numbers with commas between them.
pub(crate) fn pairs(text: &[u8]) -> Option<Vec<(u64, u64)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut numbers = text.split(|byte| *byte == b',').map(pax::number::<u64>);
    let mut pairs = Vec::new();
    while let Some(offset) = numbers.next() {
        if pairs.len() == PIECES_MAX {
            return None;
        }
        pairs.push((offset?, numbers.next()??));
    }
    Some(pairs)
}

/// Takes the numbers of version 1.0 from text that comes block by block.
#[derive(Debug, Default)]
pub(crate) struct TextMap {
    digits: Vec<u8>,
    count: Option<usize>,
    numbers: Vec<u64>,
}

impl TextMap {
    /// Takes a block; none where it is malformed, true when the map is complete.
    pub(crate) fn take(&mut self, block: &[u8]) -> Option<bool> {
        for byte in block {
            if self.is_complete() {
                break;
            }
            match byte {
                b'\n' => {
                    let number = pax::number::<u64>(&std::mem::take(&mut self.digits))?;
                    match self.count {
                        None => {
                            let count = usize::try_from(number).ok().filter(|count| *count <= PIECES_MAX)?;
                            self.count = Some(count);
                        }
                        Some(_) => self.numbers.push(number),
                    }
                }
                digit if self.digits.len() < 20 => self.digits.push(*digit),
                _ => return None,
            }
        }
        Some(self.is_complete())
    }

    fn is_complete(&self) -> bool {
        self.count.is_some_and(|count| self.numbers.len() == count * 2)
    }

    /// The pairs that were read.
    pub(crate) fn pairs(self) -> Vec<(u64, u64)> {
        self.numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
    }
}
