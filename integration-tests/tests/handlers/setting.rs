//! What processes find around them.

use mainstay::{Access, Mount, SandboxSpec};
use mainstay_integration_tests::{Shorthand, run, says, script_spec, wait, waiting};

use crate::stage::{Stage, pod_spec};

pub async fn a_process_has_what_its_spec_says(stage: Stage) {
    let mut spec: SandboxSpec = pod_spec("p");
    spec.hostname = Some("tried-host".to_owned());
    let pod = wait::finish("a pod runs", stage.runtime.run_sandbox(spec)).await.expect("a pod runs");
    let spec = waiting("c", |spec| {
        spec.process.env.insert("FROM".into(), "container".into());
        spec.process.workdir = Some("/tmp".into());
        spec.process.user = Some("1000:1001".into());
    });
    let container = run(&stage.runtime, &pod, spec).await.expect("it runs");
    let said = says(&stage.runtime, &container, "echo $FROM $PWD $(id -u):$(id -g) $(hostname)").await;
    assert_eq!(said, "container /tmp 1000:1001 tried-host");
    // By its name, which is looked up inside.
    let spec = waiting("named", |spec| spec.process.user = Some("daemon".into()));
    let named = run(&stage.runtime, &pod, spec).await.expect("it runs");
    assert_eq!(says(&stage.runtime, &named, "id -un").await, "daemon");
    stage.finish().await;
}

pub async fn containers_of_a_pod_share_what_pods_share(stage: Stage) {
    let (pod, other) = (stage.pod("p").await, stage.pod("q").await);
    let a = stage.runtime.started(&pod, "a", "exec sleep 1000").await;
    let b = stage.runtime.started(&pod, "b", "exec sleep 1000").await;
    let c = stage.runtime.started(&other, "c", "exec sleep 1000").await;
    for kind in ["net", "ipc", "uts"] {
        let look = format!("readlink /proc/self/ns/{kind}");
        let of = async |container| says(&stage.runtime, container, &look).await;
        let (a, b, c) = (of(&a).await, of(&b).await, of(&c).await);
        assert_eq!(a, b, "{kind}");
        assert_ne!(a, c, "{kind}");
        let host = std::fs::read_link(format!("/proc/self/ns/{kind}")).expect("readable");
        assert_ne!(a, host.to_string_lossy(), "{kind}");
    }
    for kind in ["mnt", "pid"] {
        let look = format!("readlink /proc/self/ns/{kind}");
        let (a, b) = (says(&stage.runtime, &a, &look).await, says(&stage.runtime, &b, &look).await);
        assert_ne!(a, b, "{kind}");
    }
    stage.runtime.sh(&a, "echo shared > /dev/shm/file").await;
    assert_eq!(says(&stage.runtime, &b, "cat /dev/shm/file").await, "shared");
    stage.finish().await;
}

pub async fn mounts_are_there_and_the_root_is_not_the_hosts(stage: Stage) {
    let pod = stage.pod("p").await;
    let folder = stage.world.path().join("given");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("file"), "from outside").expect("written");
    let spec = waiting("c", |spec| {
        spec.mounts.push(Mount::bind(&folder, "/given", Access::ReadOnly));
        spec.mounts.push(Mount::bind(&folder, "/taken", Access::ReadWrite));
    });
    let container = run(&stage.runtime, &pod, spec).await.expect("it runs");
    assert_eq!(says(&stage.runtime, &container, "cat /given/file").await, "from outside");
    let refused = says(&stage.runtime, &container, "echo no > /given/file").await;
    assert!(refused.contains("Read-only file system"), "{refused}");
    says(&stage.runtime, &container, "echo from inside > /taken/new; touch /root-of-container").await;
    assert_eq!(std::fs::read_to_string(folder.join("new")).expect("written"), "from inside\n");
    assert!(!std::path::Path::new("/root-of-container").exists(), "the root is a layer");
    assert_eq!(says(&stage.runtime, &container, "ls /root-of-container").await, "/root-of-container");
    stage.finish().await;
}

pub async fn security_settings_hold(stage: Stage) {
    let pod = stage.pod("p").await;
    let mut spec = script_spec("c", "exec sleep 1000");
    spec.security.root = mainstay::Access::ReadOnly;
    let container = run(&stage.runtime, &pod, spec).await.expect("it runs");
    let status = says(&stage.runtime, &container, "grep -E '^(CapEff|Seccomp):' /proc/1/status").await;
    assert!(!status.contains("ffffffffff"), "not all capabilities: {status}");
    let refused = says(&stage.runtime, &container, "touch /file").await;
    assert!(refused.contains("Read-only file system"), "{refused}");
    let masked = says(&stage.runtime, &container, "cat /proc/keys | wc -c").await;
    assert_eq!(masked, "0");
    stage.finish().await;
}
