//! Mounts, devices and protected paths: what the container sees, and that images cannot reach the host through them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_launch::{CgroupEntry, LaunchError, RootMount, WindowSize};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

use crate::cases;
use crate::world::{WantedIo, World, assert_untouched, canary};

cases![
    bind_mounts_with_their_options,
    a_source_that_is_missing_is_named,
    mount_points_behind_links_stay_inside,
    a_racing_container_cannot_lead_mounts_out,
    dev_behind_a_link_stays_inside,
    proc_is_never_mounted_through_a_link,
    user_data_bases_behind_links_and_fifos,
    devices_are_what_they_say,
    masked_and_read_only_paths,
    masks_follow_links_inside_only,
    a_read_only_root,
    a_root_that_is_a_directory,
    a_root_of_128_layers,
    a_root_that_was_mounted_after_the_callers_name_space_was_made,
    nothing_is_mounted_on_the_host,
    the_mount_table_tells_nothing_of_the_host,
    own_cgroups_only,
    the_v2_group_alone_is_the_mount,
    the_null_device_is_the_containers,
    a_terminal_with_its_size,
    host_parameters_cannot_be_set,
];

fn bind_mounts_with_their_options() {
    let mut world = World::new();
    fs::create_dir_all(world.path("volume/below")).unwrap();
    fs::write(world.path("volume/file"), "content").unwrap();
    let source = world.path("volume");
    world
        .add_mount(json!({ "destination": "/rw", "type": "bind", "source": source, "options": ["rbind", "rprivate", "rw"] }))
        .add_mount(json!({ "destination": "/ro", "source": source, "options": ["bind", "ro", "nosuid", "noexec"] }))
        .add_mount(json!({ "destination": "/etc/made/file", "source": source.join("file"), "options": ["bind"] }))
        .add_mount(json!({ "destination": "/small", "type": "tmpfs", "options": ["size=64k", "mode=0700", "nodev"] }));
    let script = "echo new > /rw/new && cat /etc/made/file && ! touch /ro/x 2>/dev/null && ls /ro && stat -c %a /small \
                  && grep -c ' /ro .*ro,nosuid,noexec' /proc/mounts && ! head -c 100000 /dev/zero > /small/big 2>/dev/null";
    assert_eq!(world.shell(script).run().unwrap().output(), "contentbelow\nfile\nnew\n700\n1");
    assert_eq!(fs::read_to_string(world.path("volume/new")).unwrap(), "new\n");
}

fn a_source_that_is_missing_is_named() {
    let mut world = World::new();
    world.add_mount(json!({ "destination": "/data", "source": "/nope", "options": ["bind"] }));
    let error = world.run().unwrap_err().to_string();
    assert_eq!(error, "mounts[7] (\"/data\"): source \"/nope\" does not exist");
    world.spec["mounts"][7] = json!({ "destination": "/data", "type": "tmpfs", "options": ["tmpcopyup"] });
    assert!(matches!(world.run(), Err(LaunchError::Unsupported { .. })));
    world.spec["mounts"][7] = json!({ "destination": "/", "type": "tmpfs" });
    assert!(matches!(world.run(), Err(LaunchError::Spec { .. })));
    world.spec["mounts"][7] =
        json!({ "destination": "/data", "type": "tmpfs", "options": ["no-such-option"] });
    let error = world.run().unwrap_err().to_string();
    assert!(error.contains("mounts[7]") && error.contains("no-such-option"), "{error}");
}

