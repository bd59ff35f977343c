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
use crate::logger::{self, Chain};

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
    let ended = bundle::cgroup(&bundle).map_or(Ok(()), |cgroup| end(&cgroup));
    if let Ok(address) = std::fs::read_to_string(bundle.join(bundle::ADDRESS))
        && let Some(path) = socket::of_address(&address)
        // One that lives has other containers.
        && let Err(sentence) = socket::remove_dead(path)
    {
        logger::warning!("{sentence}");
    }
    ended?;
    let exit = exit(&bundle);
    let response = DeleteResponse {
        pid: bundle::pid(&bundle).unwrap_or(0),
        exit_status: exit.code(),
        exited_at: MessageField::some(wire_timestamp(exit.at)),
        ..DeleteResponse::default()
    };
    response.write_to_bytes().map_err(failed("answering"))
}

/// How it ended: what the shim has written down, else that it is killed here and now.
fn exit(bundle: &Path) -> Exit {
    let record = read_exit_record(&record_path(bundle, None)).unwrap_or_else(|error| {
        logger::warning!("how the container ended is not known: {}", Chain(&error));
        None
    });
    record.map_or_else(
        || Exit {
            status: ExitStatus::Signaled { signal: Signal::KILL.0 },
            at: logger::now(),
            oom: OomVerdict::NotKilled,
        },
        |record| record.exit,
    )
}

fn end(path: &CgroupPath) -> Result<(), Sentence> {
    let layout = Layout::detect().map_err(failed("finding the cgroups"))?;
    let group = Cgroup::open(&layout, path);
    let deadline = Instant::now() + Duration::from_millis(CLEAN_MS);
    loop {
        match group.kill().and_then(|_| group.remove()) {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(CLEAN_POLL_MS)),
            Err(error) => {
                return Err(failed(format!("ending what is in cgroup {path}, and removing it"))(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::command::Action;
    use super::*;

    /// A machine that was switched off may leave half an exit record. Reading it came first, and its failure left the
    /// container's processes, its cgroup and the socket as they were.
    #[test]
    fn a_damaged_record_keeps_nothing_from_being_cleared() {
        let bundle = tempfile::tempdir().expect("a directory");
        let socket = bundle.path().join("s");
        drop(UnixListener::bind(&socket).expect("bound"));
        bundle::write(bundle.path(), bundle::ADDRESS, &socket::address(&socket)).expect("written");
        std::fs::write(record_path(bundle.path(), None), "half").expect("written");
        let line = CommandLine {
            namespace: "default".to_owned(),
            address: String::new(),
            id: "web".to_owned(),
            bundle: Some(bundle.path().to_owned()),
            action: Action::Delete,
        };
        let answer = clean(&line).expect("cleared");
        let answer = DeleteResponse::parse_from_bytes(&answer).expect("an answer");
        assert_eq!(answer.exit_status, 137);
        assert!(!socket.exists());
    }
}
