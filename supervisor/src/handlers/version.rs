//! What a runtime says of itself with `--version`.
//!
//! Owns: reading that, and comparing versions. All of it is pure. Never: runs a program.

use std::cmp::Ordering;
use std::fmt;

/// The longest answer that is looked at, in bytes.
const ANSWER_MAX_BYTES: usize = 16 * 1024;

/// A runtime's own words about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name that it has for itself, as in `runc`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The version as it was written.
    pub text: String,
    /// What it was built from, as it was written: with Debian's packages, the version of the package.
    pub commit: String,
}

/// Three numbers, and which candidate for them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The numbers.
    pub numbers: [u32; 3],
    /// As in `-rc.3`; none for the version itself.
    pub candidate: Option<u32>,
}

impl Version {
    /// A version that is no candidate.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { numbers: [major, minor, patch], candidate: None }
    }

    /// A candidate.
    pub const fn candidate(major: u32, minor: u32, patch: u32, number: u32) -> Self {
        Self { numbers: [major, minor, patch], candidate: Some(number) }
    }

    /// Reads `1.1.5`, `1.8`, `1.4.0-rc.3+dev`, `1.0.0-rc93`, `1.1.12-0ubuntu2~22.04.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let mut parts = numbers.trim_end_matches('.').split('.');
        let mut next = || -> Option<u32> { parts.next()?.parse().ok() };
        let (major, minor) = (next()?, next()?);
        let patch = next().unwrap_or(0);
        let candidate = rest.trim_start_matches(['-', '~']).strip_prefix("rc").map(|rest| {
            let digits: String =
                rest.trim_start_matches('.').chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(0)
        });
        Some(Self { numbers: [major, minor, patch], candidate })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |version: &Self| version.candidate.map_or((1, 0), |number| (0, number));
        self.numbers.cmp(&other.numbers).then_with(|| rank(self).cmp(&rank(other)))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        self.candidate.map_or(Ok(()), |number| write!(f, "-rc.{number}"))
    }
}

impl Release {
    /// Reads the answer to `--version`.
    pub fn parse(answer: &str) -> Option<Self> {
        let answer = answer.get(..answer.len().min(ANSWER_MAX_BYTES)).unwrap_or_default();
        let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut words = lines.next()?.split_whitespace();
        let name = words.next()?;
        let text = words.find(|word| Version::parse(word).is_some())?;
        let commit = lines.find_map(|line| line.strip_prefix("commit:")).map_or("", str::trim);
        Some(Self {
            name: name.to_owned(),
            version: Version::parse(text)?,
            text: text.to_owned(),
            commit: commit.to_owned(),
        })
    }

    /// The version that a distribution has given it, where one has: it may have mended what its numbers do not show.
    pub fn of_distribution(&self) -> Option<&str> {
        let marks = ["+ds", "+deb", "ubuntu", ".el", ".fc", "+b", "-r", "~", "-1"];
        let plain = |text: &str| text.contains("-rc") || text.starts_with('v') || text.contains("-g");
        [self.commit.as_str(), self.text.as_str()].into_iter().find(|text| {
            Version::parse(text).is_some() && !plain(text) && marks.iter().any(|mark| text.contains(mark))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the programs have said it.
    #[rstest::rstest]
    #[case(
        "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\ngo: go1.19.8\nlibseccomp: 2.5.4\n",
        "runc",
        Version::new(1, 1, 5),
        Some("1.1.5+ds1-1+deb12u1")
    )]
    #[case(
        "crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30\nrundir: /run/crun\nspec: 1.0.0\n+SYSTEMD +SELINUX\n",
        "crun",
        Version::new(1, 8, 1),
        None
    )]
    #[case(
        "runc version 1.1.12\ncommit: v1.1.12-0-g51d5e946\nspec: 1.0.2-dev\ngo: go1.20.13\nlibseccomp: 2.5.4\n",
        "runc",
        Version::new(1, 1, 12),
        None
    )]
    #[case(
        "runc version 1.4.0-rc.3+dev\ncommit: v1.4.0-rc.3-12-gabcdef\n",
        "runc",
        Version::candidate(1, 4, 0, 3),
        None
    )]
    #[case("runc version 1.0.0-rc93\n", "runc", Version::candidate(1, 0, 0, 93), None)]
    #[case(
        "runc version 1.1.12-0ubuntu2~22.04.1\nspec: 1.0.2-dev\n",
        "runc",
        Version::new(1, 1, 12),
        Some("1.1.12-0ubuntu2~22.04.1")
    )]
    #[case("youki version: 0.3.3\ncommit: 0.3.3-0-bec8\n", "youki", Version::new(0, 3, 3), None)]
    #[case("runc version 1.1\n", "runc", Version::new(1, 1, 0), None)]
    fn programs_tell_their_version(
        #[case] answer: &str,
        #[case] name: &str,
        #[case] version: Version,
        #[case] distribution: Option<&str>,
    ) {
        let release = Release::parse(answer).expect("a version");
        assert_eq!((release.name.as_str(), release.version), (name, version));
        assert_eq!(release.of_distribution(), distribution);
    }

    #[test]
    fn what_is_no_version_is_none() {
        for text in ["", "\n\n", "runc", "runc version", "usage: sh [OPTION]", "\u{0}\u{1}", "x y 1"] {
            assert_eq!(Release::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn candidates_come_before_their_version() {
        let ordered = ["1.0.0-rc93", "1.0.0-rc95", "1.0.0", "1.1.9", "1.1.12", "1.2.0-rc.1", "1.2.0", "1.10"];
        let versions: Vec<_> = ordered.iter().filter_map(|text| Version::parse(text)).collect();
        assert_eq!(versions.len(), ordered.len());
        assert!(versions.is_sorted(), "{versions:?}");
    }
}
