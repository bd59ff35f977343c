//! What shims run, for operators.
//!
//! Owns: the questions, which are asked of all shims at once and given up soon; and what the kernel says of their
//! processes. Never: waits for work, or for one shim longer than for all of them.

use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use mainstay_messages::shim::{ShimBackend, ShimDescription, ShimProcess, ShimSaid};
use mainstay_messages::{Error, Result, SandboxId, Timestamp};
use mainstay_task_api::extension::{BackendInfo, InfoResponse};

use crate::identity;
use crate::machine::now;
use crate::shim::Shim;

/// How long a shim may take to say what it is, in milliseconds. One that takes longer is described without.
pub const DESCRIBE_MS: u64 = 1_000;
/// How long a look at the processes of all shims may take, in milliseconds.
pub const LOOK_MS: u64 = 10_000;
/// The most processes behind one shim that are described.
pub const BACKEND_PROCESSES_MAX: usize = 1_024;

/// Describes shims.
pub(crate) async fn describe(shims: Vec<Rc<Shim>>) -> Result<BTreeMap<SandboxId, ShimDescription>> {
    let Some(machine) = shims.first().map(|shim| shim.machine.clone()) else { return Ok(BTreeMap::new()) };
    let said = join_all(shims.iter().map(|shim| ask(shim))).await;
    let described: Vec<_> =
        shims.iter().map(|shim| (shim.sandbox.clone(), shim.record.process.pid)).zip(said).collect();
    let work = move |_: &crate::machine::Machine| {
        let uptime = uptime_ticks();
        let described = described.into_iter().map(|((sandbox, pid), said)| {
            let said = said.map(|(protocol, info)| said_of(protocol, info, uptime));
            (sandbox, ShimDescription { process: process(pid, uptime), said })
        });
        Ok(described.collect())
    };
    machine.blocking_within("a look at the processes of shims", LOOK_MS, work).await
}

async fn ask(shim: &Shim) -> Result<(u32, InfoResponse)> {
    let asked = shim.link.introduce(DESCRIBE_MS);
    let late = |_| Error::DeadlineExceeded {
        what: format!("what the shim of pod {} says of itself", shim.sandbox),
        after_ms: DESCRIBE_MS,
    };
    // To connect to a shim that hangs takes longer than its answer may.
    Ok(tokio::time::timeout(Duration::from_millis(DESCRIBE_MS), asked).await.map_err(late)??)
}

fn said_of(protocol: u32, info: InfoResponse, uptime: Option<u64>) -> ShimSaid {
    let backend =
        info.backend.into_option().map(|BackendInfo { program, version, protocol, pids, .. }| {
            let pids = pids.into_iter().take(BACKEND_PROCESSES_MAX);
            ShimBackend {
                program,
                version,
                protocol,
                processes: pids.map(|pid| process(pid, uptime)).collect(),
            }
        });
    ShimSaid { version: info.version, protocol, containers: info.tasks, backend }
}

fn process(pid: u32, uptime: Option<u64>) -> ShimProcess {
    let started = identity::identity_of(pid).ok().map(|identity| identity.start_ticks);
    let age = started.zip(uptime).map(|(started, uptime)| uptime.saturating_sub(started));
    let second = rustix::param::clock_ticks_per_second();
    let since = age.map(|ticks| Timestamp(now().0.saturating_sub(ticks * (1_000_000_000 / second))));
    let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    ShimProcess { pid, private_bytes: memory.and_then(|text| private_bytes(&text)), since }
}

/// Time since the machine was booted, in clock ticks, as the start of a process is counted.
fn uptime_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let hundredths = seconds.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?;
    Some(hundredths * rustix::param::clock_ticks_per_second() / 100)
}

/// `Private_Clean:         4 kB`, and the same of dirty pages (proc_pid_smaps(5)).
fn private_bytes(rollup: &str) -> Option<u64> {
    let of = |name: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((of("Private_Clean:")? + of("Private_Dirty:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_what_nobody_else_has() {
        let rollup = "5600-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  1000 kB\nPss:  500 kB\n\
                      Shared_Clean:   900 kB\nPrivate_Clean:     12 kB\nPrivate_Dirty:    88 kB\n";
        assert_eq!(private_bytes(rollup), Some(100 * 1024));
        assert_eq!(private_bytes("Rss: 5 kB\n"), None, "a kernel thread has none");
    }

    #[test]
    fn a_process_has_an_age_and_memory() {
        let here = process(std::process::id(), uptime_ticks());
        assert!(here.private_bytes.is_some_and(|bytes| bytes > 0));
        assert!(here.since.is_some_and(|since| since <= now()));
        let nobody = process(u32::MAX >> 1, uptime_ticks());
        assert_eq!((nobody.private_bytes, nobody.since), (None, None));
    }
}
