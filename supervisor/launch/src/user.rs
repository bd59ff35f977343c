//! Who the process runs as: user strings, and the container's own `/etc/passwd` and `/etc/group`.
//!
//! A string of digits is a number and never a name; a number must fit an id. Whatever cannot be understood is an error and
//! never root (CVE-2024-40635, CVE-2026-46680). The data bases are the image's, so they are hostile: regular files only,
//! found inside the root, of limited size, and never opened before it is known what they are.

use std::io::{self, Read};
use std::path::Path;

use oci_spec::runtime::User;
use rustix::fs::{FileType, OFlags, fstat};

use crate::error::{LaunchError, Result};
use crate::mounts::target::{ContainerRoot, Links};
use crate::procfs::{HostProc, is_procfs};

/// The largest `/etc/passwd` or `/etc/group` that is read.
pub const USER_DATABASE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The longest user string.
pub const USER_STRING_MAX_BYTES: usize = 512;
/// The most groups that the kernel takes (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;
/// The home of a user that the container does not know.
const HOME_DEFAULT: &str = "/";

/// A user or a group, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    Number(u32),
    Name(String),
}

/// `user` or `user:group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserString {
    user: Principal,
    group: Option<Principal>,
}

/// Who the process becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups; always with the primary one, so that no process can shed a group that is denied something
    /// (CVE-2022-2989, CVE-2023-25173).
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// Where supplementary groups come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    /// From the spec and from the data bases.
    Merge,
    /// From the spec alone.
    Strict,
}

/// The texts of the container's data bases; empty where it has none.
#[derive(Debug, Default)]
pub(crate) struct UserDatabase {
    passwd: String,
    group: String,
}

struct PasswdEntry<'a> {
    name: &'a str,
    uid: &'a str,
    gid: &'a str,
    home: &'a str,
}

struct GroupEntry<'a> {
    name: &'a str,
    gid: &'a str,
    members: &'a str,
}

impl UserString {
    /// Reads a user string.
    pub(crate) fn parse(text: &str) -> Result<UserString> {
        let fault = |problem: String| LaunchError::User { user: shorten(text), problem };
        if text.len() > USER_STRING_MAX_BYTES {
            return Err(fault(format!("longer than {USER_STRING_MAX_BYTES} bytes")));
        }
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        Ok(UserString {
            user: Principal::parse(user).map_err(&fault)?,
            group: group.map(Principal::parse).transpose().map_err(&fault)?,
        })
    }
}

impl Principal {
    fn parse(text: &str) -> std::result::Result<Principal, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return parse_id(text)
                .map(Principal::Number)
                .ok_or_else(|| format!("{text:?} is no id; ids go from 0 to {}", u32::MAX - 1));
        }
        let starts_like_a_name =
            text.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_');
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@' | '\\' | '+');
        if starts_like_a_name && text.chars().all(is_plain) {
            Ok(Principal::Name(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} is neither a number nor a name; write a number, or a name that begins with a letter"
            ))
        }
    }
}

impl UserDatabase {
    /// Reads the data bases of a container.
    pub(crate) fn read(root: &ContainerRoot, proc: &HostProc) -> Result<UserDatabase> {
        let read = |path: &str| {
            read_database(root, proc, path)
                .map_err(|error| LaunchError::User { user: path.to_owned(), problem: error.to_string() })
        };
        Ok(UserDatabase { passwd: read("/etc/passwd")?, group: read("/etc/group")? })
    }

    /// For a user that a string names: the ids from the data bases, the spec's groups kept.
    pub(crate) fn resolve(&self, text: &str, spec: &User, groups: Groups) -> Result<Credentials> {
        let wanted = UserString::parse(text)?;
        let fault = |problem: String| LaunchError::User { user: shorten(text), problem };
        let entry = match &wanted.user {
            Principal::Number(uid) => self.user_by_id(*uid),
            Principal::Name(name) => {
                let entry = self.users().find(|entry| entry.name == name);
                Some(
                    entry
                        .ok_or_else(|| fault(format!("the container's /etc/passwd has no user {name:?}")))?,
                )
            }
        };
        let id = |text: &str, what: &str| {
            parse_id(text).ok_or_else(|| fault(format!("its line in /etc/passwd has {text:?} as {what} id")))
        };
        let uid = match (&wanted.user, &entry) {
            (Principal::Number(uid), _) => *uid,
            (Principal::Name(_), Some(entry)) => id(entry.uid, "user")?,
            (Principal::Name(name), None) => return Err(fault(format!("no user {name:?}"))),
        };
        let gid = match (&wanted.group, &entry) {
            (Some(Principal::Number(gid)), _) => *gid,
            (Some(Principal::Name(name)), _) => self.group_by_name(name).map_err(&fault)?,
            (None, Some(entry)) => id(entry.gid, "group")?,
            (None, None) => 0,
        };
        let member_of = match &entry {
            Some(entry) if groups == Groups::Merge => self.groups_of(entry.name).map_err(&fault)?,
            Some(_) | None => Vec::new(),
        };
        self.credentials(uid, gid, spec, member_of)
    }

