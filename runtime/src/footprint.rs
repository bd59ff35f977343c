//! The memory of the daemon's own program.
//!
//! A start runs through much of the program once, and around every page of it that is touched the kernel maps what is beside it: 15 MB of
//! 28 on x86-64, of which a daemon at rest needs less than one. They are given back when it is ready. What is needed again is mapped again
//! from the page cache, without a disk, in a fraction of a microsecond a page.
//!
//! Owns: which mappings may be given back. Never: touches one that was ever written to: what was written would be gone.

use std::io;
use std::ops::Range;

/// Gives back the pages of the program that are mapped now. Where that cannot be done they stay: nothing depends on it.
pub(crate) fn give_back_start() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    for range in given_back(&maps, give_back_start as fn() as usize) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the range is a whole mapping of the program's file, private and not writable, whose pages are those of the file. The
        // kernel maps them again when they are touched.
        if unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) } != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "pages of the program stay mapped");
        }
    }
}

/// The code of the program that `inside` is in, and what its file begins with: the data that are never written. What is read-only
/// further on was written while the program was loaded.
fn given_back(maps: &str, inside: usize) -> Vec<Range<usize>> {
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let Some(program) = mappings.iter().find(|mapping| mapping.range.contains(&inside)) else {
        return Vec::new();
    };
    let of_program = mappings.iter().filter(|mapping| mapping.file == program.file);
    let clean = of_program.filter(|mapping| match mapping.rights {
        "r-xp" => true,
        "r--p" => mapping.offset == 0,
        _ => false,
    });
    clean.map(|mapping| mapping.range.clone()).collect()
}

/// A line of `/proc/self/maps`: `55b7e00f000-55b7faa3000 r-xp 006e6000 fe:00 11878419   /usr/bin/mainstay`.
struct Mapping<'a> {
    range: Range<usize>,
    rights: &'a str,
    offset: u64,
    file: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        let (rights, offset) = (words.next()?, u64::from_str_radix(words.next()?, 16).ok()?);
        // Of two files of one name the numbers differ.
        let file = line.get(line.find(words.next()?)?..)?;
        file.contains('/').then_some(Self { range, rights, offset, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r--p 00000000 fe:00 7                          /usr/bin/some program
2000-4000 r-xp 00001000 fe:00 7                          /usr/bin/some program
4000-5000 r--p 00003000 fe:00 7                          /usr/bin/some program
5000-6000 rw-p 00004000 fe:00 7                          /usr/bin/some program
6000-7000 rw-p 00000000 00:00 0                          [heap]
7000-8000 r--p 00000000 fe:00 9                          /lib/libc.so.6
8000-9000 r-xp 00001000 fe:00 9                          /lib/libc.so.6
9000-a000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn only_what_was_never_written_is_given_back() {
        assert_eq!(given_back(MAPS, 0x2fff), [0x1000..0x2000, 0x2000..0x4000]);
        assert_eq!(given_back(MAPS, 0x9000), [], "the kernel's own");
        assert_eq!(given_back(MAPS, 0xffff), [], "nowhere");
    }

    /// This very program goes on as before.
    #[test]
    fn what_was_given_back_is_there_again_when_it_is_needed() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        assert!(!given_back(&maps, give_back_start as fn() as usize).is_empty());
        for _ in 0..3 {
            give_back_start();
            assert_eq!(given_back(MAPS, 0x2000).len(), 2);
        }
    }
}
