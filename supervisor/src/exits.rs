//! Fetching the exits of one shim.
//!
//! Owns: the one loop that asks a shim for exits, tells the router, and acknowledges what is settled. Never: runs twice
//! for a shim, drops an exit, or lets an exit that the router is slow to take hold up the next one.

use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use mainstay_messages::Exit;
use mainstay_messages::event::What;
use mainstay_messages::router::ExitReceipt;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension::{NextExitsRequest, NextExitsResponse, ProcessKey as WireKey};

use crate::link::{Call, CallError};
use crate::shim::Shim;
use crate::state::Announcement;
use crate::witness;

/// Time for one question, in milliseconds. The shim answers within 30 s, with or without exits.
pub const EXIT_QUESTION_MS: u64 = 35_000;
/// Time to wait for receipts before the next question, so that it can carry the acknowledgements; in milliseconds.
pub const RECEIPTS_GATHERED_MS: u64 = 1_000;
/// The first pause before a broken connection is made again, in milliseconds; it doubles up to [`RECONNECT_MAX_MS`].
pub const RECONNECT_MIN_MS: u64 = 50;
/// The longest pause before a broken connection is made again, in milliseconds.
pub const RECONNECT_MAX_MS: u64 = 5_000;

/// Which exits an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// All that are not acknowledged: what was answered before may have been lost.
    FromTheStart,
    /// Those that are due.
    WithWhatIsDue,
}

/// Fetches exits until it is aborted, which is when the shim has died.
pub(crate) async fn fetch(shim: Rc<Shim>) {
    let mut receipts = FuturesUnordered::new();
    let mut begin = Begin::FromTheStart;
    let mut pause_ms = RECONNECT_MIN_MS;
    loop {
        let acknowledged = shim.ledger.borrow().acknowledgements();
        let mut question = std::pin::pin!(ask(&shim, &acknowledged, begin));
        let answer = loop {
            tokio::select! {
                answer = &mut question => break answer,
                Some((process, receipt)) = receipts.next() => shim.ledger.borrow_mut().receipt(&process, receipt),
            }
        };
        match answer {
            Ok(answer) => {
                shim.ledger.borrow_mut().acknowledged(&acknowledged);
                (begin, pause_ms) = (Begin::WithWhatIsDue, RECONNECT_MIN_MS);
                receipts.extend(
                    announced(&shim, &answer).into_iter().map(|(process, exit)| offer(&shim, process, exit)),
                );
                gather(&shim, &mut receipts).await;
            }
            Err(error) => {
                if matches!(error, CallError::OutOfReach { .. }) {
                    witness::begin(&shim);
                }
                tracing::debug!(sandbox = %shim.sandbox, ?error, pause_ms, "exits cannot be fetched now");
                begin = Begin::FromTheStart;
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (2 * pause_ms).min(RECONNECT_MAX_MS);
            }
        }
    }
}

async fn ask(shim: &Shim, acknowledged: &[ProcessKey], begin: Begin) -> Result<NextExitsResponse, CallError> {
    let request = NextExitsRequest {
        acknowledged: acknowledged.iter().map(WireKey::from).collect(),
        from_the_start: begin == Begin::FromTheStart,
        ..Default::default()
    };
    let call =
        Call::new(format!("the question for exits to the shim of pod {}", shim.sandbox), EXIT_QUESTION_MS);
    shim.link
        .call(call, async |services, context| services.extension.next_exits(context, &request).await)
        .await
}

/// The exits of an answer that the router has to be told.
fn announced(shim: &Shim, answer: &NextExitsResponse) -> Vec<(ProcessKey, Exit)> {
    let mut reports = Vec::new();
    for announced in &answer.exits {
        let process = ProcessKey::try_from(announced.process.get_or_default());
        let exit = Exit::try_from(announced.exit.get_or_default());
        match (process, exit) {
            (Ok(process), Ok(exit)) => {
                let todo = shim.ledger.borrow_mut().announced(process.clone(), &exit);
                if todo == Announcement::Report {
                    if announced.log_bytes_lost > 0 {
                        let what = What::OutputLost { bytes: announced.log_bytes_lost };
                        shim.machine.note(&shim.sandbox, &process.container, what);
                    }
                    reports.push((process, exit));
                }
            }
            (process, exit) => {
                tracing::error!(sandbox = %shim.sandbox, ?process, ?exit, "an exit cannot be understood");
            }
        }
    }
    reports
}

async fn offer(shim: &Shim, process: ProcessKey, exit: Exit) -> (ProcessKey, ExitReceipt) {
    let receipt = shim.report(&process, &exit).await;
    (process, receipt)
}

/// Waits for the receipts that come soon. The others are heard while the next question is under way.
async fn gather(
    shim: &Shim,
    receipts: &mut FuturesUnordered<impl Future<Output = (ProcessKey, ExitReceipt)>>,
) {
    let all = async {
        while let Some((process, receipt)) = receipts.next().await {
            shim.ledger.borrow_mut().receipt(&process, receipt);
        }
    };
    // Ignored: what is late is late.
    let _ = tokio::time::timeout(Duration::from_millis(RECEIPTS_GATHERED_MS), all).await;
}
