//! Layouts as machines of different kinds mount them.

use super::*;

const UNIFIED: &str = "\
25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw
34 25 0:29 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
30 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
";

const LEGACY: &str = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
32 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
35 30 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices
";

const V2_BESIDE: &str = "41 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

fn layout(mountinfo: &str, proc_cgroups: &str, v2_controllers: &str) -> Layout {
    Layout::parse(&LayoutSources { mountinfo, proc_cgroups, v2_controllers }).unwrap()
}

#[test]
fn reads_a_unified_machine() {
    let layout = layout(UNIFIED, "", "cpuset cpu io memory hugetlb pids rdma misc\n");
    assert_eq!(layout.mode(), Mode::V2);
    assert_eq!(layout.v2_mount_point(), Some(Path::new("/sys/fs/cgroup")));
    let tree = layout.v2_tree().unwrap();
    for controller in
        [Controller::Memory, Controller::Io, Controller::Devices, Controller::Freezer, Controller::Cpuacct]
    {
        assert_eq!(layout.home(controller), Some(Home::V2(tree)), "{controller}");
    }
    assert_eq!(layout.home(Controller::NetCls), None);
}

#[test]
fn reads_a_legacy_machine() {
    let layout = layout(LEGACY, "", "");
    assert_eq!(layout.mode(), Mode::V1);
    assert_eq!(layout.v2_mount_point(), None);
    let both = Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(layout.v1_mount_point(Controller::Cpu), both);
    assert_eq!(layout.v1_mount_point(Controller::Cpuacct), both);
    assert_eq!(layout.home(Controller::Pids), None);
}

#[test]
fn a_hybrid_machine_tracks_on_v2_and_limits_on_v1() {
    let layout = layout(&format!("{LEGACY}{V2_BESIDE}"), "", "hugetlb");
    assert_eq!(layout.mode(), Mode::Hybrid);
    assert!(matches!(layout.home(Controller::Freezer), Some(Home::V2(_))));
    assert!(matches!(layout.home(Controller::Hugetlb), Some(Home::V2(_))));
    assert!(matches!(layout.home(Controller::Devices), Some(Home::V1(_))));
    assert!(matches!(layout.home(Controller::Memory), Some(Home::V1(_))));
}

/// Some machines mount one v1 controller beside a full v2 tree (a VPN client does it with net_cls). Taking them for
/// "v1" would lose every limit.
#[test]
fn one_legacy_controller_does_not_take_the_others_along() {
    let mounts = format!("{UNIFIED}50 30 0:60 / /run/net_cls rw - cgroup net_cls rw,net_cls\n");
    let layout = layout(&mounts, "", "cpu memory pids");
    assert!(matches!(layout.home(Controller::Memory), Some(Home::V2(_))));
    assert!(matches!(layout.home(Controller::NetCls), Some(Home::V1(_))));
}

#[test]
fn mount_points_are_never_assumed() {
    let layout = layout("9 1 0:9 / /odd\\040place\\134x rw - cgroup2 none rw\n", "", "memory");
    assert_eq!(layout.v2_mount_point(), Some(Path::new("/odd place\\x")));
    assert_eq!(layout.below(Path::new("/tmp/t")).v2_mount_point(), Some(Path::new("/tmp/t/odd place\\x")));
}

#[test]
fn hidden_mounts_and_parts_of_a_hierarchy_are_passed_over() {
    let mounts = "\
10 1 0:7 / /a rw - cgroup c rw,memory
11 1 0:8 / /a rw - tmpfs t rw
12 1 0:7 /docker/x /b rw - cgroup c rw,memory
13 1 0:7 / /c rw - cgroup c rw,memory
14 1 0:7 / /d rw - cgroup c rw,memory
";
    assert_eq!(layout(mounts, "", "").v1_mount_point(Controller::Memory), Some(Path::new("/c")));
}

#[test]
fn switched_off_controllers_are_not_offered() {
    let proc_cgroups = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t9\t0\nfreezer\t6\t1\t1\n";
    let layout = layout(LEGACY, proc_cgroups, "");
    assert_eq!(layout.home(Controller::Memory), None);
    assert!(layout.home(Controller::Freezer).is_some());
}

#[test]
fn says_when_nothing_is_mounted() {
    for mountinfo in ["", "garbage", "1 2 3 - ", "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n"] {
        let parsed = Layout::parse(&LayoutSources { mountinfo, ..LayoutSources::default() });
        assert!(matches!(parsed, Err(CgroupError::NotMounted)), "{mountinfo:?}");
    }
}
