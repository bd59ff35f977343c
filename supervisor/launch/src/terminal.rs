//! The process's pseudo terminal, made from the container's own devpts.
//!
//! The master goes to the parent over the control socket; the slave becomes standard input, output and error, and the
//! controlling terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, major, minor};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::error::{Context, Result, Step};
use crate::mounts::target::{ContainerRoot, Links};
use crate::procfs::HostProc;

const DEVPTS_SUPER_MAGIC: u64 = 0x1cd1;
/// Device number of a pty multiplexer.
const PTMX_DEVICE: (u32, u32) = (5, 2);
/// Permissions of the slave: its user, and the group of terminals for writing.
const SLAVE_MODE: u32 = 0o620;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Both ends of a terminal.
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// Opens a new terminal of the container, with its size set.
pub(crate) fn open(root: &ContainerRoot, proc: &HostProc, size: Option<WindowSize>) -> Result<Terminal> {
    let ptmx =
        multiplexer(root, proc).context(Step::Terminal, || "/dev/pts/ptmx of the container".to_owned())?;
    pair(ptmx, size).context(Step::Terminal, || "making a terminal".to_owned())
}

fn multiplexer(root: &ContainerRoot, proc: &HostProc) -> io::Result<OwnedFd> {
    let handle = root.find(Path::new("/dev/pts/ptmx"), Links::Inside)?;
    let stat = fstat(&handle)?;
    let is_ptmx = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == PTMX_DEVICE;
    if !is_ptmx || fstatfs(&handle)?.f_type as u64 != DEVPTS_SUPER_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not the multiplexer of a devpts mount",
        ));
    }
    proc.reopen(&handle, OFlags::RDWR | OFlags::NOCTTY)
}

fn pair(master: OwnedFd, size: Option<WindowSize>) -> io::Result<Terminal> {
    unlockpt(&master)?;
    // The slave of exactly this master, whatever is mounted at /dev/pts.
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::fs::fchmod(&slave, Mode::from_raw_mode(SLAVE_MODE))?;
    if let Some(WindowSize { rows, columns }) = size {
        tcsetwinsize(&slave, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    }
    Ok(Terminal { master, slave })
}
