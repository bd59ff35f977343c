//! Groups on directory trees that look like the kernel's, so that each layout is tried on any machine and without root.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_cgroups::{
    Cgroup, CgroupError, CgroupPath, Controllers, DiskIo, FreezerState, Layout, LayoutSources, Mode,
    Occupancy, list_children,
};
use oci_spec::runtime::LinuxResources;
use rustix::process::Pid;

const V2: &str = "34 25 0:29 / /cg rw - cgroup2 cgroup2 rw\n";
const V1: &str = "\
31 30 0:27 / /v1/cpu rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:31 / /v1/memory rw - cgroup cgroup rw,memory
34 30 0:32 / /v1/freezer rw - cgroup cgroup rw,freezer
35 30 0:33 / /v1/cpuset rw - cgroup cgroup rw,cpuset
36 30 0:34 / /v1/devices rw - cgroup cgroup rw,devices
";

struct Tree {
    root: tempfile::TempDir,
    layout: Layout,
}

impl Tree {
    fn new(mountinfo: &str, v2_controllers: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let sources = LayoutSources { mountinfo, proc_cgroups: "", v2_controllers };
        let layout = Layout::parse(&sources).unwrap().below(root.path());
        for line in mountinfo.lines() {
            fs::create_dir_all(root.path().join(&line.split(' ').nth(4).unwrap()[1..])).unwrap();
        }
        Tree { root, layout }
    }

