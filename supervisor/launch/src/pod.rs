//! The name spaces that the containers of a pod share, held by descriptor, with no process of their own.
//!
//! This process makes them, opens them, and goes back to its own; the descriptors keep them. Only a process id name space
//! needs a process that stays, and which makes the others too: the pod's init, a copy of this process without privileges, in
//! an empty root, that does nothing but let the kernel reap orphans. Those of a pod with a user name space are made by a child
//! that has entered it, so that they belong to it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::LinuxNamespaceType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, chdir, fchdir, pidfd_send_signal, pivot_root,
    set_parent_process_death_signal, waitid,
};
use rustix::thread::{
    UnshareFlags, move_into_link_name_space, set_name, set_no_new_privs, set_thread_groups,
};

use crate::clone::{self, CgroupEntry, Never};
use crate::control::{ControlEnd, Launching, Reply};
use crate::error::{Context, LaunchError, Result, Step};
use crate::mounts::attach;
use crate::mounts::protect::empty_directory;
use crate::mounts::target::open_host_directory;
use crate::namespaces::unshare;
use crate::procfs::HostProc;
use crate::syscall::{CLONE_NEWPID, close_range};
use crate::{capabilities, sysctl, user_namespace};

/// How long the pod's init may take to make the name spaces. It takes less than a millisecond, but waits for its turn when
/// many network name spaces are being destroyed.
pub const POD_NAMESPACES_TIMEOUT_MS: u32 = 30_000;
/// The name of a pod's init in the process table.
const POD_INIT_NAME: &std::ffi::CStr = c"mainstay-pod";

/// Whether a kind of name space is made for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodNamespace {
    /// A new one.
    New,
    /// The host's.
    Host,
}

/// How the process ids of a pod's containers relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPid {
    /// Every container has its own (or the host's); the pod has none.
    PerContainer,
    /// One for all, with an init of the pod's.
    Shared,
}

/// The name spaces that a pod needs.
#[derive(Debug)]
pub struct PodNamespaceRequest<'a> {
    /// Network; the loopback device of a new one is up.
    pub network: PodNamespace,
    /// System V IPC and POSIX message queues.
    pub ipc: PodNamespace,
    /// Host name.
    pub uts: PodNamespace,
    /// The name in a new uts name space.
    pub hostname: Option<&'a str>,
    /// Process ids.
    pub pid: PodPid,
    /// The user name space that owns the new ones; the caller's own when not given.
    pub user: Option<BorrowedFd<'a>>,
    /// Kernel parameters of the new name spaces.
    pub sysctl: &'a HashMap<String, String>,
    /// The groups of the pod's init.
    pub cgroup: CgroupEntry<'a>,
}

/// The first process of a pod's process id name space. When it ends, the kernel ends all others in it.
#[derive(Debug)]
pub struct PodInit {
    /// Its process id, in the caller's name space.
    pub pid: Pid,
    /// A descriptor of it.
    pub pidfd: OwnedFd,
}

/// Descriptors of new name spaces; `None` where the pod uses the host's.
#[derive(Debug, Default)]
pub struct PodNamespaces {
    /// Network.
    pub network: Option<OwnedFd>,
    /// IPC.
    pub ipc: Option<OwnedFd>,
    /// Host name.
    pub uts: Option<OwnedFd>,
    /// Process ids.
    pub pid: Option<OwnedFd>,
    /// The init of a shared process id name space. It ends with the caller.
    pub init: Option<PodInit>,
}

/// Makes the name spaces of a pod. Waits for the kernel to make them.
///
/// # Errors
/// When the kernel refuses one of them, or the pod's init takes longer than [`POD_NAMESPACES_TIMEOUT_MS`].
pub fn pod_namespaces(request: &PodNamespaceRequest<'_>) -> Result<PodNamespaces> {
    if request.hostname.is_some() && request.uts == PodNamespace::Host {
        return Err(crate::error::invalid("hostname", "without a uts name space it would rename the host"));
    }
    let flags = unshare_flags(request);
    match (request.pid, request.user) {
        (PodPid::PerContainer, _) if flags.is_empty() => Ok(PodNamespaces::default()),
        (PodPid::PerContainer, None) => make_in_passing(request, flags),
        // There is no way back from a user name space.
        (PodPid::PerContainer, Some(_)) | (PodPid::Shared, _) => make_with_child(request, flags),
    }
}

/// Makes them for this process, which is back in its own when this returns.
fn make_in_passing(request: &PodNamespaceRequest<'_>, flags: UnshareFlags) -> Result<PodNamespaces> {
    let visit = Visit { own: open_all(request, "self")? };
    make(request, flags)?;
    let opened = open_all(request, "self");
    drop(visit);
    opened
}

/// Has a child make them, which is the pod's init where it has one, and ends at once where it has none.
fn make_with_child(request: &PodNamespaceRequest<'_>, flags: UnshareFlags) -> Result<PodNamespaces> {
    let own_pid = if request.pid == PodPid::Shared { CLONE_NEWPID } else { 0 };
    let keep: Vec<BorrowedFd<'_>> = request.user.into_iter().collect();
    let mut child =
        clone::start(own_pid, None, request.cgroup, &keep, |control| run(request, flags, control))?;
    let opened = wait_until_made(&mut child).and_then(|()| open_all(request, &child.pid.to_string()));
    if opened.is_err() || request.pid == PodPid::PerContainer {
        // A reaper of the caller's may be faster than this one.
        let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
        return opened;
    }
    child.release().context(Step::Namespaces, || "starting the pod's init".to_owned())?;
    let mut namespaces = opened?;
    namespaces.init = Some(PodInit { pid: child.pid, pidfd: child.pidfd });
    Ok(namespaces)
}