/// Images once had runtimes make mount points, and copy files, on the host (CVE-2022-23648, CVE-2024-5154, CVE-2024-9676).
fn mount_points_behind_links_stay_inside() {
    let mut world = World::new();
    let canary = canary(&world);
    fs::create_dir(world.path("volume")).unwrap();
    fs::write(world.path("volume/f"), "mine").unwrap();
    let up = format!("../../../../../../../..{}", canary.display());
    symlink(&up, world.image("relative")).unwrap();
    symlink(&canary, world.image("absolute")).unwrap();
    symlink(canary.join("new-file"), world.image("file")).unwrap();
    for destination in [
        format!("/../../..{}/d", canary.display()),
        "/relative/d".into(),
        "/absolute".into(),
        "/relative".into(),
    ] {
        world.spec["mounts"].as_array_mut().unwrap().truncate(7);
        world.add_mount(
            json!({ "destination": destination, "source": world.path("volume"), "options": ["bind"] }),
        );
        let ended = world.shell(&format!("cat {destination}/f; ls {destination}")).run().unwrap();
        assert_eq!(ended.output(), "minef", "{destination}");
        assert_untouched(&canary);
    }
    world.spec["mounts"].as_array_mut().unwrap().truncate(7);
    world.add_mount(json!({ "destination": "/file", "source": world.path("volume/f"), "options": ["bind"] }));
    assert_eq!(world.shell("cat /file").run().unwrap().output(), "mine");
    assert_untouched(&canary);
}

/// A container that swaps a directory of a shared volume for a link, while another is being set up, once led the other's
/// mounts out (field case 66). A start may fail, but nothing may ever appear outside.
fn a_racing_container_cannot_lead_mounts_out() {
    const STARTS: usize = 100;
    let mut racer = World::new();
    let canary = canary(&racer);
    let volume = racer.path("volume");
    fs::create_dir_all(volume.join("dir")).unwrap();
    let shared = json!({ "destination": "/volume", "source": volume, "options": ["rbind", "rw"] });
    racer.add_mount(shared.clone());
    let up = format!("../../../../../../../..{}", canary.display());
    let swap = format!("cd /volume; while :; do mv dir real; ln -s {up} dir; rm dir; mv real dir; done");
    let racer = racer.shell(&swap).start(WantedIo::Pipes).unwrap();
    for _ in 0..STARTS {
        let mut victim = World::new();
        victim
            .add_mount(shared.clone())
            .add_mount(json!({ "destination": "/volume/dir/new", "type": "tmpfs" }));
        if let Ok(ended) = victim.args(&["/bin/true"]).run() {
            assert!(ended.status.success());
        }
    }
    racer.kill();
    assert_untouched(&canary);
}

/// `/dev` as a link to a directory of the host that holds a `ptmx`: set-up once went there (CVE-2026-41579).
fn dev_behind_a_link_stays_inside() {
    let mut world = World::new();
    let canary = canary(&world);
    fs::remove_dir(world.image("dev")).unwrap();
    symlink(format!("../../../../../../../..{}", canary.display()), world.image("dev")).unwrap();
    let ended = world.shell("ls -l /dev/null; echo x > /dev/null").run().unwrap();
    assert!(ended.output().starts_with("crw-rw-rw-"), "{ended:?}");
    let terminal =
        world.start(WantedIo::Terminal(WindowSize { rows: 5, columns: 6 })).unwrap().wait_terminal();
    assert!(terminal.0.success(), "{terminal:?}");
    assert_untouched(&canary);
    // Without a mount of its own at /dev, devices replace what the image put there.
    let mut world = World::new();
    symlink(canary.join("secret"), world.image("dev/null")).unwrap();
    world.spec["mounts"]
        .as_array_mut()
        .unwrap()
        .retain(|mount| !mount["destination"].as_str().unwrap().starts_with("/dev"));
    assert!(world.shell("ls -l /dev/null").run().unwrap().output().starts_with("crw-rw-rw-"));
    assert_untouched(&canary);
}

/// A `/proc` that is elsewhere lets writes of the runtime's go where the image wants (CVE-2025-52881).
fn proc_is_never_mounted_through_a_link() {
    let world = World::new();
    fs::remove_dir(world.image("proc")).unwrap();
    symlink("data", world.image("proc")).unwrap();
    let error = world.run().unwrap_err();
    assert!(matches!(error, LaunchError::Spec { .. }) && error.to_string().contains("/proc"), "{error}");
}

