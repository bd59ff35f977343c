//! Another runtime's program (`runc`, `crun`), called for a container: what it cannot know is prepared, and it is executed.
//!
//! It runs in the host's mount name space, where its hooks and the sources of mounts are; for a new container in a copy of
//! that, in which the root is mounted, so that nothing of it is ever seen on the host or has to be unmounted. What the spec says
//! of users in words of the image is looked up in the root, as [`crate::create`] does it, and written down as numbers.
//!
//! Owns: what happens between the clone and the exec of the program. Never: knows what the program's arguments mean, waits for
//! it, or reads what it says.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;

use oci_spec::runtime::{Process, Spec, User};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::clone::{self, CgroupEntry, Never, close_others};
use crate::control::{ControlEnd, Launching};
use crate::error::{Context, LaunchError, Result, Step, invalid};
use crate::exec::is_over;
use crate::init::{groups_of, user_annotation};
use crate::mounts::mount_label;
use crate::mounts::options::Bind;
use crate::mounts::sources::{HostMounts, SourceTrees};
use crate::mounts::target::{ContainerRoot, open_host_directory};
use crate::mounts::{attach, clone_tree};
use crate::namespaces::unshare;
use crate::procfs::HostProc;
use crate::rootfs::{self, RootMount};
use crate::stdio::Stdio;
use crate::user::{Credentials, UserDatabase};
use crate::user_namespace::{IdMap, UserNamespace};

/// The file of a bundle that has its spec.
const CONFIG: &str = "config.json";
/// Where the root is mounted, in the runtime's own mount name space, for a container in a user name space: the first that is
/// there and that nothing is mounted from. A runtime sets such a container up as the container's root, who may not go through
/// directories that are the host's root's alone.
const OPEN_PLACES: [&str; 4] = ["/dev/shm", "/mnt", "/media", "/srv"];
/// The umask of a runtime.
const RUNTIME_UMASK: u32 = 0o022;

/// A call of a runtime.
#[derive(Debug)]
pub struct RuntimeCall<'a> {
    /// The program, by its path on the host.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// Its standard input, output and error, which a container that it makes takes over.
    pub stdio: Stdio,
    /// The host's mount name space.
    pub host_mounts: HostMounts<'a>,
    /// The groups that it is born in.
    pub cgroup: CgroupEntry<'a>,
    /// What is done before.
    pub preparation: Preparation<'a>,
}

/// What is done before a runtime is executed.
#[derive(Clone, Copy, Debug)]
pub enum Preparation<'a> {
    /// Nothing.
    None,
    /// For a new container: its root is mounted, and its bundle's spec is written so that any runtime understands it.
    Container(ContainerBundle<'a>),
    /// For a further process of a container that runs: what it is to be is written to a file.
    Exec {
        /// The container's spec.
        spec: &'a Spec,
        /// The process. Without capabilities of its own it gets those of the container's first process.
        process: &'a Process,
        /// The user as the caller wrote it; it decides in place of `process.user`.
        user: Option<&'a str>,
        /// The container's first process.
        target: Pid,
        /// A pidfd of it.
        target_fd: BorrowedFd<'a>,
        /// The file.
        file: &'a Path,
    },
}

/// A bundle as the supervisor has written it.
#[derive(Clone, Copy, Debug)]
pub struct ContainerBundle<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// The directory.
    pub directory: &'a Path,
    /// What the root is made of.
    pub root: &'a RootMount,
    /// The cgroup that the spec is to name, which counts whatever it has named.
    pub cgroup: &'a Path,
}

/// Executes a runtime. It reports `Ready`, and `Running` when it has been executed, or `Failed`. It is killed when the caller
/// ends, and is the caller's to reap.
///
/// # Errors
/// When the process cannot be made.
pub fn call_runtime(call: RuntimeCall<'_>) -> Result<Launching> {
    let RuntimeCall { ref stdio, ref preparation, host_mounts, .. } = call;
    let user = match preparation {
        Preparation::Container(bundle) => UserNamespace::of(bundle.spec)?,
        Preparation::None | Preparation::Exec { .. } => None,
    };
    let target = match preparation {
        Preparation::Exec { target_fd, .. } => Some(*target_fd),
        _ => None,
    };
    let keep: Vec<BorrowedFd<'_>> = [stdio.stdin.as_fd(), stdio.stdout.as_fd(), stdio.stderr.as_fd()]
        .into_iter()
        .chain([host_mounts.namespace])
        .chain(user.as_ref().map(AsFd::as_fd))
        .chain(target)
        .collect();
    clone::start(0, None, call.cgroup, &keep, |control| run(&call, user.as_ref(), control))
}

