//! Any plugins, merged by us and by the model: equal, conflicts included.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_nri_api as api;
use mainstay_nri_api::{ContainerAdjustment, MessageField, OptionalInt, OptionalInt64, OptionalUInt64};
use proptest::collection::vec;
use proptest::prelude::*;

use super::model::{Kind, Model, Op};
use super::{answer, base, mount, variable};
use crate::adjust::{AdjustError, Creation};

/// Kinds with keys of which some can be taken away, and their keys.
const KEYS: [&str; 3] = ["A", "B", "C"];
const MAPS: [Kind; 4] = [Kind::Annotation, Kind::Sysctl, Kind::NetDevice, Kind::Unified];

fn keys(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Namespace => &["network", "ipc"],
        Kind::Rlimit => &["RLIMIT_CPU", "RLIMIT_NOFILE"],
        Kind::Hugepage => &["2MB", "1GB"],
        Kind::Annotation
        | Kind::Mount
        | Kind::Env
        | Kind::Device
        | Kind::Sysctl
        | Kind::NetDevice
        | Kind::Cdi
        | Kind::Unified => &KEYS,
        _ => &[""],
    }
}

fn op() -> impl Strategy<Value = Op> {
    use Kind::*;
    let kinds = prop::sample::select(Kind::ALL);
    (kinds, any::<prop::sample::Index>(), 1..5_u8, any::<bool>()).prop_map(|(kind, index, value, removes)| {
        let key = keys(kind)[index.index(keys(kind).len())].to_owned();
        let can_remove =
            matches!(kind, Annotation | Mount | Env | Args | Device | Namespace | Sysctl | NetDevice);
        if removes && can_remove { Op::Remove(kind, key) } else { Op::Put(kind, key, value) }
    })
}

/// What one message can say: of a map, and of a single value, one entry.
fn sayable(ops: Vec<Op>) -> Vec<Op> {
    let mut seen = BTreeSet::new();
    let is_first = |op: &Op| match op {
        Op::Put(kind, key, _) => {
            let is_single = keys(*kind).len() == 1 || MAPS.contains(kind);
            !is_single || seen.insert((*kind, key.clone()))
        }
        Op::Remove(Kind::Namespace, key) => seen.insert((Kind::Namespace, format!("-{key}"))),
        Op::Remove(..) => true,
    };
    ops.into_iter().filter(is_first).collect()
}

fn message(ops: &[Op]) -> ContainerAdjustment {
    let mut all = ContainerAdjustment::new();
    let clears_args = ops.iter().any(|op| matches!(op, Op::Remove(Kind::Args, _)));
    if clears_args {
        all.args.push(String::new());
    }
    for op in ops {
        match op {
            Op::Put(kind, key, value) => put(&mut all, *kind, key, *value),
            Op::Remove(kind, key) => remove(&mut all, *kind, &format!("-{key}")),
        }
    }
    all
}

