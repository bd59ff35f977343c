use super::*;
use crate::spec::Protocol;

fn pools() -> Vec<Pool> {
    let pool = |key, range: &str| Pool { key, range: range.parse().expect("a range") };
    vec![pool("network.ipv4", "10.0.0.0/29"), pool("network.ipv6", "fd00::/64")]
}

fn pod(number: usize) -> SandboxId {
    format!("pod-{number}").parse().expect("an id")
}

fn keep(ledger: &Ledger, number: usize) -> Result<Lease, NetworkError> {
    ledger.keep(&pod(number), &AttachSpec::default())
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path());
    entries.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
}

#[test]
fn a_restart_changes_no_byte_and_forgets_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    let first = keep(&ledger, 1).expect("free");
    let second = keep(&ledger, 2).expect("free");
    drop(ledger);
    let before = files(directory.path());
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    assert_eq!(files(directory.path()), before);
    assert_eq!(ledger.leases(), [first.clone(), second]);
    assert_eq!(keep(&ledger, 1).expect("kept"), first, "a repeated request gets the same");
    assert_eq!(keep(&ledger, 3).expect("free").ips[0].to_string(), "10.0.0.4");
}

#[test]
fn a_full_range_is_an_error_with_its_size_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    for number in 0..5 {
        keep(&ledger, number).expect("free");
    }
    let text = keep(&ledger, 5).expect_err("full").to_string();
    assert!(text.contains("network.ipv4") && text.contains("all 5 addresses of 10.0.0.0/29"), "{text}");
    assert!(!directory.path().join(pod(5).as_str()).exists());
    ledger.release(&pod(3)).expect("released");
    let again = keep(&ledger, 5).expect("free");
    assert_eq!(again.ips[0].to_string(), "10.0.0.5", "the only free one");
}

/// A lease that a disk had damaged must neither keep the daemon from starting nor vanish with its pod's link still there.
#[test]
fn a_damaged_lease_is_listed_and_goes_with_its_pod() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    keep(&ledger, 1).expect("free");
    drop(ledger);
    let path = directory.path().join(pod(1).as_str());
    let mut bytes = fs::read(&path).expect("readable");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&path, bytes).expect("writable");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens all the same");
    let listed = ledger.unreadable();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].pod, Some(pod(1)));
    assert!(keep(&ledger, 1).is_err());
    assert!(ledger.release(&pod(1)).expect("released"));
    assert_eq!(ledger.unreadable(), []);
    assert!(!path.exists());
}

#[test]
fn two_processes_never_share_the_leases() {
    let directory = tempfile::tempdir().expect("a directory");
    let _first = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    let second = Ledger::open(directory.path(), "mainstay0", pools());
    assert!(matches!(second, Err(NetworkError::Locked { .. })));
}

#[test]
fn ports_and_addresses_belong_to_one_pod() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    let mapping = |host_ip: Option<&str>| PortMapping {
        protocol: Protocol::Tcp,
        host_ip: host_ip.map(|ip| ip.parse().expect("an address")),
        host_port: 80,
        pod_port: 80,
    };
    let spec = |host_ip, ip: &str| AttachSpec {
        ports: vec![mapping(host_ip)],
        ips: vec![ip.parse().expect("an address")],
        mac: None,
    };
    ledger.keep(&pod(1), &spec(Some("192.0.2.1"), "10.0.0.5")).expect("free");
    ledger.keep(&pod(2), &spec(Some("192.0.2.2"), "10.0.0.6")).expect("another host address");
    let taken = ledger.keep(&pod(3), &spec(None, "10.0.0.4")).expect_err("taken");
    assert!(matches!(taken, NetworkError::PortTaken { .. }), "{taken}");
    let mut same_address = spec(None, "10.0.0.5");
    same_address.ports.clear();
    let taken = ledger.keep(&pod(3), &same_address).expect_err("taken");
    assert!(taken.to_string().contains("pod-1"), "{taken}");
    let gateway = AttachSpec { ips: vec!["10.0.0.1".parse().expect("an address")], ..AttachSpec::default() };
    assert!(ledger.keep(&pod(3), &gateway).is_err(), "the gateway's address");
    let other = ledger.keep(&pod(1), &AttachSpec::default()).expect_err("other ports");
    assert!(matches!(other, NetworkError::Differs { what: "ports", .. }), "{other}");
}

/// What a process was writing when it was killed is no lease, and nothing that stays.
#[test]
fn half_a_lease_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(".new7"), "half").expect("written");
    let ledger = Ledger::open(directory.path(), "mainstay0", pools()).expect("opens");
    assert_eq!(ledger.unreadable(), []);
    let left: Vec<_> = files(directory.path()).into_keys().collect();
    assert_eq!(left, [directory.path().join(".lock")]);
}
