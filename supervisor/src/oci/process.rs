//! The process of a container, and of an exec in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_messages::record::ContainerRecord;
use mainstay_messages::spec::{
    ContainerSpec, ExecSpec, NewPrivileges, ProcessSpec, Rlimit, Security, Terminal, WindowSize,
};
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{
    Box as ConsoleSize, BoxBuilder, Capabilities, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process,
    User,
};

use super::adjust::adjust_process;
use super::{Surroundings, capabilities};
use crate::host::HostFacts;
use crate::settings::OomScorePolicy;

/// Where programs are looked for when the environment does not say.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a terminal can do when the environment does not say.
const DEFAULT_TERM: &str = "xterm";
/// `oom_score_adj` when the spec does not say, if the kernel allows it.
const OOM_SCORE_DEFAULT: i32 = 0;

/// PID 1 of a container.
pub(super) fn container_process(
    spec: &ContainerSpec,
    capabilities: Capabilities,
    around: Surroundings<'_>,
) -> Result<Process> {
    let mut process = process(&spec.process, &spec.security, capabilities)?;
    limit(&mut process, spec, around.host, around.oom_score)?;
    let profile = around.host.apparmor.profile(&spec.security)?;
    let label = around.host.selinux.label(&spec.security).map(|label| label.to_string());
    process.set_apparmor_profile(profile).set_selinux_label(label);
    Ok(process)
}

/// Another process in a running container. What `exec` leaves open is as in the container's own process. The user as it
/// was asked for is the `username` of the result: there is no annotation for it.
pub fn exec_process(
    container: &ContainerRecord,
    exec: &ExecSpec,
    host: &HostFacts,
    policy: OomScorePolicy,
) -> Result<Process> {
    let own = &container.spec.process;
    let given = &exec.process;
    let mut env = own.env.clone();
    let adjustment = container.adjustment.as_deref();
    for (name, value) in adjustment.iter().flat_map(|adjustment| &adjustment.env) {
        match value {
            Some(value) => drop(env.insert(name.clone(), value.clone())),
            None => drop(env.remove(name)),
        }
    }
    env.extend(given.env.clone());
    let same_user = given.user.is_none();
    let merged = ProcessSpec {
        command: given.command.clone(),
        env,
        workdir: given.workdir.clone().or_else(|| own.workdir.clone()),
        user: given.user.clone().or_else(|| own.user.clone()),
        // Groups belong to a user: those of the container go with its own.
        groups: if same_user && given.groups.is_empty() { own.groups.clone() } else { given.groups.clone() },
        terminal: given.terminal,
    };
    let security = &container.spec.security;
    let capabilities = capabilities::of(security, &host.capabilities)?;
    let mut process = process(&merged, security, capabilities)?;
    limit(&mut process, &container.spec, host, policy)?;
    if let Some(adjustment) = adjustment {
        adjust_process(&mut process, adjustment, host, policy)?;
    }
    process.user_mut().set_username(merged.user);
    Ok(process)
}

/// The limits of a container, which its execs have, too. The score is always written: one that is not would be inherited
/// from the shim, which the kernel is told to spare.
fn limit(
    process: &mut Process,
    spec: &ContainerSpec,
    host: &HostFacts,
    policy: OomScorePolicy,
) -> Result<()> {
    process.set_rlimits(Some(rlimits(&spec.rlimits, host)?)).set_oom_score_adj(Some(oom_score(
        spec.oom_score_adj,
        host.oom_score_floor,
        policy,
    )?));
    Ok(())
}

fn process(spec: &ProcessSpec, security: &Security, capabilities: Capabilities) -> Result<Process> {
    let ambient = capabilities::ambient(security, &capabilities)?;
    let mut user = User::default();
    user.set_additional_gids(Some(spec.groups.clone()));
    let mut process = Process::default();
    process
        .set_args(Some(spec.command.clone()))
        .set_env(Some(environment(&spec.env, spec.terminal)))
        .set_cwd(spec.workdir.clone().unwrap_or_else(|| PathBuf::from("/")))
        .set_user(user)
        .set_capabilities(Some(capabilities::sets(capabilities, ambient)))
        .set_no_new_privileges(Some(security.new_privileges == NewPrivileges::Forbidden))
        .set_terminal(Some(spec.terminal != Terminal::None))
        .set_console_size(match spec.terminal {
            Terminal::None => None,
            Terminal::Tty(size) => Some(console_size(size)),
        });
    Ok(process)
}

/// HOME is left to the launcher, which knows the container's user.
fn environment(given: &BTreeMap<String, String>, terminal: Terminal) -> Vec<String> {
    let mut variables = given.clone();
    variables.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    if terminal != Terminal::None {
        variables.entry("TERM".to_owned()).or_insert_with(|| DEFAULT_TERM.to_owned());
    }
    variables.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn console_size(size: WindowSize) -> ConsoleSize {
    let size = BoxBuilder::default().height(u64::from(size.rows)).width(u64::from(size.columns)).build();
    // Building fails only where a field is missing.
    size.expect("both fields are given")
}

pub(super) fn rlimits(given: &[Rlimit], host: &HostFacts) -> Result<Vec<PosixRlimit>> {
    let limits = given.iter().map(|limit| {
        let field = format!("rlimits.{}", limit.name);
        let Ok(kind) = format!("RLIMIT_{}", limit.name).parse::<PosixRlimitType>() else {
            return Err(Error::invalid(field, format!("{:?}", limit.name), "a name of setrlimit(2)"));
        };
        if let Some(most) = host.hard_limits.get(&limit.name).filter(|most| limit.hard > **most) {
            return Err(Error::Unsupported {
                setting: field,
                reason: format!(
                    "{} is above {most}, and the runtime may not raise limits (CAP_SYS_RESOURCE)",
                    limit.hard
                ),
            });
        }
        let rlimit = PosixRlimitBuilder::default().typ(kind).soft(limit.soft).hard(limit.hard).build();
        // Building fails only where a field is missing.
        Ok(rlimit.expect("all fields are given"))
    });
    limits.collect()
}

pub(super) fn oom_score(given: Option<i32>, floor: i32, policy: OomScorePolicy) -> Result<i32> {
    match given {
        None => Ok(OOM_SCORE_DEFAULT.max(floor)),
        Some(score) if score >= floor => Ok(score),
        Some(_) if policy == OomScorePolicy::Clamp => Ok(floor),
        Some(score) => Err(Error::Unsupported {
            setting: "oom_score_adj".to_owned(),
            reason: format!("{score} is below {floor}, and the runtime may not go lower (CAP_SYS_RESOURCE)"),
        }),
    }
}
