//! The name of a group, the same in every hierarchy.
//!
//! Owns: what a valid name is. Never: touches the file system.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest name of one group, in bytes: what a directory entry can hold.
pub const GROUP_NAME_MAX_BYTES: usize = 255;
/// The most groups that a path may name, one inside the other.
pub const GROUP_DEPTH_MAX: usize = 16;

/// Names that the kernel gives to its own files, so that a group cannot have them.
const KERNEL_FILES: [&str; 4] = ["tasks", "notify_on_release", "release_agent", "irq.pressure"];
/// What the kernel's other files begin with.
const KERNEL_PREFIXES: [&str; 14] = [
    "cgroup.",
    "cpu.",
    "cpuacct.",
    "cpuset.",
    "memory.",
    "pids.",
    "devices.",
    "freezer.",
    "blkio.",
    "io.",
    "hugetlb.",
    "net_cls.",
    "net_prio.",
    "rdma.",
];

/// An absolute path such as `/mainstay/<sandbox>/<container>`, seen from the top of each hierarchy as
/// it is mounted here.
///
/// It always names at least one group: the top of a hierarchy, which holds the whole machine, cannot be
/// named and so cannot be killed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupPath(PathBuf);

/// Why a text is not the path of a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("cgroup path {path:?} is not absolute: it must begin with \"/\"")]
    NotAbsolute {
        /// The text.
        path: String,
    },
    /// It names the top of the hierarchy.
    #[error("cgroup path {path:?} names no group: at least one name must follow the \"/\"")]
    Empty {
        /// The text.
        path: String,
    },
    /// It is nested too deep.
    #[error("cgroup path {path:?} is {depth} groups deep: at most {GROUP_DEPTH_MAX} are taken")]
    TooDeep {
        /// The text.
        path: String,
        /// How deep it is.
        depth: usize,
    },
    /// One of its names cannot be used.
    #[error("{name:?} in cgroup path {path:?} cannot be the name of a group: {reason}")]
    Name {
        /// The text.
        path: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl CgroupPath {
    /// Takes an absolute path whose names are 1 to 255 of the characters `A-Z a-z 0-9 _ - . : @ +`, are not
    /// `.` or `..`, and are not those of the kernel's own files.
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let Some(relative) = path.strip_prefix('/') else {
            return Err(PathError::NotAbsolute { path: path.to_owned() });
        };
        if relative.is_empty() {
            return Err(PathError::Empty { path: path.to_owned() });
        }
        let depth = relative.split('/').count();
        if depth > GROUP_DEPTH_MAX {
            return Err(PathError::TooDeep { path: path.to_owned(), depth });
        }
        for name in relative.split('/') {
            check_name(name).map_err(|reason| PathError::Name {
                path: path.to_owned(),
                name: name.to_owned(),
                reason,
            })?;
        }
        Ok(CgroupPath(PathBuf::from(relative)))
    }

    /// The group `name` inside this one.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        CgroupPath::parse(&format!("{self}/{name}"))
    }

    /// The path above this one; none when that is the root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().filter(|path| !path.as_os_str().is_empty()).map(|path| CgroupPath(path.to_path_buf()))
    }

    /// The path from the top of a hierarchy, without the leading `/`.
    pub fn relative(&self) -> &Path {
        &self.0
    }

    /// A group that a directory listing named. A container may have made it, so its name keeps no rule but
    /// those of a directory entry; it still has no `/` and is not `.` or `..`.
    pub(crate) fn listed(&self, name: &OsStr) -> Self {
        CgroupPath(self.0.join(name))
    }

    /// The groups above this one, the outermost first.
    pub(crate) fn ancestors(&self) -> Vec<&Path> {
        let mut above: Vec<&Path> =
            self.0.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        above.reverse();
        above
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

impl std::str::FromStr for CgroupPath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        CgroupPath::parse(path)
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name == "." || name == ".." {
        return Err("it would leave its place in the tree");
    }
    if name.len() > GROUP_NAME_MAX_BYTES {
        return Err("it is longer than 255 bytes");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:@+".contains(&byte)) {
        return Err("only letters, digits and _ - . : @ + are taken");
    }
    if KERNEL_FILES.contains(&name) || KERNEL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err("the kernel has files of that name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_we_make() {
        let path = CgroupPath::parse("/mainstay/0a1b-2c/web_1.2").unwrap();
        assert_eq!(path.to_string(), "/mainstay/0a1b-2c/web_1.2");
        assert_eq!(path.relative(), Path::new("mainstay/0a1b-2c/web_1.2"));
        assert_eq!(path.ancestors(), [Path::new("mainstay"), Path::new("mainstay/0a1b-2c")]);
        assert_eq!(path.child("x").unwrap().to_string(), "/mainstay/0a1b-2c/web_1.2/x");
    }

    /// A container id comes from outside. If it could name the top of a hierarchy or climb out of ours, killing
    /// the "container" would kill the machine.
    #[test]
    fn refuses_hostile_names() {
        let long = format!("/{}", "x".repeat(GROUP_NAME_MAX_BYTES + 1));
        let deep = "/a".repeat(GROUP_DEPTH_MAX + 1);
        for bad in [
            "",
            "/",
            "mainstay/a",
            "//",
            "/a//b",
            "/a/",
            "/..",
            "/a/../b",
            "/a/.",
            "/a/b c",
            "/a/\n",
            "/a/\0",
            "/a/é",
            "/cgroup.procs",
            "/a/memory.max",
            "/tasks",
            &long,
            &deep,
        ] {
            assert!(CgroupPath::parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(CgroupPath::parse("/a").unwrap().child("../b").is_err());
    }
}