fn put(all: &mut ContainerAdjustment, kind: Kind, key: &str, value: u8) {
    let text = value.to_string();
    let linux = all.linux.mut_or_insert_default();
    let number = OptionalInt64 { value: i64::from(value), ..Default::default() };
    let unsigned = OptionalUInt64 { value: u64::from(value), ..Default::default() };
    match kind {
        Kind::Annotation => drop(all.annotations.insert(key.to_owned(), text)),
        Kind::Mount => all.mounts.push(mount(&format!("/m/{key}"), &format!("/{text}"))),
        Kind::Env => all.env.push(variable(key, &text)),
        Kind::Args => all.args.push(text),
        Kind::Device => linux.devices.push(api::LinuxDevice {
            path: format!("/dev/{key}"),
            type_: "c".to_owned(),
            minor: i64::from(value),
            ..Default::default()
        }),
        Kind::Namespace => linux.namespaces.push(api::LinuxNamespace {
            type_: key.to_owned(),
            path: format!("/{text}"),
            ..Default::default()
        }),
        Kind::Sysctl => drop(linux.sysctl.insert(key.to_owned(), text)),
        Kind::NetDevice => {
            let device = api::LinuxNetDevice { name: text, ..Default::default() };
            linux.net_devices.insert(key.to_owned(), device);
        }
        Kind::Rlimit => all.rlimits.push(api::POSIXRlimit {
            type_: key.to_owned(),
            hard: u64::from(value),
            ..Default::default()
        }),
        Kind::Cdi => {
            all.cdi_devices.push(api::CDIDevice { name: format!("v.com/c={key}"), ..Default::default() })
        }
        Kind::Hugepage => linux.resources.mut_or_insert_default().hugepage_limits.push(api::HugepageLimit {
            page_size: key.to_owned(),
            limit: u64::from(value),
            ..Default::default()
        }),
        Kind::Unified => {
            linux.resources.mut_or_insert_default().unified.insert(key.to_owned(), text);
        }
        Kind::OomScore => {
            linux.oom_score_adj =
                MessageField::some(OptionalInt { value: i64::from(value), ..Default::default() });
        }
        Kind::IoPriority => {
            linux.io_priority = MessageField::some(api::LinuxIOPriority {
                class: api::IOPrioClass::IOPRIO_CLASS_BE.into(),
                priority: i32::from(value),
                ..Default::default()
            });
        }
        Kind::Scheduler => {
            linux.scheduler = MessageField::some(api::LinuxScheduler {
                policy: api::LinuxSchedulerPolicy::SCHED_OTHER.into(),
                nice: i32::from(value),
                ..Default::default()
            });
        }
        Kind::MemoryPolicy => {
            linux.memory_policy =
                MessageField::some(api::LinuxMemoryPolicy { nodes: text, ..Default::default() });
        }
        Kind::MemLimit | Kind::MemSwap | Kind::CpuShares | Kind::CpuPeriod | Kind::Cpus | Kind::Pids => {
            let limits = linux.resources.mut_or_insert_default();
            match kind {
                Kind::MemLimit => limits.memory.mut_or_insert_default().limit = MessageField::some(number),
                Kind::MemSwap => limits.memory.mut_or_insert_default().swap = MessageField::some(number),
                Kind::CpuShares => limits.cpu.mut_or_insert_default().shares = MessageField::some(unsigned),
                Kind::CpuPeriod => limits.cpu.mut_or_insert_default().period = MessageField::some(unsigned),
                Kind::Cpus => limits.cpu.mut_or_insert_default().cpus = text,
                _ => {
                    limits.pids =
                        MessageField::some(api::LinuxPids { limit: number.value, ..Default::default() })
                }
            }
        }
    }
}

fn remove(all: &mut ContainerAdjustment, kind: Kind, marked: &str) {
    let linux = all.linux.mut_or_insert_default();
    let of = |folder: &str| format!("-{folder}{}", &marked[1..]);
    match kind {
        Kind::Annotation => drop(all.annotations.insert(marked.to_owned(), String::new())),
        Kind::Mount => all.mounts.push(mount(&of("/m/"), "")),
        Kind::Env => all.env.push(variable(marked, "")),
        Kind::Device => {
            linux.devices.push(api::LinuxDevice { path: of("/dev/"), ..Default::default() });
        }
        Kind::Namespace => {
            linux.namespaces.push(api::LinuxNamespace { type_: marked.to_owned(), ..Default::default() });
        }
        Kind::Sysctl => drop(linux.sysctl.insert(marked.to_owned(), String::new())),
        Kind::NetDevice => drop(linux.net_devices.insert(marked.to_owned(), Default::default())),
        _ => {}
    }
}

type Words = BTreeMap<(Kind, String), Option<u8>>;

