//! Which ids of the host the pods with a user namespace have.
//!
//! A pod's ids are written into its directory before anything is made with them, and are free again when that is gone, with the
//! pod's last process. So what is in use is known from the directories alone, after a kill -9 and without the store too. What other
//! programs use, other runtimes among them, is known as far as processes run in their user namespaces.
//!
//! Owns: the choice of a range, and the file that holds it. Never: makes a namespace.

mod kernel;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mainstay_messages::record::SandboxRecord;
use mainstay_messages::shortage::explained;
use mainstay_messages::spec::{IdMapping, IdMappings, UserNamespace};
use mainstay_messages::{Error, Result, SandboxId};
use serde::{Deserialize, Serialize};

use crate::faults::Written;
use crate::files::write_private;
use crate::host::KernelVersion;
use crate::machine::Machine;
use crate::paths::Directories;

/// The first id of the host that is given to pods: of a range that no other program is known to give away (systemd's list of
/// ranges has it as unused).
pub const FIRST_HOST_ID_DEFAULT: u32 = 1_879_048_192;
/// How many ids of the host, from there on, are given to pods: enough for 4094 of them, and below 2^31, from where on some
/// programs take ids for negative.
pub const HOST_IDS_DEFAULT: u32 = 268_304_384;
/// How many ids a pod gets: all of 16 bits, nobody's among them, as with other runtimes.
pub const IDS_PER_POD_DEFAULT: u32 = 65_536;

/// The first kernel with id-mapped mounts.
const ID_MAPPED_MOUNTS_SINCE: KernelVersion = KernelVersion { major: 5, minor: 12 };
/// The first kernel that takes them as layers of an overlay.
const ID_MAPPED_LAYERS_SINCE: KernelVersion = KernelVersion { major: 5, minor: 19 };
/// How many user namespaces a user may have made.
const LIMIT_FILE: &str = "/proc/sys/user/max_user_namespaces";

/// The ids of the host that are given to pods whose user namespace is `auto`. Runtimes that are beside one another need ranges
/// of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserNamespaces {
    /// [`FIRST_HOST_ID_DEFAULT`]
    pub first_host_id: u32,
    /// [`HOST_IDS_DEFAULT`]
    pub host_ids: u32,
    /// [`IDS_PER_POD_DEFAULT`]
    pub ids_per_pod: u32,
}

/// Where pods choose their ids, one at a time. What is chosen counts from then on, however long the writing of it takes: a
/// disk that hangs under one pod holds up no other.
#[derive(Debug, Default)]
pub(crate) struct IdDesk(Mutex<Choices>);

/// What is being written, and how often something was written to its end.
#[derive(Debug, Default)]
struct Choices {
    chosen: BTreeMap<SandboxId, Assigned>,
    written: u64,
}

/// A choice that is being written. Dropped, the pod's directory alone says what it has.
struct Choice<'a> {
    desk: &'a IdDesk,
    sandbox: &'a SandboxId,
}

/// The ids of a pod, as its directory has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Assigned {
    origin: Origin,
    ids: IdMappings,
}

/// Who has chosen them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Origin {
    Auto,
    Given,
}

impl IdDesk {
    fn choices(&self) -> MutexGuard<'_, Choices> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Choice<'_> {
    fn drop(&mut self) {
        let mut choices = self.desk.choices();
        choices.chosen.remove(self.sandbox);
        choices.written += 1;
    }
}

impl Default for UserNamespaces {
    fn default() -> Self {
        Self {
            first_host_id: FIRST_HOST_ID_DEFAULT,
            host_ids: HOST_IDS_DEFAULT,
            ids_per_pod: IDS_PER_POD_DEFAULT,
        }
    }
}

impl UserNamespaces {
    /// What is wrong with it: the key, its value, and what would be right.
    pub fn fault(&self) -> Option<(&'static str, u32, &'static str)> {
        let Self { first_host_id, host_ids, ids_per_pod } = *self;
        if first_host_id == 0 {
            Some(("first_host_id", first_host_id, "an id from 1 on: 0 is the host's root"))
        } else if host_ids == 0 || first_host_id.checked_add(host_ids).is_none() {
            Some(("host_ids", host_ids, "at least 1, and so many that the last id is below 4294967295"))
        } else if ids_per_pod == 0 || ids_per_pod > host_ids {
            Some(("ids_per_pod", ids_per_pod, "at least 1, and at most host_ids"))
        } else {
            None
        }
    }

    /// How many pods can have a range at the same time.
    fn pods(&self) -> u32 {
        self.host_ids.checked_div(self.ids_per_pod).unwrap_or_default()
    }

