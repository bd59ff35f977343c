//! Network devices of the host in a container, and back.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use mainstay_launch::{CgroupEntry, Handover, LaunchError, NetDevicesRequest, Reply, move_net_devices};
use rustix::process::Pid;
use serde_json::json;

use crate::cases;
use crate::world::{WantedIo, World, reap, wait_reply};

cases![
    a_device_goes_in_and_comes_back_as_it_was,
    a_device_that_is_not_there_leaves_the_others_where_they_were,
    devices_that_are_wrong_are_refused_by_name,
];

/// A pair of devices of the host, gone with it.
struct Veth;

const NAME: &str = "mslaunch0";
const PEER: &str = "mslaunch1";

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Veth {
    fn make() -> Option<Veth> {
        if Command::new("ip").arg("-V").output().is_err() {
            println!("skipped a case of net_devices: there is no ip(8)");
            return None;
        }
        ip(&["link", "add", NAME, "type", "veth", "peer", "name", PEER]);
        let veth = Veth;
        ip(&["address", "add", "192.0.2.7/24", "dev", NAME]);
        ip(&["link", "set", NAME, "up"]);
        Some(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // One end takes the other along, wherever that is.
        let _ = Command::new("ip").args(["link", "delete", PEER]).output();
    }
}

fn hand_over(world: &World, pid: Pid, handover: Handover) -> Result<Vec<String>, LaunchError> {
    let container = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let host = File::open("/proc/self/ns/net").unwrap();
    let spec = world.parsed();
    let request =
        NetDevicesRequest { spec: &spec, container: container.as_fd(), host: host.as_fd(), handover };
    let mut launching = move_net_devices(request).unwrap();
    let reply = wait_reply(&mut launching);
    reap(&launching);
    match reply? {
        Reply::Ready { warnings, .. } => Ok(warnings),
        Reply::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn a_device_goes_in_and_comes_back_as_it_was() {
    let Some(_veth) = Veth::make() else { return };
    let mut world = World::new();
    world.spec["linux"]["netDevices"] = json!({ NAME: { "name": "card0" } });
    world.shell("ip address show card0; while sleep 1000; do :; done");
    let environment = |pid| assert_eq!(hand_over(&world, pid, Handover::ToContainer).unwrap(), [""; 0]);
    let mut running = world.create_with(WantedIo::Pipes, CgroupEntry::default(), environment).unwrap();
    running.launching.release().unwrap();
    assert!(matches!(wait_reply(&mut running.launching).unwrap(), Reply::Running));
    let inside = {
        let pid = running.pid().to_string();
        let output =
            Command::new("nsenter").args(["-t", &pid, "-n", "ip", "address", "show", "card0"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(inside.contains("192.0.2.7/24") && inside.contains("UP"), "{inside}");
    assert_eq!(hand_over(&world, running.pid(), Handover::ToHost).unwrap(), [""; 0]);
    let back = ip(&["address", "show", NAME]);
    assert!(back.contains("192.0.2.7/24") && back.contains("UP"), "{back}");
    running.kill();
}

fn a_device_that_is_not_there_leaves_the_others_where_they_were() {
    let Some(_veth) = Veth::make() else { return };
    let mut world = World::new();
    world.spec["linux"]["netDevices"] = json!({ NAME: {}, "mslaunch9": {} });
    world.args(&["/bin/true"]);
    let environment = |pid| {
        let error = hand_over(&world, pid, Handover::ToContainer).unwrap_err();
        assert!(error.to_string().contains("linux.netDevices[\"mslaunch9\"]"), "{error}");
        let back = ip(&["address", "show", NAME]);
        assert!(back.contains("192.0.2.7/24"), "{back}");
    };
    world.create_with(WantedIo::Pipes, CgroupEntry::default(), environment).unwrap().kill();
}

fn devices_that_are_wrong_are_refused_by_name() {
    for devices in [json!({ "a/b": {} }), json!({ "a": { "name": "x" }, "b": { "name": "x" } })] {
        let mut world = World::new();
        world.spec["linux"]["netDevices"] = devices;
        let error = world.args(&["/bin/true"]).run().unwrap_err().to_string();
        assert!(error.contains("linux.netDevices"), "{error}");
    }
}
