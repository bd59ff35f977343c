//! What all shims of a supervisor have in common, and the place for work that blocks.
//!
//! Owns: the settings, the claim to directories and cgroup, the machine's cgroup layout and facts, the sealed program, the
//! zygote, the lifeline, and whose turn it is. Never: knows a single shim.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use actix::Recipient;
use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
use mainstay_messages::event::{Subject, What};
use mainstay_messages::router::Noted;
use mainstay_messages::{ContainerId, Error, Result, SandboxId, Timestamp};
use mainstay_nri::Nri;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::claim::Claim;
use crate::handlers::probe::Runtimes;
use crate::hooks::Book;
use crate::host::HostFacts;
use crate::movement::Movement;
use crate::netns::NamespaceNames;
use crate::network::PodNetworks;
use crate::paths::Directories;
use crate::places::CgroupPlaces;
use crate::saga::{Report, Turns};
use crate::sealed::SealedProgram;
use crate::settings::{Lifetime, Program, SupervisorSettings};
use crate::user_namespaces::IdDesk;
use crate::zygote::Zygote;

/// Shared by all shims, and by the threads that work for them.
#[derive(Debug)]
pub(crate) struct Machine {
    pub settings: SupervisorSettings,
    pub directories: Directories,
    pub layout: Layout,
    pub host: HostFacts,
    pub boot_id: String,
    pub lifeline: Option<Lifeline>,
    pub zygote: Zygote,
    pub turns: Turns,
    /// Where pods get their networks.
    pub networks: Arc<dyn PodNetworks>,
    /// The names of their network namespaces.
    pub names: NamespaceNames,
    /// The runtimes of handlers that have one.
    pub(crate) runtimes: Runtimes,
    /// Where pods with a user namespace get their ids.
    pub ids: IdDesk,
    /// What plugins were told.
    pub told: Book,
    plugins: OnceLock<Nri>,
    /// Where the cgroups of pods are.
    pub places: CgroupPlaces,
    program: OnceLock<SealedProgram>,
    journal: Recipient<Noted>,
    /// The last to be dropped: all that works on the machine is over then.
    _claim: Claim,
}

/// A pipe that nobody writes to: shims hold the end that reads, and read its end when this process has ended.
#[derive(Debug)]
pub(crate) struct Lifeline {
    pub read: OwnedFd,
    /// The only one there is; never passed on.
    _write: OwnedFd,
}

impl Machine {
    /// Looks at the machine, for settings that were checked when they were claimed.
    pub fn new(
        settings: SupervisorSettings,
        claim: Claim,
        networks: Arc<dyn PodNetworks>,
        journal: Recipient<Noted>,
    ) -> Result<Self> {
        let lifeline = match settings.lifetime {
            Lifetime::Outlive => None,
            Lifetime::WithRuntime => Some(Lifeline::new().map_err(|e| Error::unavailable("a pipe", e))?),
        };
        let layout = Layout::detect().map_err(|error| Error::unavailable("cgroups", error))?;
        let cgroup_parent = settings.cgroup_parent()?;
        Ok(Self {
            directories: settings.directories(),
            layout,
            host: HostFacts::detect().map_err(|error| Error::unavailable("/proc", error))?,
            boot_id: crate::identity::boot_id().map_err(|error| Error::unavailable("/proc", error))?,
            places: CgroupPlaces::new(cgroup_parent),
            lifeline,
            zygote: Zygote::default(),
            turns: Turns::default(),
            networks,
            names: settings.namespace_names(),
            runtimes: Runtimes::default(),
            ids: IdDesk::default(),
            told: Book::new(settings.directories().told()),
            plugins: OnceLock::new(),
            journal,
            program: OnceLock::new(),
            settings,
            _claim: claim,
        })
    }

    /// The plugins, where there may be any.
    pub fn plugins(&self) -> Option<&Nri> {
        self.plugins.get()
    }

    /// There may be plugins from now on.
    pub fn take_plugins(&self, plugins: Nri) {
        // Said once, before anything is made.
        let _ = self.plugins.set(plugins);
    }

    /// Tells the journal what a saga of a pod has come to.
    pub fn note_pod(&self, sandbox: &SandboxId, report: Report) {
        self.journal.do_send(Noted { subject: Subject::sandbox(sandbox), what: report.fact() });
    }

    /// Tells the journal what a saga of a container has come to.
    pub fn note_container(&self, sandbox: &SandboxId, container: &ContainerId, report: Report) {
        self.journal.do_send(Noted { subject: Subject::container(sandbox, container), what: report.fact() });
    }

    /// Tells the journal what is known of a container beside its exit.
    pub fn note(&self, sandbox: &SandboxId, container: &ContainerId, what: What) {
        self.journal.do_send(Noted { subject: Subject::container(sandbox, container), what });
    }

    /// The path of the cgroup above those of the pods that name no other.
    pub fn cgroup_parent(&self) -> &CgroupPath {
        self.places.own()
    }

    /// The path of a pod's cgroup.
    pub fn pod_cgroup(&self, sandbox: &SandboxId) -> Result<CgroupPath> {
        self.places.of(&self.directories, sandbox)
    }

    /// A handle on a pod's cgroup.
    pub fn pod_group(&self, sandbox: &SandboxId) -> Result<Cgroup> {
        Ok(Cgroup::open(&self.layout, &self.pod_cgroup(sandbox)?))
    }

    /// A handle on a container's cgroup.
    pub fn container_group(&self, sandbox: &SandboxId, container: &ContainerId) -> Result<Cgroup> {
        let path = self.pod_cgroup(sandbox)?.child(container.as_str());
        let path = path.map_err(|error| Error::internal("the container's cgroup", error))?;
        Ok(Cgroup::open(&self.layout, &path))
    }

    /// The program of the shims: sealed in memory when this is first called, and a file only on machines that refuse
    /// to execute memory.
    pub fn program(&self) -> io::Result<&SealedProgram> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let path = self.program_file();
        let program = SealedProgram::copy(path)?;
        // Of two that were made at the same time one is kept.
        Ok(self.program.get_or_init(|| program))
    }

    /// The program as a file.
    pub fn program_file(&self) -> &Path {
        match &self.settings.program {
            Program::SelfExe => Path::new("/proc/self/exe"),
            Program::Path(path) => path,
        }
    }

    /// Does work that blocks on another thread. The work goes on after its deadline; whoever asked is told that it
    /// takes too long.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl Into<String>,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.blocking_within(what, self.settings.timeouts.files_ms, work).await
    }

    /// The same with another deadline.
    pub async fn blocking_within<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl Into<String>,
        after_ms: u64,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // Nothing ever moves: one time-out is all there is.
        self.blocking_while_moving(what, after_ms, &Movement::default(), work).await
    }

    /// The same for work that may take as long as something of it moves. `silence_ms` is how often that is looked at: it has
    /// failed when nothing has moved between two looks.
    pub async fn blocking_while_moving<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl Into<String>,
        silence_ms: u64,
        movement: &Movement,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let machine = Arc::clone(self);
        let job = tokio::task::spawn_blocking(move || work(&machine));
        tokio::select! {
            biased;
            done = job => done.unwrap_or_else(|error| Err(Error::internal(what, error))),
            () = movement.stopped(silence_ms) => {
                Err(Error::DeadlineExceeded { what: what.into(), after_ms: silence_ms })
            }
        }
    }
}

impl Lifeline {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { read, _write: write })
    }
}

/// The time now.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}
