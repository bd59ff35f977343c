//! Plugins: those of Debian, and fakes that fail, hang and flood.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mainstay_network::Protocol;
use mainstay_network::cni::{Cni, CniError, CniRequest, CniSettings};

use crate::world::{Namespace, World, mapping, pod};

/// Where Debian puts the plugins.
const DEBIAN: &str = "/usr/lib/cni";
/// Far more than a fake takes that does not hang, in milliseconds.
const TIMEOUT_MS: u64 = 20_000;

/// More than any list here has.
const PLUGINS_MAX: u64 = 4;

/// A directory with a list and fakes.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(list: &str) -> Self {
        let bench = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(bench.path("conf")).expect("made");
        fs::create_dir(bench.path("bin")).expect("made");
        bench.write_list(list);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write_list(&self, list: &str) {
        fs::write(self.path("conf/10-test.conflist"), list).expect("written");
    }

    /// A plugin that logs each call and runs some lines of shell; `$dir` is the bench.
    fn fake(&self, name: &str, body: &str) {
        let directory = self.0.path().display();
        let script = format!(
            "#!/bin/sh\ndir={directory}\ncat > $dir/{name}.$CNI_COMMAND.input\n\
             echo \"{name} $CNI_COMMAND netns=$CNI_NETNS\" >> $dir/log\n{body}\n"
        );
        // Another process writes it: a descriptor of this one could be with a child of another test, and a program that
        // somebody has open to write cannot be run.
        let write = r#"printf %s "$1" > "$2.new" && chmod 755 "$2.new" && mv "$2.new" "$2""#;
        let path = self.path(&format!("bin/{name}"));
        let status = Command::new("sh").args(["-c", write, "sh", &script]).arg(path).status();
        assert!(status.expect("sh runs").success());
    }

    fn open_with(&self, timeout_ms: u64) -> Cni {
        self.open_with_both(timeout_ms, PLUGINS_MAX * timeout_ms)
    }

    fn open_with_both(&self, timeout_ms: u64, chain_timeout_ms: u64) -> Cni {
        let settings = CniSettings {
            conf_dir: self.path("conf"),
            plugin_dirs: vec![self.path("bin"), DEBIAN.into()],
            directory: self.path("records"),
            cache_dir: self.path("cache"),
            timeout: Duration::from_millis(timeout_ms),
            chain_timeout: Duration::from_millis(chain_timeout_ms),
        };
        Cni::open(settings).expect("opens")
    }

    fn open(&self) -> Cni {
        self.open_with(TIMEOUT_MS)
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let _ = fs::remove_file(self.path("log"));
        text.lines().map(|line| line.split(" netns=").next().unwrap_or_default().to_owned()).collect()
    }

    fn input(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.input"))).expect("called")
    }
}

const RESULT: &str = r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}'"#;
const TWO: &str = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [
    {"type": "one"}, {"type": "two", "capabilities": {"portMappings": true}}]}"#;
/// A path that leads to no namespace.
const NOWHERE: &str = "/proc/self/ns/nothing";

fn attach(cni: &Cni) -> Result<mainstay_network::cni::CniResult, CniError> {
    cni.attach(&pod("one"), Path::new(NOWHERE), &CniRequest::default())
}

