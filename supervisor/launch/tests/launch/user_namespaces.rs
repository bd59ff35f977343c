//! Containers in a user namespace: root inside is nobody in particular outside, and files belong to whom they should on
//! both sides.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};

use mainstay_launch::{
    CgroupEntry, LaunchError, PodNamespace, PodNamespaceRequest, PodPid, RootMount, WindowSize,
    pod_namespaces, user_namespace,
};
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use serde_json::json;

use crate::cases;
use crate::world::{WantedIo, World, status_line};

cases![
    root_inside_is_an_ordinary_user_outside,
    files_have_the_owners_that_they_have_on_disk,
    what_is_written_has_host_ids_in_the_range,
    a_root_that_is_a_directory_is_mapped,
    binds_are_mapped_where_asked,
    devices_can_be_used_and_not_made,
    the_file_systems_of_the_kernel_are_there,
    a_terminal_in_a_user_namespace,
    executed_processes_are_in_it,
    hard_limits_of_the_spec_are_given,
    ids_that_are_not_mapped_are_refused,
    mappings_that_make_no_sense_are_refused,
    a_pods_namespaces_belong_to_its_user_namespace,
    a_root_with_capabilities_stays_inside,
];

/// Where the ids of containers of this file begin on the host.
const HOST: u32 = 1_700_000_000;
const SIZE: u32 = 65_536;

fn mapping(container: u32, host: u32, size: u32) -> LinuxIdMapping {
    LinuxIdMappingBuilder::default().container_id(container).host_id(host).size(size).build().unwrap()
}

impl World {
    fn mapped() -> World {
        let mut world = World::new();
        world.map(json!([{ "containerID": 0, "hostID": HOST, "size": SIZE }]));
        world
    }

