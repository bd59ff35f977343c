//! The sections of the OCI resources, each turned into steps of a plan.
//!
//! Owns: which controller holds a section, and which of its fields are only hints. Never: decides how memory and CPU
//! limits are spelt.

use oci_spec::runtime::{
    LinuxCpu, LinuxDeviceCgroup, LinuxHugepageLimit, LinuxMemory, LinuxNetwork, LinuxPids, LinuxRdma,
};

use super::{Absent, Plan, Setting, Step};
use crate::controllers::Controller;
use crate::devices::Rules;
use crate::error::{CgroupError, FieldName};
use crate::layout::{Home, Layout};
use crate::limits::{self, CpuLimits, Limit, MemoryLimits};
use crate::{v1, v2};

/// Keys of the `unified` map that belong to the core and only bound the group. The rest of `cgroup.*` moves, kills or
/// freezes processes, which is not a limit.
const UNIFIED_CORE_KEYS: [&str; 3] = ["cgroup.max.depth", "cgroup.max.descendants", "cgroup.pressure"];

impl Plan {
    pub(super) fn memory(&mut self, layout: &Layout, memory: &LinuxMemory) -> Result<(), CgroupError> {
        let limits = MemoryLimits::parse(memory)?;
        if limits.is_set() {
            let value = limits.limit.or(limits.reservation).or(limits.swap).map_or(String::new(), Limit::v2);
            match self.home(layout, Controller::Memory, limits::MEMORY_LIMIT, value)? {
                Home::V1(hierarchy) => v1::memory(self, hierarchy, &limits),
                Home::V2(hierarchy) => v2::memory(self, hierarchy, &limits),
            }
        }
        self.memory_hints(layout, memory)
    }

    /// What shapes reclaim without bounding anything.
    fn memory_hints(&mut self, layout: &Layout, memory: &LinuxMemory) -> Result<(), CgroupError> {
        if let Some(bytes) = memory.kernel().filter(|bytes| *bytes != 0) {
            self.warn(
                "linux.resources.memory.kernel",
                bytes,
                "the kernel has no limit of its own for kernel memory any more",
            );
        }
        let v1_memory = layout.v1_hierarchy(Controller::Memory);
        if let Some(percent) = memory.swappiness() {
            let field = "linux.resources.memory.swappiness";
            if percent > 100 {
                return Err(CgroupError::invalid(field, percent, "0 to 100"));
            }
            match v1_memory {
                Some(hierarchy) => {
                    self.needs = self.needs.with(Controller::Memory);
                    self.write(Setting::new(field, hierarchy, "memory.swappiness", percent, "0 to 100"));
                }
                None => self.warn(field, percent, "only v1 groups have a swappiness"),
            }
        }
        if let Some(bytes) = memory.kernel_tcp().filter(|bytes| *bytes != 0) {
            let field = "linux.resources.memory.kernelTCP";
            match v1_memory {
                Some(hierarchy) => {
                    self.needs = self.needs.with(Controller::Memory);
                    let file = "memory.kmem.tcp.limit_in_bytes";
                    self.write(Setting::new(field, hierarchy, file, bytes, "bytes, or -1 for no limit"));
                }
                None => self.warn(field, bytes, "only v1 groups bound TCP buffers by themselves"),
            }
        }
        if memory.disable_oom_killer() == Some(true) {
            let field = "linux.resources.memory.disableOOMKiller";
            match v1_memory {
                Some(hierarchy) => {
                    self.needs = self.needs.with(Controller::Memory);
                    self.write(Setting::new(field, hierarchy, "memory.oom_control", 1, "a memory limit"));
                }
                None => self.warn(field, true, "only v1 groups can do without the OOM killer"),
            }
        }
        Ok(())
    }