    /// For a user that the spec gives by number.
    pub(crate) fn numeric(&self, spec: &User) -> Result<Credentials> {
        self.credentials(spec.uid(), spec.gid(), spec, Vec::new())
    }

    fn credentials(&self, uid: u32, gid: u32, spec: &User, member_of: Vec<u32>) -> Result<Credentials> {
        let mut groups = vec![gid];
        for group in spec.additional_gids().iter().flatten().chain(&member_of) {
            if !groups.contains(group) {
                groups.push(*group);
            }
        }
        if uid == u32::MAX || groups.contains(&u32::MAX) {
            let problem = format!("{} means \"no id\"; ids go from 0 to {}", u32::MAX, u32::MAX - 1);
            return Err(LaunchError::User { user: format!("{uid}:{gid}"), problem });
        }
        if groups.len() > GROUPS_MAX {
            let problem = format!("{} groups; at most {GROUPS_MAX} are possible", groups.len());
            return Err(LaunchError::User { user: format!("{uid}:{gid}"), problem });
        }
        let home = self.user_by_id(uid).map(|entry| entry.home).filter(|home| home.starts_with('/'));
        Ok(Credentials { uid, gid, groups, home: home.unwrap_or(HOME_DEFAULT).to_owned() })
    }

    fn users(&self) -> impl Iterator<Item = PasswdEntry<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let (uid, gid, _comment) = (fields.next()?, fields.next()?, fields.next());
            Some(PasswdEntry { name, uid, gid, home: fields.next().unwrap_or_default() })
        })
    }

    fn groups(&self) -> impl Iterator<Item = GroupEntry<'_>> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password, gid) = (fields.next()?, fields.next()?, fields.next()?);
            Some(GroupEntry { name, gid, members: fields.next().unwrap_or_default() })
        })
    }

    fn user_by_id(&self, uid: u32) -> Option<PasswdEntry<'_>> {
        self.users().find(|entry| parse_id(entry.uid) == Some(uid))
    }

    fn group_by_name(&self, name: &str) -> std::result::Result<u32, String> {
        let entry = self.groups().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| format!("the container's /etc/group has no group {name:?}"))?;
        parse_id(entry.gid).ok_or_else(|| format!("group {name:?} has {:?} as id in /etc/group", entry.gid))
    }

    fn groups_of(&self, user: &str) -> std::result::Result<Vec<u32>, String> {
        self.groups()
            .filter(|entry| entry.members.split(',').any(|member| member.trim() == user))
            .map(|entry| {
                let fault = || {
                    format!("it is in group {:?}, which has {:?} as id in /etc/group", entry.name, entry.gid)
                };
                parse_id(entry.gid).ok_or_else(fault)
            })
            .collect()
    }
}

/// A decimal id without sign, space or prefix. `u32::MAX` means "unchanged" to the kernel and is no id.
fn parse_id(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|id| *id != u32::MAX)
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

fn read_database(root: &ContainerRoot, proc: &HostProc, path: &str) -> io::Result<String> {
    let handle = match root.find(Path::new(path), Links::Inside) {
        Ok(handle) => handle,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Ok(String::new());
        }
        Err(error) => return Err(error),
    };
    let fault = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if FileType::from_raw_mode(fstat(&handle)?.st_mode) != FileType::RegularFile || is_procfs(&handle)? {
        return fault("it must be a regular file");
    }
    let file = proc.reopen(&handle, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(USER_DATABASE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > USER_DATABASE_MAX_BYTES {
        return fault("it is larger than 4 MiB");
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
