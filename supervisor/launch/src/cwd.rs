//! The working directory, which an image chooses: found inside the root by descriptor, never through a magic link, and looked
//! at again from inside (CVE-2024-21626: `/proc/self/fd/7` led to a directory of the host that the runtime had open).

use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2, stat};
use rustix::io::Errno;
use rustix::process::{fchdir, getcwd};

use crate::error::{Context, Result, Step, invalid};
use crate::mounts::target::{ContainerRoot, Links};

/// Whether the directory has been entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    Yes,
    /// This user may not; the one that the process becomes may.
    NotAllowed,
}

/// Enters the directory, as the launcher.
pub(crate) fn enter(cwd: &Path) -> Result<Entered> {
    let field = || format!("{cwd:?}");
    if !cwd.is_absolute() {
        return Err(invalid("process.cwd", format!("{cwd:?} must be an absolute path")));
    }
    let entered = match try_enter(cwd) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(cwd).context(Step::Cwd, || format!("{cwd:?} does not exist and cannot be made"))?;
            try_enter(cwd)
        }
        result => result,
    };
    match entered {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(invalid(
                "process.cwd",
                format!("{cwd:?} leads through a link of the kernel's, or in a circle"),
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Entered::NotAllowed),
        Err(error) => return Err(error).context(Step::Cwd, field),
    }
    verify().context(Step::Cwd, field)?;
    Ok(Entered::Yes)
}

/// Enters the directory, as the user that the process has become.
pub(crate) fn enter_as_user(cwd: &Path) -> Result<()> {
    try_enter(cwd).and_then(|()| verify()).context(Step::Cwd, || format!("{cwd:?}"))
}

fn try_enter(cwd: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let root = root()?;
    let relative = cwd.strip_prefix("/").unwrap_or(cwd);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let directory = openat2(&root, relative, flags, Mode::empty(), resolve)?;
    Ok(fchdir(directory)?)
}

/// Makes the directory, its parents included, for root as in other runtimes.
fn make(cwd: &Path) -> io::Result<()> {
    match ContainerRoot::new(root()?).directory(cwd, Links::Inside) {
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn root() -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The kernel must know a path from the root to here, and that path must lead here.
fn verify() -> io::Result<()> {
    let outside = || io::Error::new(io::ErrorKind::InvalidData, "it is outside the container's root");
    let path = match getcwd(Vec::new()) {
        Ok(path) if path.as_bytes().starts_with(b"/") => path,
        Ok(_) | Err(Errno::NOENT) => return Err(outside()),
        Err(error) => return Err(error.into()),
    };
    let here = fstat(rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)?;
    match stat(path) {
        Ok(named) if (named.st_dev, named.st_ino) == (here.st_dev, here.st_ino) => Ok(()),
        // A user may be in a directory below one that it cannot search.
        Err(Errno::ACCESS) => Ok(()),
        _ => Err(outside()),
    }
}