/// What a merged message says, in the words of the model.
fn words(all: &ContainerAdjustment) -> Words {
    let mut words = Words::new();
    let mut say = |kind: Kind, key: &str, value: &str| {
        let (key, value) = match key.strip_prefix('-') {
            Some(key) => (key, None),
            None => (key, Some(value.parse().expect("a number"))),
        };
        let key = key.trim_start_matches("/m/").trim_start_matches("/dev/").trim_start_matches("v.com/c=");
        assert!(words.insert((kind, key.to_owned()), value).is_none(), "{kind:?} {key} is there twice");
    };
    let linux = all.linux.clone().unwrap_or_default();
    let limits = linux.resources.clone().unwrap_or_default();
    let (memory, cpu) = (limits.memory.clone().unwrap_or_default(), limits.cpu.clone().unwrap_or_default());
    all.annotations.iter().for_each(|(key, value)| say(Kind::Annotation, key, value));
    all.mounts
        .iter()
        .for_each(|mount| say(Kind::Mount, &mount.destination, mount.source.trim_start_matches('/')));
    all.env.iter().for_each(|entry| say(Kind::Env, &entry.key, &entry.value));
    all.args.iter().for_each(|argument| say(Kind::Args, "", argument));
    all.rlimits.iter().for_each(|limit| say(Kind::Rlimit, &limit.type_, &limit.hard.to_string()));
    linux.devices.iter().for_each(|device| say(Kind::Device, &device.path, &device.minor.to_string()));
    linux
        .namespaces
        .iter()
        .for_each(|space| say(Kind::Namespace, &space.type_, space.path.trim_start_matches('/')));
    linux.sysctl.iter().for_each(|(key, value)| say(Kind::Sysctl, key, value));
    linux.net_devices.iter().for_each(|(key, device)| say(Kind::NetDevice, key, &device.name));
    limits
        .hugepage_limits
        .iter()
        .for_each(|limit| say(Kind::Hugepage, &limit.page_size, &limit.limit.to_string()));
    limits.unified.iter().for_each(|(key, value)| say(Kind::Unified, key, value));
    memory.limit.iter().for_each(|limit| say(Kind::MemLimit, "", &limit.value.to_string()));
    memory.swap.iter().for_each(|limit| say(Kind::MemSwap, "", &limit.value.to_string()));
    cpu.shares.iter().for_each(|shares| say(Kind::CpuShares, "", &shares.value.to_string()));
    cpu.period.iter().for_each(|period| say(Kind::CpuPeriod, "", &period.value.to_string()));
    limits.pids.iter().for_each(|pids| say(Kind::Pids, "", &pids.limit.to_string()));
    linux.oom_score_adj.iter().for_each(|score| say(Kind::OomScore, "", &score.value.to_string()));
    linux.io_priority.iter().for_each(|io| say(Kind::IoPriority, "", &io.priority.to_string()));
    linux.scheduler.iter().for_each(|cpu| say(Kind::Scheduler, "", &cpu.nice.to_string()));
    linux.memory_policy.iter().for_each(|policy| say(Kind::MemoryPolicy, "", &policy.nodes));
    if !cpu.cpus.is_empty() {
        say(Kind::Cpus, "", &cpu.cpus);
    }
    words
}

/// CDI devices have a name and nothing else.
fn without_values_of_cdi(words: Words) -> Words {
    words.into_iter().filter(|((kind, _), _)| *kind != Kind::Cdi).collect()
}

/// A map of the base with the last words of one kind.
fn expected(words: &Words, kind: Kind, own: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> =
        own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for ((_, key), value) in words.iter().filter(|((of, _), _)| *of == kind) {
        match value {
            Some(value) => drop(all.insert(key.clone(), value.to_string())),
            None => drop(all.remove(key)),
        }
    }
    all
}

