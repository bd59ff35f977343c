//! A runtime in a world of its own, whose pods have one handler.
//!
//! Owns: what the handlers of the matrix are, and the table of what one of them cannot do. Never: knows a scenario.

use mainstay::{
    Config, ContainerId, EventOptions, Exit, Follow, HandlerSettings, Runtime, SandboxId, SandboxSpec, Seq,
    Shutdown, What,
};
use mainstay_integration_tests::{World, peer, wait};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay-under-test");
/// What the configuration calls the handler of a matrix.
pub const HANDLER: &str = "tried";

/// Who runs the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Mainstay's own shim.
    Mainstay,
    /// `runc` on its command line.
    Runc,
    /// `crun` in the same way.
    Crun,
    /// containerd's shim for runc.
    RuncShim,
}

/// What a handler cannot do, by the name of the scenario, and why.
const EXCEPTIONS: &[(By, &str, &str)] = &[
    (
        By::Crun,
        "mounts_are_there_and_the_root_is_not_the_hosts",
        "crun 1.8 does not know mounts that are read-only with all below them, and they are refused by name",
    ),
    (
        By::Crun,
        "a_terminal_of_an_exec_has_its_size",
        "crun 1.8 tells an exec's terminal its size a moment after its program has begun",
    ),
    (By::Crun, "a_folder_is_no_command", "crun 1.8 says \"open executable\", and not of what"),
];

/// A runtime whose pods have one handler.
pub struct Stage {
    pub world: World,
    pub runtime: Runtime,
    pub by: By,
}

impl By {
    /// Its settings; none when it cannot be tried here, and then it was said why.
    fn settings(self) -> Option<HandlerSettings> {
        let path = |program: &str, package: &str| {
            peer::find(program, package).map(|path| path.to_string_lossy().into_owned())
        };
        Some(match self {
            Self::Mainstay => HandlerSettings::default(),
            Self::Runc => HandlerSettings { runtime: Some(path("runc", "runc")?), ..Default::default() },
            Self::Crun => HandlerSettings { runtime: Some(path("crun", "crun")?), ..Default::default() },
            Self::RuncShim => {
                path("runc", "runc")?;
                let shim = path("containerd-shim-runc-v2", "containerd")?;
                HandlerSettings { shim: Some(shim), ..Default::default() }
            }
        })
    }
}

/// Where the second version of cgroups is on a machine that has both, and what it does there.
const HYBRID_CONTROLLERS: &str = "/sys/fs/cgroup/unified/cgroup.controllers";

/// Gives this thread, and those that it starts, a view of the machine in which the second version of cgroups has no controllers beside
/// the first: crun refuses to run where it has some.
fn hide_controllers(world: &World) {
    let controllers = std::fs::read_to_string(HYBRID_CONTROLLERS).unwrap_or_default();
    if controllers.trim().is_empty() {
        return;
    }
    // SAFETY: this thread alone gets a mount namespace and a root of its own; no descriptor table or memory is split.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.expect("unshared");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
    let none = world.path().join("no_controllers");
    std::fs::write(&none, "").expect("written");
    mount(&none, HYBRID_CONTROLLERS, "", MountFlags::BIND, None).expect("mounted");
}

/// A configuration of a world, with one handler more.
pub fn configured(world: &World, settings: HandlerSettings) -> Config {
    let mut config = world.config();
    config.handler.0.insert(HANDLER.parse().expect("a good name"), settings);
    config
}

/// A pod's spec with the handler.
pub fn pod_spec(name: &str) -> SandboxSpec {
    let mut spec = SandboxSpec::new(name.parse().expect("a good name"));
    spec.handler = Some(HANDLER.parse().expect("a good name"));
    spec
}

impl Stage {
    /// One for a handler, unless the scenario is beyond it.
    pub async fn take(by: By, scenario: &str) -> Option<Self> {
        let exception = EXCEPTIONS.iter().find(|(who, what, _)| *who == by && *what == scenario);
        if let Some((_, _, reason)) = exception {
            peer::skipped(reason);
            return None;
        }
        let settings = by.settings()?;
        let world = World::new(PROGRAM)?;
        if by == By::Crun {
            hide_controllers(&world);
        }
        let runtime = Runtime::start(configured(&world, settings)).await.expect("the runtime starts");
        Some(Self { world, runtime, by })
    }

    /// Its configuration.
    pub fn config(&self) -> Config {
        configured(&self.world, self.by.settings().expect("it could be tried a moment ago"))
    }

    /// A ready pod.
    pub async fn pod(&self, name: &str) -> SandboxId {
        wait::finish("a pod runs", self.runtime.run_sandbox(pod_spec(name))).await.expect("a pod runs")
    }

    /// Ends the runtime and leaves what runs.
    pub async fn leave(self) -> (World, By) {
        self.runtime.close(Shutdown::LeaveRunning).await.expect("closed");
        (self.world, self.by)
    }

    /// Another runtime where one has been.
    pub async fn again((world, by): (World, By)) -> Self {
        let settings = by.settings().expect("it could be tried a moment ago");
        let runtime = Runtime::start(configured(&world, settings)).await.expect("the runtime starts");
        Self { world, runtime, by }
    }

    /// Every exit of the container that is in the journal.
    pub async fn exits_of(&self, container: &ContainerId) -> Vec<Exit> {
        journalled(&self.runtime, container).await
    }

    /// Removes all, and checks that nothing is left.
    pub async fn finish(self) {
        self.world.finish(self.runtime).await;
    }
}

/// Every exit of a container that is in the journal of a runtime.
pub async fn journalled(runtime: &Runtime, container: &ContainerId) -> Vec<Exit> {
    let mut exits = Vec::new();
    let options = EventOptions { after: Seq(0), follow: Follow::No, subject: None };
    let mut events = runtime.events(options);
    while let Some(event) = events.next_event().await.expect("the journal is read") {
        if let (Some(who), What::ContainerExited { exit }) = (event.subject.container, event.what)
            && who == *container
        {
            exits.push(exit);
        }
    }
    exits
}
