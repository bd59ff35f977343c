//! Name spaces that the containers of a pod share.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use mainstay_launch::{CgroupEntry, LaunchError, PodNamespace, PodNamespaceRequest, PodPid, pod_namespaces};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use serde_json::{Value, json};

use crate::cases;
use crate::world::{WantedIo, World, status_line};

cases![containers_share_them, one_process_table_for_all, the_hosts_need_no_process, a_fault_is_reported];

fn request(sysctl: &HashMap<String, String>) -> PodNamespaceRequest<'_> {
    PodNamespaceRequest {
        network: PodNamespace::New,
        ipc: PodNamespace::New,
        uts: PodNamespace::New,
        hostname: Some("pod"),
        pid: PodPid::PerContainer,
        user: None,
        sysctl,
        cgroup: CgroupEntry::default(),
    }
}

fn join(spec: &mut Value, kind: &str, fd: impl AsFd) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_fd().as_raw_fd());
    for namespace in spec["linux"]["namespaces"].as_array_mut().unwrap() {
        if namespace["type"] == kind {
            namespace["path"] = json!(path);
        }
    }
}

fn children() -> usize {
    let task = format!("/proc/self/task/{}/children", std::process::id());
    fs::read_to_string(task).unwrap().split_whitespace().count()
}

/// The name spaces that this process is in.
fn own() -> Vec<std::path::PathBuf> {
    ["net", "ipc", "uts", "pid"]
        .iter()
        .map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap())
        .collect()
}

fn containers_share_them() {
    let sysctl = HashMap::from([("net.ipv4.ip_unprivileged_port_start".to_owned(), "7".to_owned())]);
    let before = (children(), own());
    let pod = pod_namespaces(&request(&sysctl)).unwrap();
    assert!(pod.init.is_none() && pod.pid.is_none());
    assert_eq!((children(), own()), before, "no process was left, and this one is where it was");
    let (network, ipc, uts) = (pod.network.unwrap(), pod.ipc.unwrap(), pod.uts.unwrap());
    let inode = |fd: &std::os::fd::OwnedFd| fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().ino();
    for _ in 0..2 {
        let mut world = World::new();
        join(&mut world.spec, "network", &network);
        join(&mut world.spec, "ipc", &ipc);
        join(&mut world.spec, "uts", &uts);
        let script = "for n in net ipc uts; do readlink /proc/self/ns/$n; done; hostname; ip link show lo | grep -c LOOPBACK,UP; \
                      cat /proc/sys/net/ipv4/ip_unprivileged_port_start";
        let expected =
            format!("net:[{}]\nipc:[{}]\nuts:[{}]\npod\n1\n7", inode(&network), inode(&ipc), inode(&uts));
        assert_eq!(world.shell(script).run().unwrap().output(), expected);
    }
    let mut world = World::new();
    join(&mut world.spec, "network", &ipc);
    assert!(
        matches!(world.run(), Err(LaunchError::System { .. })),
        "an ipc name space is no network name space"
    );
}

/// A pod's init must be of no use to a container that can look into it, and reap what containers leave behind.
fn one_process_table_for_all() {
    let sysctl = HashMap::new();
    let pod = pod_namespaces(&PodNamespaceRequest { pid: PodPid::Shared, ..request(&sysctl) }).unwrap();
    let init = pod.init.unwrap();
    let mut world = World::new();
    join(&mut world.spec, "pid", pod.pid.as_ref().unwrap());
    let first = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    let script = "cat /proc/1/comm; ls /proc/1/root 2>&1 | wc -l; ls /proc | grep -c '^[0-9]'; (sleep 0 & exit 0); \
                  kill -9 1; cat /proc/1/status";
    let ended = world.shell(script).run().unwrap();
    let lines: Vec<_> = ended.output().lines().collect();
    assert_eq!(lines[0], "mainstay-pod");
    for set in ["CapEff", "CapPrm", "CapInh"] {
        assert_eq!(status_line(ended.output(), set), "0000000000000000", "{set}");
    }
    assert_eq!(status_line(ended.output(), "NoNewPrivs"), "1");
    let pid = init.pid;
    assert_eq!(fs::read_dir(format!("/proc/{pid}/root/")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(), 0);
    let exec = world
        .exec(&first, None, json!({ "args": ["sh", "-c", "ls /proc/1 > /dev/null && echo $$"] }))
        .unwrap();
    assert!(exec.output().parse::<u32>().unwrap() > 1);
    // The end of the init is the end of everything in the pod.
    pidfd_send_signal(&init.pidfd, Signal::KILL).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&crate::world::reap(&first.launching)), Some(9));
    waitid(WaitId::PidFd(init.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    let error = world.run().unwrap_err();
    assert!(error.to_string().contains("first process has ended"), "{error}");
}

fn the_hosts_need_no_process() {
    let sysctl = HashMap::new();
    let host = PodNamespaceRequest {
        network: PodNamespace::Host,
        ipc: PodNamespace::Host,
        uts: PodNamespace::Host,
        hostname: None,
        ..request(&sysctl)
    };
    let pod = pod_namespaces(&host).unwrap();
    assert!(pod.network.is_none() && pod.ipc.is_none() && pod.uts.is_none() && pod.pid.is_none());
    let named = PodNamespaceRequest { hostname: Some("x"), ..host };
    assert!(matches!(pod_namespaces(&named), Err(LaunchError::Spec { .. })));
}

fn a_fault_is_reported() {
    let sysctl = HashMap::from([("kernel.core_pattern".to_owned(), "x".to_owned())]);
    let before = (children(), own());
    assert!(matches!(pod_namespaces(&request(&sysctl)), Err(LaunchError::Spec { .. })));
    assert_eq!((children(), own()), before);
}