#[test]
fn debians_plugins_give_a_pod_an_address_and_take_it_back() {
    let Some(world) = World::new() else { return };
    if !Path::new(DEBIAN).join("bridge").exists() {
        assert!(
            std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_none(),
            "containernetworking-plugins is not there"
        );
        eprintln!("skipped: containernetworking-plugins is not installed");
        return;
    }
    let bench = Bench::new("");
    let leases = bench.path("leases");
    bench.write_list(&format!(
        r#"{{"cniVersion": "1.0.0", "name": "debian", "plugins": [{{"type": "bridge", "bridge": "cni9", "isGateway": true,
        "ipam": {{"type": "host-local", "dataDir": {leases:?},
        "ranges": [[{{"subnet": "10.91.0.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
        {{"type": "tuning", "sysctl": {{"net.core.somaxconn": "99"}}}}]}}"#
    ));
    let cni = bench.open();
    let inside = Namespace::make();
    let path = PathBuf::from(inside.path());
    world.host.run(|| cni.status()).expect("ready");
    let request = CniRequest::default();
    let result = world.host.run(|| cni.attach(&pod("one"), &path, &request)).expect("attached");
    assert_eq!(result.ips[0].ip.to_string(), "10.91.0.2/24");
    assert_eq!(result.ips[0].gateway.map(|ip| ip.to_string()).as_deref(), Some("10.91.0.1"));
    assert!(inside.ip("addr show eth0").contains("10.91.0.2/24"));
    let again = world.host.run(|| cni.attach(&pod("one"), &path, &request)).expect("again");
    assert_eq!(again, result);
    world.host.run(|| cni.check(&pod("one"))).expect("as it should be");
    drop(cni);
    let cni = bench.open();
    assert_eq!(cni.list().len(), 1, "known after a restart");
    drop(inside);
    world.host.run(|| cni.detach(&pod("one"), None)).expect("without the namespace");
    assert!(!leases.join("debian/10.91.0.2").exists(), "the address is free");
    assert!(cni.list().is_empty());
    // The kernel takes its time with the links of a namespace that is gone.
    crate::world::until("no link is left", || world.links() == ["lo", "up0", "cni9"]);
}

/// ADD fails in the second plugin and DEL fails three times after that; the address of the first leaked with each retry in the
/// field, because DEL was skipped when ADD had failed (containerd 5768, 12130, 12923).
#[test]
fn every_add_has_a_del_however_often_it_fails() {
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    let fail = r#"echo '{"code": 11, "msg": "not now", "details": "busy"}'; exit 1"#;
    let body = format!(
        "if [ $CNI_COMMAND = ADD ]; then {fail}; fi\nn=$(cat $dir/n 2>/dev/null || echo 0)\n\
         echo $((n+1)) > $dir/n\nif [ $n -lt 3 ]; then {fail}; fi"
    );
    bench.fake("two", &body);
    let cni = bench.open();
    let error = attach(&cni).expect_err("refused").to_string();
    assert_eq!(error, "ADD of the CNI plugin two failed: not now (busy), code 11");
    assert_eq!(bench.log(), ["one ADD", "two ADD"]);
    let error = attach(&cni).expect_err("not again before DEL");
    assert!(matches!(error, CniError::Unfinished { .. }), "{error}");
    // The file changes, the record does not.
    bench.write_list(r#"{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "three"}]}"#);
    for _ in 0..3 {
        cni.detach(&pod("one"), None).expect_err("fails");
        assert_eq!(bench.log(), ["two DEL", "one DEL"], "the first is run although the second failed");
        assert_eq!(cni.list().len(), 1, "visible until it worked");
    }
    cni.detach(&pod("one"), None).expect("worked");
    assert!(cni.list().is_empty());
    cni.detach(&pod("one"), None).expect("nothing to do");
}

#[test]
fn a_plugin_that_hangs_or_floods_is_killed_and_named() {
    let bench = Bench::new(TWO);
    bench.fake("one", "sleep 1000 & sleep 1000");
    bench.fake("two", RESULT);
    let cni = bench.open_with(300);
    let error = attach(&cni).expect_err("late").to_string();
    assert_eq!(error, "ADD of the CNI plugin one did not end within 300 ms and was killed");
    drop(cni);
    bench.fake("one", "while :; do echo 0123456789012345678901234567890123456789; done");
    let cni = bench.open();
    let error = cni.detach(&pod("one"), None).expect_err("flooded").to_string();
    assert!(error.contains("DEL of the CNI plugin one failed: it wrote more than"), "{error}");
    bench.fake("one", "sleep 1000 & echo $! > $dir/pid");
    cni.detach(&pod("one"), None).expect("a child that lives on holds nobody up");
    let child = fs::read_to_string(bench.path("pid")).expect("started").trim().parse().expect("a number");
    let child = rustix::process::Pid::from_raw(child).expect("a process");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it lives on");
    bench.fake("one", "echo garbage");
    let error = attach(&cni).expect_err("garbage").to_string();
    assert_eq!(error, "ADD of the CNI plugin one failed: it answered no JSON");
    cni.detach(&pod("one"), None).expect("DEL needs no answer");
}

/// Each plugin had a deadline of its own: two that hung in DEL took longer together than the network has to let a pod go, so that
/// its step failed although the work went on behind it.
#[test]
fn plugins_that_hang_share_the_time_of_their_list() {
    const CHAIN_MS: u64 = 400;
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    let cni = bench.open();
    attach(&cni).expect("attached");
    drop(cni);
    bench.fake("one", "sleep 1000");
    bench.fake("two", "sleep 1000");
    bench.log();
    let cni = bench.open_with_both(TIMEOUT_MS, CHAIN_MS);
    let error = cni.detach(&pod("one"), None).expect_err("both hang");
    let CniError::Timeout { plugin, command: "DEL", after_ms } = &error else { panic!("{error}") };
    assert_eq!(plugin, "two");
    assert!(*after_ms <= u128::from(CHAIN_MS / 2), "half of it is for the other one: {error}");
    assert_eq!(bench.log(), ["two DEL", "one DEL"], "each has its turn in each try");
    assert_eq!(cni.list().len(), 1, "what it stands for is still there");
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    drop(cni);
    bench.open().detach(&pod("one"), None).expect("the next try works");
    assert_eq!(bench.log(), ["two DEL", "one DEL"]);
}

#[test]
fn plugins_get_what_the_specification_says() {
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    let cni = bench.open();
    let request = CniRequest {
        ports: vec![mapping(Protocol::Udp, 53, 5353)],
        args: vec![("K8S_POD_NAME".into(), "web".into())],
        ..CniRequest::default()
    };
    cni.attach(&pod("one"), Path::new(NOWHERE), &request).expect("attached");
    assert!(!bench.input("one.ADD").contains("runtimeConfig"));
    let second = bench.input("two.ADD");
    for part in
        [r#""containerPort":5353"#, r#""hostPort":53"#, r#""protocol":"udp""#, r#""address":"10.1.0.2/24""#]
    {
        assert!(second.contains(part), "{part} in {second}");
    }
    cni.detach(&pod("one"), None).expect("detached");
    assert!(bench.input("one.DEL").contains("prevResult"));
    let log = fs::read_to_string(bench.path("log")).expect("called");
    assert!(log.ends_with("one DEL netns=\n"), "a namespace that is gone is no path: {log}");
}

#[test]
fn status_and_garbage_collection_are_for_1_1_0() {
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    let cni = bench.open();
    attach(&cni).expect("attached");
    bench.log();
    cni.status().expect("ready");
    cni.collect_garbage().expect("nothing to do");
    assert_eq!(bench.log(), Vec::<String>::new());
    bench.write_list(&TWO.replace("1.0.0", "1.1.0"));
    cni.status().expect("ready");
    cni.collect_garbage().expect("done");
    assert_eq!(bench.log(), ["one STATUS", "two STATUS", "one GC", "two GC"]);
    let valid = r#""cni.dev/valid-attachments":[{"containerID":"one","ifname":"eth0"}]"#;
    assert!(bench.input("one.GC").contains(valid), "{}", bench.input("one.GC"));
    fs::remove_file(bench.path("bin/two")).expect("removed");
    let error = cni.status().expect_err("missing").to_string();
    assert!(error.starts_with("the CNI plugin \"two\" is in none of "), "{error}");
}

/// A file for other programs stayed for ever when the record of its pod was lost: no DEL was ever due.
#[test]
fn what_others_are_told_of_a_pod_without_a_record_can_be_removed() {
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    let cni = bench.open();
    attach(&cni).expect("attached");
    cni.forget(&pod("one"), Path::new(NOWHERE)).expect("refrains");
    assert_eq!(cni.cached().expect("read").len(), 1, "there is a record");
    drop(cni);
    fs::remove_file(bench.path("records/one")).expect("lost");
    let cni = bench.open();
    cni.detach(&pod("one"), None).expect("nothing is known of it");
    cni.forget(&pod("one"), Path::new("/run/netns/of-another")).expect("refrains");
    assert_eq!(cni.cached().expect("read").len(), 1, "another runtime's");
    cni.forget(&pod("one"), Path::new(NOWHERE)).expect("removed");
    assert_eq!(cni.cached().expect("read"), []);
}

/// A record that a disk had damaged still stands for something that plugins hold.
#[test]
fn a_damaged_record_is_named_and_gets_its_del() {
    let bench = Bench::new(TWO);
    bench.fake("one", RESULT);
    bench.fake("two", RESULT);
    let cni = bench.open();
    attach(&cni).expect("attached");
    drop(cni);
    fs::write(bench.path("records/one"), "rubbish").expect("written");
    let cni = bench.open();
    assert_eq!(cni.damaged(), [pod("one")]);
    assert!(matches!(attach(&cni), Err(CniError::Damaged { .. })));
    bench.log();
    cni.detach(&pod("one"), None).expect("detached");
    assert_eq!(bench.log(), ["two DEL", "one DEL"]);
    assert!(cni.damaged().is_empty() && !bench.path("records/one").exists());
}
