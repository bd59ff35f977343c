//! Plans for each layout, without a file system.

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::layout::{LayoutSources, Mode};

const V1_MEMORY: &str = "33 30 0:31 / /m rw - cgroup cgroup rw,memory\n";
const V1_DEVICES: &str = "34 30 0:32 / /d rw - cgroup cgroup rw,devices\n";
const V2: &str = "41 30 0:38 / /u rw - cgroup2 cgroup2 rw\n";

fn layout(mountinfo: &str, v2_controllers: &str) -> Layout {
    Layout::parse(&LayoutSources { mountinfo, proc_cgroups: "", v2_controllers }).unwrap()
}

fn resources(json: &str) -> LinuxResources {
    serde_json::from_str(json).unwrap()
}

/// Each write as `mount/file=value`.
fn writes(layout: &Layout, json: &str) -> Vec<String> {
    let plan = Plan::new(layout, &resources(json)).unwrap();
    let show = |setting: &Setting| {
        let mount = layout.hierarchy(setting.hierarchy).mount_point.strip_prefix(Path::new("/")).unwrap();
        format!("{}/{}={}", mount.display(), setting.file, setting.value)
    };
    let mut shown = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Write(setting)
            | Step::MemoryLimitV1(setting)
            | Step::MemoryMaxV2 { setting, .. }
            | Step::CpuPeriodV2(setting) => shown.push(show(setting)),
            Step::Interdependent(settings) | Step::FirstPresent(settings) => {
                shown.extend(settings.iter().map(show))
            }
            Step::DevicesV1 { list, .. } => shown.extend(list.lines()),
            Step::DevicesV2 { rules, .. } => shown.push(format!("{} instructions", rules.program().len())),
        }
    }
    shown
}

#[test]
fn memory_in_both_generations() {
    let json = r#"{"memory": {"limit": 1048576, "swap": 3145728, "reservation": 4096}}"#;
    assert_eq!(
        writes(&layout(V1_MEMORY, ""), json),
        [
            "m/memory.limit_in_bytes=1048576",
            "m/memory.memsw.limit_in_bytes=3145728",
            "m/memory.soft_limit_in_bytes=4096"
        ]
    );
    assert_eq!(
        writes(&layout(V2, "memory"), json),
        ["u/memory.max=1048576", "u/memory.swap.max=2097152", "u/memory.low=4096"]
    );
}

#[test]
fn cpu_on_v2() {
    let v2 = layout(V2, "cpu cpuset");
    let json = r#"{"cpu": {"shares": 1024, "quota": 50000, "period": 100000, "cpus": "0-1"}}"#;
    assert_eq!(writes(&v2, json), ["u/cpu.weight=100", "u/cpu.max=50000 100000", "u/cpuset.cpus=0-1"]);
    assert_eq!(writes(&v2, r#"{"cpu": {"quota": -1}}"#), ["u/cpu.max=max"]);
    assert_eq!(writes(&v2, r#"{"cpu": {"idle": 1, "shares": 2}}"#), ["u/cpu.idle=1"]);
}

#[test]
fn block_devices_and_huge_pages_on_v2() {
    let json = r#"{"blockIO": {"weight": 1000, "throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 0}],
        "throttleWriteIOPSDevice": [{"major": 8, "minor": 16, "rate": 7}]}, "hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#;
    assert_eq!(
        writes(&layout(V2, "io hugetlb"), json),
        [
            "u/io.bfq.weight=1000",
            "u/io.weight=10000",
            "u/io.max=8:0 rbps=max",
            "u/io.max=8:16 wiops=7",
            "u/hugetlb.2MB.max=0",
            "u/hugetlb.2MB.rsvd.max=0"
        ]
    );
}

/// A limit that silently does nothing is worse than a refusal: the daemon has to learn it before it makes anything.
#[test]
fn a_limit_without_its_controller_is_refused_by_name() {
    for (json, controller) in [
        (r#"{"memory": {"limit": 1048576}}"#, Controller::Memory),
        (r#"{"pids": {"limit": 7}}"#, Controller::Pids),
        (r#"{"cpu": {"quota": 50000}}"#, Controller::Cpu),
        (r#"{"cpu": {"cpus": "0"}}"#, Controller::Cpuset),
        (r#"{"blockIO": {"weight": 500}}"#, Controller::Io),
        (r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 1}]}"#, Controller::Hugetlb),
        (r#"{"network": {"classID": 7}}"#, Controller::NetCls),
        (r#"{"rdma": {"mlx5_0": {"hcaHandles": 3}}}"#, Controller::Rdma),
        (r#"{"unified": {"memory.high": "1"}}"#, Controller::Memory),
    ] {
        match layout(V2, "").check(&resources(json)) {
            Err(CgroupError::ControllerMissing { controller: missing, mode: Mode::V2, .. }) => {
                assert_eq!(missing, controller)
            }
            other => panic!("{json}: {other:?}"),
        }
    }
}

#[test]
fn limits_that_are_not_set_need_nothing() {
    let json = r#"{"memory": {"limit": 0}, "cpu": {"shares": 0, "quota": 0, "cpus": ""}, "pids": {"limit": 0}, "blockIO": {}}"#;
    assert_eq!(layout(V2, "").check(&resources(json)).unwrap(), Controllers::NONE);
    let no_huge_pages = r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#;
    assert_eq!(layout(V2, "").check(&resources(no_huge_pages)).unwrap(), Controllers::NONE);
    let allow_all = r#"{"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "access": "rwm"}]}"#;
    assert_eq!(layout(V1_MEMORY, "").check(&resources(allow_all)).unwrap(), Controllers::NONE);
}

#[test]
fn devices_go_to_the_v1_controller_where_there_is_one() {
    let json = r#"{"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"}]}"#;
    assert_eq!(writes(&layout(&format!("{V1_DEVICES}{V2}"), ""), json), ["c 1:3 rw"]);
    assert!(writes(&layout(V2, ""), json)[0].ends_with("instructions"));
    assert!(matches!(
        layout(V1_MEMORY, "").check(&resources(json)),
        Err(CgroupError::ControllerMissing { controller: Controller::Devices, .. })
    ));
}

/// The keys of `unified` become file names below the group, so one of them could kill it or move processes.
#[test]
fn unified_keys_are_limits_of_the_group_itself() {
    let v2 = layout(V2, "memory");
    let check = |key: &str| {
        let mut resources = LinuxResources::default();
        resources.set_unified(Some(HashMap::from([(key.to_owned(), "1".to_owned())])));
        v2.check(&resources)
    };
    assert!(check("memory.high").is_ok());
    assert!(check("cgroup.max.descendants").is_ok());
    for bad in
        ["cgroup.procs", "cgroup.kill", "memory", "", "memory./../x", "../memory.max", "foo.bar", "memory.\0"]
    {
        assert!(check(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn what_only_shapes_reclaim_is_a_warning_on_v2() {
    let plan = Plan::new(
        &layout(V2, "memory"),
        &resources(r#"{"memory": {"swappiness": 10, "disableOOMKiller": true}}"#),
    );
    let fields: Vec<_> = plan.unwrap().warnings.into_iter().map(|warning| warning.field).collect();
    assert_eq!(fields, ["linux.resources.memory.swappiness", "linux.resources.memory.disableOOMKiller"]);
}
