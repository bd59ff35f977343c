//! User namespaces: which ids of a pod's containers are which ids of the host.

use serde::{Deserialize, Serialize};

use super::{IpcMode, Network, PidMode};
use crate::error::{Error, Result};

/// The most ranges of a mapping that the kernel takes.
pub const ID_MAPPINGS_MAX: usize = 340;

/// The user namespace of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserNamespace {
    /// The host's: an id in a container is the same id on the host.
    #[default]
    Host,
    /// One of its own. Its ids, from 0 on, are a range of the host's that no other pod has; the configuration says how many
    /// and from where.
    Auto,
    /// One of its own, with these ids.
    Mapped(IdMappings),
}

/// The ids of a user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMappings {
    /// Of users.
    pub uids: Vec<IdMapping>,
    /// Of groups.
    pub gids: Vec<IdMapping>,
}

/// A range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// The first one in the container.
    pub container: u32,
    /// What it is on the host.
    pub host: u32,
    /// How many.
    pub size: u32,
}

impl IdMappings {
    /// The same ranges for users and groups.
    pub fn both(mappings: impl Into<Vec<IdMapping>>) -> Self {
        let uids = mappings.into();
        Self { gids: uids.clone(), uids }
    }

    /// The host's ids of an owner in a container; none when one of them is not mapped.
    pub fn to_host(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        Some((id_to_host(&self.uids, uid)?, id_to_host(&self.gids, gid)?))
    }

    /// The ids in a container of an owner on the host; none when one of them is not mapped.
    pub fn to_container(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        let find = |mappings: &[IdMapping], id| mappings.iter().find_map(|mapping| mapping.to_container(id));
        Some((find(&self.uids, uid)?, find(&self.gids, gid)?))
    }

    /// All ranges, of users and of groups.
    pub fn ranges(&self) -> impl Iterator<Item = &IdMapping> {
        self.uids.iter().chain(&self.gids)
    }

    /// Checks every range.
    pub fn check(&self, field: &str) -> Result<()> {
        check_mappings(&format!("{field}.uids"), &self.uids)?;
        check_mappings(&format!("{field}.gids"), &self.gids)
    }
}

impl IdMappings {
    /// Checks the ranges of owners of files, which need not be those of a container.
    pub(super) fn check_owners(&self, field: &str) -> Result<()> {
        check_ranges(&format!("{field}.uids"), &self.uids)?;
        check_ranges(&format!("{field}.gids"), &self.gids)
    }
}

impl IdMapping {
    fn to_host(self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.container)?;
        (offset < self.size).then(|| self.host.checked_add(offset))?
    }

    fn to_container(self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.host)?;
        (offset < self.size).then(|| self.container.checked_add(offset))?
    }

    /// Whether a range of the host, `size` ids from `host` on, has ids of this one.
    pub fn overlaps_host(self, host: u32, size: u32) -> bool {
        overlap((self.host, self.size), (host, size))
    }
}

impl UserNamespace {
    /// Checks the mappings, and that nothing of the pod is out of the user namespace's reach.
    pub(super) fn check(&self, network: Network, pid: PidMode, ipc: IpcMode) -> Result<()> {
        if *self == Self::Host {
            return Ok(());
        }
        if network == Network::Host {
            let expected =
                "one of its own, in a pod with a user namespace: the host's network belongs to the host's";
            return Err(Error::invalid("network", "host", expected));
        }
        if pid == PidMode::Host {
            let expected =
                "container or pod, in a pod with a user namespace: the host's processes belong to the host's";
            return Err(Error::invalid("pid", "host", expected));
        }
        if ipc == IpcMode::Host {
            let expected = "pod, in a pod with a user namespace: the host's IPC belongs to the host's";
            return Err(Error::invalid("ipc", "host", expected));
        }
        match self {
            Self::Mapped(mappings) => mappings.check("user_namespace"),
            Self::Host | Self::Auto => Ok(()),
        }
    }
}

fn id_to_host(mappings: &[IdMapping], id: u32) -> Option<u32> {
    mappings.iter().find_map(|mapping| mapping.to_host(id))
}

fn overlap(a: (u32, u32), b: (u32, u32)) -> bool {
    let end = |(first, size): (u32, u32)| u64::from(first) + u64::from(size);
    u64::from(a.0) < end(b) && u64::from(b.0) < end(a)
}