fn check_container(creation: &Creation, words: &Words) {
    let container = creation.container();
    let annotations: BTreeMap<_, _> = container.annotations.clone().into_iter().collect();
    assert_eq!(annotations, expected(words, Kind::Annotation, &[("A", "base")]));
    let split = |entry: &String| entry.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let env: BTreeMap<_, _> = container.env.iter().filter_map(split).collect();
    assert_eq!(env.len(), container.env.len());
    assert_eq!(env, expected(words, Kind::Env, &[("A", "base"), ("Z", "base")]));
    let mounts: BTreeMap<String, String> = container
        .mounts
        .iter()
        .map(|mount| (mount.destination[3..].to_owned(), mount.source[1..].to_owned()))
        .collect();
    assert_eq!(mounts, expected(words, Kind::Mount, &[("A", "base")]));
    let args = words.get(&(Kind::Args, String::new())).and_then(|value| value.map(|value| value.to_string()));
    assert_eq!(container.args, [args.unwrap_or_else(|| "httpd".to_owned())]);
}

proptest! {
    #[test]
    fn plugins_are_merged_as_the_model_does(plugins in vec(vec(op(), 0..12), 1..6)) {
        let mut creation = Creation::new(base());
        let mut model = Model::default();
        for (index, ops) in plugins.into_iter().enumerate() {
            let (plugin, ops) = (format!("{index}0-plugin"), sayable(ops));
            let ours = creation.apply(&plugin, &answer(|all| *all = message(&ops)));
            match (ours, model.apply(&plugin, &ops)) {
                (Ok(()), Ok(())) => {}
                (Err(AdjustError::Conflict { plugin: second, other, field, .. }), Err(conflicts)) => {
                    prop_assert_eq!(&second, &plugin);
                    let is_known = conflicts.iter().any(|(owner, _, key)| *owner == other && field.contains(key.as_str()));
                    prop_assert!(is_known, "{field} of {other} is not among {conflicts:?}");
                }
                (ours, models) => prop_assert!(false, "{ours:?}, and the model: {models:?}, after {ops:?}"),
            }
            let words = model.words();
            prop_assert_eq!(self::words(creation.adjustment()), without_values_of_cdi(words.clone()));
            let cdi: Vec<String> = creation.adjustment().cdi_devices.iter().map(|device| device.name.clone()).collect();
            prop_assert_eq!(cdi.len(), words.keys().filter(|(kind, _)| *kind == Kind::Cdi).count());
            check_container(&creation, &words);
        }
        let merged = creation.finish().expect("all of it was checked");
        prop_assert_eq!(merged.adjustment.env.len(), model.words().keys().filter(|(kind, _)| *kind == Kind::Env).count());
    }

    /// P12: no text makes anything panic.
    #[test]
    fn any_text_is_taken_or_refused(
        texts in vec(any::<String>(), 1..8),
        numbers in vec(any::<i64>(), 4),
    ) {
        let text = |index: usize| texts[index % texts.len()].clone();
        let change = answer(|all| {
            all.annotations.insert(text(0), text(1));
            all.mounts.push(mount(&text(2), &text(3)));
            all.env.push(variable(&text(4), &text(5)));
            all.args = texts.clone();
            all.cdi_devices.push(api::CDIDevice { name: text(6), ..Default::default() });
            let linux = all.linux.mut_or_insert_default();
            linux.sysctl.insert(text(1), text(2));
            linux.namespaces.push(api::LinuxNamespace { type_: text(0), path: text(1), ..Default::default() });
            linux.devices.push(api::LinuxDevice { path: text(3), type_: text(0), major: numbers[0], minor: numbers[1], ..Default::default() });
            let limits = linux.resources.mut_or_insert_default();
            limits.cpu.mut_or_insert_default().cpus = text(1);
            limits.cpu.mut_or_insert_default().quota = MessageField::some(OptionalInt64 { value: numbers[2], ..Default::default() });
            limits.unified.insert(text(5), text(6));
        });
        let mut creation = Creation::new(base());
        if let Err(error) = creation.apply("10-x", &change) {
            prop_assert!(error.to_string().contains("10-x"));
            prop_assert_eq!(creation.container(), &base());
        }
    }
}
