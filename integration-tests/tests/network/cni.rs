//! CNI networks: Debian's plugins, and plugins that fail, hang, or are cut short.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mainstay::{Error, Network, Protocol, Runtime, SandboxPhase, SandboxSpec};
use mainstay_admin::Client;
use mainstay_integration_tests::net::{HOST_V4, OUTSIDE_V4};
use mainstay_integration_tests::{Daemon, peer, wait};
use mainstay_messages::admin::Reference;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage;
use crate::stage::{Stage, addresses, files, inside, port, run, spec};

/// How often a run is repeated that a plugin lets fail.
const RETRIES: usize = 20;
/// How long a plugin may run where one hangs, in milliseconds.
const IMPATIENT_MS: u64 = 500;

/// A list of two fakes: `one` takes an address from a directory, and `two` does as it is told.
const TWO: &str =
    r#"{"cniVersion": "1.0.0", "name": "fakes", "plugins": [{"type": "one"}, {"type": "two"}]}"#;
/// Takes the lowest free of a few addresses, and gives back all that the pod has.
const IPAM: &str = r#"
case $CNI_COMMAND in
ADD) for n in 2 3 4 5 6; do
       if ln -s $CNI_CONTAINERID $dir/ips/10.1.0.$n 2>/dev/null; then
         echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.'$n'/24"}],"dns":{"nameservers":["10.1.0.1"]}}' > $dir/given
         cat $dir/given; exit 0
       fi
     done
     echo '{"code": 100, "msg": "the range is empty"}'; exit 1;;
