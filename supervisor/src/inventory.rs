//! Taking stock: what the machine holds of this runtime, from the kernel and the directories alone.
//!
//! ```text
//!   /proc ─────────── shims ──────┐
//!   cgroup_parent ─── cgroups ────┤      (and those of pods elsewhere, by their directories)
//!   mountinfo ─────── mounts ─────┼──► Inventory
//!   state_dir, root_dir ─ files ──┤
//!   networks, netns_dir ──────────┘
//! ```
//!
//! Owns: the looking, below our own directories and cgroups alone, and saying whose each thing is by its place. Never:
//! looks at a record, decides whether something should be there, or changes anything. All of it blocks.

mod files;
mod mounts;
mod namespaces;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use mainstay_cgroups::{Cgroup, CgroupPath, list_children};
use mainstay_messages::audit::{Inventory, Owner, Thing, ThingKind};
use mainstay_messages::{Error, ProcessIdentity, Result, SandboxId, Timestamp};
use mainstay_shim::POD_GROUPS;

use crate::cgroup;
use crate::find;
use crate::identity::{self, Fate};
use crate::machine::Machine;

pub(crate) use mounts::detach_below;

/// Takes the inventory; answers with it which of `asked` do not run.
pub(crate) fn take(machine: &Machine, asked: Vec<ProcessIdentity>) -> Result<Inventory> {
    let clock = ProcessClock::now();
    let mut things = shims(machine, &clock);
    things.extend(groups(machine, &clock)?);
    let unreadable = |(path, error): (std::path::PathBuf, std::io::Error)| {
        Error::unavailable(path.display().to_string(), error)
    };
    things.extend(files::pods(&machine.directories).map_err(unreadable)?);
    things.extend(files::layers(&machine.directories).map_err(unreadable)?);
    things.extend(files::logs(&machine.directories).map_err(unreadable)?);
    let mounts = mounts::of(&machine.directories).map_err(|error| Error::unavailable("/proc", error))?;
    things.extend(mounts);
    things.extend(namespaces::of(&machine.names).map_err(unreadable)?);
    let networks = machine.networks.things();
    things.extend(networks.things);
    let ended = |process: &ProcessIdentity| match identity::fate(process) {
        Ok(fate) => fate == Fate::Ended,
        // What cannot be found out is not said.
        Err(_) => false,
    };
    let ended = asked.into_iter().filter(ended).collect();
    Ok(Inventory { things, ended, unseen_networks: networks.unseen })
}

fn shims(machine: &Machine, clock: &ProcessClock) -> Vec<Thing> {
    let thing = |shim: find::FoundShim| Thing {
        kind: ThingKind::Shim,
        place: machine.directories.pod(&shim.sandbox).display().to_string(),
        since: clock.start_of(&shim.process),
        owner: Owner::pod(&shim.sandbox),
        process: Some(shim.process),
    };
    find::find_all_shims(&machine.directories).into_iter().map(thing).collect()
}

/// The cgroups below ours and those of pods elsewhere, two deep (what is below that, containers have made themselves), and what runs in them.
fn groups(machine: &Machine, clock: &ProcessClock) -> Result<Vec<Thing>> {
    let mut things = Vec::new();
    let listed = |path: &CgroupPath| list_children(&machine.layout, path).map_err(cgroup::error);
    let mut accounted = BTreeSet::new();
    let mut pods = listed(machine.cgroup_parent())?;
    for (sandbox, parent) in machine.places.elsewhere(&machine.directories) {
        // What else is there is not ours.
        let own = machine.pod_cgroup(&sandbox)?;
        if listed(&parent)?.contains(&own) {
            pods.push(own);
        }
    }
    for pod in pods {
        let sandbox: Option<SandboxId> = last_name(&pod).and_then(|name| name.parse().ok());
        let pods = sandbox.as_ref().map(Owner::pod).unwrap_or_default();
        for inner in listed(&pod)? {
            let name = last_name(&inner).filter(|name| !POD_GROUPS.contains(name));
            let owner = match (&sandbox, name.and_then(|name| name.parse().ok())) {
                (Some(sandbox), Some(container)) => Owner::container(sandbox, &container),
                _ => pods.clone(),
            };
            add_group(machine, &inner, owner, &mut accounted, clock, &mut things)?;
        }
        add_group(machine, &pod, pods, &mut accounted, clock, &mut things)?;
    }
    add_processes(machine, machine.cgroup_parent(), &Owner::default(), &mut accounted, clock, &mut things)?;
    Ok(things)
}

fn last_name(path: &CgroupPath) -> Option<&str> {
    path.relative().file_name()?.to_str()
}

fn add_group(
    machine: &Machine,
    path: &CgroupPath,
    owner: Owner,
    accounted: &mut BTreeSet<u32>,
    clock: &ProcessClock,
    things: &mut Vec<Thing>,
) -> Result<()> {
    add_processes(machine, path, &owner, accounted, clock, things)?;
    let place = path.to_string();
    things.push(Thing { kind: ThingKind::Cgroup, place, process: None, owner, since: None });
    Ok(())
}

/// The processes of a group and of those below it that were not listed with a group further in.
fn add_processes(
    machine: &Machine,
    path: &CgroupPath,
    owner: &Owner,
    accounted: &mut BTreeSet<u32>,
    clock: &ProcessClock,
    things: &mut Vec<Thing>,
) -> Result<()> {
    let pids = Cgroup::open(&machine.layout, path).pids().map_err(cgroup::error)?;
    for pid in pids.into_iter().map(|pid| pid.as_raw_pid().unsigned_abs()) {
        // One that has ended since is none.
        if accounted.insert(pid)
            && let Ok(process) = identity::identity_of(pid)
            && matches!(identity::fate(&process), Ok(Fate::Runs))
        {
            let place = match fs::read_to_string(format!("/proc/{pid}/comm")) {
                Ok(command) => format!("{path} ({})", command.trim_end()),
                Err(_) => path.to_string(),
            };
            let since = clock.start_of(&process);
            let (kind, owner) = (ThingKind::Process, owner.clone());
            things.push(Thing { kind, place, process: Some(process), owner, since });
        }
    }
    Ok(())
}

/// What it takes to say when a process was started.
struct ProcessClock {
    booted_at: Option<SystemTime>,
    ticks_per_second: u64,
}

impl ProcessClock {
    fn now() -> Self {
        let uptime = fs::read_to_string("/proc/uptime").ok();
        let seconds = uptime.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        let up = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            booted_at: up.and_then(|up| SystemTime::now().checked_sub(up)),
            ticks_per_second: rustix::param::clock_ticks_per_second(),
        }
    }

    fn start_of(&self, process: &ProcessIdentity) -> Option<Timestamp> {
        let millis = process.start_ticks.checked_mul(1_000)?.checked_div(self.ticks_per_second)?;
        Some(Timestamp::from_system(self.booted_at?.checked_add(Duration::from_millis(millis))?))
    }
}

/// When a file was last changed, which for a directory that is left alone is when it was made or last filled.
fn changed_at(path: &Path) -> Option<Timestamp> {
    fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok().map(Timestamp::from_system)
}
