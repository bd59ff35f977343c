//! What plugins may do, one by one.

use mainstay_messages::adjustment::MountChange;
use mainstay_messages::network::{PodAddress, PodNetwork};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::spec::CpuTime;
use mainstay_messages::{ContainerSpec, SandboxSpec, Timestamp};
use mainstay_nri_api as api;
use mainstay_nri_api::{
    ContainerEviction, ContainerUpdate, CreateContainerResponse, Field, LinuxResources, MessageField,
    OptionalInt64,
};

use super::{answer, base, mount, variable};
use crate::adjust::{Change, Changed, Creation, Failure, PodFacts, container, described_limits};

fn memory(limit: i64) -> LinuxResources {
    let mut resources = LinuxResources::new();
    resources.memory.mut_or_insert_default().limit =
        MessageField::some(OptionalInt64 { value: limit, ..Default::default() });
    resources
}

fn update(container: &str, resources: LinuxResources, ignore_failure: bool) -> ContainerUpdate {
    let linux = api::LinuxContainerUpdate { resources: MessageField::some(resources), ..Default::default() };
    ContainerUpdate {
        container_id: container.to_owned(),
        linux: MessageField::some(linux),
        ignore_failure,
        ..Default::default()
    }
}

fn eviction(container: &str) -> ContainerEviction {
    ContainerEviction {
        container_id: container.to_owned(),
        reason: "too loud".to_owned(),
        ..Default::default()
    }
}

fn refused(change: impl FnOnce(&mut api::ContainerAdjustment)) -> String {
    let mut creation = Creation::new(base());
    let error = creation.apply("10-a", &answer(change)).expect_err("refused");
    assert_eq!(creation.container(), &base());
    error.to_string()
}

#[test]
fn a_conflict_names_both_plugins_and_the_entry() {
    let mut creation = Creation::new(base());
    creation.apply("10-a", &answer(|all| all.env.push(variable("X", "1")))).expect("the first");
    let error =
        creation.apply("20-b", &answer(|all| all.env.push(variable("X", "2")))).expect_err("the second");
    assert_eq!(
        error.to_string(),
        "plugins 20-b and 10-a both change env[\"X\"] of container box; one of them may"
    );
    assert_eq!(creation.owners().owner("box", Field::Env, Some("X")), Some("10-a"));
}

#[test]
fn who_takes_away_may_set_anew_and_nobody_else() {
    let mut creation = Creation::new(base());
    creation.apply("10-a", &answer(|all| all.mounts.push(mount("/x", "/a")))).expect("set");
    let replace = answer(|all| all.mounts = vec![mount("-/x/", ""), mount("/x", "/b")]);
    creation.apply("20-b", &replace).expect("replaced");
    let take = answer(|all| all.mounts.push(mount("-/x", "")));
    creation.apply("30-c", &take).expect("taken away");
    let error = creation.apply("40-d", &answer(|all| all.mounts.push(mount("/x", "/d"))));
    assert!(error.expect_err("not its own").to_string().contains("40-d and 30-c"));
    let merged = creation.finish().expect("checked");
    assert_eq!(merged.adjustment.mounts, [MountChange::Remove { destination: "/x".into() }]);
}

#[test]
fn a_command_is_replaced_or_taken_back() {
    let args = |args: &[&str]| answer(|all| all.args = args.iter().map(|arg| (*arg).to_owned()).collect());
    let mut creation = Creation::new(base());
    creation.apply("10-a", &args(&["sh", "-c"])).expect("set");
    creation.apply("20-b", &args(&["echo"])).expect_err("has an owner");
    creation.apply("20-b", &args(&["", "echo", ""])).expect("overridden");
    assert_eq!(creation.container().args, ["echo", ""]);
    creation.apply("30-c", &args(&[""])).expect("taken back");
    assert_eq!(creation.container().args, ["httpd"]);
    assert_eq!(creation.finish().expect("checked").adjustment.args, None);
}

