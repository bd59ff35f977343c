//! The cgroup that a pod's is made in, where that is not the runtime's own.
//!
//! Owns: what a path may be, and where a slice of systemd is. Never: looks at the machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The most groups above a pod's. The pod's own, its containers' and what these make are below them.
pub const CGROUP_PARENT_DEPTH_MAX: usize = 12;
/// The longest path, in bytes.
pub const CGROUP_PARENT_LENGTH_MAX: usize = 1_024;
/// What the names of slices of systemd end with.
const SLICE: &str = ".slice";

/// A cgroup of somebody else's. Kept as its path from the top of each hierarchy, as in `/kubepods/burstable/pod1`.
///
/// Read also from the name of a slice of systemd: `kubepods-burstable.slice` is the group
/// `/kubepods.slice/kubepods-burstable.slice`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CgroupParent(Box<str>);

impl CgroupParent {
    /// The path from the top of each hierarchy, with its leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CgroupParent {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let path = match text.strip_suffix(SLICE) {
            Some(name) if !text.contains('/') => slice_path(name).ok_or_else(|| refused(text))?,
            _ => text.trim_end_matches('/').to_owned(),
        };
        let names = path.strip_prefix('/').ok_or_else(|| refused(text))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:@+".contains(&byte);
        let good = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(plain);
        let depth = names.split('/').count();
        if depth > CGROUP_PARENT_DEPTH_MAX
            || path.len() > CGROUP_PARENT_LENGTH_MAX
            || !names.split('/').all(good)
        {
            return Err(refused(text));
        }
        Ok(Self(path.into_boxed_str()))
    }
}

/// Where systemd has the slice of this name (systemd.slice(5)): each `-` goes one group down.
fn slice_path(name: &str) -> Option<String> {
    let mut path = String::new();
    let mut so_far = String::new();
    for part in name.split('-') {
        if part.is_empty() {
            return None;
        }
        if !so_far.is_empty() {
            so_far.push('-');
        }
        so_far.push_str(part);
        path.push('/');
        path.push_str(&so_far);
        path.push_str(SLICE);
    }
    Some(path)
}

fn refused(text: &str) -> Error {
    let shown: String = text.chars().take(128).collect();
    let expected = format!(
        "an absolute path of 1 to {CGROUP_PARENT_DEPTH_MAX} names of letters, digits and \"_-.:@+\", without \"..\", or the \
         name of a slice, as in \"kubepods-burstable.slice\""
    );
    Error::invalid("cgroup_parent", format!("{shown:?}"), expected)
}

impl TryFrom<String> for CgroupParent {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<CgroupParent> for String {
    fn from(parent: CgroupParent) -> Self {
        parent.0.into()
    }
}

impl fmt::Display for CgroupParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CgroupParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CgroupParent({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/kubepods/burstable/pod1", "/kubepods/burstable/pod1")]
    #[case("/kubepods/", "/kubepods")]
    #[case("kubepods.slice", "/kubepods.slice")]
    #[case(
        "kubepods-burstable-pod1_2.slice",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
    )]
    #[case("/kubepods.slice/x.slice", "/kubepods.slice/x.slice")]
    fn reads(#[case] text: &str, #[case] path: &str) {
        let parent: CgroupParent = text.parse().expect("good");
        assert_eq!(parent.as_str(), path);
        assert_eq!(path.parse::<CgroupParent>().expect("what it is kept as"), parent);
    }

    /// It names where groups are made and killed: it must never lead out of its place, nor to the top.
    #[rstest]
    #[case("")]
    #[case("/")]
    #[case("kubepods")]
    #[case("/a/../b")]
    #[case("/a//b")]
    #[case("/a b")]
    #[case("-.slice")]
    #[case("a--b.slice")]
    #[case(".slice")]
    #[case("../x.slice")]
    #[case("/1/2/3/4/5/6/7/8/9/10/11/12/13")]
    fn refuses(#[case] text: &str) {
        let error = text.parse::<CgroupParent>().expect_err("refused").to_string();
        assert!(error.starts_with("cgroup_parent: "), "{error}");
    }
}
