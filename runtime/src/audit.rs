//! The audit: the machine beside the records, and the repair of what differs.
//!
//! ```text
//!   view ─► inventory ─► view ─► compare ─► nothing? clean
//!                                   │ findings
//!                                   ▼
//!            wait for the objects to move on, then all of it again: only what is found twice is a finding
//!                                   │ repair
//!                                   ▼
//!            remedies, each once ─► all of it again: what is still there was not repaired
//! ```
//!
//! Owns: looking twice, remembering what was found ([`known`]) and showing it to the journal and the metrics, and having each remedy done by whoever would have done it in the first place: the supervisor
//! removes, the router takes a late fact. Never: touches the machine or a record itself.

mod compare;
mod known;
mod rounds;

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use mainstay_messages::audit::{Deviation, Finding, Remedy, Repair};
use mainstay_messages::event::{Subject, What};
use mainstay_messages::process::UnknownReason;
use mainstay_messages::router::{ExitReceipt, Noted, ShimDied, TaskExited, TaskKey};
use mainstay_messages::supervisor::{
    QueryTask, RemoveLeak, RestoreNetwork, TakeInventory, TaskKnowledge, TaskStatus,
};
use mainstay_messages::{ContainerId, Error, Exit, Result, SandboxId, Timestamp};
use mainstay_metrics::{Audited, FindingKind, Found, Running};

use self::compare::{View, compare, running};
pub(crate) use self::known::Known;
pub use self::rounds::AUDIT_INTERVAL_DEFAULT_MS;
pub(crate) use self::rounds::{UnderWay, audit_forever};
use crate::system::System;

/// Time for news that are on their way (a process has ended, and its shim has not said so yet) to arrive before the second
/// look, in milliseconds. What has not come by then is a finding.
pub const AUDIT_SETTLE_MS: u64 = 2_000;
/// Time for one remedy, in milliseconds.
pub const REMEDY_MS: u64 = 60_000;

/// What one look at the machine has shown.
struct Look {
    findings: Vec<Finding>,
    containers: Running,
    shims: Running,
}

impl System {
    /// See [`crate::Runtime::audit`].
    pub(crate) async fn audit(&self, repair: Repair) -> Result<Vec<Finding>> {
        let (_under_way, began) = (self.under_way.begin(), Instant::now());
        let looked = self.look_and_repair(repair).await;
        match looked {
            Ok(mut look) => {
                self.show(&mut look, began.elapsed());
                Ok(look.findings)
            }
            Err(error) => {
                self.metrics.audit_failed();
                Err(error)
            }
        }
    }

    async fn look_and_repair(&self, repair: Repair) -> Result<Look> {
        let mut look = self.look_twice().await?;
        if repair == Repair::Yes && !look.findings.is_empty() {
            self.repair(&mut look.findings).await?;
        }
        Ok(look)
    }

    /// Tells the journal what is new, and the metrics what there is. What was repaired is neither.
    fn show(&self, look: &mut Look, took: Duration) {
        let now = Timestamp::from_system(SystemTime::now());
        let (mut left, repaired): (Vec<_>, Vec<_>) =
            look.findings.drain(..).partition(|finding| finding.outcome != Some(Ok(())));
        let news = self.known.lock().unwrap_or_else(PoisonError::into_inner).take(&mut left, now);
        for finding in news {
            tracing::warn!(%finding.deviation, %finding.kind, finding.place, finding.reason, "an audit has found something");
            self.router.do_send(noted(finding));
        }
        let age = |since: Timestamp| Duration::from_nanos(now.0.saturating_sub(since.0));
        let found = |finding: &Finding| Found {
            kind: FindingKind { deviation: finding.deviation.to_string(), thing: finding.kind.to_string() },
            age: finding.since.map(age).unwrap_or_default(),
        };
        self.metrics.audited(&Audited {
            at: now,
            took,
            found: left.iter().map(found).collect(),
            containers: look.containers,
            shims: look.shims,
        });
        left.extend(repaired);
        left.sort_by(compare::order);
        look.findings = left;
    }

    async fn look_twice(&self) -> Result<Look> {
        let first = self.look().await?;
        if first.findings.is_empty() {
            return Ok(first);
        }
        self.settle(&first.findings).await;
        let mut second = self.look().await?;
        let before = known::keys(&first.findings);
        second.findings.retain(|finding| before.contains(&known::key(finding)));
        Ok(second)
    }

    async fn look(&self) -> Result<Look> {
        let before = View::of(&self.directory);
        let inventory = self.supervisor.send(TakeInventory { processes: before.processes() }).await;
        let inventory = inventory.map_err(closed)??;
        let after = View::of(&self.directory);
        let findings = compare(&before, &inventory, &after, &self.directories);
        let (containers, shims) = running(&inventory, &after);
        Ok(Look { findings, containers, shims })
    }