/// Prepares a bundle for another program than a runtime, such as another shim: its spec is written as for
/// [`Preparation::Container`], and its root is mounted and stays so, in the caller's own mount name space, until the caller
/// unmounts it. It reports `Ready` or `Failed`, and has ended then.
///
/// # Errors
/// When the process cannot be made.
pub fn mount_bundle(bundle: ContainerBundle<'_>) -> Result<Launching> {
    let user = UserNamespace::of(bundle.spec)?;
    let keep: Vec<BorrowedFd<'_>> = user.as_ref().map(AsFd::as_fd).into_iter().collect();
    clone::start(0, None, CgroupEntry::default(), &keep, |control| {
        mount_and_write(bundle, user.as_ref(), bundle.directory)?;
        control.ready(None, &[]);
        crate::syscall::exit_now(0)
    })
}

/// Writes what a further process of a container is to be, for another program than a runtime, as for [`Preparation::Exec`]. It
/// reports `Ready` or `Failed`, and has ended then.
///
/// # Errors
/// When the process cannot be made.
pub fn prepare_exec(preparation: Preparation<'_>) -> Result<Launching> {
    let keep: Vec<BorrowedFd<'_>> = match preparation {
        Preparation::Exec { target_fd, .. } => vec![target_fd],
        Preparation::None | Preparation::Container(_) => Vec::new(),
    };
    clone::start(0, None, CgroupEntry::default(), &keep, |control| {
        if let Preparation::Exec { spec, process, user, target, target_fd, file } = preparation {
            let wanted = resolved_exec(spec, process, user, (target, target_fd))?;
            write(file, serde_json::to_vec(&wanted))?;
        }
        control.ready(None, &[]);
        crate::syscall::exit_now(0)
    })
}

fn run(call: &RuntimeCall<'_>, user: Option<&UserNamespace<'_>>, control: &ControlEnd) -> Result<Never> {
    match call.preparation {
        Preparation::Container(bundle) => container(bundle, call.host_mounts, user)?,
        Preparation::Exec { spec, process, user, target, target_fd, file } => {
            let wanted = resolved_exec(spec, process, user, (target, target_fd))?;
            write(file, serde_json::to_vec(&wanted))?;
            go_to_host(call.host_mounts.namespace)?;
        }
        Preparation::None => go_to_host(call.host_mounts.namespace)?,
    }
    let stdio = &call.stdio;
    let attach = || -> rustix::io::Result<()> {
        dup2_stdin(&stdio.stdin)?;
        dup2_stdout(&stdio.stdout)?;
        dup2_stderr(&stdio.stderr)
    };
    attach().context(Step::Stdio, || "attaching".to_owned())?;
    close_others(&[control.as_fd()]).context(Step::Session, || "closing descriptors".to_owned())?;
    umask(Mode::from_raw_mode(RUNTIME_UMASK));
    set_parent_process_death_signal(Some(Signal::KILL))
        .context(Step::Session, || "asking to end with the caller".to_owned())?;
    control.ready(None, &[]);
    let error = std::process::Command::new(call.program).args(call.arguments).exec();
    Err(error).context(Step::Exec, || format!("{:?}", call.program))
}

fn go_to_host(namespace: BorrowedFd<'_>) -> Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))
        .context(Step::Namespaces, || "going to the host's mount name space".to_owned())
}

/// Mounts the root in a copy of the host's mount name space, which this process is in afterwards, and writes the spec.
fn container(
    bundle: ContainerBundle<'_>,
    host: HostMounts<'_>,
    user: Option<&UserNamespace<'_>>,
) -> Result<()> {
    let own = own_sources(bundle.spec, host.own)?;
    go_to_host(host.namespace)?;
    unshare(UnshareFlags::NEWNS)
        .context(Step::Namespaces, || "making a mount name space for the runtime".to_owned())?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context(Step::RootMount, || "cutting the mount name space off".to_owned())?;
    for (path, tree) in &own {
        let place = || attach(tree.as_fd(), &open_host_directory(path)?);
        place().context(Step::Mounts, || format!("{path:?}"))?;
    }
    let Some(user) = user else { return mount_and_write(bundle, None, bundle.directory) };
    let place = open_place(bundle)?;
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
        .context(Step::RootMount, || format!("a place for it at {place:?}"))?;
    mount_and_write(bundle, Some(user), place)
}