    fn map(&mut self, mappings: serde_json::Value) {
        self.spec["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        self.spec["linux"]["uidMappings"] = mappings.clone();
        self.spec["linux"]["gidMappings"] = mappings;
        for path in ["upper", "data"] {
            let path = self.path(path);
            fs::create_dir_all(&path).unwrap();
            chown(&path, Some(HOST), Some(HOST)).unwrap();
        }
    }
}

fn owner(path: impl AsRef<std::path::Path>) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

fn root_inside_is_an_ordinary_user_outside() {
    let mut world = World::mapped();
    for (user, inside, outside) in [("root", "0 0", HOST), ("app", "1000 1001", HOST + 1_000)] {
        let container = world.args(&["/bin/sleep", "1000"]).user(user).start(WantedIo::Pipes).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", container.pid().as_raw_pid())).unwrap();
        assert_eq!(status_line(&status, "Uid"), [outside; 4].map(|id| id.to_string()).join("\t"));
        assert!(
            status_line(&status, "Groups").split(' ').all(|group| group.parse::<u32>().unwrap() >= HOST),
            "{status}"
        );
        let script = "echo $(id -u) $(id -g) $(cat /proc/self/uid_map)";
        let ended = world.exec(&container, Some(user), json!({ "args": ["/bin/sh", "-c", script] })).unwrap();
        assert_eq!(ended.output(), format!("{inside} 0 {HOST} {SIZE}"));
        container.kill();
    }
}

fn files_have_the_owners_that_they_have_on_disk() {
    let mut world = World::mapped();
    fs::write(world.image("data/of-app"), "x").unwrap();
    chown(world.image("data/of-app"), Some(1_000), Some(1_001)).unwrap();
    fs::write(world.image("data/beyond"), "x").unwrap();
    chown(world.image("data/beyond"), Some(SIZE + 1), Some(SIZE + 1)).unwrap();
    let ended = world.shell("stat -c '%u:%g' / /bin/busybox /data/of-app /data/beyond").run().unwrap();
    assert_eq!(ended.output(), "0:0\n0:0\n1000:1001\n65534:65534");
    // A file of the image is changed in a copy, which has the same owner.
    let script = "chmod 600 /data/of-app && echo more >> /data/of-app && stat -c '%u:%g' /data/of-app";
    assert_eq!(world.shell(script).run().unwrap().output(), "1000:1001");
    assert_eq!(owner(world.path("upper").join("data/of-app")), (HOST + 1_000, HOST + 1_001));
    assert_eq!(owner(world.image("data/of-app")), (1_000, 1_001));
}

fn what_is_written_has_host_ids_in_the_range() {
    let mut world = World::mapped();
    let script =
        "touch /data/root /tmp/x; chown 5:6 /data/root; mkdir /made; echo log > /dev/stderr; rm /etc/group";
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.output(), "");
    assert_eq!(ended.stderr, "log\n", "its pipes are its own");
    assert_eq!(owner(world.path("upper").join("data/root")), (HOST + 5, HOST + 6));
    assert_eq!(owner(world.path("upper").join("made")), (HOST, HOST));
    let ended = world.shell("echo x > /tmp/mine; echo log > /dev/stdout").user("app");
    fs::set_permissions(ended.image("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    assert_eq!(world.run().unwrap().output(), "log");
}

fn a_root_that_is_a_directory_is_mapped() {
    let mut world = World::mapped();
    world.shell("stat -c '%u' /etc; touch /data/made; id -u");
    world.root = RootMount::Bind(world.path("image"));
    let ended = world.run().unwrap();
    assert_eq!(ended.output(), "0\n0");
    assert_eq!(
        owner(world.image("data/made")),
        (0, 0),
        "on disk its files are those of the directory's owner"
    );
}

fn binds_are_mapped_where_asked() {
    let mut world = World::mapped();
    let volume = world.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "").unwrap();
    let plain = world.path("data");
    for (target, source, options) in [
        ("/mapped", &volume, json!(["rbind", "ridmap", "rprivate"])),
        ("/read-only", &volume, json!(["rbind", "ro", "rro", "idmap"])),
        ("/plain", &plain, json!(["rbind", "rprivate"])),
    ] {
        world.add_mount(
            json!({ "destination": target, "type": "bind", "source": source, "options": options }),
        );
    }
    let script = "stat -c %u /mapped/file /plain; touch /mapped/a /plain/b; chown 7:8 /mapped/a; touch /read-only/c; true";
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.output(), "0\n0");
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(owner(volume.join("a")), (7, 8));
    assert_eq!(owner(plain.join("b")), (HOST, HOST));
    // With the container's own mappings a mount says the same, with others another thing; users alone are not mapped.
    let mappings = world.spec["linux"]["uidMappings"].clone();
    let mounts = world.spec["mounts"].as_array_mut().unwrap();
    let last = mounts.len() - 1;
    mounts[last]["uidMappings"] = mappings.clone();
    mounts[last]["gidMappings"] = mappings;
    assert_eq!(world.shell("touch /plain/d 2>/dev/null; stat -c %u /plain").run().unwrap().output(), "65534");
    let other = json!([{ "containerID": HOST, "hostID": HOST + 5, "size": 1 }]);
    world.spec["mounts"][last]["uidMappings"] = other.clone();
    world.spec["mounts"][last]["gidMappings"] = other;
    assert_eq!(world.shell("stat -c '%u %g' /plain/b").run().unwrap().output(), "5 5");
    world.spec["mounts"][last].as_object_mut().unwrap().remove("gidMappings");
    assert!(world.run().unwrap_err().to_string().contains("come together"));
    // What cannot be mapped is said, with its path.
    world.spec["mounts"][last] =
        json!({ "destination": "/x", "type": "bind", "source": "/proc", "options": ["rbind", "idmap"] });
    let error = world.run().unwrap_err();
    assert!(matches!(error, LaunchError::Machine { .. }) && error.to_string().contains("/proc"), "{error}");
    // And without a user namespace there is nothing to map to.
    let mut world = World::new();
    world.add_mount(
        json!({ "destination": "/x", "type": "bind", "source": "/tmp", "options": ["bind", "idmap"] }),
    );
    assert!(world.run().unwrap_err().to_string().contains("no user name space"));
}

