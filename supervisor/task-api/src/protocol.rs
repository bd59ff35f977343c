//! Which version of the extension is spoken between a supervisor and a shim that may be of different age: a shim keeps
//! running while the program that started it is replaced.
//!
//! Owns: the version numbers, and the decision. Never: knows a call; what came with which version is in README.md.

/// The version that this program speaks. Raised with every change of what is said or meant.
pub const EXTENSION_PROTOCOL: u32 = 3;
/// The oldest version that this program still speaks, as either side.
pub const EXTENSION_PROTOCOL_OLDEST: u32 = 1;

/// Versions that one side speaks, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

/// Why two sides cannot talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it speaks the versions {} to {} of the protocol, and this program {} to {}",
    theirs.oldest, theirs.newest, ours.oldest, ours.newest
)]
pub struct NoCommonProtocol {
    /// What the other side speaks.
    pub theirs: Spoken,
    /// What this side speaks.
    pub ours: Spoken,
}

impl Spoken {
    /// What this program speaks.
    pub const OURS: Self = Self { oldest: EXTENSION_PROTOCOL_OLDEST, newest: EXTENSION_PROTOCOL };

    /// What a shim says that it speaks. The first version did not say which is the oldest: 0, and so its own alone.
    pub fn said(newest: u32, oldest: u32) -> Self {
        let oldest = if oldest == 0 { newest } else { oldest };
        Self { oldest, newest }
    }

    /// The newest version that both speak.
    pub fn common(self, theirs: Self) -> Result<u32, NoCommonProtocol> {
        let newest = self.newest.min(theirs.newest);
        let oldest = self.oldest.max(theirs.oldest);
        if oldest <= newest { Ok(newest) } else { Err(NoCommonProtocol { theirs, ours: self }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_both_speak() {
        let ours = Spoken { oldest: 2, newest: 4 };
        assert_eq!(ours.common(Spoken::said(4, 2)), Ok(4));
        assert_eq!(ours.common(Spoken::said(3, 1)), Ok(3), "an older shim");
        assert_eq!(ours.common(Spoken::said(2, 0)), Ok(2), "one that does not say what else it speaks");
        assert_eq!(ours.common(Spoken::said(9, 4)), Ok(4), "a newer one that still speaks ours");
    }

    #[test]
    fn none_when_there_is_none() {
        let ours = Spoken { oldest: 2, newest: 4 };
        for theirs in [Spoken::said(1, 0), Spoken::said(5, 0), Spoken::said(9, 5), Spoken::said(0, 0)] {
            let error = ours.common(theirs).expect_err("nothing in common");
            assert_eq!((error.theirs, error.ours), (theirs, ours));
        }
        let error = ours.common(Spoken::said(9, 5)).expect_err("nothing in common").to_string();
        assert_eq!(error, "it speaks the versions 5 to 9 of the protocol, and this program 2 to 4");
    }
}