/// One that hides nothing that is still to be looked up or written: no source of a mount, nothing of the root, nor the bundle.
fn open_place(bundle: ContainerBundle<'_>) -> Result<&'static Path> {
    let ContainerBundle { spec, directory, root, .. } = bundle;
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let sources = mounts.iter().filter_map(|mount| mount.source().as_deref());
    // A bind shows what is mounted below its source; an overlay does not look into mounts below its layers, which may be all of `/`.
    let (bound, layers): (Option<&Path>, Vec<&Path>) = match root {
        RootMount::Overlay { lower, upper, work } => {
            (None, lower.iter().chain([upper, work]).map(AsRef::as_ref).collect())
        }
        RootMount::Bind(source) => (Some(source), Vec::new()),
    };
    let seen_through: Vec<&Path> = sources.chain(bound).collect();
    let looked_up: Vec<&Path> = layers.into_iter().chain([directory]).collect();
    let is_free = |place: &&Path| {
        let hidden = |path: &&Path| path.starts_with(place);
        let meets = |path: &&Path| hidden(path) || place.starts_with(path);
        place.is_dir() && !seen_through.iter().any(meets) && !looked_up.iter().any(hidden)
    };
    OPEN_PLACES.map(Path::new).iter().find(|place| is_free(place)).copied().ok_or_else(|| {
        let places = OPEN_PLACES.join(", ");
        let reason =
            format!("they and the root take all places where a root may be mounted meanwhile: {places}");
        invalid("mounts", reason)
    })
}

/// Mounts the root below `place` in this mount name space, and writes the spec.
fn mount_and_write(
    bundle: ContainerBundle<'_>,
    user: Option<&UserNamespace<'_>>,
    place: &Path,
) -> Result<()> {
    let ContainerBundle { spec, directory, root, cgroup } = bundle;
    let mut sources = SourceTrees::default();
    if let Some(user) = user {
        sources.map(root, directory, &[], user)?;
    }
    let mounted = rootfs::mount_root_here(root, &sources, place, mount_label(spec))?;
    let proc = HostProc::open().context(Step::Mounts, || "opening the host's /proc".to_owned())?;
    let credentials = match spec.process() {
        Some(process) => Some(resolve(&mounted, &proc, spec, process, user_annotation(spec))?),
        None => None,
    };
    let mut written = spec.clone();
    let mut path = spec.root().clone().unwrap_or_default();
    path.set_path(place.join(rootfs::ROOTFS_DIRECTORY));
    written.set_root(Some(path));
    let mut linux = spec.linux().clone().unwrap_or_default();
    linux.set_cgroups_path(Some(cgroup.to_owned()));
    written.set_linux(Some(linux));
    if let (Some(process), Some(credentials)) = (written.process_mut().as_mut(), credentials) {
        process.set_user(numbers(process.user(), &credentials));
    }
    write(&directory.join(CONFIG), serde_json::to_vec(&written))
}

/// Copies of what the spec mounts from the caller's own directory: nobody else has those mounts.
fn own_sources<'a>(spec: &'a Spec, own: &Path) -> Result<Vec<(&'a Path, OwnedFd)>> {
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let paths = mounts.iter().filter_map(|mount| mount.source().as_deref());
    let mut found: Vec<&Path> = paths.filter(|path| path.starts_with(own) && path.is_dir()).collect();
    found.dedup();
    let copy = |path: &'a Path| {
        let tree = clone_tree(path, Bind::Recursive).context(Step::Mounts, || format!("{path:?}"))?;
        Ok((path, tree))
    };
    found.into_iter().map(copy).collect()
}

fn resolved_exec(
    spec: &Spec,
    process: &Process,
    user: Option<&str>,
    (target, target_fd): (Pid, BorrowedFd<'_>),
) -> Result<Process> {
    let proc = HostProc::open().context(Step::Namespaces, || "opening the host's /proc".to_owned())?;
    let path = format!("/proc/{}/root", target.as_raw_nonzero());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&path, flags, Mode::empty());
    // Only now is it known that the number was still that process's.
    if is_over(target_fd) {
        return Err(LaunchError::TargetGone);
    }
    let root = root.context(Step::Namespaces, || "opening the container's root".to_owned())?;
    let credentials = resolve(&ContainerRoot::new(root), &proc, spec, process, user)?;
    let mut wanted = process.clone();
    wanted.set_user(numbers(process.user(), &credentials));
    if let Some(first) = spec.process() {
        if wanted.capabilities().is_none() {
            wanted.set_capabilities(first.capabilities().clone());
        }
        if wanted.apparmor_profile().is_none() {
            wanted.set_apparmor_profile(first.apparmor_profile().clone());
        }
        if wanted.selinux_label().is_none() {
            wanted.set_selinux_label(first.selinux_label().clone());
        }
    }
    Ok(wanted)
}

fn resolve(
    root: &ContainerRoot,
    proc: &HostProc,
    spec: &Spec,
    process: &Process,
    user: Option<&str>,
) -> Result<Credentials> {
    let database = UserDatabase::read(root, proc)?;
    let credentials = match user {
        Some(text) => database.resolve(text, process.user(), groups_of(spec))?,
        None => database.numeric(process.user())?,
    };
    if let Some(ids) = IdMap::of(spec)? {
        ids.check(&credentials)?;
    }
    Ok(credentials)
}

/// The same user, by numbers alone.
fn numbers(given: &User, credentials: &Credentials) -> User {
    let mut user = User::default();
    user.set_uid(credentials.uid)
        .set_gid(credentials.gid)
        .set_umask(given.umask())
        .set_additional_gids(Some(credentials.groups.clone()));
    user
}

/// Writes a file in one step, for its owner alone.
fn write(path: &Path, json: serde_json::Result<Vec<u8>>) -> Result<()> {
    let text = json.map_err(|error| invalid("spec", error.to_string()))?;
    let new = path.with_extension("new");
    let replace = || -> io::Result<()> {
        fs::write(&new, &text)?;
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        fs::rename(&new, path)
    };
    replace().context(Step::Mounts, || format!("writing {path:?}"))
}

#[cfg(test)]
mod tests;
