//! Loading a device program and attaching it to a v2 group, by bpf(2).
//!
//! Owns: the layouts of the arguments (linux/bpf.h) and the order of replacing. Never: decides the rules.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;

use super::program::Instruction;
use crate::error::CgroupError;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_DETACH: libc::c_int = 9;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_PROG_QUERY: libc::c_int = 16;

const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Programs of groups above keep their say.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The most programs that the kernel lets one group have (BPF_CGROUP_MAX_PROGS).
const ATTACHED_PROGRAMS_MAX: usize = 64;
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

#[repr(C)]
struct LoadArguments {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct AttachArguments {
    target: RawFd,
    program: RawFd,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct QueryArguments {
    target: RawFd,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Puts a program in the place of those that the group has. The new one is attached before the old ones go; all of those
/// attached must agree, so no access is open in between that either would deny. `None` only takes the old ones away.
pub(crate) fn replace(
    group: BorrowedFd<'_>,
    path: &Path,
    program: Option<&[Instruction]>,
) -> Result<(), CgroupError> {
    let failed = |action| move |source| CgroupError::DeviceProgram { action, path: path.to_owned(), source };
    let old = attached(group).map_err(failed("list"))?;
    if let Some(program) = program {
        let loaded = load(program).map_err(failed("load"))?;
        attach(group, loaded.as_fd()).map_err(failed("attach"))?;
    }
    for program in old {
        detach(group, program.as_fd()).map_err(failed("detach"))?;
    }
    Ok(())
}

fn load(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    let mut arguments = LoadArguments {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        // Bounded by DEVICE_RULES_MAX rules of a dozen instructions.
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the addresses are those of a slice of `instruction_count` instructions and of a terminated string, both alive
    // during the call.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut arguments) }?;
    // SAFETY: a successful load returns a new descriptor (close-on-exec) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn attach(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut arguments = attach_arguments(group, program, BPF_F_ALLOW_MULTI);
    // SAFETY: the arguments hold no addresses.
    unsafe { bpf(BPF_PROG_ATTACH, &mut arguments) }.map(drop)
}

fn detach(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut arguments = attach_arguments(group, program, 0);
    // SAFETY: the arguments hold no addresses.
    match unsafe { bpf(BPF_PROG_DETACH, &mut arguments) } {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn attach_arguments(group: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> AttachArguments {
    AttachArguments {
        target: group.as_raw_fd(),
        program: program.as_raw_fd(),
        attach_type: BPF_CGROUP_DEVICE,
        flags,
    }
}

/// The programs of this very group; those of groups above are not among them.
pub(super) fn attached(group: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, Errno> {
    let mut ids = [0u32; ATTACHED_PROGRAMS_MAX];
    let mut arguments = QueryArguments {
        target: group.as_raw_fd(),
        attach_type: BPF_CGROUP_DEVICE,
        query_flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: ATTACHED_PROGRAMS_MAX as u32,
        padding: 0,
    };
    // SAFETY: `ids` has room for `count` words and is alive during the call.
    unsafe { bpf(BPF_PROG_QUERY, &mut arguments) }?;
    let found = &ids[..(arguments.count as usize).min(ATTACHED_PROGRAMS_MAX)];
    found.iter().filter_map(|id| by_id(*id).transpose()).collect()
}

/// `None` for a program that went away meanwhile.
fn by_id(id: u32) -> Result<Option<OwnedFd>, Errno> {
    let mut arguments = ById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the arguments hold no addresses.
    match unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut arguments) } {
        // SAFETY: a new descriptor (close-on-exec) that nobody else owns.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// # Safety
///
/// `arguments` must be the arguments of `command`, padding included, and the addresses in it must be valid for what
/// the command does with them.
unsafe fn bpf<T>(command: libc::c_int, arguments: &mut T) -> Result<RawFd, Errno> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of `arguments`; the rest is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(arguments), size_of::<T>()) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(result as RawFd)
}
