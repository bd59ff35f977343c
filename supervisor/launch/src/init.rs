//! The first process of a new container: what the parent prepares, and the child's work in its order.
//!
//! ```text
//! oom score, scheduling → name spaces → root → mounts → devices → terminal → read-only and masked paths → pivot_root
//!   → host name, sysctl → (environment: hooks on the host) → createContainer hooks → (go: the parent has taken charge) → cgroup name space → the last steps (process.rs)
//! ```
//!
//! The child is in its cgroups before all of this. Everything up to `go` happens at the same time as the parent's part.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Process, Spec};
use rustix::process::Pid;

use crate::capabilities::Sets;
use crate::clone::{CgroupEntry, Never};
use crate::control::{ControlEnd, Launching};
use crate::error::{Context, Result, Step, invalid};
use crate::hooks::{HookPoint, needs_environment, run_point, state};
use crate::limits::{OomScorePolicy, raise_hard_limits, set_oom_score};
use crate::mounts::cgroup::CgroupView;
use crate::mounts::sources::{HostMounts, MountOwners, SourceTrees, mount_owners};
use crate::mounts::target::ContainerRoot;
use crate::mounts::{MountContext, mount_all, mount_label, protect};
use crate::namespaces::{NamespacePlan, PidNamespaceVisit};
use crate::process::{CallerEnd, ChildIo, Hold, Prepared, personality};
use crate::procfs::HostProc;
use crate::rootfs::{self, RootMount};
use crate::scheduling::Scheduling;
use crate::stage::Stage;
use crate::stdio::Io;
use crate::support::{check_process, check_spec};
use crate::user::{Groups, UserDatabase};
use crate::user_namespace::UserNamespace;
use crate::{clone, devices, modules, seccomp, sysctl, terminal};

/// The annotation with the user as the image or the user wrote it: `name`, `uid`, `name:group`, `uid:gid`. Where it is, it
/// decides in place of `process.user.uid` and `gid`.
pub const USER_ANNOTATION: &str = "dev.mainstay.user";

/// The annotation that says where supplementary groups come from: [`GROUPS_STRICT`], or from the container's own
/// `/etc/group` as well.
pub const GROUPS_ANNOTATION: &str = "dev.mainstay.supplementary-groups";
/// The value of [`GROUPS_ANNOTATION`] with which a process has the groups of its spec alone.
pub const GROUPS_STRICT: &str = "strict";

/// A container to create.
#[derive(Debug)]
pub struct InitRequest<'a> {
    /// The container's id, for its hooks.
    pub id: &'a str,
    /// The OCI runtime spec.
    pub spec: &'a Spec,
    /// The bundle: relative paths of the spec are relative to it, and the root is mounted at its `rootfs`.
    pub bundle: &'a Path,
    /// What the root is made of.
    pub root: &'a RootMount,
    /// Where the sources of mounts are looked up; in the caller's own mount name space when not given.
    pub host_mounts: Option<HostMounts<'a>>,
    /// Standard input, output and error.
    pub io: Io,
    /// The groups that the process belongs to.
    pub cgroup: CgroupEntry<'a>,
    /// What to do when the OOM score cannot be lowered.
    pub oom_score: OomScorePolicy,
    /// What becomes of the process when the caller ends.
    pub caller_end: CallerEnd,
}

/// Starts the first process of a container, up to the point where it waits for [`Launching::release`].
///
/// Returns right after the clone; what becomes of the child arrives at [`Launching::try_reply`].
///
/// # Errors
/// When the spec is wrong in a way that can be seen without a child, or when the child cannot be made or put into its groups.
pub fn create(request: InitRequest<'_>) -> Result<Launching> {
    let process = process_of(request.spec)?;
    check_spec(request.spec)?;
    check_process(process)?;
    let scheduling = Scheduling::of(process, request.spec)?;
    let namespaces = NamespacePlan::of(request.spec)?;
    let user = UserNamespace::of(request.spec)?;
    let owners = mount_owners(request.spec.mounts().as_deref().unwrap_or_default())?;
    let cgroups = cgroup_view(request.cgroup);
    let visit = namespaces
        .pid_to_join()
        .map(PidNamespaceVisit::by_namespace)
        .transpose()
        .context(Step::Namespaces, || "joining the pid name space that the spec names".to_owned())?;
    let host = request.host_mounts.map(|host| host.namespace);
    let user_fd = user.as_ref().map(AsFd::as_fd);
    let keep: Vec<BorrowedFd<'_>> = namespaces
        .fds()
        .chain(request.io.fds())
        .chain(host)
        .chain(user_fd)
        .chain(owners.values().map(AsFd::as_fd))
        .collect();
    clone::start(namespaces.clone_flags(), visit, request.cgroup, &keep, |control| {
        let child = Child {
            request: &request,
            process,
            namespaces: &namespaces,
            user: user.as_ref(),
            owners: &owners,
            cgroups: &cgroups,
            scheduling: &scheduling,
        };
        child.run(control)
    })
}