/// Those of a user namespace: its root sets the container up, and is not the host's.
fn check_mappings(field: &str, mappings: &[IdMapping]) -> Result<()> {
    check_ranges(field, mappings)?;
    if let Some(index) = mappings.iter().position(|mapping| mapping.host == 0) {
        let IdMapping { container, host, size } = mappings[index];
        let (field, value) = (format!("{field}[{index}]"), format!("{container}:{host}:{size}"));
        return Err(Error::invalid(field, value, "ids of the host from 1 on: 0 is the host's root"));
    }
    if id_to_host(mappings, 0).is_none() {
        return Err(Error::invalid(
            field,
            "no range with the container's id 0",
            "one that has it: the container is set up by that id",
        ));
    }
    Ok(())
}

fn check_ranges(field: &str, mappings: &[IdMapping]) -> Result<()> {
    if mappings.is_empty() || mappings.len() > ID_MAPPINGS_MAX {
        let expected = format!("1 to {ID_MAPPINGS_MAX} ranges");
        return Err(Error::invalid(field, mappings.len().to_string(), expected));
    }
    for (index, mapping) in mappings.iter().enumerate() {
        let IdMapping { container, host, size } = *mapping;
        let refuse = |expected: &str| {
            Err(Error::invalid(format!("{field}[{index}]"), format!("{container}:{host}:{size}"), expected))
        };
        // The last id of 32 bits means "none".
        let fits = |first: u32| first.checked_add(size).is_some();
        if size == 0 || !fits(container) || !fits(host) {
            return refuse("at least one id, and ids from 0 to 4294967294");
        }
        let shared = mappings[..index].iter().any(|earlier| {
            overlap((earlier.container, earlier.size), (container, size)) || earlier.overlaps_host(host, size)
        });
        if shared {
            return refuse("ids that are in no other range, neither in the container nor on the host");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn ranges(list: &[(u32, u32, u32)]) -> Vec<IdMapping> {
        list.iter().map(|&(container, host, size)| IdMapping { container, host, size }).collect()
    }

    #[test]
    fn ids_are_mapped_both_ways() {
        let mappings =
            IdMappings { uids: ranges(&[(0, 1_000, 10), (50, 7, 1)]), gids: ranges(&[(0, 2_000, 9)]) };
        assert_eq!(mappings.to_host(9, 8), Some((1_009, 2_008)));
        assert_eq!(mappings.to_host(50, 0), Some((7, 2_000)));
        assert_eq!(mappings.to_host(9, 9), None);
        assert_eq!(mappings.to_container(1_009, 2_008), Some((9, 8)));
        assert_eq!(mappings.to_container(0, 2_000), None);
        assert_eq!(mappings.check("user_namespace"), Ok(()));
    }

    #[rstest]
    #[case(&[], "1 to 340 ranges")]
    #[case(&[(0, 5, 0)], "at least one id")]
    #[case(&[(0, 5, 1), (1, u32::MAX, 1)], "ids from 0 to 4294967294")]
    #[case(&[(0, 0, 10)], "0 is the host's root")]
    #[case(&[(0, 5, 10), (9, 100, 1)], "no other range")]
    #[case(&[(0, 5, 10), (10, 14, 1)], "no other range")]
    #[case(&[(1, 5, 10)], "the container is set up by that id")]
    fn refuses_mappings(#[case] list: &[(u32, u32, u32)], #[case] part: &str) {
        let error = IdMappings::both(ranges(list)).check("user_namespace").expect_err("refused").to_string();
        assert!(error.starts_with("user_namespace.uids") && error.contains(part), "{error}");
    }

    #[test]
    fn what_belongs_to_the_host_does_not_go_with_it() {
        let auto = UserNamespace::Auto;
        let ipc = IpcMode::Pod;
        assert_eq!(auto.check(Network::None, PidMode::Pod, ipc), Ok(()));
        assert!(auto.check(Network::Host, PidMode::Pod, ipc).is_err());
        assert!(auto.check(Network::None, PidMode::Host, ipc).is_err());
        assert!(auto.check(Network::None, PidMode::Pod, IpcMode::Host).is_err());
        assert_eq!(UserNamespace::Host.check(Network::Host, PidMode::Host, IpcMode::Host), Ok(()));
    }
}
