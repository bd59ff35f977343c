//! What a process gets as standard input, output and error.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Gid, OFlags, Uid, fchown, fstat};

use crate::error::{Context, Result, Step};
use crate::mounts::protect::is_null_device;
use crate::mounts::target::{ContainerRoot, Links};
use crate::procfs::HostProc;
use crate::terminal::WindowSize;

/// The first descriptor after standard input, output and error.
const FIRST_FREE_FD: i32 = 3;

/// The process's ends of three pipes, files or devices.
#[derive(Debug)]
pub struct Stdio {
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

/// Where input comes from and output goes to.
#[derive(Debug)]
pub enum Io {
    /// To descriptors of the caller's.
    Pipes(Stdio),
    /// To a new terminal of the container, whose master comes with [`crate::Reply::Ready`].
    Terminal {
        /// Its size from the start on.
        size: Option<WindowSize>,
    },
}

impl Stdio {
    fn ends(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }

    /// The ends as the process will have them, numbered above 2. The host's null device is replaced by the container's, for
    /// root in a container could change the mode of a device that it has open.
    pub(crate) fn for_container(&self, root: &ContainerRoot, proc: &HostProc) -> Result<[OwnedFd; 3]> {
        let [stdin, stdout, stderr] = self.ends();
        let end = |fd| for_container(fd, root, proc).context(Step::Stdio, || "preparing".to_owned());
        Ok([end(stdin)?, end(stdout)?, end(stderr)?])
    }
}

fn for_container(end: BorrowedFd<'_>, root: &ContainerRoot, proc: &HostProc) -> io::Result<OwnedFd> {
    if is_null_device(&fstat(end)?) {
        let null = root.find(Path::new("/dev/null"), Links::Inside);
        if let Some(null) = null.ok().filter(|null| fstat(null).is_ok_and(|stat| is_null_device(&stat))) {
            return proc.reopen(&null, OFlags::RDWR);
        }
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(end, FIRST_FREE_FD)?)
}

impl Io {
    /// Gives pipes to the root of a container in a user name space, who can then give them to the process's user.
    pub(crate) fn give_pipes_to(&self, (uid, gid): (Uid, Gid)) -> Result<()> {
        for end in self.fds() {
            let give = || -> io::Result<()> {
                if FileType::from_raw_mode(fstat(end)?.st_mode) == FileType::Fifo {
                    fchown(end, Some(uid), Some(gid))?;
                }
                Ok(())
            };
            give().context(Step::Stdio, || "giving it to the container's root".to_owned())?;
        }
        Ok(())
    }

    /// The descriptors that the child must keep.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        match self {
            Io::Pipes(stdio) => Some(stdio.ends()),
            Io::Terminal { .. } => None,
        }
        .into_iter()
        .flatten()
    }
}
