//! Volumes of images: what is in them, whose they are, and how they end.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use mainstay::{
    Access, ContainerId, IfRunning, Mount, Repair, SandboxSpec, Shutdown, UserNamespace, UserNamespaces,
};
use mainstay_integration_tests::{Shorthand, wait, world};

use super::*;
use mainstay_integration_tests::registry::Registry;

/// What an image with volumes says.
const CONFIG: [&str; 4] = [
    "--config.env=PATH=/bin",
    "--config.volume=/data",
    "--config.volume=/cache/deep",
    "--config.volume=/proc/strange",
];

/// A file of user 7 in a directory of user 1234.
fn fill(root: &Path) {
    let data = root.join("data");
    fs::create_dir(&data).expect("made");
    fs::write(data.join("file"), "of the image").expect("written");
    chown(data.join("file"), Some(7), Some(8)).expect("changed");
    chown(&data, Some(1234), Some(1235)).expect("changed");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o2750)).expect("set");
}

fn volumes_of(runtime: &Runtime, container: &ContainerId) -> PathBuf {
    runtime.config().root_dir.join("layers").join(container.as_str()).join("volumes")
}

async fn start_of(runtime: &Runtime, pod: &mainstay::SandboxId, spec: ContainerSpec) -> ContainerId {
    let container = wait::finish("it is made", runtime.create_container(pod, spec)).await.expect("created");
    wait::finish("it starts", runtime.start_container(&container)).await.expect("started");
    container
}

#[tokio::test]
async fn a_volume_has_what_the_image_has_there_and_lives_as_long_as_its_container() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make_with("volumes", &CONFIG, Some(&fill));
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let pod = runtime.pod("p").await;
    let mut first = spec("first", &name, &["sleep", "1000"]);
    first.security.root = Access::ReadOnly;
    let first = start_of(&runtime, &pod, first).await;
    let script = "stat -c '%u:%g:%a' /data /data/file /cache/deep; cat /data/file; echo ' and more' >> /data/file; \
                  echo x > /cache/deep/x; echo no > /cache/x";
    let said = runtime.sh(&first, script).await;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(text, "1234:1235:2750\n7:8:644\n0:0:755\nof the image");
    assert_ne!(said.exit.code(), 0, "only the volumes of a read-only container can be written");
    let kept = volumes_of(&runtime, &first);
    assert_eq!(fs::read_to_string(kept.join("1/file")).expect("there"), "of the image and more\n");
    assert_eq!(fs::read_to_string(kept.join("0/x")).expect("there"), "x\n");
    assert_eq!(fs::metadata(kept.join("1")).expect("there").uid(), 1234);
    let before = runtime.disk_usage(&first).await.expect("counted");
    runtime.sh(&first, "cat /bin/busybox > /cache/deep/large").await;
    let after = runtime.disk_usage(&first).await.expect("counted");
    assert_eq!(after.inodes, before.inodes + 1);
    assert!(after.bytes >= before.bytes + fs::metadata("/bin/busybox").expect("there").len(), "{after:?}");

    // Another one has what the image has, and keeps it over a restart of the runtime.
    let second = start_of(&runtime, &pod, spec("second", &name, &["sleep", "1000"])).await;
    assert_eq!(runtime.sh(&second, "cat /data/file; echo y > /data/y").await.stdout, b"of the image");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = start(&world).await;
    assert_eq!(runtime.sh(&second, "cat /data/y").await.stdout, b"y\n");
    let recorded = runtime.container(&second).expect("listed").record.spec.rootfs.volumes().to_vec();
    assert_eq!(recorded, [Path::new("/cache/deep"), Path::new("/data")]);
    assert!(runtime.audit(Repair::No).await.expect("looked").is_empty());
    runtime.remove_container(&first, IfRunning::Kill).await.expect("removed");
    assert!(!kept.exists(), "they go with their container");
    assert!(volumes_of(&runtime, &second).exists());
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_mount_of_the_caller_wins_over_a_volume() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make_with("won", &CONFIG, Some(&fill));
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let given = world.path().join("given");
    fs::create_dir(&given).expect("made");
    fs::write(given.join("own"), "of the caller").expect("written");
    let pod = runtime.pod("p").await;
    let mounts = vec![
        Mount::bind(&given, "/data", Access::ReadWrite),
        Mount::bind(&given, "/cache", Access::ReadWrite),
    ];
    let container =
        start_of(&runtime, &pod, ContainerSpec { mounts, ..spec("c", &name, &["sleep", "1000"]) }).await;
    let said = runtime.sh(&container, "ls /data /cache").await;
    assert_eq!(String::from_utf8_lossy(&said.stdout), "/cache:\nown\n\n/data:\nown\n");
    assert!(!volumes_of(&runtime, &container).exists());
    assert_eq!(fs::read_dir(&given).expect("there").count(), 1, "nothing was made in it");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_volume_in_a_user_namespace_has_the_ids_of_the_image() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make_with("mapped-volumes", &CONFIG, Some(&fill));
    let ids =
        UserNamespaces { first_host_id: 1_701_000_000, host_ids: 65_536 * 4, ..UserNamespaces::default() };
    let runtime = Runtime::start(Config { user_namespaces: ids, ..config(&world) }).await.expect("it starts");
    pull(&runtime, &name).await;
    let pod =
        SandboxSpec { user_namespace: UserNamespace::Auto, ..SandboxSpec::new("p".parse().expect("a name")) };
    let pod = runtime.run_sandbox(pod).await.expect("it runs");
    let container = start_of(&runtime, &pod, spec("c", &name, &["sleep", "1000"])).await;
    let script = "stat -c '%u:%g' /data /data/file; echo x > /data/new; stat -c '%u:%g' /data/new";
    let said = runtime.sh(&container, script).await;
    assert_eq!(String::from_utf8_lossy(&said.stdout), "1234:1235\n7:8\n0:1235\n");
    world.finish(runtime).await;
}