    pub(super) fn cpu(&mut self, layout: &Layout, cpu: &LinuxCpu) -> Result<(), CgroupError> {
        let limits = CpuLimits::parse(cpu)?;
        if limits.is_set() {
            let (field, value) = limits.first_field();
            match self.home(layout, Controller::Cpu, field, value)? {
                Home::V1(hierarchy) => v1::cpu(self, hierarchy, &limits),
                Home::V2(hierarchy) => v2::cpu(self, hierarchy, &limits),
            }
        }
        let realtime = [
            (
                "linux.resources.cpu.realtimePeriod",
                "cpu.rt_period_us",
                cpu.realtime_period().map(|us| us.to_string()),
            ),
            (
                "linux.resources.cpu.realtimeRuntime",
                "cpu.rt_runtime_us",
                cpu.realtime_runtime().map(|us| us.to_string()),
            ),
        ];
        for (field, file, value) in realtime {
            let Some(value) = value.filter(|value| value != "0") else { continue };
            match self.home(layout, Controller::Cpu, field, &value)? {
                Home::V1(hierarchy) => {
                    self.write(Setting::new(field, hierarchy, file, value, "what the groups above leave"))
                }
                Home::V2(_) => {
                    return Err(CgroupError::unsupported(field, value, "v2 has no realtime limits"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn cpuset(&mut self, layout: &Layout, cpu: &LinuxCpu) -> Result<(), CgroupError> {
        let lists = [
            ("linux.resources.cpu.mems", "cpuset.mems", cpu.mems(), "memory nodes that are online"),
            ("linux.resources.cpu.cpus", "cpuset.cpus", cpu.cpus(), "CPUs that are online"),
        ];
        for (field, file, list, expected) in lists {
            if let Some(list) = limits::cpu_list(field, list.as_deref())? {
                let (Home::V1(hierarchy) | Home::V2(hierarchy)) =
                    self.home(layout, Controller::Cpuset, field, &list)?;
                self.write(Setting::new(field, hierarchy, file, list, expected));
            }
        }
        Ok(())
    }

    pub(super) fn pids(&mut self, layout: &Layout, pids: &LinuxPids) -> Result<(), CgroupError> {
        let field = "linux.resources.pids.limit";
        if let Some(limit) = limits::pids(pids.limit()) {
            let (Home::V1(hierarchy) | Home::V2(hierarchy)) =
                self.home(layout, Controller::Pids, field, limit.v2())?;
            self.write(Setting::new(
                field,
                hierarchy,
                "pids.max",
                limit.v2(),
                "a number of tasks, or -1 for no limit",
            ));
        }
        Ok(())
    }

    pub(super) fn huge_pages(
        &mut self,
        layout: &Layout,
        list: &[LinuxHugepageLimit],
    ) -> Result<(), CgroupError> {
        for (index, entry) in list.iter().enumerate() {
            let (size, limit) = limits::huge_pages(index, entry)?;
            let field = || FieldName::from(format!("linux.resources.hugepageLimits[{index}]"));
            // kubelet forbids pages that it does not give, on every machine: where they cannot be counted, they are not.
            let forbids = limit == Limit::To(0);
            if forbids && layout.home(Controller::Hugetlb).is_none() {
                self.warn(field(), limit.v2(), "huge pages are not counted here: no hugetlb controller");
                continue;
            }
            let (hierarchy, file, value) =
                match self.home(layout, Controller::Hugetlb, field(), limit.v2())? {
                    Home::V1(hierarchy) => (hierarchy, "limit_in_bytes", limit.v1()),
                    Home::V2(hierarchy) => (hierarchy, "max", limit.v2()),
                };
            let expected = "a huge page size of this machine, and bytes";
            let absent =
                if forbids { Absent::Warn("there are no huge pages of this size") } else { Absent::Refuse };
            let setting =
                Setting::new(field(), hierarchy, format!("hugetlb.{size}.{file}"), &value, expected);
            self.write(setting.absent(absent));
            // Reservations count by themselves since 5.7; a bound on both keeps mmap from promising what a fault cannot get.
            let reserved = format!("hugetlb.{size}.rsvd.{file}");
            self.write(Setting::new(field(), hierarchy, reserved, value, expected).absent(Absent::Skip));
        }
        Ok(())
    }

    pub(super) fn network(&mut self, layout: &Layout, network: &LinuxNetwork) -> Result<(), CgroupError> {
        if let Some(id) = network.class_id().filter(|id| *id != 0) {
            let field = "linux.resources.network.classID";
            let (Home::V1(hierarchy) | Home::V2(hierarchy)) =
                self.home(layout, Controller::NetCls, field, id)?;
            self.write(Setting::new(field, hierarchy, "net_cls.classid", id, "a class id of 32 bits"));
        }
        for (index, priority) in network.priorities().iter().flatten().enumerate() {
            let field = format!("linux.resources.network.priorities[{index}]");
            let value = format!("{} {}", priority.name(), priority.priority());
            if priority.name().is_empty() || priority.name().contains(char::is_whitespace) {
                return Err(CgroupError::invalid(field, value, "the name of a network interface"));
            }
            let (Home::V1(hierarchy) | Home::V2(hierarchy)) =
                self.home(layout, Controller::NetPrio, field.clone(), &value)?;
            self.write(Setting::new(
                field,
                hierarchy,
                "net_prio.ifpriomap",
                value,
                "an interface of this machine",
            ));
        }
        Ok(())
    }

    pub(super) fn rdma(
        &mut self,
        layout: &Layout,
        name: &str,
        limits: &LinuxRdma,
    ) -> Result<(), CgroupError> {
        let field = format!("linux.resources.rdma[{name:?}]");
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(CgroupError::invalid(field, name, "the name of an RDMA device"));
        }
        let mut value = name.to_owned();
        for (key, limit) in [("hca_handle", limits.hca_handles()), ("hca_object", limits.hca_objects())] {
            if let Some(limit) = limit {
                value.push_str(&format!(" {key}={limit}"));
            }
        }
        let (Home::V1(hierarchy) | Home::V2(hierarchy)) =
            self.home(layout, Controller::Rdma, field.clone(), &value)?;
        self.write(Setting::new(field, hierarchy, "rdma.max", value, "an RDMA device of this machine"));
        Ok(())
    }

    /// No list changes nothing. One that allows everything is written, in case an earlier one did not, but it is no reason to have the
    /// controller.
    pub(super) fn devices(&mut self, layout: &Layout, list: &[LinuxDeviceCgroup]) -> Result<(), CgroupError> {
        if list.is_empty() {
            return Ok(());
        }
        let rules = Rules::parse(list)?;
        let home = if rules.restricts() {
            let value = format!("{} rules", list.len());
            Some(self.home(layout, Controller::Devices, "linux.resources.devices", value)?)
        } else {
            layout.home(Controller::Devices)
        };
        match home {
            Some(Home::V1(hierarchy)) => {
                self.steps.push(Step::DevicesV1 { hierarchy, list: rules.exception_list()? })
            }
            Some(Home::V2(hierarchy)) => self.steps.push(Step::DevicesV2 { hierarchy, rules }),
            None => {}
        }
        Ok(())
    }

    pub(super) fn unified(&mut self, layout: &Layout, key: &str, value: &str) -> Result<(), CgroupError> {
        let field = FieldName::from(format!("linux.resources.unified[{key:?}]"));
        let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let (prefix, _) = key.split_once('.').filter(|_| plain).unwrap_or_default();
        let hierarchy = if UNIFIED_CORE_KEYS.contains(&key) {
            layout.v2_tree()
        } else if let Some(controller) = Controller::from_v2_name(prefix) {
            self.needs = self.needs.with(controller);
            let missing = || CgroupError::ControllerMissing {
                field: field.clone(),
                value: value.to_owned(),
                controller,
                mode: layout.mode(),
            };
            Some(
                layout
                    .v2_tree()
                    .filter(|_| layout.v2_controllers().contains(controller))
                    .ok_or_else(missing)?,
            )
        } else {
            return Err(CgroupError::invalid(
                field,
                value,
                "a file of a v2 controller as the key, such as \"memory.high\"",
            ));
        };
        let Some(hierarchy) = hierarchy else {
            return Err(CgroupError::unsupported(field, value, "this machine has no v2 tree"));
        };
        self.write(Setting::new(
            field,
            hierarchy,
            key.to_owned(),
            value,
            "what the kernel's documentation says of this file",
        ));
        Ok(())
    }
}

impl CpuLimits {
    /// The field to name when there is no controller.
    fn first_field(&self) -> (&'static str, String) {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        [
            ("linux.resources.cpu.quota", self.quota.map(Limit::v2)),
            ("linux.resources.cpu.shares", number(self.shares)),
            ("linux.resources.cpu.period", number(self.period)),
            ("linux.resources.cpu.burst", number(self.burst)),
        ]
        .into_iter()
        .find_map(|(field, value)| Some((field, value?)))
        .unwrap_or(("linux.resources.cpu.idle", "1".to_owned()))
    }
}