    /// Lays files as the kernel would when the group is made.
    fn lay(&self, group: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(self.path(group)).unwrap();
        for (file, content) in files {
            fs::write(self.path(group).join(file), content).unwrap();
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn content(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn open(&self, path: &str) -> Cgroup {
        Cgroup::open(&self.layout, &CgroupPath::parse(path).unwrap())
    }

    fn create(&self, path: &str, needs: Controllers) -> Result<Cgroup, CgroupError> {
        Cgroup::create(&self.layout, &CgroupPath::parse(path).unwrap(), needs)
    }
}

fn resources(json: &str) -> LinuxResources {
    serde_json::from_str(json).unwrap()
}

#[test]
fn v2_hands_controllers_down_to_the_group() {
    let tree = Tree::new(V2, "cpu memory pids");
    assert_eq!(tree.layout.mode(), Mode::V2);
    for (group, file) in [("cg", "cgroup.subtree_control"), ("cg/pod", "cgroup.subtree_control")] {
        tree.lay(group, &[(file, "")]);
    }
    tree.lay("cg/pod/web", &[("cgroup.controllers", "memory\n"), ("pids.max", "")]);
    let needs = tree.layout.check(&resources(r#"{"pids": {"limit": 5}}"#)).unwrap();
    tree.create("/pod/web", needs).unwrap();
    assert_eq!(tree.content("cg/cgroup.subtree_control"), "+memory +pids");
    assert_eq!(tree.content("cg/pod/cgroup.subtree_control"), "+memory +pids");
}

#[test]
fn v2_leaves_the_groups_above_alone_when_they_hand_down_already() {
    let tree = Tree::new(V2, "cpu memory pids");
    tree.lay("cg/pod/web", &[("cgroup.controllers", "cpu memory pids\n")]);
    // No subtree_control anywhere: a write to one would fail.
    tree.create("/pod/web", Controllers::NONE).unwrap();
}

#[test]
fn v2_limits_are_written() {
    let tree = Tree::new(V2, "cpu memory pids");
    tree.lay(
        "cg/pod/web",
        &[
            ("cgroup.controllers", "cpu memory pids"),
            ("memory.current", "0\n"),
            ("memory.max", ""),
            ("cpu.weight", ""),
            ("cpu.max", ""),
            ("pids.max", ""),
        ],
    );
    let group = tree.open("/pod/web");
    let limits = r#"{"memory": {"limit": 65536, "swap": 65536}, "cpu": {"shares": 1024, "quota": 20000}, "pids": {"limit": -1}}"#;
    let warnings = group.apply(&resources(limits)).unwrap();
    assert_eq!(tree.content("cg/pod/web/memory.max"), "65536");
    assert_eq!(tree.content("cg/pod/web/cpu.weight"), "100");
    assert_eq!(tree.content("cg/pod/web/cpu.max"), "20000");
    assert_eq!(tree.content("cg/pod/web/pids.max"), "max");
    // "No swap at all" on a kernel without swap accounting.
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field, "linux.resources.memory.swap");
}

/// The kernel takes a memory.max below what is in use and kills until it fits: an update of a running container's limit
/// must not do that.
#[test]
fn v2_memory_below_usage_is_refused_before_it_kills() {
    let tree = Tree::new(V2, "memory");
    let files = [
        ("cgroup.controllers", "memory"),
        ("memory.current", "1000000\n"),
        ("memory.stat", "anon 600000\ninactive_file 300000\nactive_file 100000\n"),
        ("memory.max", ""),
    ];
    tree.lay("cg/web", &files);
    let error = tree.open("/web").apply(&resources(r#"{"memory": {"limit": 500000}}"#)).unwrap_err();
    assert!(matches!(error, CgroupError::MemoryBelowUsage { usage: 600_000, limit: 500_000, .. }), "{error}");
    assert_eq!(tree.content("cg/web/memory.max"), "");
    // The page cache can be given back.
    tree.open("/web").apply(&resources(r#"{"memory": {"limit": 700000}}"#)).unwrap();
    let strict = resources(r#"{"memory": {"limit": 700000, "checkBeforeUpdate": true}}"#);
    assert!(matches!(
        tree.open("/web").apply(&strict),
        Err(CgroupError::MemoryBelowUsage { usage: 1_000_000, .. })
    ));
}

#[test]
fn a_missing_file_is_named() {
    let tree = Tree::new(V2, "hugetlb");
    tree.lay("cg/web", &[("cgroup.controllers", "hugetlb")]);
    let limits = resources(r#"{"hugepageLimits": [{"pageSize": "3MB", "limit": 1}]}"#);
    let error = tree.open("/web").apply(&limits).unwrap_err().to_string();
    assert!(error.contains("hugepageLimits[0]") && error.contains("hugetlb.3MB.max"), "{error}");
}

#[test]
fn v2_stats() {
    let tree = Tree::new(V2, "cpu memory pids io");
    tree.lay(
        "cg/web",
        &[
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 9\nnr_throttled 2\nthrottled_usec 7\n"),
            ("memory.current", "1000\n"),
            ("memory.max", "max\n"),
            ("memory.stat", "anon 300\ninactive_file 400\npgfault 11\npgmajfault 3\n"),
            ("memory.events", "low 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("pids.current", "4\n"),
            ("pids.max", "10\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2\n"),
        ],
    );
    let stats = tree.open("/web").stats().unwrap();
    assert_eq!((stats.cpu_usage_ns, stats.cpu_user_ns), (Some(1_500_000), Some(1_000_000)));
    assert_eq!((stats.cpu_throttled_periods, stats.cpu_throttled_ns), (Some(2), Some(7_000)));
    assert_eq!(
        (stats.memory_usage, stats.memory_working_set, stats.memory_rss),
        (Some(1000), Some(600), Some(300))
    );
    assert_eq!((stats.memory_limit, stats.memory_max_usage), (None, None));
    assert_eq!((stats.pids_current, stats.pids_limit), (Some(4), Some(10)));
    assert_eq!((stats.io_read_bytes, stats.io_write_bytes), (Some(11), Some(22)));
    assert_eq!(stats.oom_kills, Some(1));
    assert!(matches!(tree.open("/gone").stats(), Err(CgroupError::NotFound { .. })));
}

#[test]
fn v1_stats() {
    let tree = Tree::new(V1, "");
    tree.lay(
        "v1/memory/web",
        &[
            ("memory.usage_in_bytes", "1000\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.memsw.usage_in_bytes", "1500\n"),
            ("memory.stat", "inactive_file 1\ntotal_rss 300\ntotal_inactive_file 400\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
        ],
    );
    tree.lay("v1/memory/web/own", &[("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")]);
    tree.lay(
        "v1/cpu/web",
        &[("cpuacct.usage", "77\n"), ("cpu.stat", "nr_periods 3\nnr_throttled 1\nthrottled_time 9\n")],
    );
    let stats = tree.open("/web").stats().unwrap();
    assert_eq!(
        (stats.memory_limit, stats.memory_swap, stats.memory_working_set),
        (None, Some(500), Some(600))
    );
    assert_eq!((stats.cpu_usage_ns, stats.cpu_throttled_ns), (Some(77), Some(9)));
    assert_eq!(stats.oom_kills, Some(3), "kills in groups that the container made count");
}

#[test]
fn pids_are_those_of_all_groups_below_and_all_hierarchies() {
    let tree = Tree::new(&format!("{V1}{V2}"), "");
    assert_eq!(tree.layout.mode(), Mode::Hybrid);
    tree.lay("cg/web", &[("cgroup.procs", "10\n11\n")]);
    tree.lay("cg/web/a/b/c", &[("cgroup.procs", "12\n")]);
    tree.lay("cg/web/a/b", &[("cgroup.procs", "")]);
    tree.lay("cg/web/a", &[("cgroup.procs", "0\n13\n")]);
    tree.lay("v1/memory/web", &[("cgroup.procs", "11\n14\n")]);
    let expected: HashSet<Pid> = [10, 11, 12, 13, 14].into_iter().filter_map(Pid::from_raw).collect();
    assert_eq!(tree.open("/web").pids().unwrap(), expected);
    assert!(tree.open("/gone").pids().unwrap().is_empty());
}

/// A container that may write to its own group can nest groups as deep as it likes. A walk that held a descriptor for each
/// level, or joined their names to one path, would fail, and so would killing and removing.
#[test]
fn trees_deeper_than_a_path_or_a_descriptor_table_are_walked_and_removed() {
    let tree = Tree::new(V2, "");
    tree.lay("cg/web", &[("cgroup.procs", "")]);
    let mut here =
        rustix::fs::open(tree.path("cg/web"), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    fs::remove_file(tree.path("cg/web/cgroup.procs")).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, "nested", rustix::fs::Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "nested", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    }
    assert!(tree.open("/web").pids().unwrap().is_empty());
    tree.open("/web").remove().unwrap();
    assert!(!tree.path("cg/web").exists());
}

#[test]
fn removing_goes_through_every_hierarchy_and_names_what_is_busy() {
    let tree = Tree::new(&format!("{V1}{V2}"), "");
    for dir in ["cg/web/a/b", "cg/web/c", "v1/memory/web", "v1/freezer/web/busy"] {
        fs::create_dir_all(tree.path(dir)).unwrap();
    }
    // A file keeps a directory here as a process does in the kernel's tree.
    fs::write(tree.path("v1/freezer/web/busy/process"), "").unwrap();
    match tree.open("/web").remove() {
        Err(CgroupError::Busy { path }) => assert_eq!(path, tree.path("v1/freezer/web")),
        other => panic!("{other:?}"),
    }
    assert!(!tree.path("cg/web").exists() && !tree.path("v1/memory/web").exists());
    fs::remove_file(tree.path("v1/freezer/web/busy/process")).unwrap();
    tree.open("/web").remove().unwrap();
    tree.open("/web").remove().unwrap();
}

#[test]
fn only_needed_hierarchies_are_made() {
    let tree = Tree::new(&format!("{V1}{V2}"), "");
    let group = tree.create("/pod/web", Controllers::NONE).unwrap();
    assert!(tree.path("cg/pod/web").exists() && tree.path("v1/memory/pod/web").exists());
    for other in ["cpu", "freezer", "cpuset", "devices"] {
        assert!(!tree.path("v1").join(other).join("pod").exists(), "{other}");
    }
    assert_eq!(group.v1_procs().unwrap(), [tree.path("v1/memory/pod/web/cgroup.procs")]);
    assert!(group.v2_dir().unwrap().is_some());
}

#[test]
fn pure_v1_tracks_by_the_freezer() {
    let tree = Tree::new(V1, "");
    let group = tree.create("/web", Controllers::NONE).unwrap();
    assert!(group.v2_dir().unwrap().is_none());
    let made: HashSet<PathBuf> = group.v1_procs().unwrap().into_iter().collect();
    let expected = ["memory", "freezer", "cpu"].map(|name| tree.path(&format!("v1/{name}/web/cgroup.procs")));
    assert_eq!(made, HashSet::from(expected));
    tree.lay("v1/freezer/web", &[("freezer.state", "")]);
    group.freeze().unwrap();
    assert_eq!(group.freezer_state().unwrap(), FreezerState::Frozen);
    tree.lay("v1/freezer/web", &[("freezer.state", "FREEZING\n")]);
    assert_eq!(group.freezer_state().unwrap(), FreezerState::Freezing);
}

/// A daemon that died between making a v1 cpuset and filling it leaves one that takes no process; the retry must fill it.
#[test]
fn v1_cpusets_are_filled_from_above() {
    let tree = Tree::new(V1, "");
    tree.lay("v1/cpuset", &[("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")]);
    tree.lay("v1/cpuset/pod", &[("cpuset.cpus", "1-2"), ("cpuset.mems", "")]);
    tree.lay("v1/cpuset/pod/web", &[("cpuset.cpus", ""), ("cpuset.mems", "")]);
    let needs = tree.layout.check(&resources(r#"{"cpu": {"cpus": "1"}}"#)).unwrap();
    tree.create("/pod/web", needs).unwrap();
    assert_eq!(tree.content("v1/cpuset/pod/cpuset.mems"), "0");
    assert_eq!(tree.content("v1/cpuset/pod/web/cpuset.cpus"), "1-2");
    assert_eq!(tree.content("v1/cpuset/pod/web/cpuset.mems"), "0");
}

#[test]
fn children_are_listed_over_all_hierarchies() {
    let tree = Tree::new(&format!("{V1}{V2}"), "");
    for dir in ["cg/mainstay/b", "v1/memory/mainstay/a", "v1/memory/mainstay/b"] {
        fs::create_dir_all(tree.path(dir)).unwrap();
    }
    let list = |path: &str| list_children(&tree.layout, &CgroupPath::parse(path).unwrap()).unwrap();
    let names: Vec<String> = list("/mainstay").iter().map(ToString::to_string).collect();
    assert_eq!(names, ["/mainstay/a", "/mainstay/b"]);
    assert!(list("/other").is_empty());
}

/// A link in the place of a group must not lead an operation of root elsewhere.
#[test]
fn links_are_not_followed() {
    let tree = Tree::new(V2, "");
    tree.lay("elsewhere", &[("cgroup.procs", "1\n"), ("cgroup.events", "populated 1\n")]);
    std::os::unix::fs::symlink(tree.path("elsewhere"), tree.path("cg/web")).unwrap();
    assert!(tree.open("/web").pids().is_err());
    assert!(tree.open("/web").remove().is_err());
    assert!(Path::new(&tree.path("elsewhere/cgroup.procs")).exists());
}

#[test]
fn occupancy_is_what_the_kernel_counts() {
    let tree = Tree::new(V2, "");
    tree.lay("cg/web", &[("cgroup.events", "populated 1\nfrozen 0\n")]);
    assert_eq!(tree.open("/web").occupancy().unwrap(), Occupancy::Populated);
    tree.lay("cg/web", &[("cgroup.events", "populated 0\nfrozen 0\n")]);
    assert_eq!(tree.open("/web").occupancy().unwrap(), Occupancy::Empty);
    assert_eq!(tree.open("/gone").occupancy().unwrap(), Occupancy::Empty);
}

const PRESSURE: &str =
    "some avg10=98.17 avg60=0.05 avg300=1.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";

#[test]
fn details_of_v2_are_read() {
    let tree = Tree::new(V2, "cpu memory pids io hugetlb");
    let files = [
        ("cgroup.controllers", "cpu memory pids io hugetlb"),
        ("cpu.pressure", PRESSURE),
        ("memory.stat", "anon 600000\nfile 300\nkernel 77\nfile_mapped 100\n"),
        ("memory.events", "low 0\nmax 9\noom 1\n"),
        ("memory.swap.max", "4096\n"),
        ("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n259:1 rbytes=10\nrubbish\n"),
        ("hugetlb.2MB.current", "2097152\n"),
        ("hugetlb.2MB.rsvd.current", "1\n"),
        ("hugetlb.1GB.current", "0\n"),
    ];
    tree.lay("cg/web", &files);
    let details = tree.open("/web").details().unwrap();
    let pressure = details.cpu_pressure.unwrap();
    assert_eq!((pressure.some.avg10, pressure.some.avg60, pressure.some.avg300), (9_817, 5, 100));
    assert_eq!((pressure.some.total_ns, pressure.full.total_ns), (12_000, 3_000));
    assert_eq!(details.memory_pressure, None);
    assert_eq!((details.memory_cache, details.memory_mapped_file), (Some(300), Some(100)));
    assert_eq!((details.memory_kernel, details.memory_limit_hits), (Some(77), Some(9)));
    assert_eq!(details.swap_limit, Some(4_096));
    let disk = DiskIo { major: 8, minor: 0, read_bytes: 1, write_bytes: 2, reads: 3, writes: 4 };
    assert_eq!(details.disks[0], disk);
    assert_eq!(details.disks[1], DiskIo { major: 259, minor: 1, read_bytes: 10, ..DiskIo::default() });
    let pages: Vec<_> = details.hugepages.iter().map(|page| (page.page_size.as_str(), page.bytes)).collect();
    assert_eq!(pages, [("1GB", 0), ("2MB", 2_097_152)]);
}

#[test]
fn details_of_hybrid_are_read() {
    let hybrid = format!("{V1}{V2}38 30 0:40 / /v1/blkio rw - cgroup cgroup rw,blkio\n");
    let tree = Tree::new(&hybrid, "");
    let files = [
        ("memory.stat", "cache 1\ntotal_cache 300\ntotal_mapped_file 100\n"),
        ("memory.kmem.usage_in_bytes", "77\n"),
        ("memory.failcnt", "9\n"),
        ("memory.limit_in_bytes", "1000\n"),
        ("memory.memsw.limit_in_bytes", "1400\n"),
    ];
    tree.lay("v1/memory/web", &files);
    tree.lay("cg/web", &[("io.pressure", PRESSURE), ("cpu.pressure", "")]);
    let files = [
        (
            "blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 1\n8:0 Write 2\n8:0 Sync 9\n8:0 Total 12\nTotal 3\n",
        ),
        ("blkio.throttle.io_serviced_recursive", "8:0 Read 3\n8:0 Write 4\n"),
    ];
    tree.lay("v1/blkio/web", &files);
    let details = tree.open("/web").details().unwrap();
    assert_eq!(details.io_pressure.map(|pressure| pressure.some.total_ns), Some(12_000));
    assert_eq!(details.cpu_pressure, None, "the kernel does not count it");
    assert_eq!((details.memory_cache, details.memory_mapped_file), (Some(300), Some(100)));
    assert_eq!((details.memory_kernel, details.memory_limit_hits), (Some(77), Some(9)));
    assert_eq!(details.swap_limit, Some(400));
    let disk = DiskIo { major: 8, minor: 0, read_bytes: 1, write_bytes: 2, reads: 3, writes: 4 };
    assert_eq!(details.disks, [disk]);
    assert_eq!(tree.open("/gone").details().unwrap(), mainstay_cgroups::Details::default());
}
