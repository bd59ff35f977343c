//! What a machine can run short of, and the way out.
//!
//! Owns: which answers of the kernel are the fault of the machine and not of what was asked for, and what its operator can
//! do about each. Never: decides what becomes of a request.

use std::io;

/// What a machine has run short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Room on a disk.
    Space,
    /// Room that a user may take on a disk.
    Quota,
    /// A disk that can be written.
    Writable,
    /// A disk that works.
    Disk,
    /// Descriptors of one process.
    Descriptors,
    /// Open files of the whole machine.
    OpenFiles,
}

// The numbers of Linux; this crate has no use for one that names them.
const EIO: i32 = 5;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

impl Shortage {
    /// What an error of the kernel says that the machine is short of; none when it says something else.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.raw_os_error().and_then(Self::of_code)
    }

    /// The same, of the error's number.
    pub fn of_code(code: i32) -> Option<Self> {
        match code {
            ENOSPC => Some(Self::Space),
            EDQUOT => Some(Self::Quota),
            EROFS => Some(Self::Writable),
            EIO => Some(Self::Disk),
            EMFILE => Some(Self::Descriptors),
            ENFILE => Some(Self::OpenFiles),
            _ => None,
        }
    }

    /// What its operator can do, as the end of a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Space => "make room on that disk and ask again",
            Self::Quota => "raise the quota or make room, and ask again",
            Self::Writable => "make that file system writable and ask again",
            Self::Disk => {
                "that disk fails or has turned read-only, see the kernel's log; repair it and ask again"
            }
            Self::Descriptors => {
                "raise the limit of open files of that process (RLIMIT_NOFILE) and ask again"
            }
            Self::OpenFiles => "raise fs.file-max and ask again",
        }
    }
}

/// An error of the kernel in words, with the way out where the machine is at fault.
pub fn explained(error: &io::Error) -> String {
    match Shortage::of(error) {
        Some(shortage) => format!("{error}; {}", shortage.remedy()),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_faults_come_with_a_way_out() {
        let full = explained(&io::Error::from_raw_os_error(ENOSPC));
        assert_eq!(full, "No space left on device (os error 28); make room on that disk and ask again");
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(explained(&missing), missing.to_string());
    }

    #[test]
    fn the_numbers_are_those_of_the_kernel() {
        let kinds = [
            (ENOSPC, io::ErrorKind::StorageFull),
            (EDQUOT, io::ErrorKind::QuotaExceeded),
            (EROFS, io::ErrorKind::ReadOnlyFilesystem),
        ];
        for (code, kind) in kinds {
            assert_eq!(io::Error::from_raw_os_error(code).kind(), kind);
        }
    }
}
