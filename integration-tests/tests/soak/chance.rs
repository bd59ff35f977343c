//! Choices that follow from a seed.

/// A source of choices (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// The source number `n` of a seed.
    pub fn new(seed: u64, n: u64) -> Self {
        Self(seed ^ n.wrapping_mul(0xa076_1d64_78bd_642f))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() {
            return None;
        }
        all.get(self.below(all.len() as u64) as usize)
    }
}
