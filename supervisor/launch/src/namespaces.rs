//! Which name spaces a container gets: read from the spec and opened in the parent, made and joined in the child.
//!
//! Paths are opened before the clone, while the caller's rights to read them hold. A process id name space only takes effect
//! for children, so the parent enters it for the length of the clone ([`PidNamespaceVisit`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces, unshare_unsafe,
};

use crate::error::{Context, Result, Step, invalid, unsupported};
use crate::syscall::CLONE_NEWPID;

/// What is done about each kind of name space. Kinds that are not listed are the caller's own.
#[derive(Debug, Default)]
pub(crate) struct NamespacePlan {
    create: Vec<LinuxNamespaceType>,
    join: Vec<Joined>,
}

#[derive(Debug)]
struct Joined {
    kind: LinuxNamespaceType,
    fd: OwnedFd,
    /// Whether it is the caller's own, so that the container owns none of this kind.
    is_own: bool,
}

impl NamespacePlan {
    /// Reads `linux.namespaces`, and opens the name spaces that have a path.
    pub(crate) fn of(spec: &Spec) -> Result<NamespacePlan> {
        let listed =
            spec.linux().as_ref().and_then(|linux| linux.namespaces().as_deref()).unwrap_or_default();
        let mut plan = NamespacePlan::default();
        for (index, namespace) in listed.iter().enumerate() {
            let kind = namespace.typ();
            let field = format!("linux.namespaces[{index}] ({kind})");
            if listed[..index].iter().any(|earlier| earlier.typ() == kind) {
                return Err(invalid(field, "the same kind is listed twice"));
            }
            match kind {
                // It is entered before all others: see user_namespace.rs.
                LinuxNamespaceType::User => continue,
                LinuxNamespaceType::Time => return Err(unsupported(field, "this kind of name space")),
                _ => {}
            }
            match namespace.path() {
                None => plan.create.push(kind),
                Some(_) if kind == LinuxNamespaceType::Mount => {
                    return Err(unsupported(field, "joining a mount name space"));
                }
                Some(path) => {
                    let opened = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                        .context(Step::Namespaces, || format!("{field}: {path:?}"))?;
                    let is_own = is_own(kind, opened.as_fd()).context(Step::Namespaces, || {
                        format!("{field}: comparing {path:?} with the own one")
                    })?;
                    plan.join.push(Joined { kind, fd: opened, is_own });
                }
            }
        }
        if !plan.create.contains(&LinuxNamespaceType::Mount) {
            return Err(invalid(
                "linux.namespaces",
                "a mount name space must be listed; a container cannot use the host's",
            ));
        }
        if spec.hostname().is_some() && !plan.has(LinuxNamespaceType::Uts) {
            return Err(invalid("hostname", "without a uts name space it would rename the host"));
        }
        Ok(plan)
    }

    /// Whether the kind is listed at all, new or joined.
    pub(crate) fn has(&self, kind: LinuxNamespaceType) -> bool {
        self.create.contains(&kind) || self.join.iter().any(|joined| joined.kind == kind)
    }

    /// Whether the container has a name space of this kind that is not the caller's own.
    pub(crate) fn owns(&self, kind: LinuxNamespaceType) -> bool {
        self.create.contains(&kind) || self.join.iter().any(|joined| joined.kind == kind && !joined.is_own)
    }

    /// The flags of the clone; the child makes all others itself, at the same time as the parent does its part.
    pub(crate) fn clone_flags(&self) -> u64 {
        if self.create.contains(&LinuxNamespaceType::Pid) { CLONE_NEWPID } else { 0 }
    }

    /// The process id name space that the child is born in.
    pub(crate) fn pid_to_join(&self) -> Option<BorrowedFd<'_>> {
        self.join.iter().find(|joined| joined.kind == LinuxNamespaceType::Pid).map(|joined| joined.fd.as_fd())
    }

    /// The descriptors that the child needs.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.join.iter().map(|joined| joined.fd.as_fd())
    }

    /// In the child: joins and makes all but those of process ids and cgroups.
    pub(crate) fn enter(&self) -> Result<()> {
        for Joined { kind, fd, .. } in &self.join {
            if !matches!(kind, LinuxNamespaceType::Pid | LinuxNamespaceType::Cgroup) {
                join(*kind, fd.as_fd())?;
            }
        }
        let flags = self.create.iter().map(|kind| unshare_flag(*kind)).collect::<UnshareFlags>();
        let flags = flags - UnshareFlags::NEWPID - UnshareFlags::NEWCGROUP;
        unshare(flags).context(Step::Namespaces, || format!("making new ones ({flags:?})"))?;
        if flags.contains(UnshareFlags::NEWNET) {
            crate::pod::loopback_up()
                .context(Step::Namespaces, || "bringing up the loopback device".to_owned())?;
        }
        Ok(())
    }

    /// In the child, once it is in its cgroups: a cgroup name space shows the groups of that moment as the root.
    pub(crate) fn enter_cgroup(&self) -> Result<()> {
        if self.create.contains(&LinuxNamespaceType::Cgroup) {
            unshare(UnshareFlags::NEWCGROUP)
                .context(Step::Namespaces, || "making a cgroup name space".to_owned())?;
        }
        match self.join.iter().find(|joined| joined.kind == LinuxNamespaceType::Cgroup) {
            Some(joined) => join(joined.kind, joined.fd.as_fd()),
            None => Ok(()),
        }
    }
}

