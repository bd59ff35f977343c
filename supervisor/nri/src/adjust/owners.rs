//! Which plugin changed which field of which container.

use std::collections::BTreeMap;

use mainstay_nri_api::{Enum, Field, FieldOwners, OwningPlugins};

use super::error::{AdjustError, quoted};

/// Fields and their owners, of all containers that an event is about.
///
/// Invariant: an entry has at most one owner; hooks have all who added any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    containers: BTreeMap<String, BTreeMap<Claimed, Owner>>,
}

/// The number of a field, and the key of an entry of it.
type Claimed = (i32, Option<String>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// It set the entry.
    Set(String),
    /// It took away what another plugin had set.
    Cleared(String),
    /// They added to it.
    Shared(Vec<String>),
}

/// One plugin's say about one container.
pub(super) struct Claims<'a> {
    pub(super) owners: &'a mut Owners,
    pub(super) container: &'a str,
    pub(super) plugin: &'a str,
}

impl Claims<'_> {
    /// Makes the plugin the owner of a field, or of an entry of one.
    pub(super) fn claim(&mut self, field: Field, key: Option<&str>) -> Result<(), AdjustError> {
        let owned = self.owners.of(self.container);
        let claimed = (field.value(), key.map(str::to_owned));
        match owned.get(&claimed) {
            None | Some(Owner::Shared(_)) => {}
            Some(Owner::Cleared(other)) if other == self.plugin => {}
            Some(Owner::Set(other) | Owner::Cleared(other)) => {
                return Err(AdjustError::Conflict {
                    plugin: self.plugin.to_owned(),
                    other: other.clone(),
                    field: described(field, key),
                    container: self.container.to_owned(),
                });
            }
        }
        owned.insert(claimed, Owner::Set(self.plugin.to_owned()));
        Ok(())
    }

    /// Takes it from whoever owns it: only this plugin may set it from now on.
    pub(super) fn clear(&mut self, field: Field, key: Option<&str>) {
        let claimed = (field.value(), key.map(str::to_owned));
        if let Some(owner) = self.owners.of(self.container).get_mut(&claimed) {
            *owner = Owner::Cleared(self.plugin.to_owned());
        }
    }

    /// Makes the plugin one of the owners.
    pub(super) fn share(&mut self, field: Field) {
        let owner = self.owners.of(self.container).entry((field.value(), None));
        match owner.or_insert_with(|| Owner::Shared(Vec::new())) {
            Owner::Shared(plugins) => plugins.push(self.plugin.to_owned()),
            other => *other = Owner::Shared(vec![self.plugin.to_owned()]),
        }
    }
}

impl Owners {
    fn of(&mut self, container: &str) -> &mut BTreeMap<Claimed, Owner> {
        self.containers.entry(container.to_owned()).or_default()
    }

    /// The plugin that set a field, or an entry of one.
    pub fn owner(&self, container: &str, field: Field, key: Option<&str>) -> Option<&str> {
        match self.containers.get(container)?.get(&(field.value(), key.map(str::to_owned)))? {
            Owner::Set(plugin) => Some(plugin),
            Owner::Cleared(_) | Owner::Shared(_) => None,
        }
    }

    /// As validators are told.
    pub fn to_api(&self) -> OwningPlugins {
        let mut all = OwningPlugins::new();
        for (container, owned) in &self.containers {
            let mut fields = FieldOwners::new();
            for ((field, key), owner) in owned {
                let text = match owner {
                    Owner::Set(plugin) => plugin.clone(),
                    Owner::Cleared(plugin) => format!("-{plugin}"),
                    Owner::Shared(plugins) => plugins.join(","),
                };
                match key {
                    None => drop(fields.simple.insert(*field, text)),
                    Some(key) => {
                        let entries = fields.compound.entry(*field).or_default();
                        entries.owners.insert(key.clone(), text);
                    }
                }
            }
            all.owners.insert(container.clone(), fields);
        }
        all
    }
}

/// A field as errors name it: by its place in an answer.
fn described(field: Field, key: Option<&str>) -> String {
    let name = match field {
        Field::None => "nothing",
        Field::Annotations => "annotations",
        Field::Mounts => "mounts",
        Field::OciHooks => "hooks",
        Field::Devices => "linux.devices",
        Field::CdiDevices => "CDI_devices",
        Field::Env => "env",
        Field::Args => "args",
        Field::MemLimit => "linux.resources.memory.limit",
        Field::MemReservation => "linux.resources.memory.reservation",
        Field::MemSwapLimit => "linux.resources.memory.swap",
        Field::MemKernelLimit => "linux.resources.memory.kernel",
        Field::MemTCPLimit => "linux.resources.memory.kernel_tcp",
        Field::MemSwappiness => "linux.resources.memory.swappiness",
        Field::MemDisableOomKiller => "linux.resources.memory.disable_oom_killer",
        Field::MemUseHierarchy => "linux.resources.memory.use_hierarchy",
        Field::CPUShares => "linux.resources.cpu.shares",
        Field::CPUQuota => "linux.resources.cpu.quota",
        Field::CPUPeriod => "linux.resources.cpu.period",
        Field::CPURealtimeRuntime => "linux.resources.cpu.realtime_runtime",
        Field::CPURealtimePeriod => "linux.resources.cpu.realtime_period",
        Field::CPUSetCPUs => "linux.resources.cpu.cpus",
        Field::CPUSetMems => "linux.resources.cpu.mems",
        Field::PidsLimit => "linux.resources.pids",
        Field::HugepageLimits => "linux.resources.hugepage_limits",
        Field::BlockioClass => "linux.resources.blockio_class",
        Field::RdtClass => "linux.resources.rdt_class",
        Field::CgroupsUnified => "linux.resources.unified",
        Field::CgroupsPath => "linux.cgroups_path",
        Field::OomScoreAdj => "linux.oom_score_adj",
        Field::Rlimits => "rlimits",
        Field::IoPriority => "linux.io_priority",
        Field::SeccompPolicy => "linux.seccomp_policy",
        Field::Namespace => "linux.namespaces",
        Field::Sysctl => "linux.sysctl",
        Field::LinuxNetDevices => "linux.net_devices",
        Field::LinuxSched => "linux.scheduler",
        Field::RdtClosID => "linux.rdt.clos_id",
        Field::RdtSchemata => "linux.rdt.schemata",
        Field::RdtEnableMonitoring => "linux.rdt.enable_monitoring",
        Field::MemoryPolicy => "linux.memory_policy",
    };
    key.map_or_else(|| name.to_owned(), |key| format!("{name}[{}]", quoted(key)))
}
