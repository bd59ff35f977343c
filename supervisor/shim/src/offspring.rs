//! Children of the shim that are no processes of a container, or not known to be one yet.
//!
//! Owns: helpers, whose end somebody waits for, and the exits of children that nobody knows while a birth is expected. A
//! runtime makes a process, tells its number, and ends: the process is the shim's child then, and may have been reaped before
//! its number was read. Never: tells a process from another by its number alone: one that is alive is a child of this process,
//! nobody else's, and in its container's cgroup.
//!
//! ```text
//!  reaped ──┬── known process ──▶ its exit
//!           ├── helper ─────────▶ whoever waits for it
//!           ├── a birth is expected ──▶ parked ──┬── adopted ──▶ its exit
//!           │                                    └── the last birth is over ──▶ forgotten
//!           └── an orphan ──▶ nothing
//! ```

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

use crate::container::Container;
use crate::failure::Failure;
use crate::identity::{Identity, is_ending, parent_of};
use crate::logger;
use crate::process::Process;
use crate::shim::Shim;
use crate::task::Ending;

/// The most exits that are parked at a time. Where there are more, the oldest is forgotten: a runtime's own children end in
/// dozens while it makes a process, not in thousands.
const PARKED_MAX: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Offspring {
    helpers: HashMap<Pid, oneshot::Sender<Ending>>,
    births: usize,
    parked: VecDeque<(Pid, Ending)>,
}

/// While it lives, exits of unknown children are parked.
#[derive(Debug)]
pub(crate) struct Birth {
    shim: Rc<Shim>,
}

impl Drop for Birth {
    fn drop(&mut self) {
        let mut offspring = self.shim.offspring.borrow_mut();
        offspring.births -= 1;
        if offspring.births == 0 {
            offspring.parked = VecDeque::new();
        }
    }
}

impl Offspring {
    /// A child that is in no other table was reaped.
    pub(crate) fn reaped(&mut self, pid: Pid, how: Ending) {
        if let Some(waiting) = self.helpers.remove(&pid) {
            // Nobody need wait any more.
            let _ = waiting.send(how);
        } else if self.births > 0 {
            if self.parked.len() >= PARKED_MAX {
                self.parked.pop_front();
                logger::warning!(
                    "more than {PARKED_MAX} children of a runtime ended while it made a process"
                );
            }
            self.parked.push_back((pid, how));
        }
    }

    /// The exit of a child that ended before its number was known: the last one that had it.
    fn claim(&mut self, pid: Pid) -> Option<Ending> {
        let place = self.parked.iter().rposition(|(parked, _)| *parked == pid)?;
        self.parked.remove(place).map(|(_, how)| how)
    }
}

impl Shim {
    /// Takes note of a helper that was made just now: its end is told to whoever waits. Nothing may wait between its birth and
    /// this.
    pub(crate) fn watch_helper(&self, pid: Pid) -> oneshot::Receiver<Ending> {
        let (told, waits) = oneshot::channel();
        self.offspring.borrow_mut().helpers.insert(pid, told);
        waits
    }

    /// Says that somebody else is about to make a process that will be this one's child.
    pub(crate) fn expect_birth(self: &Rc<Self>) -> Birth {
        self.offspring.borrow_mut().births += 1;
        Birth { shim: self.clone() }
    }

    /// Takes charge of a process that somebody else made, whether it has ended meanwhile or not. `birth` was there before it
    /// was. The word of whoever made it is not believed: a wrong number would have the exit and the signals of one process be
    /// another's.
    pub(crate) fn adopt(
        self: &Rc<Self>,
        container: &Container,
        process: &Rc<Process>,
        pid: Pid,
        _birth: &Birth,
    ) -> Result<(), Failure> {
        let refused = |why| Failure::Mistaken { process: process.key.clone(), pid: pid.as_raw_pid(), why };
        if self.knows(pid) {
            return Err(refused("is another process of the pod"));
        }
        // A child that has ended and was not reaped is found all the same.
        let is_ours = parent_of(pid) == Some(rustix::process::getpid());
        if let (true, Ok(pidfd)) = (is_ours, pidfd_open(pid, PidfdFlags::empty())) {
            // The kernel lists no process that ends.
            if !container.pids()?.contains(&pid) && !is_ending(pid) {
                return Err(refused("is not in the cgroup of its container"));
            }
            process.adopted(Identity::of(pid), Some(pidfd));
            self.add_process(process);
            return Ok(());
        }
        let how = self.offspring.borrow_mut().claim(pid);
        let how =
            how.ok_or_else(|| Failure::NoChild { process: process.key.clone(), pid: pid.as_raw_pid() })?;
        process.adopted(Identity { pid, start_ticks: 0 }, None);
        self.process_ended(process, how);
        Ok(())
    }

    /// Whether a child is a process of a container, the pod's init, or a helper.
    fn knows(&self, pid: Pid) -> bool {
        let is_init = self.pod.borrow().as_ref().is_some_and(|pod| pod.init == Some(pid));
        is_init || self.has_process(pid) || self.offspring.borrow().helpers.contains_key(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).expect("not zero")
    }

    /// A runtime's process that ended at once was reaped before its number was known, and its exit was lost.
    #[test]
    fn an_exit_waits_for_the_number_while_a_birth_is_expected() {
        let mut offspring = Offspring::default();
        let how = Ending::Exited { code: 3 };
        offspring.reaped(pid(10), how);
        assert_eq!(offspring.claim(pid(10)), None, "an orphan that nobody expects is forgotten");
        offspring.births = 1;
        offspring.reaped(pid(10), how);
        assert_eq!((offspring.claim(pid(10)), offspring.claim(pid(10))), (Some(how), None));
    }

    /// Numbers are used again, also within one birth: the exit of an earlier orphan was taken for the process's.
    #[test]
    fn the_last_exit_of_a_number_is_the_one() {
        let mut offspring = Offspring { births: 1, ..Offspring::default() };
        for code in [1, 2] {
            offspring.reaped(pid(10), Ending::Exited { code });
        }
        assert_eq!(offspring.claim(pid(10)), Some(Ending::Exited { code: 2 }));
    }

    #[test]
    fn what_is_parked_has_a_limit() {
        let mut offspring = Offspring { births: 1, ..Offspring::default() };
        for number in 0..=PARKED_MAX {
            offspring.reaped(pid(i32::try_from(number).expect("small") + 1), Ending::Signaled { signal: 9 });
        }
        assert_eq!(offspring.parked.len(), PARKED_MAX);
        assert_eq!(offspring.claim(pid(1)), None, "the oldest has gone");
    }

    #[test]
    fn a_helper_is_told_of_and_not_parked() {
        let mut offspring = Offspring { births: 1, ..Offspring::default() };
        let (told, mut waits) = oneshot::channel();
        offspring.helpers.insert(pid(7), told);
        offspring.reaped(pid(7), Ending::Exited { code: 0 });
        assert_eq!(waits.try_recv(), Ok(Ending::Exited { code: 0 }));
        assert!(offspring.parked.is_empty());
    }
}