/// The caller of a clone in another process id name space; going back when dropped.
pub(crate) struct PidNamespaceVisit {
    own: OwnedFd,
}

impl PidNamespaceVisit {
    /// The next children are born in the name space that `namespace` is a descriptor of.
    pub(crate) fn by_namespace(namespace: BorrowedFd<'_>) -> io::Result<PidNamespaceVisit> {
        let visit = PidNamespaceVisit { own: own_pid_namespace()? };
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::ProcessID))?;
        Ok(visit)
    }

    /// The next children are born in the name space of the process that `pidfd` is a descriptor of.
    pub(crate) fn by_process(pidfd: BorrowedFd<'_>) -> io::Result<PidNamespaceVisit> {
        let visit = PidNamespaceVisit { own: own_pid_namespace()? };
        move_into_thread_name_spaces(pidfd, ThreadNameSpaceType::PROCESS_ID)?;
        Ok(visit)
    }
}

impl Drop for PidNamespaceVisit {
    fn drop(&mut self) {
        // Entering one's own name space needs nothing that the way out did not need; a process that cannot go back must
        // not go on, for all its later children would be born in the container.
        if let Err(error) = move_into_link_name_space(self.own.as_fd(), Some(LinkNameSpaceType::ProcessID)) {
            panic!("cannot return to the own process id name space: {error}");
        }
    }
}

/// This process in another mount name space, to look something up there.
pub(crate) struct MountNamespaceVisit {
    own: OwnedFd,
}

impl MountNamespaceVisit {
    /// From here on, paths are those of `namespace`.
    pub(crate) fn to(namespace: BorrowedFd<'_>) -> io::Result<MountNamespaceVisit> {
        let own = open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))?;
        Ok(MountNamespaceVisit { own })
    }

    /// Back to its own.
    pub(crate) fn end(self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.own.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }
}

fn own_pid_namespace() -> io::Result<OwnedFd> {
    Ok(open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes new name spaces for this process.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    if flags.is_empty() {
        return Ok(());
    }
    debug_assert!(!flags.contains(UnshareFlags::FILES), "the descriptor table is never unshared here");
    // SAFETY: only UnshareFlags::FILES is unsafe, and it is not among the flags.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

fn join(kind: LinuxNamespaceType, fd: BorrowedFd<'_>) -> Result<()> {
    move_into_link_name_space(fd, Some(link_type(kind)))
        .context(Step::Namespaces, || format!("joining the {kind} name space that the spec names"))
}

fn is_own(kind: LinuxNamespaceType, fd: BorrowedFd<'_>) -> io::Result<bool> {
    let own = stat(format!("/proc/self/ns/{}", proc_name(kind)))?;
    let other = fstat(fd)?;
    Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
}

fn proc_name(kind: LinuxNamespaceType) -> &'static str {
    match kind {
        LinuxNamespaceType::Mount => "mnt",
        LinuxNamespaceType::Cgroup => "cgroup",
        LinuxNamespaceType::Uts => "uts",
        LinuxNamespaceType::Ipc => "ipc",
        LinuxNamespaceType::User => "user",
        LinuxNamespaceType::Pid => "pid",
        LinuxNamespaceType::Network => "net",
        LinuxNamespaceType::Time => "time",
    }
}

fn unshare_flag(kind: LinuxNamespaceType) -> UnshareFlags {
    match kind {
        LinuxNamespaceType::Mount => UnshareFlags::NEWNS,
        LinuxNamespaceType::Cgroup => UnshareFlags::NEWCGROUP,
        LinuxNamespaceType::Uts => UnshareFlags::NEWUTS,
        LinuxNamespaceType::Ipc => UnshareFlags::NEWIPC,
        LinuxNamespaceType::User => UnshareFlags::NEWUSER,
        LinuxNamespaceType::Pid => UnshareFlags::NEWPID,
        LinuxNamespaceType::Network => UnshareFlags::NEWNET,
        LinuxNamespaceType::Time => UnshareFlags::NEWTIME,
    }
}

fn link_type(kind: LinuxNamespaceType) -> LinkNameSpaceType {
    match kind {
        LinuxNamespaceType::Mount => LinkNameSpaceType::Mount,
        LinuxNamespaceType::Cgroup => LinkNameSpaceType::ControlGroup,
        LinuxNamespaceType::Uts => LinkNameSpaceType::HostNameAndNISDomainName,
        LinuxNamespaceType::Ipc => LinkNameSpaceType::InterProcessCommunication,
        LinuxNamespaceType::User => LinkNameSpaceType::User,
        LinuxNamespaceType::Pid => LinkNameSpaceType::ProcessID,
        LinuxNamespaceType::Network => LinkNameSpaceType::Network,
        LinuxNamespaceType::Time => LinkNameSpaceType::Time,
    }
}
