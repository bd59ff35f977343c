//! Which processes of a shim are being made or started, since when, and at which step.
//!
//! Owns: that a process is known to be under way from the moment at which it is asked for, long before its shim hears of
//! it. Never: decides what a question, a removal or an adoption does about that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mainstay_messages::{ContainerId, Error, Result, Timestamp};
use mainstay_task_api::convert::ProcessKey;
use tokio::sync::watch;

use super::process_key;
use crate::machine::now;

/// The makings of one shim. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Makings(Rc<RefCell<BTreeMap<ProcessKey, Rc<Progress>>>>);

#[derive(Debug)]
struct Progress {
    operation: &'static str,
    since: Timestamp,
    step: Cell<&'static str>,
    /// Closed when it is over.
    over: watch::Receiver<()>,
}

/// A making that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Making {
    of: Makings,
    process: ProcessKey,
    progress: Rc<Progress>,
    _over: watch::Sender<()>,
}

impl Makings {
    /// A making begins, with this step. The error is that another one of the same process is under way.
    pub fn begin(&self, process: ProcessKey, operation: &'static str, step: &'static str) -> Result<Making> {
        if let Some(progress) = self.0.borrow().get(&process) {
            return Err(progress.error(&process));
        }
        let (sender, over) = watch::channel(());
        let progress = Rc::new(Progress { operation, since: now(), step: Cell::new(step), over });
        self.0.borrow_mut().insert(process.clone(), Rc::clone(&progress));
        Ok(Making { of: self.clone(), process, progress, _over: sender })
    }

    /// An error when this process, or the container that it is to be in, is being made.
    pub fn none_of(&self, process: &ProcessKey) -> Result<()> {
        let makings = self.0.borrow();
        let container = process_key(&process.container, None);
        let under_way = [process, &container].into_iter().find_map(|key| Some((key, makings.get(key)?)));
        under_way.map_or(Ok(()), |(process, progress)| Err(progress.error(process)))
    }

    /// Waits until none of these containers is being made any more.
    pub async fn over(&self, containers: &[ContainerId], limit_ms: u64) -> Result<()> {
        let wait = async {
            for container in containers {
                let progress = self.0.borrow().get(&process_key(container, None)).map(|it| it.over.clone());
                if let Some(mut over) = progress {
                    // An error says that it is over: nothing is ever sent.
                    let _ = over.changed().await;
                }
            }
        };
        match tokio::time::timeout(Duration::from_millis(limit_ms), wait).await {
            Ok(()) => Ok(()),
            Err(_) => containers.iter().try_for_each(|id| self.none_of(&process_key(id, None))),
        }
    }
}

impl Progress {
    fn error(&self, process: &ProcessKey) -> Error {
        Error::InProgress {
            id: process.exec.as_ref().map_or_else(|| process.container.to_string(), ToString::to_string),
            operation: self.operation.to_owned(),
            step: self.step.get().to_owned(),
            since: self.since,
        }
    }
}

impl Making {
    /// It has come to this step.
    pub fn at(&self, step: &'static str) {
        self.progress.step.set(step);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.of.0.borrow_mut().remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(exec: Option<&str>) -> ProcessKey {
        ProcessKey {
            container: "c".parse().expect("an id"),
            exec: exec.map(|exec| exec.parse().expect("an id")),
        }
    }

    #[tokio::test]
    async fn what_is_made_is_under_way_until_it_is_dropped() {
        let makings = Makings::default();
        let making = makings.begin(key(None), "create", "first").expect("nothing is under way");
        making.at("second");
        let error = makings.begin(key(None), "create", "first").expect_err("it is under way").to_string();
        assert!(error.contains("create of c is in progress since") && error.contains("second"), "{error}");
        makings.none_of(&key(Some("e"))).expect_err("its container is being made");
        let containers = [key(None).container];
        makings.over(&containers, 1).await.expect_err("it is not over");
        drop(making);
        makings.over(&containers, 1).await.expect("it is over");
        let exec = makings.begin(key(Some("e")), "exec", "first").expect("another process");
        makings.none_of(&key(None)).expect("only an exec is being made");
        makings.none_of(&key(Some("e"))).expect_err("it is being made");
        drop(exec);
    }
}
