//! The floor: what the kernel takes to start a process in five new namespaces with the mounts of a container,
//! with nothing of ours in between. Measured in a process of its own, because only a process with one thread
//! may fork and go on in the child.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The namespaces that a pod with one container has of its own.
const NAMESPACES: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET;

/// Starts the program `rounds` times; answers each time from before the clone until the program was executed.
///
/// `upper` and `work` are two empty directories on one file system for an overlay over the host's root.
pub fn measure(rounds: u32, overlay: &CStr, target: &CStr) -> io::Result<Vec<Duration>> {
    (0..rounds).map(|_| one(overlay, target)).collect()
}

fn one(overlay: &CStr, target: &CStr) -> io::Result<Duration> {
    let (reader, writer) = pipe()?;
    let start = Instant::now();
    // SAFETY: this process has one thread (see the top of the file), so the child may run any code until it
    // executes a program; the arguments are those of a plain fork with new namespaces.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            NAMESPACES | libc::SIGCHLD,
            std::ptr::null::<u8>(),
            0usize,
            0usize,
            0usize,
        )
    };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let error = child(overlay, target);
            eprintln!("mainstay bench: the floor's child failed: {error}");
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(1) }
        }
        _ => {}
    }
    drop(writer);
    // The writer's copy in the child closes when the program is executed: the read then ends.
    let mut byte = 0u8;
    // SAFETY: reads at most one byte into a byte of ours.
    unsafe { libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
    let elapsed = start.elapsed();
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    if unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if status != 0 {
        return Err(io::Error::other("the floor's child did not start its program"));
    }
    Ok(elapsed)
}

/// Mounts what a container has, and executes `true`. Comes back only when something failed.
fn child(overlay: &CStr, target: &CStr) -> io::Error {
    let mounts: [(&CStr, &CStr, &CStr, libc::c_ulong, &CStr); 6] = [
        (c"overlay", target, c"overlay", 0, overlay),
        (c"proc", c"proc", c"proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, c""),
        (c"tmpfs", c"dev", c"tmpfs", libc::MS_NOSUID, c"mode=755,size=65536k"),
        (c"devpts", c"dev/pts", c"devpts", libc::MS_NOSUID | libc::MS_NOEXEC, c"newinstance,ptmxmode=0666"),
        (c"mqueue", c"dev/mqueue", c"mqueue", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, c""),
        (c"sysfs", c"sys", c"sysfs", libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NOEXEC, c""),
    ];
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: system calls on constant, NUL-terminated strings, in a child with one thread.
    unsafe {
        if libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) != 0 {
            return io::Error::last_os_error();
        }
        for (index, (source, path, kind, flags, data)) in mounts.into_iter().enumerate() {
            if path == c"dev/pts" || path == c"dev/mqueue" {
                libc::mkdir(path.as_ptr(), 0o755);
            }
            if libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) != 0 {
                return io::Error::last_os_error();
            }
            if index == 0 && libc::chdir(target.as_ptr()) != 0 {
                return io::Error::last_os_error();
            }
        }
        if libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) != 0
            || libc::umount2(c".".as_ptr(), libc::MNT_DETACH) != 0
            || libc::chdir(c"/".as_ptr()) != 0
        {
            return io::Error::last_os_error();
        }
        let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
        libc::execv(c"/bin/true".as_ptr(), arguments.as_ptr());
    }
    io::Error::last_os_error()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors that the call writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
