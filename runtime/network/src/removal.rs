//! Removing a pod's link without the wait for what the kernel does after it.
//!
//! ```text
//!   asked ──► off the kernel's list, with its other end ──► waits for all who may still look at it ──► its memory is free
//!             ▲                                             (tens of milliseconds, no lock held)
//!             └ here the answer is given
//! ```
//!
//! Off the list it has no name, no address and no place on the bridge, nobody finds it, and nothing can keep it from its end: not
//! the end of this program either. The request comes back when all of it is over, so a thread of its own waits for that.
//!
//! Owns: that thread, and when a link counts as gone. Never: decides whose a link is.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::link::{self, Link};
use crate::netlink::Lanes;

/// Time between two looks at whether a link is off the kernel's list, in microseconds. It takes a few milliseconds.
const LOOK_US: u64 = 500;

/// Removes a link; with a pair goes its other end. When this returns the kernel does not know it any more. No more are under way
/// at once than there are lanes; the caller must hold none.
pub(crate) fn remove(lanes: &Arc<Lanes>, link: &Link, timeout: Duration) -> io::Result<()> {
    let (answer, answered) = mpsc::channel();
    let (theirs, index) = (Arc::clone(lanes), link.index);
    thread::Builder::new().name("link-removal".into()).spawn(move || {
        // Nobody listens any more when it was seen to be gone before.
        let _ = answer.send(link::remove(&mut theirs.lane(), index));
    })?;
    let deadline = Instant::now() + timeout;
    loop {
        match answered.recv_timeout(Duration::from_micros(LOOK_US)) {
            Ok(removed) => return removed,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that asked panicked"));
            }
        }
        // Another one may have its name by now only if it is gone.
        if link::find(&mut lanes.lane(), &link.name)?.is_none_or(|found| found.index != index) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let late = format!("it is still there after {timeout:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, late));
        }
    }
}
