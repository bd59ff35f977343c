//! Inventories as they were recorded, beside records: what is a finding, and what is none.

use mainstay_messages::network::{NetworkDns, PodNetwork};
use mainstay_messages::record::{Activity, SandboxRecord, ShimRecord};
use mainstay_messages::spec::{PortMapping, Protocol};
use mainstay_messages::{ContainerSpec, SandboxSpec, Timestamp};
use rstest::rstest;

use super::*;

const POD: &str = "aaaa";
const CONTAINER: &str = "cccc";
const SHIM_PID: u32 = 100;
const INIT_PID: u32 = 200;

fn process(pid: u32) -> ProcessIdentity {
    ProcessIdentity { pid, start_ticks: u64::from(pid) * 7, boot_id: "boot".to_owned() }
}

fn pod_id() -> SandboxId {
    POD.parse().expect("an id")
}

fn container_id() -> ContainerId {
    CONTAINER.parse().expect("an id")
}

fn directories() -> Directories {
    Directories::new("/run/m", "/lib/m")
}

fn pod() -> SandboxSnapshot {
    let mut record =
        SandboxRecord::intent(pod_id(), SandboxSpec::new("web".parse().expect("a name")), Timestamp(1));
    record.phase = SandboxPhase::Ready;
    let socket = directories().shim_socket(&record.id);
    record.shim = Some(ShimRecord { process: process(SHIM_PID), socket, protocol: 1, ids: None });
    SandboxSnapshot { record, activity: None }
}

fn container() -> ContainerSnapshot {
    let spec = ContainerSpec::new("app".parse().expect("a name"), ["true"]);
    let log = directories().container_log(&pod_id(), &container_id());
    let mut record = ContainerRecord::intent(container_id(), pod_id(), spec, log, Timestamp(2));
    record.phase = ContainerPhase::Running;
    record.process = Some(process(INIT_PID));
    ContainerSnapshot { record, activity: None }
}

fn thing(kind: ThingKind, place: &str, owner: Owner) -> Thing {
    Thing { kind, place: place.to_owned(), process: None, owner, since: None }
}

fn running(kind: ThingKind, pid: u32, owner: Owner) -> Thing {
    Thing { process: Some(process(pid)), ..thing(kind, "/m/aaaa", owner) }
}

/// What a machine holds of one pod with one running container, as `take` on a real machine lists it.
fn things() -> Vec<Thing> {
    let (of_pod, of_container) = (Owner::pod(&pod_id()), Owner::container(&pod_id(), &container_id()));
    vec![
        running(ThingKind::Shim, SHIM_PID, of_pod.clone()),
        running(ThingKind::Process, INIT_PID, of_container.clone()),
        thing(ThingKind::Cgroup, "/m/aaaa", of_pod.clone()),
        thing(ThingKind::Cgroup, "/m/aaaa/pod-init", of_pod.clone()),
        thing(ThingKind::Cgroup, "/m/aaaa/cccc", of_container.clone()),
        thing(ThingKind::PodDirectory, "/run/m/p/aaaa", of_pod.clone()),
        thing(ThingKind::Socket, "/run/m/p/aaaa/shim.sock", of_pod.clone()),
        thing(ThingKind::Socket, "/run/m/p/aaaa/streams.sock", of_pod.clone()),
        thing(ThingKind::Bundle, "/run/m/p/aaaa/c/cccc", of_container.clone()),
        thing(ThingKind::ExitRecord, "/run/m/p/aaaa/c/cccc/exec-e.exit", of_container.clone()),
        thing(ThingKind::Layer, "/lib/m/layers/cccc", Owner::container_alone(&container_id())),
        thing(ThingKind::LogDirectory, "/lib/m/logs/aaaa", of_pod),
        thing(ThingKind::Log, "/lib/m/logs/aaaa/cccc.log", of_container),
    ]
}

fn view(pods: &[SandboxSnapshot], containers: &[ContainerSnapshot]) -> View {
    let shared = |one: &ContainerSnapshot| Arc::new(one.clone());
    View::new(pods.iter().cloned().map(Arc::new).collect(), containers.iter().map(shared).collect())
}

fn all(view: &View, things: Vec<Thing>, ended: &[u32]) -> Vec<Finding> {
    let ended = ended.iter().map(|pid| process(*pid)).collect();
    compare(view, &Inventory { things, ended, ..Inventory::default() }, view, &directories())
}