#[test]
fn hooks_add_up_and_their_owners_with_them() {
    let hook = |path: &str| {
        answer(|all| {
            let hook = api::Hook { path: path.to_owned(), ..Default::default() };
            all.hooks.mut_or_insert_default().create_runtime.push(hook);
        })
    };
    let mut creation = Creation::new(base());
    creation.apply("10-a", &hook("/a")).expect("the first");
    creation.apply("20-b", &hook("/b")).expect("the second");
    let request = creation.validation(&Default::default(), Vec::new());
    let owners = &request.owners.owners["box"];
    assert_eq!(owners.simple[&(Field::OciHooks as i32)], "10-a,20-b");
    assert_eq!(request.container.as_ref(), Some(&base()));
    assert_eq!(creation.finish().expect("checked").adjustment.hooks.create_runtime.len(), 2);
}

#[test]
fn validators_see_owners_of_entries() {
    let mut creation = Creation::new(base());
    creation
        .apply("10-a", &answer(|all| all.env = vec![variable("X", "1"), variable("-A", "")]))
        .expect("good");
    creation.apply("20-b", &answer(|all| all.env = vec![variable("-X", "")])).expect("good");
    let request = creation.validation(&Default::default(), Vec::new());
    let env = &request.owners.owners["box"].compound[&(Field::Env as i32)].owners;
    assert_eq!(env.iter().collect::<Vec<_>>(), [(&"X".to_owned(), &"-20-b".to_owned())]);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    type Case = (&'static str, fn(&mut api::ContainerAdjustment));
    let cases: [Case; 17] = [
        ("linux.cgroups_path", |all| all.linux.mut_or_insert_default().cgroups_path = "/x".into()),
        ("linux.rdt", |all| {
            let rdt = all.linux.mut_or_insert_default().rdt.mut_or_insert_default();
            rdt.clos_id.mut_or_insert_default().value = "x".into();
        }),
        ("linux.resources.rdt_class", |all| {
            let limits = all.linux.mut_or_insert_default().resources.mut_or_insert_default();
            limits.rdt_class.mut_or_insert_default().value = "x".into();
        }),
        ("linux.resources.blockio_class", |all| {
            let limits = all.linux.mut_or_insert_default().resources.mut_or_insert_default();
            limits.blockio_class.mut_or_insert_default().value = "x".into();
        }),
        ("linux.seccomp_policy.listener_path", |all| {
            let policy = all.linux.mut_or_insert_default().seccomp_policy.mut_or_insert_default();
            policy.listener_path = "/x".into();
        }),
        ("linux.namespaces[\"mount\"]", |all| {
            let space = api::LinuxNamespace { type_: "mount".into(), ..Default::default() };
            all.linux.mut_or_insert_default().namespaces.push(space);
        }),
        ("mounts[0].destination", |all| all.mounts.push(mount("x", "/a"))),
        ("mounts[0].destination", |all| all.mounts.push(mount("/a/../b", "/a"))),
        ("mounts[0].source", |all| all.mounts.push(mount("/x", "a"))),
        ("env[0].key", |all| all.env.push(variable("A=B", ""))),
        ("env[\"A\"]", |all| all.env.push(variable("A", "\0"))),
        ("args[0]", |all| all.args = vec![String::new(), String::new()]),
        ("annotations", |all| drop(all.annotations.insert("dev.mainstay.user".into(), "root".into()))),
        ("rlimits[0].type", |all| {
            all.rlimits.push(api::POSIXRlimit { type_: "RLIMIT_X".into(), ..Default::default() });
        }),
        ("CDI_devices[0].name", |all| {
            all.cdi_devices.push(api::CDIDevice { name: "gpu".into(), ..Default::default() });
        }),
        ("hooks.poststop[0].path", |all| {
            all.hooks.mut_or_insert_default().poststop.push(api::Hook::new());
        }),
        ("linux.net_devices", |all| {
            let devices = &mut all.linux.mut_or_insert_default().net_devices;
            devices.insert("an/interface".into(), Default::default());
        }),
    ];
    for (field, change) in cases {
        let error = refused(change);
        assert!(error.starts_with(&format!("plugin 10-a: {field}")), "{error}");
    }
}

#[test]
fn too_much_is_refused() {
    let many = refused(|all| all.env = vec![variable("A", ""); 5_000]);
    assert!(many.contains("5000 entries"), "{many}");
    let mut creation = Creation::new(base());
    let large = |key: &'static str| {
        let value = "x".repeat(100_000);
        answer(|all| all.env = (0..8).map(|n| variable(&format!("{key}{n}"), &value)).collect())
    };
    creation.apply("10-a", &large("A")).expect("below the limit");
    let error = creation.apply("20-b", &large("B")).expect_err("together above it").to_string();
    assert!(error.starts_with("plugin 20-b: adjust:"), "{error}");
}

