//! `delete`: what is left of a container whose shim is dead.
//!
//! Owns: that its processes, its cgroup and the shim's socket are gone, and saying how it ended. Never: touches a cgroup that
//! the bundle does not note as this container's alone; removes the bundle.
//!
//! Its root needs nothing: that was mounted in namespaces that end with the shim and the container.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
use mainstay_messages::Signal;
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use mainstay_task_api::convert::wire_timestamp;
use mainstay_task_api::task::DeleteResponse;
use mainstay_task_api::{Message, MessageField};

use super::command::CommandLine;
use super::{Sentence, bundle, failed, socket};
use crate::exit_record::{read_exit_record, record_path};
use crate::logger;

/// How long the processes may take to be gone, in milliseconds: containerd gives all of it 5 s.
const CLEAN_MS: u64 = 4_000;
/// Time between two looks, in milliseconds.
const CLEAN_POLL_MS: u64 = 10;

/// Clears, and answers with how the container ended.
pub(super) fn clean(line: &CommandLine) -> Result<Vec<u8>, Sentence> {
    let bundle = match &line.bundle {
        Some(bundle) => bundle.clone(),
        None => {
            std::env::current_dir().map_err(failed("finding the bundle, which is the working directory"))?
        }
    };
    let exit = exit(&bundle)?;
    if let Some(cgroup) = bundle::cgroup(&bundle) {
        end(&cgroup)?;
    }
    if let Ok(address) = std::fs::read_to_string(bundle.join(bundle::ADDRESS))
        && let Some(path) = socket::of_address(&address)
    {
        // One that lives has other containers.
        socket::remove_dead(path);
    }
    let response = DeleteResponse {
        pid: bundle::pid(&bundle).unwrap_or(0),
        exit_status: exit.code(),
        exited_at: MessageField::some(wire_timestamp(exit.at)),
        ..DeleteResponse::default()
    };
    response.write_to_bytes().map_err(failed("answering"))
}

/// How it ended: what the shim has written down, else that it is killed here and now.
fn exit(bundle: &Path) -> Result<Exit, Sentence> {
    let record =
        read_exit_record(&record_path(bundle, None)).map_err(failed("reading how the container ended"))?;
    Ok(record.map_or_else(
        || Exit {
            status: ExitStatus::Signaled { signal: Signal::KILL.0 },
            at: logger::now(),
            oom: OomVerdict::NotKilled,
        },
        |record| record.exit,
    ))
}

fn end(path: &CgroupPath) -> Result<(), Sentence> {
    let layout = Layout::detect().map_err(failed("finding the cgroups"))?;
    let group = Cgroup::open(&layout, path);
    let deadline = Instant::now() + Duration::from_millis(CLEAN_MS);
    loop {
        group.kill().map_err(failed(format!("killing what is in cgroup {path}")))?;
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(CLEAN_POLL_MS)),
            Err(error) => return Err(failed(format!("removing cgroup {path}"))(error)),
        }
    }
}
