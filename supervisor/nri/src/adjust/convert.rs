//! Adjustments of NRI as our own: every field checked, and what this runtime cannot do refused by name.

mod devices;
mod process;
mod resources;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use mainstay_messages::adjustment::{Adjustment, Hook, Hooks, MountChange};
use mainstay_messages::spec::{
    ARGUMENT_LENGTH_MAX, LABELS_LENGTH_MAX, PATH_LENGTH_MAX, RLIMIT_NAMES, Rlimit,
};
use mainstay_nri_api as api;

use super::ENTRIES_MAX;
use super::error::{Fault, quoted};
use super::keyed::removal;

type Result<T> = std::result::Result<T, Fault>;

/// The kinds of namespaces that a container may be moved to: its user namespace decides who it is, and its mounts are its own.
const NAMESPACES: [&str; 5] = ["network", "ipc", "uts", "pid", "cgroup"];
/// The prefix of annotations that are the runtime's own.
const OWN_ANNOTATIONS: &str = "dev.mainstay.";

/// What plugins have changed, as the runtime keeps it.
///
/// # Errors
/// What is wrong, or not supported.
pub(super) fn adjustment(change: &api::ContainerAdjustment) -> Result<Adjustment> {
    let linux = change.linux.clone().unwrap_or_default();
    refuse_others(&linux)?;
    check_entries("annotations", change.annotations.len())?;
    if let Some(key) = change.annotations.keys().find(|key| {
        let key = removal(key).unwrap_or(key);
        key.is_empty() || key.starts_with(OWN_ANNOTATIONS)
    }) {
        let expected = format!("a key that is not empty and does not begin with {OWN_ANNOTATIONS}");
        return Err(Fault::invalid("annotations", quoted(key), expected));
    }
    Ok(Adjustment {
        annotations: texts("annotations", &change.annotations)?,
        mounts: list("mounts", &change.mounts, mount)?,
        env: list("env", &change.env, variable)?,
        args: arguments(&change.args)?,
        hooks: change.hooks.as_ref().map(hooks).transpose()?.unwrap_or_default(),
        rlimits: list("rlimits", &change.rlimits, rlimit)?,
        cdi_devices: list("CDI_devices", &change.cdi_devices, devices::cdi_device)?,
        devices: list("linux.devices", &linux.devices, devices::device)?,
        resources: linux.resources.as_ref().map(resources::limits).transpose()?.unwrap_or_default(),
        oom_score_adj: linux.oom_score_adj.as_ref().map(|score| oom_score(score.value)).transpose()?,
        io_priority: linux.io_priority.as_ref().map(process::io_priority).transpose()?.flatten(),
        seccomp: linux.seccomp_policy.as_ref().map(process::seccomp).transpose()?,
        namespaces: namespaces(&linux.namespaces)?,
        sysctls: texts("linux.sysctl", &linux.sysctl)?,
        net_devices: devices::net_devices(&linux.net_devices)?,
        scheduler: linux.scheduler.as_ref().map(process::scheduler).transpose()?.flatten(),
        memory_policy: linux.memory_policy.as_ref().map(process::memory_policy).transpose()?,
    })
}

fn refuse_others(linux: &api::LinuxContainerAdjustment) -> Result<()> {
    if !linux.cgroups_path.is_empty() {
        let reason =
            "a container's group is below its pod's, where it is limited, watched and removed with it";
        return Err(Fault::unsupported("linux.cgroups_path", reason));
    }
    // There is none to be removed.
    match linux.rdt.as_ref() {
        Some(rdt) if rdt.clos_id.is_some() || rdt.schemata.is_some() || rdt.enable_monitoring.is_some() => {
            Err(Fault::unsupported("linux.rdt", "this runtime does not set Intel RDT"))
        }
        _ => Ok(()),
    }
}

/// A list with a limit.
fn list<T, U>(field: &str, from: &[T], convert: impl Fn(String, &T) -> Result<U>) -> Result<Vec<U>> {
    check_entries(field, from.len())?;
    from.iter().enumerate().map(|(index, entry)| convert(format!("{field}[{index}]"), entry)).collect()
}

