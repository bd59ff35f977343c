//! What is done in the storm: each worker has pods of its own, and does something with one of them at a time.
//!
//! Owns: which answers a caller may get. Never: lets what is to end not end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mainstay::{
    Error, IfRunning, Network, PortMapping, Protocol, Resources, Runtime, SandboxChange, SandboxId,
    SandboxSpec, StopOptions,
};
use mainstay_integration_tests::{script_spec, wait};

use super::chance::Chance;
use super::plugins::Plugins;

/// Containers that a pod has at most.
const CONTAINERS_MAX: u64 = 2;
/// The port of the host of the first pod that has one; each other pod has the next one.
const FIRST_PORT: u16 = 9_000;
/// Time between two attempts to remove what cannot be removed yet, in milliseconds.
const AGAIN_MS: u64 = 50;

/// How often what was answered.
#[derive(Debug, Default)]
pub struct Tally(RefCell<BTreeMap<(&'static str, &'static str), u64>>);

impl Tally {
    fn count(&self, request: &'static str, answer: &'static str) {
        *self.0.borrow_mut().entry((request, answer)).or_default() += 1;
    }

    /// Counts an answer; what no caller should be told ends the test.
    fn answered<T>(&self, request: &'static str, answer: Result<T, Error>) -> Option<T> {
        let word = match &answer {
            Ok(_) => "done",
            Err(Error::HookFailed { .. }) => "stopped by a plugin",
            Err(Error::InProgress { .. } | Error::Terminating { .. } | Error::NameTaken { .. }) => "not yet",
            Err(Error::WrongPhase { .. } | Error::NotFound { .. } | Error::StartFailed { .. }) => {
                "not any more"
            }
            Err(Error::Unavailable { .. }) => "the network failed",
            Err(other) => panic!("{request}: nobody should be told: {other:?}"),
        };
        self.count(request, word);
        answer.ok()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.borrow();
        all.iter().try_for_each(|((request, answer), count)| writeln!(f, "{request:10} {answer:20} {count}"))
    }
}

/// Does one thing after the other with these pods, until it is time to end.
pub async fn live(
    runtime: &Runtime,
    plugins: &Plugins,
    tally: &Tally,
    mut chance: Chance,
    (slots, until): (Vec<u64>, Instant),
) {
    let mut pods: BTreeMap<u64, SandboxId> = BTreeMap::new();
    while Instant::now() < until {
        let Some(slot) = chance.pick(&slots).copied() else { return };
        plugins.strike(&mut chance);
        match pods.get(&slot).cloned() {
            None => {
                let run = runtime.run_sandbox(spec(slot, &mut chance));
                let run = wait::finish("a pod runs, or fails", run).await;
                if let Some(pod) = tally.answered("run", run) {
                    pods.insert(slot, pod);
                }
            }
            Some(pod) if chance.below(3) == 0 => {
                // Either way of ending it.
                if chance.below(2) == 0 {
                    let stop = runtime.stop_sandbox(&pod, Some(Duration::ZERO));
                    tally.answered("stop", wait::finish("a pod stops", stop).await);
                }
                wait::finish("a pod is removed", removed(runtime, &pod)).await;
                tally.count("remove", "done");
                pods.remove(&slot);
            }
            Some(pod) => with_container(runtime, &pod, tally, &mut chance).await,
        }
    }
}

/// What is to end ends: a network that is not taken back is tried again.
pub async fn removed(runtime: &Runtime, pod: &SandboxId) {
    loop {
        match runtime.remove_sandbox(pod).await {
            Ok(()) => return,
            Err(Error::InProgress { .. } | Error::Terminating { .. } | Error::Unavailable { .. }) => {
                tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
            }
            Err(other) => panic!("remove: nobody should be told: {other:?}"),
        }
    }
}

fn spec(slot: u64, chance: &mut Chance) -> SandboxSpec {
    let mut spec = SandboxSpec::new(format!("p{slot}").parse().expect("a good name"));
    spec.network = match chance.below(5) {
        0 => Network::None,
        1 => Network::Cni,
        _ => Network::Builtin,
    };
    if spec.network == Network::Builtin && chance.below(3) == 0 {
        let host_port = FIRST_PORT + u16::try_from(slot).expect("few");
        spec.ports = vec![PortMapping { protocol: Protocol::Tcp, host_ip: None, host_port, pod_port: 80 }];
    }
    spec
}

async fn with_container(runtime: &Runtime, pod: &SandboxId, tally: &Tally, chance: &mut Chance) {
    let there = runtime.containers_of(pod);
    let some = Resources { pids: Some(100 + chance.below(100)), ..Resources::default() };
    let container = chance.pick(&there).map(|shown| shown.record.id.clone());
    let what = if (there.len() as u64) < CONTAINERS_MAX { chance.below(2) } else { 0 };
    match (what, container) {
        (0, Some(container)) => match chance.below(5) {
            0 => {
                let options = StopOptions { grace: Some(Duration::ZERO), ..StopOptions::default() };
                tally.answered(
                    "end",
                    wait::finish("stopped", runtime.stop_container(&container, options)).await,
                );
            }
            1 | 2 => {
                let gone = runtime.remove_container(&container, IfRunning::Kill);
                tally.answered("delete", wait::finish("removed", gone).await);
            }
            3 => {
                let change = SandboxChange { limits: some, ..SandboxChange::default() };
                let changed = runtime.update_sandbox(pod, change);
                tally.answered("change", wait::finish("changed", changed).await);
            }
            _ => {
                let updated = runtime.update_container(&container, some);
                tally.answered("update", wait::finish("updated", updated).await);
            }
        },
        _ => {
            let name = format!("c{}", chance.below(CONTAINERS_MAX));
            let create = runtime.create_container(pod, script_spec(&name, "exec sleep 1000"));
            let created = wait::finish("a container is created, or fails", create).await;
            if let Some(container) = tally.answered("create", created) {
                let start = runtime.start_container(&container);
                tally.answered("start", wait::finish("a container starts, or fails", start).await);
            }
        }
    }
}
