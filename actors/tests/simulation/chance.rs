//! Chance that can be repeated: numbers that follow from a seed (SplitMix64).

use std::ops::Range;

/// See the module.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// All that follows depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        // Seeds that follow one another begin far apart.
        Self { state: seed.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which is not empty.
    pub fn pick(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// Whether something happens that happens so often in a hundred times.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.pick(0..100) < percent
    }

    /// One of these, if there is any.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(of.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return None;
        }
        usize::try_from(self.pick(0..count)).ok().and_then(|index| of.get(index))
    }

    /// A time in milliseconds: short ones are as likely as long ones.
    pub fn time_ms(&mut self, max_ms: u64) -> u64 {
        let width = 64 - max_ms.leading_zeros();
        let bits = self.pick(0..u64::from(width) + 1);
        self.pick(0..(1 << bits)).min(max_ms)
    }
}