fn devices_can_be_used_and_not_made() {
    let mut world = World::mapped();
    world.spec["linux"]["devices"] = json!([
        { "path": "/dev/given", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600, "uid": 1000, "gid": 0 },
        { "path": "/nodes/of-host", "type": "c", "major": 1, "minor": 3, "fileMode": 0o660 },
        { "path": "/dev/zero", "type": "c", "major": 1, "minor": 5 },
        { "path": "/dev/pipe", "type": "p", "major": 0, "minor": 0 },
    ]);
    let script = "head -c 4 /dev/zero | wc -c; echo x > /dev/null && stat -c '%u %t:%T' /dev/null /dev/given /nodes/of-host
        mknod /tmp/disk c 1 3; echo x > /nodes/of-host; test -p /dev/pipe && echo pipe";
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.output(), "4\n0 1:3\n1000 1:3\n65534 1:3\npipe");
    assert!(ended.stderr.contains("mknod: /tmp/disk: Operation not permitted"), "{}", ended.stderr);
    assert!(ended.stderr.contains("can't create /nodes/of-host: Permission denied"), "{}", ended.stderr);
    // A node that an image brings would be its root's own.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.image("data/zero"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 5),
    )
    .unwrap();
    let ended = world.shell("head -c 1 /data/zero").run().unwrap();
    assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
}

