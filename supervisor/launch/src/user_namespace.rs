//! User namespaces: made with their mappings, entered, and asked which ids they map.
//!
//! A process in one is root there alone. So what only the host's root may do for a container is done before its process enters
//! ([`crate::stage`]), and everything after that by the container's root, whose mistakes the kernel confines to the container.
//!
//! Owns: the mappings, the descriptor, and becoming the root of one. Never: chooses ids.

use std::fmt::Write;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::{LinuxIdMapping, LinuxNamespaceType, Spec};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{
    LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::clone::{self, CgroupEntry};
use crate::error::{Context, LaunchError, Result, Step, invalid, machine};
use crate::syscall::CLONE_NEWUSER;
use crate::user::Credentials;

/// Which ids of a container are which of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdMap<'a> {
    uids: &'a [LinuxIdMapping],
    gids: &'a [LinuxIdMapping],
}

/// The user namespace of a container.
#[derive(Debug)]
pub(crate) struct UserNamespace<'a> {
    fd: OwnedFd,
    pub(crate) ids: IdMap<'a>,
}

/// Makes a user namespace with these mappings. Waits for the kernel to make it.
///
/// # Errors
/// When the kernel refuses it, or a mapping.
pub fn user_namespace(uids: &[LinuxIdMapping], gids: &[LinuxIdMapping]) -> Result<OwnedFd> {
    // The process does nothing: it is there to have the namespace until it is opened.
    let child = clone::start(CLONE_NEWUSER, None, CgroupEntry::default(), &[], |control| {
        loop {
            control.wait_for_release();
        }
    });
    let child = child.map_err(|error| match &error {
        LaunchError::System { source, .. } if source.raw_os_error() == Some(libc::ENOSPC) => machine(
            "user namespace",
            "no more of them are allowed (user.max_user_namespaces), or they are nested too deep",
        ),
        _ => error,
    })?;
    let made = map_and_open(child.pid.as_raw_pid(), uids, gids);
    // A reaper of the caller's may be faster than this one.
    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    made
}

fn map_and_open(process: i32, uids: &[LinuxIdMapping], gids: &[LinuxIdMapping]) -> Result<OwnedFd> {
    for (file, mappings) in [("uid_map", uids), ("gid_map", gids)] {
        // The kernel takes all of it in one write, and only one.
        fs::write(format!("/proc/{process}/{file}"), text_of(mappings))
            .context(Step::Namespaces, || format!("mapping the ids of a user namespace ({file})"))?;
    }
    let path = format!("/proc/{process}/ns/user");
    let file = File::open(&path).context(Step::Namespaces, || format!("opening {path}"))?;
    Ok(file.into())
}

fn text_of(mappings: &[LinuxIdMapping]) -> String {
    mappings.iter().fold(String::new(), |mut text, mapping| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {} {}", mapping.container_id(), mapping.host_id(), mapping.size());
        text
    })
}

/// Makes this process the root of a user namespace, with all capabilities in it and none outside.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::User))
        .context(Step::Namespaces, || "joining the user namespace".to_owned())?;
    become_root()
}

/// Takes the ids of the root of the user namespace that this process has just joined: until then it has none in it.
pub(crate) fn become_root() -> Result<()> {
    let change = || -> rustix::io::Result<()> {
        set_thread_groups(&[])?;
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
    };
    change().context(Step::Namespaces, || "becoming root in the user namespace".to_owned())
}