fn kinds(findings: &[Finding]) -> Vec<(Deviation, ThingKind)> {
    findings.iter().map(|finding| (finding.deviation, finding.kind)).collect()
}

#[test]
fn a_pod_as_it_should_be_is_clean() {
    assert_eq!(all(&view(&[pod()], &[container()]), things(), &[]), []);
    assert_eq!(all(&view(&[], &[]), vec![], &[]), []);
}

/// A store that was lost, or a removal that was forgotten half way: everything is there, and nobody knows of it.
#[test]
fn what_no_record_names_is_a_leak_each_by_its_name() {
    let findings = all(&view(&[], &[]), things(), &[]);
    assert_eq!(findings.len(), things().len());
    assert!(findings.iter().all(|finding| finding.deviation == Deviation::Leak));
    assert_eq!(findings[0].kind, ThingKind::Shim, "shims first, so that they can make nothing new");
    let shim = Leak::Shim { sandbox: pod_id(), process: process(SHIM_PID) };
    assert_eq!(findings[0].remedy, Remedy::Remove(shim));
    let remedies: HashSet<String> =
        findings.iter().map(|finding| format!("{:?}: {:?}", finding.kind, finding.remedy)).collect();
    let expect = |kind: ThingKind, leak: Leak| {
        let line = format!("{kind:?}: {:?}", Remedy::Remove(leak));
        assert!(remedies.contains(&line), "{line} is not in {remedies:#?}");
    };
    let (sandbox, container) = (pod_id(), container_id());
    expect(ThingKind::PodDirectory, Leak::Pod { sandbox: sandbox.clone() });
    expect(ThingKind::Bundle, Leak::Container { sandbox: sandbox.clone(), container: container.clone() });
    expect(ThingKind::Layer, Leak::Layer { container });
    expect(ThingKind::LogDirectory, Leak::LogDirectory { sandbox });
}

#[test]
fn a_container_that_no_record_names_is_removed_alone() {
    let findings = all(&view(&[pod()], &[]), things(), &[]);
    let mut found = kinds(&findings);
    found.sort();
    let expected = [
        ThingKind::Process,
        ThingKind::Cgroup,
        ThingKind::Bundle,
        ThingKind::ExitRecord,
        ThingKind::Layer,
        ThingKind::Log,
    ];
    assert_eq!(found, expected.map(|kind| (Deviation::Leak, kind)));
    assert!(findings.iter().all(|f| !matches!(f.remedy, Remedy::Remove(Leak::Pod { .. }))));
}

/// Two launches of one pod, of which one was forgotten: the second shim holds sockets and namespaces for ever.
#[test]
fn a_second_shim_of_a_pod_is_a_leak_and_the_first_is_not() {
    let mut things = things();
    things.push(running(ThingKind::Shim, 111, Owner::pod(&pod_id())));
    let findings = all(&view(&[pod()], &[container()]), things, &[]);
    assert_eq!(kinds(&findings), [(Deviation::Leak, ThingKind::Shim)]);
    assert_eq!(findings[0].pid, Some(111));
    assert_eq!(findings[0].reason, "the shim of pod aaaa is process 100");
}

/// "Running" for ever: the shim lost the process, or its word was lost on the way.
#[test]
fn a_container_that_runs_without_a_process_is_a_ghost() {
    let findings = all(&view(&[pod()], &[container()]), things(), &[INIT_PID]);
    assert_eq!(kinds(&findings), [(Deviation::Ghost, ThingKind::Process)]);
    assert_eq!(findings[0].pid, Some(INIT_PID));
    assert_eq!(findings[0].reason, "container cccc is running without it");
    let settle = Remedy::SettleExit { sandbox: pod_id(), container: container_id() };
    assert_eq!(findings[0].remedy, settle);
}

#[test]
fn a_pod_that_is_ready_without_a_shim_is_a_ghost() {
    let findings = all(&view(&[pod()], &[]), things()[..8].to_vec(), &[SHIM_PID]);
    let shims: Vec<_> = findings.iter().filter(|finding| finding.deviation == Deviation::Ghost).collect();
    assert_eq!(shims.len(), 1);
    assert_eq!(shims[0].kind, ThingKind::Shim);
    assert_eq!(shims[0].remedy, Remedy::SettleShimDeath { sandbox: pod_id() });
}