fn unshare_flags(request: &PodNamespaceRequest<'_>) -> UnshareFlags {
    [
        (request.network, UnshareFlags::NEWNET),
        (request.ipc, UnshareFlags::NEWIPC),
        (request.uts, UnshareFlags::NEWUTS),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted == PodNamespace::New)
    .map(|(_, flag)| flag)
    .collect()
}

fn wait_until_made(child: &mut Launching) -> Result<()> {
    let timeout = Timespec { tv_sec: i64::from(POD_NAMESPACES_TIMEOUT_MS / 1000), tv_nsec: 0 };
    loop {
        match child.try_reply()? {
            Some(Reply::Ready { .. }) => return Ok(()),
            Some(Reply::Failed(error)) => return Err(error),
            Some(Reply::Running | Reply::Environment) => return Err(LaunchError::ChildGone),
            None => {}
        }
        let mut fds = [PollFd::from_borrowed_fd(child.control(), PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)));
        match ready.context(Step::Namespaces, || "waiting for the pod's".to_owned())? {
            0 => {
                let late = Err(io::Error::from(io::ErrorKind::TimedOut));
                return late.context(Step::Namespaces, || "making the pod's".to_owned());
            }
            _ => continue,
        }
    }
}

/// Opens those of a process that the pod does not share with the host.
fn open_all(request: &PodNamespaceRequest<'_>, process: &str) -> Result<PodNamespaces> {
    let open = |wanted: bool, name: &str| -> Result<Option<OwnedFd>> {
        if !wanted {
            return Ok(None);
        }
        let path = format!("/proc/{process}/ns/{name}");
        let file = File::open(&path).context(Step::Namespaces, || format!("opening {path}"))?;
        Ok(Some(file.into()))
    };
    Ok(PodNamespaces {
        network: open(request.network == PodNamespace::New, "net")?,
        ipc: open(request.ipc == PodNamespace::New, "ipc")?,
        uts: open(request.uts == PodNamespace::New, "uts")?,
        pid: open(request.pid == PodPid::Shared, "pid")?,
        init: None,
    })
}

/// A process that is about to make name spaces for itself; it goes back to what it had when this is dropped.
struct Visit {
    own: PodNamespaces,
}

impl Drop for Visit {
    fn drop(&mut self) {
        for own in [&self.own.network, &self.own.ipc, &self.own.uts].into_iter().flatten() {
            // Nothing is needed for it that making new ones did not need. A process that cannot go back must not go on: it
            // would take the pod's name spaces for the host's.
            if let Err(error) = move_into_link_name_space(own.as_fd(), None) {
                panic!("cannot return to the own name spaces: {error}");
            }
        }
    }
}

/// Makes the name spaces for this process, and sets them up.
fn make(request: &PodNamespaceRequest<'_>, flags: UnshareFlags) -> Result<()> {
    let proc = HostProc::open().context(Step::Namespaces, || "opening the host's /proc".to_owned())?;
    unshare(flags).context(Step::Namespaces, || format!("making new ones ({flags:?})"))?;
    if request.network == PodNamespace::New {
        loopback_up().context(Step::Namespaces, || "bringing up the loopback device".to_owned())?;
    }
    if let Some(name) = request.hostname {
        rustix::system::sethostname(name.as_bytes()).context(Step::Hostname, || format!("{name:?}"))?;
    }
    sysctl::set(&proc, request.sysctl, |kind| match kind {
        LinuxNamespaceType::Network => request.network == PodNamespace::New,
        LinuxNamespaceType::Ipc => request.ipc == PodNamespace::New,
        _ => false,
    })
}

fn run(request: &PodNamespaceRequest<'_>, flags: UnshareFlags, control: &ControlEnd) -> Result<Never> {
    if let Some(user) = request.user {
        user_namespace::enter(user)?;
    }
    make(request, flags)?;
    confine().context(Step::Namespaces, || "confining the pod's init".to_owned())?;
    control.wait_for_go();
    control.ready(None, &[]);
    control.wait_for_release();
    // Not even standard input, output and error stay: they are the caller's files, and this process says nothing more.
    // (A caller that was gone before the death signal was set has ended this process at the socket already.)
    let _ = close_range(0, u32::MAX);
    loop {
        // SAFETY: waits for a signal; there is nothing else to do for an init whose orphans the kernel reaps.
        unsafe { libc::pause() };
    }
}

/// Makes this process harmless: containers of its pod see it, and one with CAP_SYS_PTRACE may look into it.
fn confine() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP)?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let empty = empty_directory()?;
    attach(empty.as_fd(), &open_host_directory(std::path::Path::new("/proc"))?)?;
    fchdir(&empty)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    set_name(POD_INIT_NAME)?;
    set_thread_groups(&[])?;
    capabilities::drop_all()?;
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // SAFETY: ignoring a signal installs no code. Ignored, SIGCHLD makes the kernel reap every orphan at once.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    Ok(())
}

/// Brings up `lo` in the network name space of this process; the kernel gives it its addresses.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    crate::syscall::check(result.into())
}