DEL) for ip in $dir/ips/*; do
       if [ "$(readlink $ip)" = $CNI_CONTAINERID ]; then rm $ip; fi
     done;;
esac"#;
/// Passes on what the plugin before it gave.
const PASS: &str = r#"if [ $CNI_COMMAND = ADD ]; then cat $dir/given; fi"#;
const FAIL: &str = r#"echo '{"code": 11, "msg": "not now"}'; exit 1"#;

fn write_list(stage: &Stage, text: &str) {
    fs::create_dir_all(stage.path("cni/conf")).expect("made");
    fs::write(stage.path("cni/conf/10-test.conflist"), text).expect("written");
}

/// A plugin: it logs its calls, keeps its last input, and runs a piece of shell.
fn fake(stage: &Stage, name: &str, body: &str) {
    let (bin, dir) = (stage.path("cni/bin"), stage.path("cni"));
    fs::create_dir_all(&bin).expect("made");
    fs::create_dir_all(dir.join("ips")).expect("made");
    let dir = dir.display();
    let script = format!(
        "#!/bin/sh\ndir={dir}\ncat > $dir/{name}.input\nns=none; [ -e \"$CNI_NETNS\" ] && ns=there\n\
         echo {name} $CNI_COMMAND $ns >> $dir/log\n{body}\n"
    );
    let new = bin.join(format!(".{name}"));
    fs::write(&new, script).expect("written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("made executable");
    fs::rename(&new, bin.join(name)).expect("renamed");
}

fn log(stage: &Stage) -> Vec<String> {
    let text = fs::read_to_string(stage.path("cni/log")).unwrap_or_default();
    let _ = fs::remove_file(stage.path("cni/log"));
    text.lines().map(str::to_owned).collect()
}

fn by_cni(name: &str) -> SandboxSpec {
    spec(name, |spec| spec.network = Network::Cni)
}

fn taken(stage: &Stage) -> Vec<String> {
    files(&stage.path("cni/ips"))
}

/// Debian's bridge and portmap, as containerd's and Podman's users have them configured.
#[tokio::test]
async fn debians_plugins_give_a_pod_its_network() {
    let stage = stage!();
    if !Path::new("/usr/lib/cni/portmap").exists() || peer::find("iptables", "iptables").is_none() {
        peer::skipped("portmap is not installed (Debian package containernetworking-plugins)");
        return;
    }
    let leases = stage.path("cni/leases");
    write_list(
        &stage,
        &format!(
            r#"{{"cniVersion": "1.0.0", "name": "debian", "plugins": [
            {{"type": "bridge", "bridge": "cni9", "isGateway": true, "ipMasq": true, "hairpinMode": true,
              "ipam": {{"type": "host-local", "dataDir": {leases:?}, "ranges": [[{{"subnet": "10.91.0.0/24"}}]],
              "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
            {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}"#
        ),
    );
    let runtime = stage.start().await;
    let web = spec("web", |spec| {
        spec.network = Network::Cni;
        spec.ports = vec![port(Protocol::Tcp, 8080, 80)];
    });
    let web = run(&runtime, web).await;
    let network = web.record.network.clone().expect("it has one");
    assert_eq!((network.name.as_str(), addresses(&web)), ("debian", vec!["10.91.0.2".to_owned()]));
    assert!(network.mac.is_some());
    let db = run(&runtime, by_cni("db")).await;
    let _server = inside(&web).serve("0.0.0.0:80");
    assert_eq!(inside(&db).call("10.91.0.2:80"), Some("10.91.0.3".parse().expect("good")));
    let seen = stage.internet.outside.call(&format!("{HOST_V4}:8080"));
    assert_eq!(seen, Some(OUTSIDE_V4.parse().expect("good")));
    // Where libcni's other users look for it.
    let cached = stage.path(&format!("cni/cache/results/debian-{}-eth0", web.record.id));
    let cached: serde_json::Value = serde_json::from_slice(&fs::read(cached).expect("cached")).expect("JSON");
    assert_eq!(cached["kind"], "cniCacheV1");
    assert_eq!(cached["result"]["ips"][0]["address"], "10.91.0.2/24");
    assert_eq!(files(&leases.join("debian")).iter().filter(|name| name.starts_with("10.")).count(), 2);
    runtime.network_status(Network::Cni).await.expect("it is there");
    // Not of the one with a port: this portmap's CHECK wants rules of IPv6 also where the pod has no such address.
    runtime.check_network(&db.record.id).await.expect("as it should be");
    inside(&db).ip("link del eth0");
    let error = runtime.check_network(&db.record.id).await.expect_err("its link is gone").to_string();
    assert!(error.contains("CHECK of the CNI plugin bridge failed"), "{error}");
    for pod in [&web, &db] {
        runtime.remove_sandbox(&pod.record.id).await.expect("removed");
    }
    assert_eq!(files(&leases.join("debian")).iter().filter(|name| name.starts_with("10.")).count(), 0);
    stage.finish(runtime).await;
}

/// Case 46 (cd#5768, cd#12130, cd PR#12923): a run that failed leaked an address with each retry, because DEL was skipped where
/// ADD had failed, and its own failure swallowed.
#[tokio::test]
async fn every_add_has_a_del_however_often_both_fail() {
    let stage = stage!();
    write_list(&stage, TWO);
    fake(&stage, "one", IPAM);
    let del = r#"n=$(cat $dir/n 2>/dev/null || echo 0); echo $((n+1)) > $dir/n"#;
    fake(&stage, "two", &format!("{del}\nif [ $CNI_COMMAND = ADD ] || [ $((n % 4)) != 0 ]; then {FAIL}; fi"));
    let runtime = stage.start().await;
    for _ in 0..RETRIES {
        let error = persist(&runtime, "web").await;
        assert!(error.to_string().contains("ADD of the CNI plugin two failed: not now"), "{error}");
        assert!(taken(&stage).len() <= 1, "{:?}", taken(&stage));
    }
    wait::until("the last one is given back", || runtime.sandboxes().is_empty().then_some(())).await;
    assert_eq!(taken(&stage), Vec::<String>::new());
    fake(&stage, "two", PASS);
    fake(&stage, "one", IPAM);
    let pod = run(&runtime, by_cni("web")).await;
    assert_eq!(addresses(&pod), ["10.1.0.2"], "the same request works at once");
    stage.finish(runtime).await;
}

/// Asks until the run has come to an end of its own, which is an error.
async fn persist(runtime: &Runtime, name: &str) -> Error {
    let asking = async {
        loop {
            match runtime.run_sandbox(by_cni(name)).await.expect_err("a plugin refuses") {
                Error::InProgress { .. } | Error::Terminating { .. } => {
                    // Until then it is listed, as what it is.
                    let listed = runtime.sandboxes();
                    assert!(listed.iter().all(|pod| pod.record.phase != SandboxPhase::Ready), "{listed:?}");
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                error => return error,
            }
        }
    };
    wait::finish("an end of its own", asking).await
}

/// Case 21 (cd#12438, cri#142): ADD hung, the caller left, and the next attempt met what was half done.
#[tokio::test]
async fn a_plugin_that_hangs_costs_its_own_pod_alone() {
    let stage = stage!();
    write_list(&stage, TWO);
    fake(&stage, "one", IPAM);
    fake(&stage, "two", "if [ $CNI_COMMAND = ADD ]; then sleep 1000; fi");
    let mut config = stage.config();
    config.network.cni_plugin_timeout_ms = IMPATIENT_MS;
    let runtime = Runtime::start(config).await.expect("started");
    let mut hung = Box::pin(runtime.run_sandbox(by_cni("web")));
    let adding = || fs::read_to_string(stage.path("cni/log")).unwrap_or_default().contains("two ADD");
    assert!(wait::until_or("the plugin hangs", &mut hung, adding).await.is_none());
    let other = run(&runtime, spec("other", |_| ())).await;
    assert_eq!(addresses(&other)[0], "10.89.0.2", "nobody else waits");
    let error = hung.await.expect_err("late");
    let Error::DeadlineExceeded { what, after_ms } = &error else { panic!("{error}") };
    assert_eq!((what.as_str(), *after_ms), ("ADD of the CNI plugin two", IMPATIENT_MS));
    assert_eq!(taken(&stage), Vec::<String>::new(), "it is taken back when the answer comes");
    fake(&stage, "two", PASS);
    run(&runtime, by_cni("web")).await;
    stage.finish(runtime).await;
}

/// Case 46, its second half: the daemon was killed while a plugin was at it, or just after.
#[tokio::test]
async fn a_daemon_that_is_killed_during_add_gives_back_what_was_taken() {
    let stage = stage!();
    write_list(&stage, TWO);
    fake(&stage, "one", IPAM);
    fake(&stage, "two", "if [ $CNI_COMMAND = ADD ]; then sleep 1000; fi");
    let config = stage.config();
    let mut daemon = Daemon::start_with(&stage.world, &config, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("it listens");
    let mut hung = Box::pin(client.run_sandbox(by_cni("web")));
    let adding = || taken(&stage).len() == 1 && stage.path("cni/two.input").exists();
    assert!(wait::until_or("the plugin hangs", &mut hung, adding).await.is_none());
    daemon.kill();
    drop(hung);
    kill_below(&stage);
    fake(&stage, "two", PASS);
    let daemon = Daemon::start_with(&stage.world, &config, &[]).await;
    wait::until("it is taken back", || taken(&stage).is_empty().then_some(())).await;
    let client = Client::connect(daemon.socket()).await.expect("it listens");
    wait::until_async("the name is free", async || client.list_sandboxes().await.expect("listed").is_empty())
        .await;
    client.run_sandbox(by_cni("web")).await.expect("a pod runs");
    assert_eq!(taken(&stage), ["10.1.0.2"]);
    client.remove_sandbox(Reference("web".to_owned())).await.expect("removed");
    stage.assert_no_network_left().await;
    stage.world.assert_nothing_left().await;
}

/// Kills the plugins of a stage, which have outlived their daemon.
fn kill_below(stage: &Stage) {
    let bin = stage.path("cni/bin").display().to_string();
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let (Some(pid), true) = (pid, String::from_utf8_lossy(&line).contains(&bin)) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Case 16 (cd#11029): who held the namespaces was killed under running containers. Plugins get the namespace all the same, to
/// take out of it what they have put there; after a restart of the daemon as well, they get an empty one.
#[tokio::test]
async fn del_has_the_namespace_of_a_pod_that_lost_its_shim() {
    let stage = stage!();
    write_list(&stage, TWO);
    fake(&stage, "one", IPAM);
    fake(&stage, "two", PASS);
    let runtime = stage.start().await;
    for leave in [false, true] {
        let pod = run(&runtime, by_cni("web")).await;
        assert_eq!(log(&stage), ["one ADD there", "two ADD there"]);
        let shim = pod.record.shim.as_ref().expect("a shim").process.pid;
        kill_process(Pid::from_raw(shim.cast_signed()).expect("an id"), Signal::KILL).expect("it is there");
        let phase = || runtime.sandbox(&pod.record.id).expect("listed").record.phase;
        wait::until("it is not ready", || (phase() == SandboxPhase::NotReady).then_some(())).await;
        assert_eq!(log(&stage), Vec::<String>::new(), "its address is its own until it is stopped");
        if leave {
            runtime.close(mainstay::Shutdown::LeaveRunning).await.expect("closed");
            let runtime = stage.start().await;
            runtime.remove_sandbox(&pod.record.id).await.expect("removed");
            assert_eq!(log(&stage), ["two DEL none", "one DEL none"]);
            stage.finish(runtime).await;
            return;
        }
        runtime.remove_sandbox(&pod.record.id).await.expect("removed");
        assert_eq!(log(&stage), ["two DEL there", "one DEL there"], "once");
    }
}