    /// Waits until the objects that seem to have lost something have moved on.
    async fn settle(&self, findings: &[Finding]) {
        let ghosts = findings.iter().filter(|finding| finding.deviation == Deviation::Ghost);
        let mut moves = Vec::new();
        for owner in ghosts.map(|finding| &finding.owner).collect::<HashSet<_>>() {
            let container = owner.container.as_ref().and_then(|id| self.directory.watch_container(id));
            let sandbox = owner.sandbox.as_ref().and_then(|id| self.directory.watch_sandbox(id));
            moves.push(async move {
                // A channel that closes is a move too: the object is gone.
                match (container, sandbox) {
                    (Some(mut container), _) => drop(container.changed().await),
                    (None, Some(mut sandbox)) => drop(sandbox.changed().await),
                    (None, None) => {}
                }
            });
        }
        // Ignored: what has not moved is looked at as it is.
        let _ = tokio::time::timeout(Duration::from_millis(AUDIT_SETTLE_MS), join_all(moves)).await;
    }

    /// Does every remedy once, in the order of the findings, and writes down what came of it.
    async fn repair(&self, findings: &mut [Finding]) -> Result<()> {
        let mut done: Vec<(Remedy, Result<()>)> = Vec::new();
        for finding in findings.iter_mut() {
            if matches!(finding.remedy, Remedy::ByHand { .. }) {
                continue;
            }
            let known = done.iter().find(|(remedy, _)| *remedy == finding.remedy);
            let outcome = match known {
                Some((_, outcome)) => outcome.clone(),
                None => {
                    let outcome = self.remedy(finding.remedy.clone()).await;
                    done.push((finding.remedy.clone(), outcome.clone()));
                    outcome
                }
            };
            finding.outcome = Some(outcome);
        }
        let left = known::keys(&self.look_twice().await?.findings);
        for finding in findings.iter_mut().filter(|finding| finding.outcome == Some(Ok(()))) {
            if left.contains(&known::key(finding)) {
                let what = format!("{} {}", finding.kind, finding.place);
                finding.outcome = Some(Err(Error::unavailable(what, "it is as it was after the repair")));
            }
        }
        Ok(())
    }

    async fn remedy(&self, remedy: Remedy) -> Result<()> {
        let what = remedy.to_string();
        let work = async {
            match remedy {
                Remedy::Remove(leak) => self.supervisor.send(RemoveLeak { leak }).await.map_err(closed)?,
                Remedy::SettleExit { sandbox, container } => self.settle_exit(sandbox, container).await,
                Remedy::SettleShimDeath { sandbox } => {
                    let reason = "an audit found it gone".to_owned();
                    self.router.send(ShimDied { sandbox, reason }).await.map_err(closed)
                }
                Remedy::RestoreNetwork { sandbox } => {
                    // One that is gone meanwhile needs nothing.
                    let Some(pod) = self.directory.sandbox(&sandbox) else { return Ok(()) };
                    let restore = RestoreNetwork { record: pod.record.clone() };
                    self.supervisor.send(restore).await.map_err(closed)?
                }
                Remedy::ByHand { .. } => Ok(()),
            }
        };
        match tokio::time::timeout(Duration::from_millis(REMEDY_MS), work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::DeadlineExceeded { what, after_ms: REMEDY_MS }),
        }
    }

    /// Asks who knows how a process ended, and tells the router, as if it had been reported.
    async fn settle_exit(&self, sandbox: SandboxId, container: ContainerId) -> Result<()> {
        let task = TaskKey { sandbox, container, exec: None };
        let knowledge = self.supervisor.send(QueryTask { task: task.clone() }).await.map_err(closed)??;
        let now = || Timestamp::from_system(SystemTime::now());
        let exit = match knowledge {
            TaskKnowledge::Known(state) => match state.status {
                TaskStatus::Exited(exit) => exit,
                TaskStatus::Created | TaskStatus::Running | TaskStatus::Paused => {
                    let what = format!("the exit of container {}", task.container);
                    return Err(Error::unavailable(what, "its shim has not seen it end"));
                }
            },
            TaskKnowledge::NotKnown => Exit::unknown(UnknownReason::NotKnownToShim, now()),
            TaskKnowledge::ShimGone => Exit::unknown(UnknownReason::ShimDied, now()),
        };
        let what = format!("the exit of container {}", task.container);
        match self.router.send(TaskExited { task, exit }).await.map_err(closed)? {
            ExitReceipt::Settled => Ok(()),
            ExitReceipt::Pending => Err(Error::unavailable(what, "it could not be written yet")),
        }
    }
}

fn noted(finding: Finding) -> Noted {
    let Finding { deviation, kind, place, owner, reason, .. } = finding;
    let subject = Subject { sandbox: owner.sandbox, container: owner.container, exec: None };
    Noted { subject, what: What::AuditFound { deviation, kind, place, reason } }
}

fn closed(_: actix::MailboxError) -> Error {
    Error::unavailable("the runtime", "it was closed")
}
