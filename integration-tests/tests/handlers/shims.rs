//! What is told of shims, for each handler and of one that does not answer.

use std::cell::RefCell;

use mainstay::{Error, Repair, Runtime, ShimStatus};
use mainstay_integration_tests::{Shorthand, wait, world};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{By, HANDLER, Stage};

pub async fn shims_are_described(stage: Stage) {
    let pod = stage.pod("p").await;
    stage.runtime.started(&pod, "a", "exec sleep 1000").await;
    stage.runtime.started(&pod, "b", "exec sleep 1000").await;
    let shims = described(&stage.runtime, |_| true).await;
    let [ShimStatus { sandbox, name, handler, shim }] = &shims[..] else { panic!("one: {shims:#?}") };
    assert_eq!((sandbox, name.as_str(), handler.as_deref()), (&pod, "p", Some(HANDLER)));
    assert!(shim.process.private_bytes.is_some_and(|bytes| bytes > 0) && shim.process.since.is_some());
    let said = shim.said.as_ref().expect("it answers");
    assert_eq!((said.version.as_str(), said.containers), (env!("CARGO_PKG_VERSION"), 2));
    let behind = said.backend.as_ref().map(|backend| {
        let program = backend.program.rsplit('/').next().unwrap_or_default();
        (program, backend.protocol.as_str(), backend.processes.len())
    });
    let expected = match stage.by {
        By::Mainstay => None,
        By::Runc => Some(("runc", "oci", 0)),
        By::Crun => Some(("crun", "oci", 0)),
        By::RuncShim => Some(("containerd-shim-runc-v2", "task v2", 1)),
    };
    assert_eq!(behind, expected);
    let processes = said.backend.iter().flat_map(|backend| &backend.processes);
    for process in processes {
        assert!(process.private_bytes.is_some() && process.since.is_some(), "{process:?}");
    }
    // The audit took an external shim for a container that nobody knew, and its repair ended it.
    assert_eq!(stage.runtime.audit(Repair::No).await.expect("audited"), []);
    stage.finish().await;
}

/// The shims, once those have said what they are that are asked for: on a busy machine one may be too late for a list.
async fn described(runtime: &Runtime, asked_for: impl Fn(&ShimStatus) -> bool) -> Vec<ShimStatus> {
    let found = RefCell::new(Vec::new());
    let all_answer = async || {
        let shims = wait::finish("a list", runtime.shims()).await.expect("listed");
        let answered = shims.iter().filter(|shim| asked_for(shim)).all(|shim| shim.shim.said.is_ok());
        found.replace(shims);
        answered
    };
    wait::until_async("the shims answer", all_answer).await;
    found.into_inner()
}

/// P6: whoever lists shims waits for none.
#[tokio::test]
async fn one_that_hangs_is_listed_with_the_others() {
    let world = world!();
    let runtime = world.start().await;
    let (stuck, _other) = (runtime.pod("a").await, runtime.pod("b").await);
    let shim = runtime.sandbox(&stuck).expect("listed").record.shim.clone().expect("a shim").process.pid;
    let pid = Pid::from_raw(shim.cast_signed()).expect("a process id");
    kill_process(pid, Signal::STOP).expect("it is there");
    let shims = described(&runtime, |shim| shim.sandbox != stuck).await;
    let names: Vec<_> = shims.iter().map(|shim| shim.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let silent = &shims[0].shim;
    assert_eq!(silent.process.pid, shim);
    assert!(silent.process.private_bytes.is_some(), "the kernel tells of it");
    assert!(matches!(silent.said, Err(Error::DeadlineExceeded { .. })), "{:?}", silent.said);
    kill_process(pid, Signal::CONT).expect("it is there");
    world.finish(runtime).await;
}