pub(super) fn check_entries(field: &str, count: usize) -> Result<()> {
    if count <= ENTRIES_MAX {
        return Ok(());
    }
    Err(Fault::invalid(field, format!("{count} entries"), format!("at most {ENTRIES_MAX}")))
}

/// Text that the kernel takes.
fn text(field: impl Into<String>, text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Fault::invalid(field, quoted(text), "text without a NUL byte"));
    }
    if text.len() >= ARGUMENT_LENGTH_MAX {
        let value = format!("{} bytes", text.len());
        return Err(Fault::invalid(field, value, format!("fewer than {ARGUMENT_LENGTH_MAX} bytes")));
    }
    Ok(text.to_owned())
}

/// An absolute path that leads nowhere else.
fn path(field: impl Into<String>, path: &str) -> Result<PathBuf> {
    let field = field.into();
    let path = PathBuf::from(text(field.clone(), path)?);
    let leads_up = path.components().any(|part| part == std::path::Component::ParentDir);
    if path.is_absolute() && !leads_up && path.as_os_str().len() < PATH_LENGTH_MAX {
        return Ok(path);
    }
    let expected = format!("an absolute path without \"..\", shorter than {PATH_LENGTH_MAX} bytes");
    Err(Fault::invalid(field, quoted(&path.to_string_lossy()), expected))
}

/// A list of numbers and ranges of them, as the kernel writes it; or nothing.
pub(super) fn check_list_of_numbers(field: &str, list: &str) -> Result<()> {
    let is_number =
        |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_good = list.is_empty()
        || list.len() < PATH_LENGTH_MAX
            && list.split(',').all(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                is_number(first) && is_number(last)
            });
    if is_good {
        return Ok(());
    }
    Err(Fault::invalid(field, quoted(list), "a list of numbers and ranges, as in \"0-2,4\""))
}

/// A map in which a mark before the key takes the entry away.
fn texts(field: &str, map: &HashMap<String, String>) -> Result<BTreeMap<String, Option<String>>> {
    check_entries(field, map.len())?;
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > LABELS_LENGTH_MAX {
        let expected = format!("at most {LABELS_LENGTH_MAX} bytes together");
        return Err(Fault::invalid(field, format!("{bytes} bytes"), expected));
    }
    let mut all = BTreeMap::new();
    for (key, value) in map {
        match removal(key) {
            // An entry that is taken away and set is set.
            Some(key) => drop(all.entry(key.to_owned()).or_insert(None)),
            None => {
                let entry = |value: &str| text(format!("{field}[{}]", quoted(key)), value);
                all.insert(entry(key)?, Some(entry(value)?));
            }
        }
    }
    Ok(all)
}

fn mount(field: String, mount: &api::Mount) -> Result<MountChange> {
    let place = format!("{field}.destination");
    let is_root = |path: &PathBuf| path.components().count() < 2;
    if let Some(key) = removal(&mount.destination) {
        return Ok(MountChange::Remove { destination: path(place, key)? });
    }
    let destination = path(&place, &mount.destination)?;
    if is_root(&destination) {
        return Err(Fault::invalid(place, "\"/\"", "a path below the root"));
    }
    check_entries(&format!("{field}.options"), mount.options.len())?;
    let options = mount.options.iter().map(|option| text(format!("{field}.options"), option));
    let options = options.collect::<Result<Vec<_>>>()?;
    let kind = text(format!("{field}.type"), &mount.type_)?;
    let is_bind = matches!(kind.as_str(), "" | "bind")
        || options.iter().any(|option| matches!(option.as_str(), "bind" | "rbind"));
    let source = match is_bind {
        true => path(format!("{field}.source"), &mount.source)?.to_string_lossy().into_owned(),
        false => text(format!("{field}.source"), &mount.source)?,
    };
    let kind = if is_bind { "bind".to_owned() } else { kind };
    Ok(MountChange::Put { destination, kind, source, options })
}