    /// The first range, from a place on and round again, that has no id of those that are taken.
    fn free(&self, taken: &[IdMapping], from: u64) -> Option<IdMapping> {
        let (size, pods) = (self.ids_per_pod, self.pods());
        let first = u32::try_from(from % u64::from(pods.max(1))).unwrap_or_default();
        let mut starts = (first..pods).chain(0..first).map(|index| self.first_host_id + index * size);
        let is_free = |host: &u32| !taken.iter().any(|range| range.overlaps_host(*host, size));
        starts.find(is_free).map(|host| IdMapping { container: 0, host, size })
    }
}

/// Writes down which ids a pod has, if it has a user namespace, and whether this machine can do that.
pub(crate) fn assign(machine: &Machine, record: &SandboxRecord) -> Result<()> {
    let wanted = &record.spec.user_namespace;
    if *wanted == UserNamespace::Host {
        return Ok(());
    }
    check_machine(machine.host.kernel)?;
    let directories = &machine.directories;
    let (mut choices, mut others) = loop {
        let before = machine.ids.choices().written;
        let others = others(directories, &record.id)?;
        let choices = machine.ids.choices();
        // Else a choice may have left the desk after its file was looked for.
        if choices.written == before {
            break (choices, others);
        }
    };
    let being_written = choices.chosen.iter().filter(|(id, _)| **id != record.id);
    others.extend(being_written.map(|(id, ids)| (id.clone(), ids.clone())));
    let assigned = match wanted {
        UserNamespace::Host => return Ok(()),
        UserNamespace::Auto => {
            let elsewhere = kernel::ranges_in_use();
            let elsewhere = elsewhere
                .map_err(|error| Error::unavailable("the user namespaces of this machine", error))?;
            auto(&machine.settings.user_namespaces, &others, &elsewhere, place_of(directories))?
        }
        UserNamespace::Mapped(ids) => given(ids, &others)?,
    };
    choices.chosen.insert(record.id.clone(), assigned.clone());
    drop(choices);
    let _choice = Choice { desk: &machine.ids, sandbox: &record.id };
    let path = directories.pod_ids(&record.id);
    let text = serde_json::to_vec(&assigned).map_err(|error| Error::internal("ids.json", error))?;
    write_private(Written::PodIds, &path, &text)
        .map_err(|error| Error::unavailable(path.display().to_string(), explained(&error)))
}

/// The ids of a pod; none when it has the host's.
pub(crate) fn of_pod(directories: &Directories, sandbox: &SandboxId) -> io::Result<Option<IdMappings>> {
    Ok(read(directories, sandbox)?.map(|assigned| assigned.ids))
}

/// Whether the layers of a container's root can be shown with its own ids.
pub(crate) fn check_layers(kernel: KernelVersion) -> Result<()> {
    needs(kernel, ID_MAPPED_LAYERS_SINCE, "id-mapped layers of a copy-on-write root")
}

/// Where a runtime begins to look: commands that each run a container of their own are runtimes that know nothing of one
/// another, and have one configuration.
fn place_of(directories: &Directories) -> u64 {
    let mut hasher = DefaultHasher::new();
    directories.pods().hash(&mut hasher);
    hasher.finish()
}

fn auto(
    settings: &UserNamespaces,
    others: &[(SandboxId, Assigned)],
    elsewhere: &[IdMapping],
    from: u64,
) -> Result<Assigned> {
    let of_pods = others.iter().flat_map(|(_, other)| other.ids.ranges());
    let taken: Vec<IdMapping> = of_pods.chain(elsewhere).copied().collect();
    let Some(range) = settings.free(&taken, from) else {
        let what = "pods with a user namespace of the configured ids (user_namespaces.host_ids)".to_owned();
        return Err(Error::ResourceExhausted { what, limit: u64::from(settings.pods()) });
    };
    Ok(Assigned { origin: Origin::Auto, ids: IdMappings::both([range]) })
}

/// A range that was promised to one pod alone stays its own.
fn given(ids: &IdMappings, others: &[(SandboxId, Assigned)]) -> Result<Assigned> {
    let promised = others.iter().filter(|(_, other)| other.origin == Origin::Auto);
    for (other, theirs) in promised {
        let clash = ids
            .ranges()
            .find(|range| theirs.ids.ranges().any(|their| range.overlaps_host(their.host, their.size)));
        if let Some(IdMapping { container, host, size }) = clash {
            return Err(Error::invalid(
                "user_namespace",
                format!("{container}:{host}:{size}"),
                format!("ids of the host that pod {other} was not given"),
            ));
        }
    }
    Ok(Assigned { origin: Origin::Given, ids: ids.clone() })
}

/// Those of all other pods that have a directory.
fn others(directories: &Directories, own: &SandboxId) -> Result<Vec<(SandboxId, Assigned)>> {
    let pods = directories.pods();
    let cannot = |error: io::Error| Error::unavailable("the ids of other pods", error);
    let mut others = Vec::new();
    for entry in fs::read_dir(&pods).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let Some(sandbox) = name.to_str().and_then(|name| name.parse::<SandboxId>().ok()) else { continue };
        if sandbox != *own
            && let Some(assigned) = read(directories, &sandbox).map_err(cannot)?
        {
            others.push((sandbox, assigned));
        }
    }
    Ok(others)
}

