//! Names for what was not given one: two short words and four hexadecimal digits, as in `quiet-otter-4f2a`.

use std::io;

use mainstay_messages::Name;

/// Random bytes behind a name: one for each word, two for the digits.
pub const NAME_RANDOM_BYTES: usize = 4;
/// Random bytes behind [`random_hex`].
const HEX_RANDOM_BYTES: usize = 8;

const QUALITIES: [&str; 32] = [
    "agile", "amber", "ample", "brave", "brisk", "calm", "clear", "crisp", "deft", "eager", "early", "fleet",
    "fresh", "gentle", "glad", "keen", "kind", "light", "lucid", "mild", "neat", "nimble", "plain", "quick",
    "quiet", "ready", "sharp", "solid", "steady", "swift", "warm", "wise",
];
const ANIMALS: [&str; 32] = [
    "badger", "beaver", "bison", "crane", "curlew", "dolphin", "eider", "falcon", "finch", "gannet", "hare",
    "heron", "ibex", "jackdaw", "kestrel", "lapwing", "lynx", "marten", "merlin", "mink", "newt", "osprey",
    "otter", "petrel", "plover", "puffin", "raven", "seal", "stoat", "tern", "vole", "wren",
];

/// A name from random bytes.
pub fn name_from(random: [u8; NAME_RANDOM_BYTES]) -> Name {
    let [quality, animal, high, low] = random;
    let quality = QUALITIES[usize::from(quality) % QUALITIES.len()];
    let animal = ANIMALS[usize::from(animal) % ANIMALS.len()];
    // Lower-case words, dashes and digits are always a name; a test tries all words.
    format!("{quality}-{animal}-{high:02x}{low:02x}").parse().expect("words and digits make a name")
}

/// A new name.
pub fn made_up_name() -> io::Result<Name> {
    random().map(name_from)
}

/// A few hexadecimal digits that nobody else has.
pub fn random_hex() -> io::Result<String> {
    let bytes: [u8; HEX_RANDOM_BYTES] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let mut filled = 0;
    while filled < LENGTH {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_makes_a_name() {
        for byte in 0..=255 {
            assert!(name_from([byte, byte, 0xff, byte]).as_str().len() <= 24);
        }
        assert_eq!(name_from([24, 22, 0x4f, 0x2a]).as_str(), "quiet-otter-4f2a");
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> =
            (0..8).map(|_| random_hex().expect("random bytes")).collect();
        assert_eq!(names.len(), 8);
        made_up_name().expect("a name");
    }
}
