//! Resource limits and the badness score of the out-of-memory killer.

use oci_spec::runtime::{PosixRlimit, PosixRlimitType};

use crate::error::{Context, Result, Step, invalid};
use crate::procfs::HostProc;
use crate::syscall::check;

/// What to do when the kernel does not let the score be lowered, for want of CAP_SYS_RESOURCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OomScorePolicy {
    /// Keep the runtime's own score, and say so in a warning.
    #[default]
    Clamp,
    /// Fail the launch.
    Refuse,
}

/// Sets `process.oomScoreAdj` of this process.
pub(crate) fn set_oom_score(
    proc: &HostProc,
    wanted: i32,
    policy: OomScorePolicy,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !(-1000..=1000).contains(&wanted) {
        return Err(invalid("process.oomScoreAdj", format!("{wanted} must be from -1000 to 1000")));
    }
    let file = "self/oom_score_adj";
    match proc.write(file, wanted.to_string().as_bytes()) {
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied && policy == OomScorePolicy::Clamp =>
        {
            let kept = proc.read(file).context(Step::OomScore, || "reading the own score".to_owned())?;
            warnings.push(format!(
                "process.oomScoreAdj: {} instead of {wanted}, which the kernel refuses without CAP_SYS_RESOURCE",
                kept.trim()
            ));
            Ok(())
        }
        result => result.context(Step::OomScore, || wanted.to_string()),
    }
}

/// Raises hard limits that are below those of the spec: only the host's root may, and a process in a user name space is not.
/// What the limits are is set when everything else is.
pub(crate) fn raise_hard_limits(limits: &[PosixRlimit]) -> Result<()> {
    for limit in limits {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let subject = || format!("raising the hard limit {} to {}", limit.typ(), limit.hard());
        // SAFETY: no new value is given, and the old one has room for the length of the call.
        let read = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource(limit.typ()), 0, &raw mut now) };
        check(read).context(Step::Rlimits, subject)?;
        if now.rlim_max >= limit.hard() {
            continue;
        }
        now.rlim_max = limit.hard();
        // SAFETY: the value lives through the call, and no old value is asked for.
        let set = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource(limit.typ()), &raw const now, 0) };
        check(set).context(Step::Rlimits, subject)?;
    }
    Ok(())
}

/// Sets `process.rlimits` of this process.
pub(crate) fn set_rlimits(limits: &[PosixRlimit]) -> Result<()> {
    for (index, limit) in limits.iter().enumerate() {
        let (kind, soft, hard) = (limit.typ(), limit.soft(), limit.hard());
        let field = format!("process.rlimits[{index}] ({kind})");
        if limits[..index].iter().any(|earlier| earlier.typ() == kind) {
            return Err(invalid(field, "the same limit is listed twice"));
        }
        if soft > hard {
            return Err(invalid(field, format!("the soft limit {soft} is above the hard limit {hard}")));
        }
        let value = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the value lives through the call, and no old value is asked for.
        let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource(kind), &raw const value, 0) };
        check(result).context(Step::Rlimits, || format!("{field}: soft {soft}, hard {hard}"))?;
    }
    Ok(())
}

/// The kernel's number of a limit (the same on x86_64 and aarch64).
fn resource(kind: PosixRlimitType) -> libc::c_int {
    let number = match kind {
        PosixRlimitType::RlimitCpu => libc::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => libc::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => libc::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => libc::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => libc::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => libc::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => libc::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => libc::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => libc::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => libc::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => libc::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => libc::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => libc::RLIMIT_RTTIME,
    };
    number as libc::c_int
}