/// `/etc/passwd` as a link to the host's, or as a FIFO, on which an open hangs (field case 63).
fn user_data_bases_behind_links_and_fifos() {
    let mut world = World::new();
    let canary = canary(&world);
    fs::write(canary.join("secret"), "app:x:0:0::/:/bin/sh\n").unwrap();
    fs::remove_file(world.image("etc/passwd")).unwrap();
    symlink(format!("../../../../../../../..{}/secret", canary.display()), world.image("etc/passwd"))
        .unwrap();
    assert!(matches!(world.user("app").run(), Err(LaunchError::User { .. })));

    let world = &mut World::new();
    fs::remove_file(world.image("etc/passwd")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, world.image("etc/passwd"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    let error = world.user("app").run().unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");

    let world = &mut World::new();
    fs::remove_file(world.image("etc/passwd")).unwrap();
    symlink("/proc/self/environ", world.image("etc/passwd")).unwrap();
    assert!(matches!(world.user("app").run(), Err(LaunchError::User { .. })));
}

fn devices_are_what_they_say() {
    let mut world = World::new();
    world.spec["linux"]["devices"] = json!([
        { "path": "/dev/fuse-like", "type": "c", "major": 10, "minor": 229, "fileMode": 0o640, "uid": 3, "gid": 4 },
        { "path": "/run/queue", "type": "p", "major": 0, "minor": 0 },
    ]);
    let script = "for d in null zero full random urandom tty fuse-like; do stat -c '%n %t:%T %a %u:%g' /dev/$d; done; \
                  for l in fd stdin stdout stderr ptmx; do readlink /dev/$l; done; test -p /run/queue && echo pipe";
    let expected = "/dev/null 1:3 666 0:0\n/dev/zero 1:5 666 0:0\n/dev/full 1:7 666 0:0\n/dev/random 1:8 666 0:0\n\
                    /dev/urandom 1:9 666 0:0\n/dev/tty 5:0 666 0:0\n/dev/fuse-like a:e5 640 3:4\n\
                    /proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx\npipe";
    assert_eq!(world.shell(script).run().unwrap().output(), expected);
    // A user of its own can write to its own standard error by name.
    let ended = world.shell("echo out > /dev/stdout; echo err > /dev/stderr").user("1000").run().unwrap();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
}

fn masked_and_read_only_paths() {
    let mut world = World::new();
    fs::create_dir(world.image("secrets")).unwrap();
    fs::write(world.image("secrets/key"), "secret").unwrap();
    fs::write(world.image("etc/key"), "secret").unwrap();
    let masked = world.spec["linux"]["maskedPaths"].as_array_mut().unwrap();
    masked.extend([json!("/secrets"), json!("/etc/key"), json!("/etc/key/below")]);
    let script = "wc -c < /proc/keys; ls /secrets /sys/firmware | wc -w; wc -c < /etc/key; \
                  touch /secrets/x 2>/dev/null && echo writable; \
                  echo 1 2>/dev/null > /proc/sys/kernel/domainname && echo writable; \
                  stat -c %t:%T /etc/key";
    let ended = world.shell(script).run().unwrap();
    let names = "0\n2\n0\n1:3";
    assert_eq!(ended.output().replace("/secrets:", "").replace("/sys/firmware:", ""), names, "{ended:?}");
}

fn masks_follow_links_inside_only() {
    let mut world = World::new();
    let canary = canary(&world);
    symlink(canary.join("secret"), world.image("out")).unwrap();
    symlink("/etc/group", world.image("in")).unwrap();
    world.spec["linux"]["maskedPaths"] = json!(["/out", "/in"]);
    assert_eq!(world.shell("wc -c < /etc/group").run().unwrap().output(), "0");
    assert_untouched(&canary);
}

fn a_read_only_root() {
    let mut world = World::new();
    world.spec["root"]["readonly"] = json!(true);
    let ended = world
        .shell("touch /data/x 2>/dev/null || echo refused; touch /dev/shm/y && echo written")
        .run()
        .unwrap();
    assert_eq!(ended.output(), "refused\nwritten");
    assert!(!world.path("upper/data/x").exists());
}

fn a_root_that_is_a_directory() {
    let mut world = World::new();
    world.root = RootMount::Bind(world.path("image"));
    let ended = world.shell("cat /etc/group; echo x > /data/x").run().unwrap();
    assert_eq!(ended.output(), "root:x:0:\nusers:x:100:app");
    assert_eq!(fs::read_to_string(world.image("data/x")).unwrap(), "x\n");
}

/// Images of more than 100 layers were refused elsewhere, because their paths did not fit into one page of mount options.
fn a_root_of_128_layers() {
    let mut world = World::new();
    let mut lower: Vec<PathBuf> = (1..128)
        .map(|number| {
            let layer = world.path(&format!("a-layer-with-a-name-that-is-as-long-as-a-digest-{number:064}"));
            fs::create_dir_all(layer.join("data")).unwrap();
            fs::write(layer.join("data").join(number.to_string()), number.to_string()).unwrap();
            fs::write(layer.join("data/who"), number.to_string()).unwrap();
            layer
        })
        .collect();
    lower.push(world.path("image"));
    world.root = RootMount::Overlay { lower, upper: world.path("upper"), work: world.path("work") };
    let ended = world.shell("cat /data/who; echo; cat /data/127; echo; echo x > /data/who").run().unwrap();
    assert_eq!(ended.output(), "1\n127");
    assert_eq!(fs::read_to_string(world.path("upper/data/who")).unwrap(), "x\n");
}

/// A pod's shim lives in a copy of the host's mounts. An image that was on a file system which was mounted after that copy
/// was made ran from the empty directory below the mount, where the host's root is no shared mount: "sh: no such file".
fn a_root_that_was_mounted_after_the_callers_name_space_was_made() {
    let mut world = World::new();
    let volume = world.path("volume");
    fs::create_dir(&volume).unwrap();
    let mounted = MountedLater::at(&volume);
    let image = volume.join("image");
    mounted.on_the_host(|| {
        copy_tree(&world.path("image"), &image);
        fs::write(image.join("etc/group"), "of-the-host:x:0:\n").unwrap();
        for writable in ["upper", "work"] {
            fs::create_dir(volume.join(writable)).unwrap();
        }
    });
    assert!(!image.exists(), "this process must not see it");
    world.host = Some(mounted.host());
    world.shell("cat /etc/group; ls /added; echo x > /data/x; grep -c '^[0-9]* [0-9]* [0-9:]* [^ ]* / ' /proc/self/mountinfo");
    world.add_mount(json!({ "destination": "/added", "source": image.join("data"), "options": ["bind"] }));
    let overlay = |upper, work| RootMount::Overlay { lower: vec![image.clone()], upper, work };
    let writable_elsewhere = overlay(world.path("upper"), world.path("work"));
    let all_on_it = overlay(volume.join("upper"), volume.join("work"));
    for (root, written) in [
        (writable_elsewhere, world.path("upper/data/x")),
        (all_on_it, volume.join("upper/data/x")),
        (RootMount::Bind(image.clone()), image.join("data/x")),
    ] {
        world.root = root;
        let ended = world.run().unwrap();
        assert_eq!(ended.output(), "of-the-host:x:0:\n1", "{:?}", world.root);
        mounted.on_the_host(|| assert_eq!(fs::read_to_string(&written).unwrap(), "x\n"));
    }
    assert_eq!(fs::read_dir(world.path("bundle/rootfs")).unwrap().count(), 0);
}

/// A file system that the host has mounted and this process, which lives in an earlier copy of the host's mounts, has not.
struct MountedLater {
    host: OwnedFd,
    copy: OwnedFd,
    place: PathBuf,
}

impl MountedLater {
    fn at(place: &Path) -> MountedLater {
        let own = || OwnedFd::from(fs::File::open("/proc/self/ns/mnt").unwrap());
        let host = own();
        crate::world::live_like_the_shim();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let later = MountedLater { host, copy: own(), place: place.to_owned() };
        later.on_the_host(|| {
            mount("later", &later.place, "tmpfs", MountFlags::empty(), c"mode=755").unwrap();
        });
        later
    }

    fn host(&self) -> OwnedFd {
        self.host.try_clone().unwrap()
    }

    fn on_the_host(&self, work: impl FnOnce()) {
        let enter = |fd: &OwnedFd| move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Mount));
        enter(&self.host).unwrap();
        let done = catch_unwind(AssertUnwindSafe(work));
        enter(&self.copy).unwrap();
        done.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl Drop for MountedLater {
    fn drop(&mut self) {
        // Stays there: it is what this process had before.
        let back = move_into_link_name_space(self.host.as_fd(), Some(LinkNameSpaceType::Mount));
        let unmounted = unmount(&self.place, UnmountFlags::DETACH);
        if !std::thread::panicking() {
            back.and(unmounted).unwrap();
        }
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = fs::symlink_metadata(&from).unwrap().file_type();
        if kind.is_dir() {
            copy_tree(&from, &to);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from).unwrap(), &to).unwrap();
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

fn nothing_is_mounted_on_the_host() {
    let mut world = World::new();
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let container = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    assert_eq!(fs::read_dir(world.path("bundle/rootfs")).unwrap().count(), 0);
    container.kill();
}

fn the_mount_table_tells_nothing_of_the_host() {
    let mut world = World::new();
    let table = world.args(&["/bin/cat", "/proc/self/mountinfo"]).run().unwrap();
    assert!(!table.output().contains("mainstay-launch-"), "{}", table.output());
    let mount_points: Vec<_> = table.output().lines().map(|line| line.split(' ').nth(4).unwrap()).collect();
    assert!(
        mount_points.iter().all(|point| !point.starts_with("/work") && !point.starts_with("/mnt")),
        "{mount_points:?}"
    );
}

/// The host's groups, with the names of all other containers, are not the container's business.
fn own_cgroups_only() {
    let mut world = World::new();
    let (memory, unified) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified");
    let name = format!("mainstay-launch-test-{}", std::process::id());
    let group = std::path::Path::new(memory).join(&name);
    let unified = std::path::Path::new(unified).join(&name);
    if fs::create_dir(&group).is_err() || fs::create_dir(&unified).is_err() {
        println!("skipped own_cgroups_only: no v1 memory hierarchy beside a v2 tree here");
        let _ = fs::remove_dir(&group);
        return;
    }
    world.shell(
        "ls /sys/fs/cgroup; cat /proc/self/cgroup; ls -d /sys/fs/cgroup/*/mainstay* 2>&1; \
                 cat /sys/fs/cgroup/*/cgroup.procs",
    );
    let v2 = fs::File::open(&unified).unwrap();
    let procs = [group.join("cgroup.procs")];
    let cgroup = CgroupEntry { v2_dir: Some(std::os::fd::AsFd::as_fd(&v2)), v1_procs: &procs };
    let container = world.create(WantedIo::Pipes, cgroup).unwrap();
    for place in [&group, &unified] {
        let members = fs::read_to_string(place.join("cgroup.procs")).unwrap();
        assert_eq!(members.trim(), container.pid().to_string());
    }
    container.launching.release().unwrap();
    let ended = container.wait();
    remove_group(&group);
    remove_group(&unified);
    let output = &ended.stdout;
    assert!(output.starts_with("memory\nunified\n"), "{ended:?}");
    assert!(
        output.contains(":memory:/\n") && output.contains("0::/\n") && !output.contains(&name),
        "{ended:?}"
    );
    assert!(output.contains("No such file"), "{ended:?}");
}

/// On a machine with v2 alone the destination shows the container's group itself.
fn the_v2_group_alone_is_the_mount() {
    let mut world = World::new();
    let name = format!("mainstay-launch-test-v2-{}", std::process::id());
    let trees = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(std::path::Path::new);
    let Some(group) =
        trees.iter().find(|tree| tree.join("cgroup.subtree_control").exists()).map(|tree| tree.join(&name))
    else {
        println!("skipped the_v2_group_alone_is_the_mount: no v2 tree here");
        return;
    };
    fs::create_dir(&group).unwrap();
    let v2 = fs::File::open(&group).unwrap();
    let cgroup = CgroupEntry { v2_dir: Some(std::os::fd::AsFd::as_fd(&v2)), v1_procs: &[] };
    world.shell("cat /sys/fs/cgroup/cgroup.procs; mkdir /sys/fs/cgroup/x 2>/dev/null || echo read-only");
    let container = world.create(WantedIo::Pipes, cgroup).unwrap();
    container.launching.release().unwrap();
    let ended = container.wait();
    remove_group(&group);
    assert_eq!(ended.stdout.lines().next(), Some("1"), "{ended:?}");
    assert!(ended.stdout.ends_with("read-only\n"), "{ended:?}");
}

fn remove_group(path: &std::path::Path) {
    let removed = (0..500).any(|_| {
        let removed = fs::remove_dir(path).is_ok();
        if !removed {
            std::thread::sleep(Duration::from_millis(10));
        }
        removed
    });
    assert!(removed, "{path:?} stays");
}

/// Root in a container could once change the mode of the host's `/dev/null`, which it had as standard input.
fn the_null_device_is_the_containers() {
    let mut world = World::new();
    let ended = world.shell("stat -L -c %i /proc/self/fd/0 /dev/null").run().unwrap();
    let inodes: Vec<_> = ended.output().lines().collect();
    assert_eq!(inodes[0], inodes[1]);
    let host = fs::metadata("/dev/null").unwrap().ino();
    let ended = world.shell("chmod 600 /proc/self/fd/0; stat -c %d /dev/null").run().unwrap();
    assert_ne!(ended.output(), fs::metadata("/dev/null").unwrap().dev().to_string(), "inode {host}");
    assert_eq!(fs::metadata("/dev/null").unwrap().mode() & 0o777, 0o666);
}

fn a_terminal_with_its_size() {
    let mut world = World::new();
    let script =
        "stty size; tty; stat -c %t:%T /dev/console; stat -L -c '%u %a' /proc/self/fd/0; echo hi > /dev/tty";
    let size = WindowSize { rows: 33, columns: 111 };
    let (status, text) =
        world.shell(script).user("1000").start(WantedIo::Terminal(size)).unwrap().wait_terminal();
    assert!(status.success(), "{text}");
    assert_eq!(text, "33 111\n/dev/pts/0\n88:0\n1000 620\nhi\n");
    // A container without a devpts of its own has no terminal to give.
    world.spec["mounts"].as_array_mut().unwrap().retain(|mount| mount["type"] != "devpts");
    let error = world.create(WantedIo::Terminal(size), CgroupEntry::default()).err().unwrap();
    assert!(error.to_string().contains("/dev/pts/ptmx"), "{error}");
}

/// A parameter that is not of a name space would be set for the whole machine.
fn host_parameters_cannot_be_set() {
    let mut world = World::new();
    world.spec["linux"]["sysctl"] =
        json!({ "net.ipv4.ip_unprivileged_port_start": "99", "kernel.shmmni": "77" });
    let ended = world
        .shell("cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni")
        .run()
        .unwrap();
    assert_eq!(ended.output(), "99\n77");
    let host_value = fs::read_to_string("/proc/sys/kernel/shmmni").unwrap();
    assert_ne!(host_value.trim(), "77");
    for name in ["kernel.core_pattern", "vm.overcommit_memory", "net/../kernel/core_pattern"] {
        world.spec["linux"]["sysctl"] = json!({ name: "x" });
        assert!(matches!(world.run(), Err(LaunchError::Spec { .. })), "{name}");
    }
    world.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_unprivileged_port_start": "99" });
    world.spec["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .retain(|namespace| namespace["type"] != "network");
    assert!(matches!(world.run(), Err(LaunchError::Spec { .. })));
    assert_eq!(fs::metadata("/proc/sys/kernel").unwrap().uid(), 0);
}