/// Somebody wiped /run under running pods.
#[test]
fn files_that_records_count_on_are_ghosts_when_they_are_gone() {
    let mut left = things();
    left.retain(|thing| !thing.place.starts_with("/run/m"));
    let findings = all(&view(&[pod()], &[container()]), left, &[]);
    let expected = [ThingKind::PodDirectory, ThingKind::Socket, ThingKind::Socket, ThingKind::Bundle];
    assert_eq!(kinds(&findings), expected.map(|kind| (Deviation::Ghost, kind)));
    assert!(findings.iter().all(|finding| matches!(finding.remedy, Remedy::ByHand { .. })));
}

/// An audit beside running work cried wolf: an object that somebody is at work on is not a finding, whatever is there of it
/// or is not.
#[rstest]
#[case(SandboxPhase::Starting)]
#[case(SandboxPhase::Stopping)]
#[case(SandboxPhase::Removing)]
#[case(SandboxPhase::Unknown)]
fn a_pod_in_motion_is_no_finding(#[case] phase: SandboxPhase) {
    let mut pod = pod();
    pod.record.phase = phase;
    let view = view(&[pod], &[container()]);
    assert_eq!(all(&view, things(), &[SHIM_PID, INIT_PID]), []);
    assert_eq!(all(&view, vec![], &[]), []);
}

#[rstest]
#[case(ContainerPhase::Creating)]
#[case(ContainerPhase::Starting)]
#[case(ContainerPhase::Stopping)]
#[case(ContainerPhase::Removing)]
#[case(ContainerPhase::Unknown)]
fn a_container_in_motion_is_no_finding(#[case] phase: ContainerPhase) {
    let mut container = container();
    container.record.phase = phase;
    let view = view(&[pod()], &[container]);
    assert_eq!(all(&view, things(), &[INIT_PID]), []);
}

#[test]
fn an_activity_is_motion_too() {
    let mut busy = container();
    let (operation, step) = ("stop".to_owned(), "wait for the end".to_owned());
    busy.activity = Some(Activity { operation, step, since: Timestamp(3) });
    assert_eq!(all(&view(&[pod()], &[busy]), things(), &[INIT_PID]), []);
}

/// Between the first view and the inventory a pod was made, or removed: one of the two views knows it.
#[test]
fn what_either_view_accounts_for_is_no_leak() {
    let (with, without) = (view(&[pod()], &[container()]), view(&[], &[]));
    let inventory = Inventory { things: things(), ..Inventory::default() };
    assert_eq!(compare(&with, &inventory, &without, &directories()), []);
    assert_eq!(compare(&without, &inventory, &with, &directories()), []);
}

/// Between the views a container ended: the second no longer counts on its process.
#[test]
fn only_what_both_views_count_on_can_be_a_ghost() {
    let mut ended = container();
    ended.record.phase = ContainerPhase::Exited;
    let (before, after) = (view(&[pod()], &[container()]), view(&[pod()], &[ended]));
    let mut things = things();
    things.retain(|thing| thing.kind != ThingKind::Process);
    let inventory = Inventory { things, ended: vec![process(INIT_PID)], ..Inventory::default() };
    assert_eq!(compare(&before, &inventory, &after, &directories()), []);
}

#[test]
fn a_process_of_a_container_that_has_ended_is_a_leak() {
    let mut ended = container();
    ended.record.phase = ContainerPhase::Exited;
    let findings = all(&view(&[pod()], &[ended]), things(), &[]);
    assert_eq!(kinds(&findings), [(Deviation::Leak, ThingKind::Process)]);
    let kill = Leak::ContainerProcesses { sandbox: pod_id(), container: container_id() };
    assert_eq!(findings[0].remedy, Remedy::Remove(kill));
}

#[test]
fn of_a_stopped_pod_only_layers_and_logs_are_left() {
    let (mut stopped, mut ended) = (pod(), container());
    stopped.record.phase = SandboxPhase::Stopped;
    ended.record.phase = ContainerPhase::Exited;
    let findings = all(&view(&[stopped], &[ended]), things(), &[]);
    let spared = [ThingKind::Layer, ThingKind::Log, ThingKind::LogDirectory];
    assert_eq!(findings.len(), things().len() - spared.len());
    assert!(findings.iter().all(|finding| !spared.contains(&finding.kind)));
}

