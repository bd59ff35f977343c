//! Security modules of the kernel: the profile of AppArmor and the label of SELinux that the program gets when it is executed.
//!
//! Both are told to the kernel beforehand, by this process of itself, and while its credentials are still its own: the kernel takes no
//! such word from a file that was opened by somebody else.

use std::io;

use oci_spec::runtime::Process;

use crate::error::{Context, Result, Step};
use crate::procfs::HostProc;

/// Where the kernel takes a profile of AppArmor, the newer place first.
const APPARMOR_FILES: [&str; 2] = ["self/attr/apparmor/exec", "self/attr/exec"];
/// Where it takes a label of SELinux.
const SELINUX_FILE: &str = "self/attr/exec";
/// How a process is told that has no profile.
const UNCONFINED: &str = "unconfined";

/// Has the next program that this process executes be confined as its spec says, or as that of its container does.
pub(crate) fn confine(proc: &HostProc, process: &Process, container: Option<&Process>) -> Result<()> {
    let of = |field: fn(&Process) -> &Option<String>| {
        let given =
            field(process).as_deref().or_else(|| container.and_then(|process| field(process).as_deref()));
        given.filter(|name| !name.is_empty())
    };
    if let Some(label) = of(Process::selinux_label) {
        proc.write(SELINUX_FILE, label.as_bytes())
            .context(Step::SecurityModules, || format!("the SELinux label {label:?}"))?;
    }
    if let Some(profile) = of(Process::apparmor_profile).filter(|profile| *profile != UNCONFINED) {
        let word = format!("exec {profile}");
        let [newer, older] = APPARMOR_FILES;
        let written = match proc.write(newer, word.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => proc.write(older, word.as_bytes()),
            written => written,
        };
        written.context(Step::SecurityModules, || format!("the AppArmor profile {profile:?}"))?;
    }
    Ok(())
}