impl<'a> IdMap<'a> {
    /// That of a container; none when it has no user namespace of its own.
    pub(crate) fn of(spec: &'a Spec) -> Result<Option<IdMap<'a>>> {
        let Some(linux) = spec.linux() else { return Ok(None) };
        let given = |mappings: &'a Option<Vec<LinuxIdMapping>>| mappings.as_deref().unwrap_or_default();
        let (uids, gids) = (given(linux.uid_mappings()), given(linux.gid_mappings()));
        let listed = linux.namespaces().as_deref().unwrap_or_default();
        let has_namespace = listed.iter().any(|namespace| namespace.typ() == LinuxNamespaceType::User);
        for (field, mappings) in [("linux.uidMappings", uids), ("linux.gidMappings", gids)] {
            match (has_namespace, to_host(mappings, 0)) {
                (true, Some(_)) => {}
                (true, None) => {
                    return Err(invalid(
                        field,
                        "a user namespace is listed, but its id 0 is not mapped; the container is set up by that id",
                    ));
                }
                (false, _) if mappings.is_empty() => {}
                (false, _) => {
                    return Err(invalid(field, "there are mappings, but no user namespace is listed"));
                }
            }
        }
        Ok(has_namespace.then_some(IdMap { uids, gids }))
    }

    /// The host's id of an owner in the container.
    pub(crate) fn owner(self, uid: u32, gid: u32) -> Option<(Uid, Gid)> {
        Some((Uid::from_raw(to_host(self.uids, uid)?), Gid::from_raw(to_host(self.gids, gid)?)))
    }

    /// The host's ids of the container's root.
    pub(crate) fn root(self) -> (Uid, Gid) {
        // `of` has made sure of it.
        self.owner(0, 0).expect("id 0 is mapped")
    }

    /// Refuses ids that the user namespace does not have: the kernel would, with less to say about it.
    pub(crate) fn check(self, credentials: &Credentials) -> Result<()> {
        let Credentials { uid, gid, groups, .. } = credentials;
        let groups = groups.iter().map(|group| ("group", *group, self.gids));
        let mut ids = [("user", *uid, self.uids), ("group", *gid, self.gids)].into_iter().chain(groups);
        match ids.find(|(_, id, mappings)| to_host(mappings, *id).is_none()) {
            None => Ok(()),
            Some((kind, id, mappings)) => Err(LaunchError::User {
                user: format!("{uid}:{gid}"),
                problem: format!(
                    "the {kind} id {id} is not mapped in the user namespace, which has {}",
                    ranges(mappings)
                ),
            }),
        }
    }
}

impl<'a> UserNamespace<'a> {
    /// That which the spec names or asks for.
    pub(crate) fn of(spec: &'a Spec) -> Result<Option<UserNamespace<'a>>> {
        let Some(ids) = IdMap::of(spec)? else { return Ok(None) };
        let listed =
            spec.linux().as_ref().and_then(|linux| linux.namespaces().as_deref()).unwrap_or_default();
        let path = listed.iter().find(|namespace| namespace.typ() == LinuxNamespaceType::User);
        let fd = match path.and_then(|namespace| namespace.path().as_ref()) {
            None => user_namespace(ids.uids, ids.gids)?,
            Some(path) => rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .context(Step::Namespaces, || format!("linux.namespaces (user): {path:?}"))?,
        };
        Ok(Some(UserNamespace { fd, ids }))
    }

    /// Makes this process its root.
    pub(crate) fn enter(&self) -> Result<()> {
        enter(self.fd.as_fd())
    }
}

impl AsFd for UserNamespace<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn to_host(mappings: &[LinuxIdMapping], id: u32) -> Option<u32> {
    mappings.iter().find_map(|mapping| {
        let offset = id.checked_sub(mapping.container_id())?;
        (offset < mapping.size()).then(|| mapping.host_id().checked_add(offset))?
    })
}

/// As in `0 to 999, 5000`.
fn ranges(mappings: &[LinuxIdMapping]) -> String {
    let range = |mapping: &LinuxIdMapping| match mapping.size() {
        1 => mapping.container_id().to_string(),
        size => format!("{} to {}", mapping.container_id(), mapping.container_id().saturating_add(size - 1)),
    };
    mappings.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxIdMappingBuilder;

    use super::*;

    fn mapping(container: u32, host: u32, size: u32) -> LinuxIdMapping {
        LinuxIdMappingBuilder::default()
            .container_id(container)
            .host_id(host)
            .size(size)
            .build()
            .expect("all fields are given")
    }

    #[test]
    fn ids_are_found_in_their_range_and_nowhere_else() {
        let mappings = [mapping(0, 100_000, 1_000), mapping(5_000, 7, 1), mapping(u32::MAX - 1, u32::MAX, 2)];
        assert_eq!(to_host(&mappings, 0), Some(100_000));
        assert_eq!(to_host(&mappings, 999), Some(100_999));
        assert_eq!(to_host(&mappings, 1_000), None);
        assert_eq!(to_host(&mappings, 5_000), Some(7));
        assert_eq!(to_host(&mappings, u32::MAX), None, "it would be past the last id");
        assert_eq!(ranges(&mappings[..2]), "0 to 999, 5000");
        assert_eq!(text_of(&mappings[..2]), "0 100000 1000\n5000 7 1\n");
    }
}