#[test]
fn others_are_updated_once_and_evicted_once() {
    let mut creation = Creation::new(base());
    let both = CreateContainerResponse {
        update: vec![update("other", memory(5), true), update("third", memory(6), false)],
        evict: vec![eviction("third")],
        ..Default::default()
    };
    creation.apply("10-a", &both).expect("good");
    let again = CreateContainerResponse {
        // A conflict that may be ignored, and with it all of this update.
        update: vec![update("other", memory(7), true)],
        evict: vec![eviction("third")],
        ..Default::default()
    };
    creation.apply("20-b", &again).expect("ignored");
    let fatal =
        CreateContainerResponse { update: vec![update("other", memory(7), false)], ..Default::default() };
    let error = creation.apply("30-c", &fatal).expect_err("a conflict").to_string();
    assert!(error.contains("linux.resources.memory.limit of container other"), "{error}");
    let merged = creation.finish().expect("checked");
    // The one that is to go gets no limits.
    assert_eq!(merged.others.len(), 1);
    assert_eq!((merged.others[0].limits.memory_bytes, merged.others[0].failure), (Some(5), Failure::Ignored));
    assert_eq!((merged.evictions.len(), merged.evictions[0].plugin.as_str()), (1, "10-a"));
}

#[test]
fn the_container_that_is_created_is_neither_updated_nor_evicted() {
    let mut creation = Creation::new(base());
    let own = CreateContainerResponse { update: vec![update("box", memory(5), true)], ..Default::default() };
    assert!(creation.apply("10-a", &own).expect_err("own").to_string().contains("to update container box"));
    let own = CreateContainerResponse { evict: vec![eviction("box")], ..Default::default() };
    assert!(creation.apply("10-a", &own).expect_err("own").to_string().contains("to evict container box"));
}

#[test]
fn an_update_is_changed_plugin_by_plugin() {
    let asked = mainstay_messages::spec::Resources {
        memory_bytes: Some(64),
        cpu_time: Some(CpuTime::of_millis(500)),
        // A container that had such files could not be updated at all, with any plugin there: they went through the same check as what
        // plugins ask for.
        unified: [("memory.high".to_owned(), "5".to_owned())].into(),
        ..Default::default()
    };
    let mut change = Change::update("box", described_limits(&asked));
    let changed = |updates: &[ContainerUpdate]| updates.to_vec();
    let first = changed(&[update("box", memory(32), false), update("other", memory(5), false)]);
    change.apply("10-a", Changed { updates: &first, evictions: &[] }).expect("good");
    let seen = change.resources().expect("its limits").memory.limit.value;
    assert_eq!(seen, 32);
    let second = changed(&[update("box", memory(16), false)]);
    change.apply("20-b", Changed { updates: &second, evictions: &[] }).expect_err("has an owner");
    let mut unified = LinuxResources::new();
    unified.unified.insert("memory.high".to_owned(), "1".to_owned());
    let third = changed(&[update("box", unified, false)]);
    let error =
        change.apply("30-c", Changed { updates: &third, evictions: &[] }).expect_err("not while it runs");
    assert!(error.to_string().contains("linux.resources.unified"), "{error}");
    let merged = change.finish().expect("checked");
    let limits = merged.limits.expect("of the target");
    assert_eq!((limits.memory_bytes, limits.cpu_time), (Some(32), Some(CpuTime::of_millis(500))));
    assert_eq!(merged.others.len(), 1);
}