fn read(directories: &Directories, sandbox: &SandboxId) -> io::Result<Option<Assigned>> {
    match fs::read(directories.pod_ids(sandbox)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_machine(kernel: KernelVersion) -> Result<()> {
    needs(kernel, ID_MAPPED_MOUNTS_SINCE, "id-mapped mounts")?;
    let reason = match fs::read_to_string(LIMIT_FILE) {
        Ok(limit) if limit.trim() == "0" => format!("it allows no user namespaces: {LIMIT_FILE} is 0"),
        Ok(_) => return Ok(()),
        Err(error) => format!("its kernel has no user namespaces ({LIMIT_FILE}: {error})"),
    };
    Err(Error::Unsupported { setting: "user_namespace".to_owned(), reason })
}

fn needs(kernel: KernelVersion, since: KernelVersion, what: &str) -> Result<()> {
    if kernel >= since {
        return Ok(());
    }
    let (is, needed) =
        (format!("{}.{}", kernel.major, kernel.minor), format!("{}.{}", since.major, since.minor));
    Err(Error::Unsupported {
        setting: "user_namespace".to_owned(),
        reason: format!("{what} need Linux {needed}, and this is {is}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(host: u32, size: u32) -> IdMapping {
        IdMapping { container: 0, host, size }
    }

    fn assigned(id: &str, origin: Origin, host: u32, size: u32) -> (SandboxId, Assigned) {
        (id.parse().expect("a good id"), Assigned { origin, ids: IdMappings::both([range(host, size)]) })
    }

    #[test]
    fn the_defaults_are_sound() {
        let settings = UserNamespaces::default();
        assert_eq!(settings.fault(), None);
        assert_eq!(settings.pods(), 4_094);
        assert!(settings.first_host_id + settings.host_ids < 1 << 31);
    }

    #[test]
    fn says_which_key_is_wrong() {
        let good = UserNamespaces { first_host_id: 100, host_ids: 50, ids_per_pod: 10 };
        let key = |settings: UserNamespaces| settings.fault().map(|(key, ..)| key);
        assert_eq!(key(good), None);
        assert_eq!(key(UserNamespaces { first_host_id: 0, ..good }), Some("first_host_id"));
        assert_eq!(key(UserNamespaces { host_ids: u32::MAX, ..good }), Some("host_ids"));
        assert_eq!(key(UserNamespaces { ids_per_pod: 51, ..good }), Some("ids_per_pod"));
    }

    #[test]
    fn a_range_that_was_promised_to_one_pod_stays_its_own() {
        let others = [assigned("a", Origin::Auto, 100, 10), assigned("b", Origin::Given, 200, 10)];
        let error = given(&IdMappings::both([range(109, 5)]), &others).expect_err("a's").to_string();
        assert!(error.contains("0:109:5") && error.contains("pod a"), "{error}");
        // Whoever gives ids by hand may give the same ones twice.
        assert!(given(&IdMappings::both([range(200, 10)]), &others).is_ok());
    }

    #[test]
    fn when_all_are_taken_it_says_how_many_there_are() {
        let settings = UserNamespaces { first_host_id: 100, host_ids: 25, ids_per_pod: 10 };
        let others = [assigned("a", Origin::Auto, 100, 10), assigned("b", Origin::Given, 115, 1)];
        let error = auto(&settings, &others, &[], 7).expect_err("full").to_string();
        assert!(error.contains("user_namespaces.host_ids") && error.contains("limit of 2"), "{error}");
    }

    /// Two commands that each ran a container of their own had begun to look at the same place, and their containers the same
    /// ids: each could have sent signals to the other's.
    #[test]
    fn what_another_runtime_has_is_passed_over() {
        let settings = UserNamespaces { first_host_id: 100, host_ids: 30, ids_per_pod: 10 };
        let own = [assigned("a", Origin::Auto, 100, 10)];
        let found = auto(&settings, &own, &[range(115, 1)], 0).expect("one is free");
        assert_eq!(found.ids, IdMappings::both([range(120, 10)]));
    }

    proptest! {
        /// Ranges come and go; no two that are there at the same time have an id in common, and each is inside the setting.
        #[test]
        fn ranges_never_overlap(
            from in any::<u64>(),
            steps in proptest::collection::vec((any::<bool>(), 0usize..8), 1..60),
        ) {
            let settings = UserNamespaces { first_host_id: 1_000, host_ids: 95, ids_per_pod: 10 };
            let mut live: Vec<IdMapping> = vec![range(1_033, 4)];
            for (comes, which) in steps {
                if comes {
                    if let Some(new) = settings.free(&live, from) {
                        prop_assert!(new.host >= 1_000 && new.host + new.size <= 1_095);
                        prop_assert!(live.iter().all(|other| !other.overlaps_host(new.host, new.size)));
                        live.push(new);
                    } else {
                        prop_assert_eq!(live.len(), 9);
                    }
                } else if which + 1 < live.len() {
                    live.remove(which + 1);
                }
            }
        }
    }
}