fn variable(field: String, variable: &api::KeyValue) -> Result<(String, Option<String>)> {
    let gone = removal(&variable.key);
    let key = gone.unwrap_or(&variable.key);
    if key.is_empty() || key.contains('=') {
        return Err(Fault::invalid(
            format!("{field}.key"),
            quoted(key),
            "a name that is not empty and has no '='",
        ));
    }
    let name = text(format!("{field}.key"), key)?;
    let value = gone.is_none().then(|| text(format!("env[{}]", quoted(key)), &variable.value));
    Ok((name, value.transpose()?))
}

fn arguments(args: &[String]) -> Result<Option<Vec<String>>> {
    // The mark that the rest replaces what another plugin has set.
    let args = args.strip_prefix(&[String::new()]).unwrap_or(args);
    let Some(first) = args.first() else { return Ok(None) };
    if first.is_empty() {
        return Err(Fault::invalid("args[0]", "\"\"", "the name or path of a program"));
    }
    list("args", args, |field, argument| text(field, argument)).map(Some)
}

fn hooks(hooks: &api::Hooks) -> Result<Hooks> {
    let all = |name: &str, from: &[api::Hook]| list(&format!("hooks.{name}"), from, hook);
    Ok(Hooks {
        prestart: all("prestart", &hooks.prestart)?,
        create_runtime: all("create_runtime", &hooks.create_runtime)?,
        create_container: all("create_container", &hooks.create_container)?,
        start_container: all("start_container", &hooks.start_container)?,
        poststart: all("poststart", &hooks.poststart)?,
        poststop: all("poststop", &hooks.poststop)?,
    })
}

fn hook(field: String, hook: &api::Hook) -> Result<Hook> {
    let texts = |name: &str, from: &[String]| {
        list(&format!("{field}.{name}"), from, |field, entry| text(field, entry))
    };
    let timeout = hook.timeout.as_ref().map(|timeout| match u64::try_from(timeout.value) {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => {
            let value = timeout.value.to_string();
            Err(Fault::invalid(format!("{field}.timeout"), value, "a number of seconds above 0"))
        }
    });
    Ok(Hook {
        path: path(format!("{field}.path"), &hook.path)?,
        args: texts("args", &hook.args)?,
        env: texts("env", &hook.env)?,
        timeout_s: timeout.transpose()?,
    })
}

fn rlimit(field: String, limit: &api::POSIXRlimit) -> Result<Rlimit> {
    let name = limit.type_.strip_prefix("RLIMIT_").unwrap_or(&limit.type_);
    if !RLIMIT_NAMES.contains(&name) {
        let expected = format!("RLIMIT_ and one of {}", RLIMIT_NAMES.join(", "));
        return Err(Fault::invalid(format!("{field}.type"), quoted(&limit.type_), expected));
    }
    if limit.soft > limit.hard {
        let value = format!("{} above the hard limit {}", limit.soft, limit.hard);
        return Err(Fault::invalid(
            format!("{field}.soft"),
            value,
            "a soft limit that is not above the hard one",
        ));
    }
    Ok(Rlimit { name: name.to_owned(), soft: limit.soft, hard: limit.hard })
}

fn oom_score(score: i64) -> Result<i32> {
    match i32::try_from(score) {
        Ok(score @ -1_000..=1_000) => Ok(score),
        _ => Err(Fault::invalid("linux.oom_score_adj", score.to_string(), "a number from -1000 to 1000")),
    }
}

fn namespaces(from: &[api::LinuxNamespace]) -> Result<BTreeMap<String, Option<String>>> {
    check_entries("linux.namespaces", from.len())?;
    let mut all = BTreeMap::new();
    for namespace in from {
        let gone = removal(&namespace.type_);
        let kind = gone.unwrap_or(&namespace.type_);
        if !NAMESPACES.contains(&kind) {
            let field = format!("linux.namespaces[{}]", quoted(kind));
            let reason = format!("only those of the kinds {} can be others", NAMESPACES.join(", "));
            return Err(Fault::unsupported(field, reason));
        }
        let field = format!("linux.namespaces[{kind:?}].path");
        let value = match (gone, namespace.path.as_str()) {
            (Some(_), _) => None,
            (None, "") => Some(String::new()),
            (None, given) => Some(path(field, given)?.to_string_lossy().into_owned()),
        };
        all.insert(kind.to_owned(), value);
    }
    Ok(all)
}
