//! The audit in the background: a look at the machine every so often, so that leaks are found before somebody asks.
//!
//! Owns: when, and that a round gives way to an audit that somebody has asked for. Never: repairs; that takes somebody who wants
//! it.

use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_messages::audit::Repair;

use crate::system::System;

/// Time between two audits in the background, in milliseconds, when nothing else is set.
pub const AUDIT_INTERVAL_DEFAULT_MS: u64 = 600_000;
/// The first one comes after this part of the interval, when what was adopted has settled.
const FIRST_PART: u32 = 10;
/// By how much an interval is longer or shorter by chance, as its part: the daemons of many machines, started together, do not
/// go on in step.
const JITTER_PART: f64 = 0.1;

/// The audits that are under way.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(AtomicUsize);

/// One of them, until it is dropped.
pub(super) struct Audit<'a>(&'a UnderWay);

impl UnderWay {
    pub(super) fn begin(&self) -> Audit<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Audit(self)
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Audits for as long as the system is there.
pub(crate) async fn audit_forever(system: Weak<System>, interval: Duration) {
    let mut pause = interval / FIRST_PART;
    loop {
        tokio::time::sleep(jittered(pause, fastrand::f64())).await;
        pause = interval;
        let Some(system) = system.upgrade() else { return };
        if system.closed().was_said() {
            return;
        }
        if system.under_way.is_empty()
            && let Err(error) = system.audit(Repair::No).await
        {
            tracing::warn!(%error, "the machine could not be looked at");
        }
    }
}

/// `chance` is from 0 to 1.
fn jittered(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(1.0 + JITTER_PART * (2.0 * chance - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_about_as_long_as_it_is_set() {
        let interval = Duration::from_secs(100);
        let bounds = [jittered(interval, 0.0), jittered(interval, 0.5), jittered(interval, 1.0)];
        assert_eq!(bounds.map(|pause| pause.as_secs_f64().round()), [90.0, 100.0, 110.0]);
    }
}
