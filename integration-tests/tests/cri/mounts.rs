//! Mounts and devices as kubelet asks for them.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_cri_api::{
    ContainerConfig, Device, ImageSpec, LinuxContainerConfig, LinuxContainerSecurityContext, Mount,
    MountPropagation,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tonic::Code;

use crate::{assert_refused, busybox, rig};

/// A tmpfs of a test, unmounted at its end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("made");
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=1m").expect("mounted");
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn host(host: &Path, container: &str) -> Mount {
    Mount { host_path: host.display().to_string(), container_path: container.to_owned(), ..Mount::default() }
}

fn sleeper(name: &str, mounts: Vec<Mount>) -> ContainerConfig {
    ContainerConfig { mounts, ..busybox::script(name, "exec sleep 1000") }
}

#[tokio::test]
async fn read_only_is_the_mount_alone_unless_it_is_asked_for_all_the_way_down() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let source = Tmpfs::at(rig.world().path().join("source"));
    let below = Tmpfs::at(source.0.join("below"));
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let plain = Mount { readonly: true, ..host(&source.0, "/plain") };
    let all = Mount { readonly: true, recursive_read_only: true, ..host(&source.0, "/all") };
    let id = rig.run_container(&pod, &sleeper("c", vec![plain, all.clone()])).await;
    let script =
        "for f in /plain/x /all/x /all/below/x /plain/below/x; do echo > $f && echo $f; done 2>/dev/null";
    assert_eq!(rig.says(&id, script).await, "/plain/below/x");
    let shown = rig.container(&id).await.mounts;
    let seen: Vec<_> = shown.iter().map(|mount| (mount.readonly, mount.recursive_read_only)).collect();
    assert_eq!(seen, [(true, false), (true, true)]);

    let mut wrong = all.clone();
    wrong.set_propagation(MountPropagation::PropagationHostToContainer);
    let refused = rig.create(&pod, &sleeper("wrong", vec![wrong])).await;
    assert_refused(refused, Code::InvalidArgument, &["config.mounts[0].recursive_read_only"]);
    let refused = rig.create(&pod, &sleeper("wrong", vec![Mount { readonly: false, ..all }])).await;
    assert_refused(refused, Code::InvalidArgument, &["config.mounts[0].recursive_read_only", "readonly"]);
    let mut private = host(&source.0, "/m");
    private.set_propagation(MountPropagation::PropagationBidirectional);
    let refused = rig.create(&pod, &sleeper("private", vec![private])).await;
    assert_refused(refused, Code::InvalidArgument, &["mounts[0].propagation", "shared mount"]);
    drop((below, source));
    rig.finish().await;
}

/// kubelet mounts files of its own over those that the runtime would make, and directories that are not there yet.
#[tokio::test]
async fn what_is_mounted_goes_before_what_the_runtime_makes() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let own = rig.world().path().join("kubelet");
    fs::create_dir(&own).expect("made");
    for (name, text) in [("hosts", "of kubelet"), ("termination-log", "")] {
        fs::write(own.join(name), text).expect("written");
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let absent = own.join("made/deep");
    let mounts = vec![
        host(&absent, "/data/inner"),
        host(&own.join("hosts"), "/etc/hosts"),
        host(&own.join("termination-log"), "/dev/termination-log"),
        host(&own, "/data"),
    ];
    let id = rig.run_container(&pod, &sleeper("c", mounts)).await;
    assert_eq!(rig.says(&id, "cat /etc/hosts").await, "of kubelet");
    assert_eq!(
        rig.says(&id, "echo end > /dev/termination-log; echo x > /data/inner/file; ls /data")
            .await
            .lines()
            .count(),
        4
    );
    assert_eq!(fs::read_to_string(own.join("termination-log")).expect("there"), "end\n");
    assert_eq!(fs::read_to_string(absent.join("file")).expect("there"), "x\n");
    rig.finish().await;
}

/// Image volumes (KEP-4639).
#[tokio::test]
async fn an_image_is_a_volume() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let image = |part: &str, readonly: bool| Mount {
        container_path: "/volume".to_owned(),
        image: Some(ImageSpec { image: busybox::IMAGE.to_owned(), ..ImageSpec::default() }),
        image_sub_path: part.to_owned(),
        readonly,
        ..Mount::default()
    };
    let whole = rig.run_container(&pod, &sleeper("whole", vec![image("", true)])).await;
    assert_eq!(
        rig.says(&whole, "/volume/bin/busybox echo runs; echo > /volume/x 2>/dev/null || echo no").await,
        "runs\nno"
    );
    let part = rig.run_container(&pod, &sleeper("part", vec![image("etc", true)])).await;
    assert_eq!(rig.says(&part, "ls /volume").await, "group\npasswd");
    let shown = rig.container(&part).await;
    let mount = shown.mounts.first().expect("shown");
    assert!(mount.readonly && mount.image_sub_path == "etc", "{mount:?}");
    assert_eq!(mount.image.as_ref().map(|image| &image.image_ref), Some(&shown.image_id));
    let refused = rig.create(&pod, &sleeper("writable", vec![image("", false)])).await;
    assert_refused(refused, Code::InvalidArgument, &["config.mounts[0].readonly"]);
    let refused =
        rig.create(&pod, &sleeper("absent", vec![image("no/such", true)])).await.expect_err("nothing");
    assert!(refused.message().contains("no/such"), "{refused:?}");
    rig.finish().await;
}

#[tokio::test]
async fn devices_have_the_permissions_that_are_given() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "p")).await;
    let device = |host: &str, permissions: &str| Device {
        host_path: host.to_owned(),
        container_path: "/dev/given".to_owned(),
        permissions: permissions.to_owned(),
    };
    let config = ContainerConfig {
        devices: vec![device("/dev/zero", "rw")],
        ..busybox::script("c", "exec sleep 1000")
    };
    let id = rig.run_container(&pod, &config).await;
    assert_eq!(rig.says(&id, "stat -c '%t %T' /dev/given").await, "1 5");
    let none = ContainerConfig { devices: vec![device("/dev/no-such", "r")], ..busybox::script("d", "true") };
    let refused = rig.create(&pod, &none).await;
    assert_refused(refused, Code::InvalidArgument, &["devices[0].path", "/dev/no-such"]);
    let privileged = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
    let linux = LinuxContainerConfig { security_context: Some(privileged), resources: None };
    let privileged =
        ContainerConfig { linux: Some(linux), ..busybox::script("privileged", "exec sleep 1000") };
    let refused = rig.create(&pod, &privileged).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        &["privileged", "a pod that was not asked for as privileged"],
    );
    let mut trusted = busybox::pod(&rig, "trusted");
    let security = trusted.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    security.expect("given").privileged = true;
    let pod = rig.run_pod(&trusted).await;
    let id = rig.run_container(&pod, &privileged).await;
    assert_eq!(rig.says(&id, "stat -c '%t %T' /dev/kmsg").await, "1 b");
    let mounts = rig.says(&id, "cat /proc/mounts").await;
    let sys = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/sys")).expect("mounted");
    assert!(sys.contains(" rw,"), "{sys}");
    rig.finish().await;
}