fn process_of(spec: &Spec) -> Result<&Process> {
    spec.process().as_ref().ok_or_else(|| invalid("process", "the spec has none, so there is nothing to run"))
}

/// The directories of the groups, for a mount of type `cgroup`.
fn cgroup_view(entry: CgroupEntry<'_>) -> CgroupView {
    // A descriptor of the parent's mount name space cannot be mounted in the child's; its path can.
    let v2 = entry.v2_dir.and_then(|dir| fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok());
    let v1 = entry.v1_procs.iter().filter_map(|procs| procs.parent()).map(PathBuf::from).collect();
    CgroupView { v2, v1 }
}

struct Child<'a> {
    request: &'a InitRequest<'a>,
    process: &'a Process,
    namespaces: &'a NamespacePlan,
    user: Option<&'a UserNamespace<'a>>,
    owners: &'a MountOwners,
    cgroups: &'a CgroupView,
    scheduling: &'a Scheduling,
}

impl Child<'_> {
    fn run(&self, control: &ControlEnd) -> Result<Never> {
        let (spec, process) = (self.request.spec, self.process);
        let mut warnings = Vec::new();
        let proc = HostProc::open().context(Step::Mounts, || "opening the host's /proc".to_owned())?;
        if let Some(score) = process.oom_score_adj() {
            set_oom_score(&proc, score, self.request.oom_score, &mut warnings)?;
        }
        self.scheduling.set()?;
        let own_pid = self.pid_for_hooks(&proc)?;
        let InitRequest { id, bundle, .. } = *self.request;
        let state = |point| state(point, spec, id, own_pid, bundle);
        let filter = filter_of(spec)?;
        let mounts = spec.mounts().as_deref().unwrap_or_default();
        let mut sources = SourceTrees::of(self.request.host_mounts, self.request.root, mounts)?;
        sources.give(bundle, mounts, self.owners)?;
        let stage = self.user.map(|user| self.enter_user_namespace(user, &mut sources)).transpose()?;
        self.namespaces.enter()?;
        self.name_host()?;
        if let Some(parameters) = spec.linux().as_ref().and_then(|linux| linux.sysctl().as_ref()) {
            sysctl::set(&proc, parameters, |kind| self.namespaces.owns(kind))?;
        }
        let root = self.build_root(&sources, stage.as_ref())?;
        drop((sources, stage));
        let io = self.open_io(&root, &proc)?;
        let database = UserDatabase::read(&root, &proc)?;
        let credentials = match user_annotation(spec) {
            Some(text) => database.resolve(text, process.user(), groups_of(spec))?,
            None => database.numeric(process.user())?,
        };
        if let Some(user) = self.user {
            user.ids.check(&credentials)?;
        }
        let capabilities = Sets::of(process.capabilities().as_ref(), &mut warnings)?;
        self.protect(&root)?;
        let has_waited = needs_environment(spec);
        if has_waited {
            control.environment();
        }
        run_point(HookPoint::CreateContainer, spec, &state(HookPoint::CreateContainer), &mut warnings)?;
        rootfs::enter(root)?;
        rootfs::set_propagation(spec)?;
        modules::confine(&proc, process, None)?;
        drop(proc);

        if !has_waited {
            control.wait_for_go();
        }
        self.namespaces.enter_cgroup()?;
        let personality = personality(spec)?;
        let (hold, caller_end) = (Hold::UntilReleased, self.request.caller_end);
        let start_hooks = || {
            let point = HookPoint::StartContainer;
            run_point(point, spec, &state(point), &mut Vec::new())
        };
        Prepared {
            process,
            personality,
            credentials,
            capabilities,
            filter,
            io,
            hold,
            caller_end,
            warnings,
            start_hooks: &start_hooks,
        }
        .finish(control)
    }

    /// The number that the caller knows this process by, where hooks of its own are told it.
    fn pid_for_hooks(&self, proc: &HostProc) -> Result<Option<Pid>> {
        let points = [HookPoint::CreateContainer, HookPoint::StartContainer];
        if points.iter().all(|point| point.of(self.request.spec).is_empty()) {
            return Ok(None);
        }
        proc.own_pid().context(Step::Hooks, || "the process id for the hooks".to_owned())
    }

    /// Does what only the host's root may do, and is the container's root afterwards.
    fn enter_user_namespace(&self, user: &UserNamespace<'_>, sources: &mut SourceTrees) -> Result<Stage> {
        let InitRequest { spec, bundle, root, io, .. } = self.request;
        raise_hard_limits(self.process.rlimits().as_deref().unwrap_or_default())?;
        io.give_pipes_to(user.ids.root())?;
        sources.map(root, bundle, spec.mounts().as_deref().unwrap_or_default(), user)?;
        let stage = Stage::set(spec, bundle, root, sources, user.ids)?;
        user.enter()?;
        Ok(stage)
    }

    fn name_host(&self) -> Result<()> {
        let spec = self.request.spec;
        if let Some(name) = spec.hostname().as_deref().filter(|name| !name.is_empty()) {
            rustix::system::sethostname(name.as_bytes()).context(Step::Hostname, || format!("{name:?}"))?;
        }
        if let Some(name) = spec.domainname().as_deref().filter(|name| !name.is_empty()) {
            rustix::system::setdomainname(name.as_bytes())
                .context(Step::Hostname, || format!("domain {name:?}"))?;
        }
        Ok(())
    }

    fn build_root(&self, sources: &SourceTrees, stage: Option<&Stage>) -> Result<ContainerRoot> {
        let (spec, bundle) = (self.request.spec, self.request.bundle);
        let propagation = spec.linux().as_ref().and_then(|linux| linux.rootfs_propagation().as_deref());
        let mounts = spec.mounts().as_deref().unwrap_or_default();
        let label = mount_label(spec);
        let made;
        let (root, images) = match stage {
            None => {
                let root =
                    rootfs::mount_root(self.request.root, sources, bundle, mounts, label, propagation)?;
                made = root.1;
                (root.0, &made)
            }
            Some(stage) => {
                let prepared = stage.root().context(Step::RootMount, || "its descriptor".to_owned())?;
                (rootfs::mount_prepared_root(prepared, propagation)?, stage.images())
            }
        };
        let cgroup = self.cgroups;
        let context = MountContext { root: &root, bundle, cgroup, sources, images, label, stage };
        mount_all(&context, mounts)?;
        devices::make_devices(&root, spec, stage)?;
        Ok(root)
    }

    fn open_io(&self, root: &ContainerRoot, proc: &HostProc) -> Result<ChildIo> {
        match &self.request.io {
            Io::Pipes(stdio) => Ok(ChildIo::Pipes(stdio.for_container(root, proc)?)),
            Io::Terminal { size } => {
                let terminal = terminal::open(root, proc, *size)?;
                devices::make_console(root, &terminal.slave)?;
                Ok(ChildIo::Terminal(terminal))
            }
        }
    }

    fn protect(&self, root: &ContainerRoot) -> Result<()> {
        let spec = self.request.spec;
        if let Some(linux) = spec.linux() {
            protect::make_read_only(root, linux.readonly_paths().as_deref().unwrap_or_default())?;
            protect::mask(root, linux.masked_paths().as_deref().unwrap_or_default())?;
        }
        if spec.root().as_ref().is_some_and(|root| root.readonly().unwrap_or(false)) {
            rootfs::make_root_read_only(root)?;
        }
        Ok(())
    }
}

/// Where the supplementary groups of a container's processes come from.
pub(crate) fn groups_of(spec: &Spec) -> Groups {
    let value = spec.annotations().as_ref().and_then(|all| all.get(GROUPS_ANNOTATION));
    if value.is_some_and(|value| value == GROUPS_STRICT) { Groups::Strict } else { Groups::Merge }
}

pub(crate) fn user_annotation(spec: &Spec) -> Option<&str> {
    spec.annotations().as_ref()?.get(USER_ANNOTATION).map(String::as_str)
}

/// The compiled filter of a container.
pub(crate) fn filter_of(spec: &Spec) -> Result<Option<seccomp::Filter>> {
    spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref()).map(seccomp::compile).transpose()
}