#[test]
fn of_a_pod_that_lost_its_shim_nothing_runs() {
    let mut lost = pod();
    lost.record.phase = SandboxPhase::NotReady;
    let mut things = things();
    things.retain(|thing| thing.owner.container.is_none());
    things.push(running(ThingKind::Process, 300, Owner::pod(&pod_id())));
    let findings = all(&view(&[lost], &[]), things, &[]);
    assert_eq!(kinds(&findings), [ThingKind::Shim, ThingKind::Process].map(|kind| (Deviation::Leak, kind)));
    assert_eq!(findings[1].remedy, Remedy::Remove(Leak::PodProcesses { sandbox: pod_id() }));
}

/// Removing by the container's id would take the layer of the one that runs.
#[test]
fn a_bundle_in_the_wrong_pod_is_left_to_people() {
    let other: SandboxId = "bbbb".parse().expect("an id");
    let mut things = things();
    things.push(thing(ThingKind::Bundle, "/run/m/p/bbbb/c/cccc", Owner::container(&other, &container_id())));
    let findings = all(&view(&[pod()], &[container()]), things, &[]);
    assert_eq!(kinds(&findings), [(Deviation::Leak, ThingKind::Bundle)]);
    assert!(matches!(findings[0].remedy, Remedy::ByHand { .. }));
}

#[test]
fn strangers_are_named_and_never_removed() {
    let strange = vec![
        thing(ThingKind::Stranger, "/run/m/p/my notes", Owner::default()),
        thing(ThingKind::Cgroup, "/m/x y", Owner::default()),
        running(ThingKind::Process, 400, Owner::default()),
        thing(ThingKind::Mount, "/lib/m/layers/x y/mnt", Owner::default()),
    ];
    let findings = all(&view(&[], &[]), strange, &[]);
    assert_eq!(findings.len(), 4);
    assert!(findings.iter().all(|finding| matches!(finding.remedy, Remedy::ByHand { .. })));
}

#[test]
fn a_layer_is_not_missed_where_there_is_none() {
    let mut plain = container();
    plain.record.spec.rootfs = Rootfs::Directory { path: "/srv/root".into() };
    let mut things = things();
    things.retain(|thing| thing.kind != ThingKind::Layer);
    assert_eq!(all(&view(&[pod()], &[plain]), things.clone(), &[]), []);
    let findings = all(&view(&[pod()], &[container()]), things, &[]);
    assert_eq!(kinds(&findings), [(Deviation::Ghost, ThingKind::Layer)]);
}

#[test]
fn a_container_without_its_pod_and_a_name_for_two_are_ghosts() {
    let findings = all(&view(&[], &[container()]), things(), &[]);
    let records: Vec<_> = findings.iter().filter(|finding| finding.kind == ThingKind::Record).collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].place, POD);

    let mut twin = pod();
    twin.record.id = "bbbb".parse().expect("an id");
    twin.record.phase = SandboxPhase::Stopped;
    let findings = all(&view(&[pod(), twin], &[container()]), things(), &[]);
    assert_eq!(kinds(&findings), [(Deviation::Ghost, ThingKind::Name); 2]);
    assert_eq!(findings[0].place, "web");
}

#[test]
fn what_runs_is_counted_as_the_records_have_it_and_as_the_kernel_has_it() {
    let mut things = things();
    let stranger = Owner::pod(&"eeee".parse().expect("an id"));
    things.push(running(ThingKind::Shim, 300, stranger));
    let inventory = Inventory { things, ..Inventory::default() };
    let (containers, shims) = super::running(&inventory, &view(&[pod()], &[container()]));
    assert_eq!(containers, Running { by_records: 1, by_kernel: 1 });
    assert_eq!(shims, Running { by_records: 1, by_kernel: 2 });
    let (containers, shims) = super::running(&inventory, &view(&[], &[]));
    assert_eq!((containers.by_records, shims.by_records), (0, 0));
}

/// The pod with a network, and what the machine has of that.
fn attached() -> (SandboxSnapshot, Vec<Thing>) {
    let mut pod = pod();
    pod.record.spec.network = Network::Builtin;
    pod.record.spec.ports =
        vec![PortMapping { protocol: Protocol::Tcp, host_ip: None, host_port: 80, pod_port: 80 }];
    pod.record.network = Some(PodNetwork {
        name: "builtin".into(),
        namespace: "/run/netns/m-aaaa".into(),
        link: "eth0".into(),
        ips: Vec::new(),
        mac: None,
        mtu: None,
        dns: NetworkDns::default(),
    });
    let of_network = [
        (ThingKind::FirewallRule, "rule 7"),
        (ThingKind::NetworkLink, "ms7"),
        (ThingKind::BridgePort, "ms7"),
        (ThingKind::NetworkNamespace, "/run/netns/m-aaaa"),
        (ThingKind::AddressLease, "/lib/m/network/aaaa"),
    ];
    let of_network = of_network.map(|(kind, place)| thing(kind, place, Owner::pod(&pod_id())));
    let of_pod = things().into_iter().filter(|thing| thing.owner.container.is_none());
    (pod, of_pod.chain(of_network).collect())
}

