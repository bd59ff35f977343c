//! How many files this program may have open, and how many what it starts.
//!
//! A daemon holds descriptors of each pod, and the usual limit of 1,024 is there for programs that use `select`. So a daemon takes
//! all that it may; its shims, and with them its containers, begin with what it was itself started with.
//!
//! Owns: the raising, and what was before. Never: raises anything by itself: the limit is the whole process's, which may be another's
//! program that embeds this one.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised. It is a property of the process, as the limit is.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of this process to the hard one, and answers with that; none: there is no limit.
///
/// # Errors
/// What the kernel says; then the limit is as it was.
pub fn raise() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        // Of two callers the second one finds it raised.
        let _ = BEFORE.set(current);
    }
    Ok(maximum)
}

/// The limit that a child of this process is to begin with; none where nothing was raised.
pub(crate) fn for_children() -> Option<Rlimit> {
    let current = *BEFORE.get()?;
    Some(Rlimit { current, maximum: getrlimit(Resource::Nofile).maximum })
}