/// What plugins are told of a container afterwards is what they made of it.
#[test]
fn a_container_is_described_with_its_adjustment() {
    let mut spec = ContainerSpec::new("web".parse().expect("a name"), ["httpd"]);
    spec.process.env.insert("A".to_owned(), "1".to_owned());
    spec.process.user = Some("7:8".to_owned());
    let (id, pod) = ("box".parse().expect("an id"), "pod".parse().expect("an id"));
    let record = ContainerRecord::intent(id, pod, spec, "/log".into(), Timestamp(5));
    let facts = PodFacts { cgroup: "/mainstay/pod".to_owned(), ..PodFacts::default() };
    let mut creation = Creation::new(container(&record, &facts));
    let change = answer(|all| {
        all.env = vec![variable("-A", ""), variable("B", "2")];
        all.args = vec!["sh".to_owned()];
        all.annotations.insert("seen".to_owned(), "yes".to_owned());
        all.mounts.push(mount("/data", "/srv"));
        all.linux.mut_or_insert_default().resources = MessageField::some(memory(1 << 26));
    });
    creation.apply("10-a", &change).expect("good");
    let expected = creation.container().clone();
    let record = record.adjusted(creation.finish().expect("checked").adjustment);
    assert_eq!(record.limits().memory_bytes, Some(1 << 26));
    let seen = container(&record, &facts);
    assert_eq!((&seen.env, &seen.args, &seen.mounts), (&expected.env, &expected.args, &expected.mounts));
    assert_eq!((&seen.annotations, seen.user.uid, seen.user.gid), (&expected.annotations, 7, 8));
    assert_eq!(seen.linux.cgroups_path, "/mainstay/pod/box");
    assert_eq!(seen.linux.resources.memory.limit.value, 1 << 26);
    let stored = serde_json::to_string(&record).expect("writable");
    assert_eq!(serde_json::from_str::<ContainerRecord>(&stored).expect("readable"), record);
}

/// Pods had networks, and plugins saw no addresses.
#[test]
fn a_pod_is_described_with_its_network_and_its_kubernetes_names() {
    let mut spec = SandboxSpec::new("web".parse().expect("a name"));
    spec.labels.insert("io.kubernetes.pod.namespace".to_owned(), "shop".to_owned());
    spec.labels.insert("io.kubernetes.pod.uid".to_owned(), "4f1d".to_owned());
    let mut record = SandboxRecord::intent("pod".parse().expect("an id"), spec, Timestamp(5));
    let bare = PodFacts::of(&record, "/mainstay/pod".to_owned());
    assert!(bare.ips.is_empty() && bare.namespaces.is_empty(), "it has none yet");
    let address = |ip: &str| PodAddress { ip: ip.parse().expect("an address"), prefix: 24, gateway: None };
    record.network = Some(PodNetwork {
        name: "builtin".to_owned(),
        namespace: "/run/netns/pod".into(),
        link: "eth0".to_owned(),
        ips: vec![address("10.89.0.2"), address("fd00:89::2")],
        mac: None,
        mtu: None,
        dns: Default::default(),
    });
    let seen = crate::adjust::pod(&record, &PodFacts::of(&record, "/mainstay/pod".to_owned()));
    assert_eq!(seen.ips, ["10.89.0.2", "fd00:89::2"]);
    assert_eq!((seen.namespace.as_str(), seen.uid.as_str()), ("shop", "4f1d"));
    assert_eq!(seen.linux.cgroup_parent, "/mainstay/pod");
    let namespaces: Vec<_> =
        seen.linux.namespaces.iter().map(|own| (own.type_.as_str(), own.path.as_str())).collect();
    assert_eq!(namespaces, [("network", "/run/netns/pod")]);
}
