//! The default profile: an allow list of what programs in containers use, equal in effect to that of Docker and containerd.
//!
//! Everything else answers EPERM (or ENOSYS, see [`super::compile`]). What a capability makes harmless to allow is allowed with
//! it. Not in the list on purpose: io_uring, key rings, kernel modules, swap, userfaultfd, new name spaces.

use oci_spec::runtime::{
    Arch, Capabilities, Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg,
    LinuxSeccompArgBuilder, LinuxSeccompOperator, LinuxSyscall,
};

/// Allowed for every container, whatever its arguments.
const ALLOWED: &str = "\
    accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime \
    clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep \
    clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 \
    epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit \
    exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 \
    fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat \
    fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait \
    futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid \
    getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom \
    getresgid getresgid32 getresuid getresuid32 getrlimit get_robust_list getrusage getsid getsockname getsockopt \
    get_thread_area gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init \
    inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy io_getevents io_pgetevents io_pgetevents_time64 \
    ioprio_get ioprio_set io_setup io_submit ipc kill landlock_add_rule landlock_create_ruleset \
    landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listmount listxattr listxattrat llistxattr \
    _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret \
    mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open \
    mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget \
    msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat \
    openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 \
    prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 \
    pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg \
    recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall \
    riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
    rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam \
    sched_get_priority_max sched_get_priority_min sched_getscheduler sched_rr_get_interval \
    sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield \
    seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto \
    setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority \
    setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list \
    setsid setsockopt set_thread_area set_tid_address setuid setuid32 setxattr setxattrat shmat shmctl shmdt shmget \
    shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs \
    statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create \
    timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create \
    timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit \
    umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid \
    waitpid write writev arch_prctl modify_ldt";

/// Allowed with a capability.
const WITH_CAPABILITY: [(Capability, &str); 14] = [
    (Capability::Bpf, "bpf"),
    (Capability::DacReadSearch, "open_by_handle_at"),
    (Capability::Perfmon, "perf_event_open"),
    (
        Capability::SysAdmin,
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount \
         open_tree open_tree_attr perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 \
         unshare",
    ),
    (Capability::SysBoot, "reboot"),
    (Capability::SysChroot, "chroot"),
    (Capability::SysModule, "delete_module finit_module init_module"),
    (Capability::SysNice, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (Capability::SysPacct, "acct"),
    (Capability::SysPtrace, "kcmp pidfd_getfd process_madvise"),
    (Capability::SysRawio, "ioperm iopl"),
    (Capability::SysTime, "clock_settime clock_settime64 settimeofday stime"),
    (Capability::SysTtyConfig, "vhangup"),
    (Capability::Syslog, "syslog"),
];

#[cfg(target_arch = "x86_64")]
const NATIVE: Arch = Arch::ScmpArchX86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE: Arch = Arch::ScmpArchAarch64;

/// The personalities that change nothing but reporting: Linux, 32 bit, uname26, both, and the query.
const PERSONALITIES: [u64; 5] = [0x0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The flags of clone that make name spaces (all but CLONE_NEWTIME, which clone does not take).
const CLONE_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// The default profile for a container with these (bounding) capabilities.
///
/// ```
/// let plain = mainstay_launch::default_seccomp(&Default::default());
/// assert!(plain.syscalls().as_ref().unwrap().iter().all(|rule| !rule.names().contains(&"mount".to_owned())));
/// ```
pub fn default_seccomp(capabilities: &Capabilities) -> LinuxSeccomp {
    let mut rules = vec![allow(ALLOWED, None)];
    for (capability, names) in WITH_CAPABILITY {
        if capabilities.contains(&capability) {
            rules.push(allow(names, None));
        }
    }
    rules.extend(
        PERSONALITIES
            .map(|value| allow("personality", Some(argument(0, value, LinuxSeccompOperator::ScmpCmpEq)))),
    );
    // Sockets to the hypervisor are not in any network name space.
    let vsock = argument(0, libc::AF_VSOCK as u64, LinuxSeccompOperator::ScmpCmpNe);
    rules.push(allow("socket", Some(vsock)));
    if !capabilities.contains(&Capability::SysAdmin) {
        // The mask is the value; what must remain under it is the second value, which is 0.
        let no_namespace = argument(0, CLONE_NAMESPACES, LinuxSeccompOperator::ScmpCmpMaskedEq);
        rules.push(allow("clone", Some(no_namespace)));
        // Its flags are in memory, where a filter cannot look; on ENOSYS C libraries fall back to clone.
        let mut clone3 = rule("clone3", LinuxSeccompAction::ScmpActErrno);
        clone3.set_errno_ret(Some(libc::ENOSYS as u32));
        rules.push(clone3);
    }
    let mut profile = LinuxSeccomp::default();
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_default_errno_ret(Some(libc::EPERM as u32))
        .set_architectures(Some(vec![NATIVE]))
        .set_syscalls(Some(rules));
    profile
}

fn allow(names: &str, condition: Option<LinuxSeccompArg>) -> LinuxSyscall {
    let mut rule = rule(names, LinuxSeccompAction::ScmpActAllow);
    rule.set_args(condition.map(|condition| vec![condition]));
    rule
}

fn rule(names: &str, action: LinuxSeccompAction) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(names.split_whitespace().map(str::to_owned).collect()).set_action(action);
    rule
}

fn argument(index: usize, value: u64, op: LinuxSeccompOperator) -> LinuxSeccompArg {
    let builder = LinuxSeccompArgBuilder::default().index(index).value(value).value_two(0_u64).op(op);
    // The builder fails for a field without a value only, and all four have one.
    builder.build().expect("all fields are given")
}