#[test]
fn a_network_goes_whole_when_nothing_accounts_for_it() {
    let (mut pod, things) = attached();
    assert_eq!(all(&view(&[pod.clone()], &[]), things.clone(), &[]), []);
    let of_network = |findings: Vec<Finding>| -> Vec<Finding> {
        findings.into_iter().filter(|finding| network::is_of_network(finding.kind)).collect()
    };
    let remedy = Remedy::Remove(Leak::Network { sandbox: pod_id() });
    let unknown = of_network(all(&view(&[], &[]), things.clone(), &[]));
    assert_eq!(unknown.len(), 5);
    assert!(unknown.iter().all(|finding| finding.remedy == remedy), "{unknown:#?}");
    pod.record.network = None;
    pod.record.spec.network = Network::None;
    let without = all(&view(&[pod.clone()], &[]), things.clone(), &[]);
    assert_eq!(without.len(), 4, "a name it may have all the same: {without:#?}");
    assert!(without.iter().all(|finding| finding.remedy == remedy), "{without:#?}");
    pod.record.phase = SandboxPhase::Stopped;
    pod.record.shim = None;
    assert_eq!(of_network(all(&view(&[pod], &[]), things, &[])).len(), 5);
}

/// A record was rebuilt while the network could not be asked, and a repair took the network from the pod that ran with it.
#[test]
fn what_a_ready_pod_may_use_is_not_taken_from_it_because_its_record_is_poor() {
    let (mut pod, things) = attached();
    pod.record.network = None;
    let findings = all(&view(&[pod.clone()], &[]), things.clone(), &[]);
    assert_eq!(findings.len(), 4, "{findings:#?}");
    assert!(findings.iter().all(|finding| matches!(finding.remedy, Remedy::ByHand { .. })), "{findings:#?}");
    pod.record.phase = SandboxPhase::Stopped;
    let stopped = all(&view(&[pod], &[]), things, &[]);
    assert!(stopped.iter().all(|finding| matches!(finding.remedy, Remedy::Remove(_))), "{stopped:#?}");
}

/// A bridge that somebody else had made failed each audit, or made ghosts of all leases and links.
#[test]
fn nothing_is_missed_of_a_network_that_could_not_be_looked_at() {
    let (pod, mut things) = attached();
    things.retain(|thing| !network::needs_attachment(thing.kind));
    let view = view(&[pod], &[]);
    let look = |unseen: &[Network]| {
        let inventory =
            Inventory { things: things.clone(), ended: Vec::new(), unseen_networks: unseen.to_vec() };
        kinds(&compare(&view, &inventory, &view, &directories()))
    };
    assert_eq!(look(&[Network::Builtin]), []);
    let lost =
        [ThingKind::FirewallRule, ThingKind::NetworkLink, ThingKind::BridgePort, ThingKind::AddressLease];
    assert_eq!(look(&[Network::Cni]), lost.map(|kind| (Deviation::Ghost, kind)));
}

#[test]
fn what_a_pod_has_lost_of_its_network_is_restored_where_the_lease_says_how() {
    let (pod, things) = attached();
    let without = |lost: &[ThingKind]| {
        let left = things.iter().filter(|thing| !lost.contains(&thing.kind)).cloned();
        all(&view(std::slice::from_ref(&pod), &[]), left.collect(), &[])
    };
    let findings = without(&[ThingKind::FirewallRule, ThingKind::NetworkLink]);
    let expected = [ThingKind::FirewallRule, ThingKind::NetworkLink].map(|kind| (Deviation::Ghost, kind));
    assert_eq!(kinds(&findings), expected);
    let restore = Remedy::RestoreNetwork { sandbox: pod_id() };
    assert!(findings.iter().all(|finding| finding.remedy == restore), "{findings:#?}");
    let findings = without(&[ThingKind::FirewallRule, ThingKind::AddressLease]);
    assert!(findings.iter().all(|finding| matches!(finding.remedy, Remedy::ByHand { .. })), "{findings:#?}");
}