fn the_file_systems_of_the_kernel_are_there() {
    let mut world = World::mapped();
    let script = "stat -c %u /proc/1 /sys/kernel /dev /dev/pts /dev/shm /dev/mqueue; ls /proc/self/fd > /dev/null
        cat /proc/1/comm; hostname box && hostname; ls /sys/class/net; ls /sys/fs/cgroup > /dev/null && echo cgroup
        cat /proc/kcore | wc -c; echo x > /proc/sys/kernel/core_pattern || echo kept";
    world.spec["process"]["capabilities"]["effective"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
    world.spec["process"]["capabilities"]["permitted"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
    world.spec["process"]["capabilities"]["bounding"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
    world.spec["linux"].as_object_mut().unwrap().remove("seccomp");
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.output(), "0\n65534\n0\n0\n0\n0\nsh\nbox\nlo\ncgroup\n0\nkept", "{}", ended.stderr);
}

fn a_terminal_in_a_user_namespace() {
    let mut world = World::mapped();
    let running = world
        .shell("tty; stat -c %u /dev/pts/0; test -c /dev/console && echo console; stty size")
        .user("app")
        .start(WantedIo::Terminal(WindowSize { rows: 33, columns: 77 }))
        .unwrap();
    let (status, text) = running.wait_terminal();
    assert!(status.success(), "{text}");
    assert_eq!(text.trim_end(), "/dev/pts/0\n1000\nconsole\n33 77");
}

fn executed_processes_are_in_it() {
    let mut world = World::mapped();
    let container = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    let script = "echo $(id -u) $(id -g); readlink /proc/self/ns/user; readlink /proc/1/ns/user; echo e > /dev/stderr; touch /of-exec";
    let ended = world.exec(&container, None, json!({ "args": ["/bin/sh", "-c", script] })).unwrap();
    let lines: Vec<&str> = ended.output().lines().collect();
    assert_eq!(lines[0], "0 0");
    assert_eq!(lines[1], lines[2]);
    assert_ne!(lines[1], fs::read_link("/proc/self/ns/user").unwrap().to_str().unwrap());
    assert_eq!(ended.stderr, "e\n");
    assert_eq!(owner(world.path("upper").join("of-exec")), (HOST, HOST));
    let ended = world.exec(&container, Some("app"), json!({ "args": ["/bin/id", "-u"] })).unwrap();
    assert_eq!(ended.output(), "1000");
    let error = world.exec(&container, Some("70000"), json!({ "args": ["/bin/id"] })).unwrap_err();
    assert!(matches!(error, LaunchError::User { .. }), "{error}");
    let size = WindowSize { rows: 10, columns: 20 };
    let (status, text) = world
        .start_exec(&container, None, json!({ "args": ["/bin/tty"] }), WantedIo::Terminal(size))
        .unwrap()
        .wait_terminal();
    assert!(status.success() && text.contains("/dev/pts/"), "{text}");
    container.kill();
}

/// Only the host's root may raise a hard limit, and the container's is not it.
fn hard_limits_of_the_spec_are_given() {
    let mut world = World::mapped();
    let (soft, hard) = (700, 900);
    world.spec["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }]);
    let script = "ulimit -Sn; ulimit -Hn; ulimit -Hn 901 || echo kept";
    assert_eq!(world.shell(script).run().unwrap().output(), "700\n900\nkept");
}

fn ids_that_are_not_mapped_are_refused() {
    let mut world = World::mapped();
    for user in ["65536", "70000:0", "0:70000"] {
        let error = world.args(&["id"]).user(user).run().unwrap_err();
        assert!(matches!(error, LaunchError::User { .. }), "{error}");
        assert!(
            error.to_string().contains("not mapped in the user namespace, which has 0 to 65535"),
            "{error}"
        );
    }
    let mut world = World::mapped();
    world.spec["process"]["user"] = json!({ "uid": 0, "gid": 0, "additionalGids": [5, 66_000] });
    let error = world.args(&["id"]).run().unwrap_err();
    assert!(error.to_string().contains("the group id 66000 is not mapped"), "{error}");
    world.spec["process"]["user"] = json!({ "uid": 0, "gid": 0, "additionalGids": [5, 65_000] });
    assert_eq!(world.args(&["id", "-G"]).run().unwrap().output(), "0 5 65000");
}

fn mappings_that_make_no_sense_are_refused() {
    for (mappings, part) in [
        (json!([]), "its id 0 is not mapped"),
        (json!([{ "containerID": 1, "hostID": HOST, "size": 10 }]), "its id 0 is not mapped"),
        (
            json!([{ "containerID": 0, "hostID": HOST, "size": 10 }, { "containerID": 5, "hostID": 7, "size": 10 }]),
            "mapping the ids",
        ),
    ] {
        let mut world = World::new();
        world.map(mappings);
        let error = world.run().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

fn a_pods_namespaces_belong_to_its_user_namespace() {
    let map = [mapping(0, HOST, SIZE)];
    for pid in [PodPid::PerContainer, PodPid::Shared] {
        let user = user_namespace(&map, &map).unwrap();
        let sysctl = HashMap::from([
            ("net.ipv4.ip_unprivileged_port_start".to_owned(), "7".to_owned()),
            ("kernel.shmmni".to_owned(), "99".to_owned()),
        ]);
        let pod = pod_namespaces(&PodNamespaceRequest {
            network: PodNamespace::New,
            ipc: PodNamespace::New,
            uts: PodNamespace::New,
            hostname: Some("pod"),
            pid,
            user: Some(user.as_fd()),
            sysctl: &sysctl,
            cgroup: CgroupEntry::default(),
        })
        .unwrap();
        let mut world = World::mapped();
        for (kind, fd) in
            [("user", Some(&user)), ("network", pod.network.as_ref()), ("ipc", pod.ipc.as_ref())]
                .into_iter()
                .chain([("uts", pod.uts.as_ref()), ("pid", pod.pid.as_ref())])
        {
            if let Some(fd) = fd {
                join(&mut world, kind, fd);
            }
        }
        let script = "hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni
            ip link set lo down && ip link set lo up && echo admin";
        for set in ["effective", "permitted", "bounding"] {
            world.spec["process"]["capabilities"][set].as_array_mut().unwrap().push(json!("CAP_NET_ADMIN"));
        }
        let ended = world.shell(script).run().unwrap();
        assert_eq!(ended.output(), "pod\n7\n99\nadmin", "{}", ended.stderr);
        assert_eq!(pod.init.is_some(), pid == PodPid::Shared);
        if let Some(init) = pod.init {
            let status = fs::read_to_string(format!("/proc/{}/status", init.pid.as_raw_pid())).unwrap();
            assert_eq!(status_line(&status, "Uid"), [HOST; 4].map(|id| id.to_string()).join("\t"));
            assert_eq!(status_line(&status, "CapPrm"), "0000000000000000");
            pidfd_send_signal(&init.pidfd, Signal::KILL).unwrap();
            waitid(WaitId::PidFd(init.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
        }
    }
}

fn join(world: &mut World, kind: &str, fd: &OwnedFd) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let namespaces = world.spec["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.iter_mut().find(|namespace| namespace["type"] == kind).unwrap()["path"] = json!(path);
}

/// All capabilities in a user namespace are none on the host: not on its files, its processes, its devices or its name.
fn a_root_with_capabilities_stays_inside() {
    let mut world = World::mapped();
    let secret = world.path("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "secret").unwrap();
    std::os::unix::fs::chown(secret.join("file"), Some(0), Some(0)).unwrap();
    fs::set_permissions(secret.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    world.add_mount(
        json!({ "destination": "/secret", "type": "bind", "source": secret, "options": ["rbind", "rprivate"] }),
    );
    let all: Vec<String> = (0..=40).map(|number| capability(number).to_owned()).collect();
    for set in ["effective", "permitted", "bounding"] {
        world.spec["process"]["capabilities"][set] = json!(all);
    }
    world.spec["linux"].as_object_mut().unwrap().remove("seccomp");
    let script = "cat /secret/file; chown 0:0 /secret/file; mknod /x b 8 0; echo 1 > /proc/sys/vm/drop_caches
        echo c > /proc/sysrq-trigger; mount -t ext4 /dev/vda /data; mount -t tmpfs x /data && echo mounted
        chroot /data /x; unshare -U true; true";
    let ended = world.shell(script).run().unwrap();
    assert_eq!(ended.stdout.trim(), "mounted", "{ended:?}");
    assert_eq!(fs::read_to_string(secret.join("file")).unwrap(), "secret");
    assert_eq!(owner(secret.join("file")), (0, 0));
}

fn capability(number: usize) -> &'static str {
    [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_DAC_READ_SEARCH",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETPCAP",
        "CAP_LINUX_IMMUTABLE",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_BROADCAST",
        "CAP_NET_ADMIN",
        "CAP_NET_RAW",
        "CAP_IPC_LOCK",
        "CAP_IPC_OWNER",
        "CAP_SYS_MODULE",
        "CAP_SYS_RAWIO",
        "CAP_SYS_CHROOT",
        "CAP_SYS_PTRACE",
        "CAP_SYS_PACCT",
        "CAP_SYS_ADMIN",
        "CAP_SYS_BOOT",
        "CAP_SYS_NICE",
        "CAP_SYS_RESOURCE",
        "CAP_SYS_TIME",
        "CAP_SYS_TTY_CONFIG",
        "CAP_MKNOD",
        "CAP_LEASE",
        "CAP_AUDIT_WRITE",
        "CAP_AUDIT_CONTROL",
        "CAP_SETFCAP",
        "CAP_MAC_OVERRIDE",
        "CAP_MAC_ADMIN",
        "CAP_SYSLOG",
        "CAP_WAKE_ALARM",
        "CAP_BLOCK_SUSPEND",
        "CAP_AUDIT_READ",
        "CAP_PERFMON",
        "CAP_BPF",
        "CAP_CHECKPOINT_RESTORE",
    ][number]
}
