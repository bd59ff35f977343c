//! The command line that the process table shows for this process.
//!
//! Owns: the memory that the kernel put the arguments into. A shim is found again by its command line when every record of
//! it is lost, so one that was forked has to show the one that it would have been started with.

use std::fs;
use std::io;

/// Fields 48 and 49 of `/proc/PID/stat`, counted from the first field after the command name (proc_pid_stat(5)).
const ARGUMENTS_START_AFTER_NAME: usize = 48 - 3;

/// Where the arguments of this process are.
#[derive(Debug)]
pub(super) struct Title {
    start: *mut u8,
    length: usize,
}

impl Title {
    /// Asks the kernel.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let (start, end) = addresses(&stat)
            .filter(|(start, end)| *start != 0 && start < end)
            .ok_or_else(|| io::Error::other("/proc/self/stat does not say where the arguments are"))?;
        Ok(Self { start: std::ptr::with_exposed_provenance_mut(start), length: end - start })
    }

    /// Whether these words fit, each with a NUL after it.
    pub(super) fn has_room_for(&self, words: &[Vec<u8>]) -> bool {
        words.iter().map(|word| word.len() + 1).sum::<usize>() <= self.length
    }

    /// Shows these words. Those that do not fit are cut.
    pub(super) fn set(&self, words: &[Vec<u8>]) {
        let mut line = vec![0; self.length];
        let bytes = words.iter().flat_map(|word| word.iter().copied().chain([0]));
        // The last byte stays NUL: another one there would mean to the kernel that the text goes on behind it.
        for (place, byte) in line[..self.length - 1].iter_mut().zip(bytes) {
            *place = byte;
        }
        // SAFETY: the kernel reserved these bytes on the stack of the first thread, writable, for as long as the process
        // lives. The standard library hands out copies of them alone, and nobody asks for these again.
        unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), self.start, self.length) };
    }
}

/// The command name may hold spaces and parentheses, so fields are counted from the last one.
fn addresses(stat: &str) -> Option<(usize, usize)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(ARGUMENTS_START_AFTER_NAME);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_arguments_of_this_process() {
        let title = Title::of_this_process().expect("the kernel says it");
        let line = fs::read("/proc/self/cmdline").expect("there is one");
        // SAFETY: as in `set`.
        let bytes = unsafe { std::slice::from_raw_parts(title.start, title.length) };
        assert_eq!(bytes, line);
        assert!(title.has_room_for(&[line[..line.len() - 1].to_vec()]));
        assert!(!title.has_room_for(&[line]));
    }

    #[test]
    fn a_hostile_command_name_shifts_no_field() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(addresses(&format!("7 (a) 9 (b) {}", fields.join(" "))), Some((48, 49)));
        assert_eq!(addresses("7 (x) S 1"), None);
    }
}
