//! Records and facts to write.

use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerSpec, SandboxSpec, Timestamp};
use mainstay_store::Options;

/// A boot id.
pub const BOOT: &str = "0b0b0b0b-1111-2222-3333-444444444444";

/// Default settings.
pub fn options() -> Options {
    Options::new(BOOT)
}

/// A pod.
pub fn sandbox(id: &str) -> SandboxRecord {
    let spec = SandboxSpec::new(format!("name-{id}").parse().expect("a good name"));
    SandboxRecord::intent(id.parse().expect("a good id"), spec, Timestamp(1_700_000_000_000_000_000))
}

/// A container in a pod.
pub fn container(id: &str, sandbox: &str) -> ContainerRecord {
    let spec = ContainerSpec::new(format!("name-{id}").parse().expect("a good name"), ["sleep", "1"]);
    ContainerRecord::intent(
        id.parse().expect("a good id"),
        sandbox.parse().expect("a good id"),
        spec,
        format!("/var/log/{id}").into(),
        Timestamp(1_700_000_000_000_000_000),
    )
}

/// A fact that can be told from others by its pid.
pub fn started(sandbox: &str, container: &str, pid: u32) -> Fact {
    let (sandbox, container) = (sandbox.parse().expect("a good id"), container.parse().expect("a good id"));
    Fact {
        at: Timestamp(u64::from(pid)),
        subject: Subject::container(&sandbox, &container),
        what: What::ContainerStarted { pid },
    }
}