/// A runtime that is killed while it fills volumes leaves a record, and a directory that is found by it. Should the record be
/// lost, the audit names the directory, with the volumes in it.
#[tokio::test]
async fn volumes_that_no_record_accounts_for_are_named_and_removed() {
    let world = world!();
    let runtime = start(&world).await;
    let ghost: ContainerId = "0123456789abcdef0123456789abcdef".parse().expect("an id");
    let volume = volumes_of(&runtime, &ghost).join("0");
    fs::create_dir_all(&volume).expect("made");
    fs::write(volume.join("file"), "left").expect("written");
    let found = runtime.audit(Repair::No).await.expect("looked");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].place.contains(ghost.as_str()), "{:?}", found[0]);
    runtime.audit(Repair::Yes).await.expect("looked");
    assert!(!volume.exists());
    assert!(runtime.audit(Repair::No).await.expect("looked").is_empty());
    world.finish(runtime).await;
}

/// Case 63 (CVE-2022-23648, CVE-2024-5154 and their kind): paths that an image chooses were looked up on the host. A volume read
/// and wrote there, and a FIFO hung whoever opened it.
#[tokio::test]
async fn paths_that_an_image_chooses_stay_inside_of_it() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let rig = world.path().join("rig");
    fs::create_dir_all(rig.join("etc")).expect("made");
    fs::write(rig.join("canary"), "secret").expect("written");
    fs::write(rig.join("etc/passwd"), "app:x:0:0::/:/bin/sh\n").expect("written");
    let fifo = rig.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    let out = |to: &Path| PathBuf::from(format!("{}{}", "../".repeat(12), to.display()));
    let hostile = |root: &Path| {
        for (link, target) in
            [("link", out(&rig)), ("absolute", rig.clone()), ("work", out(&rig)), ("pipe", fifo.clone())]
        {
            symlink(target, root.join(link)).expect("linked");
        }
        fs::create_dir(root.join("etc")).expect("made");
        for name in ["hosts", "resolv.conf", "mtab"] {
            symlink(out(&rig.join("canary")), root.join("etc").join(name)).expect("linked");
        }
        for name in ["passwd", "group"] {
            symlink(out(&rig.join("etc").join(name)), root.join("etc").join(name)).expect("linked");
        }
    };
    let up = format!("--config.volume=/../../..{}", rig.display());
    let config = [
        "--config.env=PATH=/bin",
        "--config.volume=/link",
        "--config.volume=/absolute",
        up.as_str(),
        "--config.workingdir=/work",
    ];
    let name = registry.make_with("hostile", &config, Some(&hostile));
    let before = entries(&rig);
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let pod = runtime.pod("p").await;
    let script = "pwd; cat /etc/hosts /etc/mtab /link/canary /absolute/canary canary; echo x > /link/x; echo x > x; \
                  echo x > /absolute/y";
    let container = start_of(&runtime, &pod, spec("c", &name, &["sh", "-c", script])).await;
    runtime.exit_of(&container).await;
    let said = output(&runtime, &container).await;
    assert!(!said.contains("secret"), "{said}");
    assert_eq!(entries(&rig), before, "nothing came into being on the host");

    let as_app = ContainerSpec {
        process: mainstay::ProcessSpec { user: Some("app".into()), ..spec("u", &name, &["id"]).process },
        ..spec("u", &name, &["id"])
    };
    let refused = async {
        let container = runtime.create_container(&pod, as_app).await?;
        runtime.start_container(&container).await
    };
    let error = wait::finish("an answer", refused).await.expect_err("the image has no such user").to_string();
    assert!(error.contains("app"), "{error}");

    let name = registry.make_with(
        "pipe",
        &["--config.env=PATH=/bin", "--config.volume=/own"],
        Some(&|root: &Path| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                root.join("own"),
                rustix::fs::FileType::Fifo,
                0o600.into(),
                0,
            )
            .expect("made");
        }),
    );
    pull(&runtime, &name).await;
    let created = runtime.create_container(&pod, spec("f", &name, &["id"]));
    let error = wait::finish("an answer", created).await.expect_err("a FIFO is no place for a volume");
    assert!(error.to_string().starts_with("volumes: \"/own\""), "{error}");
    world.finish(runtime).await;
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path()).collect();
    found.sort();
    found
}
