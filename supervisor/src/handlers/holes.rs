//! Holes of runtimes that are known, and the versions that mend them.
//!
//! Sources: the changelogs and advisories of runc and crun, and Debian's changelogs, as of August 2026. A hole is listed where
//! a container, or an image, could reach the host through it. Of crun its own list of changes is the source: it names no
//! version for CVE-2025-31133 and CVE-2025-52881, so neither does this.
//!
//! Owns: the table, and the sentence. All of it is pure.

use super::version::{Release, Version};

/// A hole.
struct Hole {
    name: &'static str,
    program: &'static str,
    /// The first version of each line that does not have it, the oldest line first.
    mended: &'static [Version],
    /// A distribution's own version that mends it: the beginning of its text, and from which number after that.
    by_distribution: Option<(&'static str, u32)>,
}

const fn hole(program: &'static str, name: &'static str, mended: &'static [Version]) -> Hole {
    Hole { name, program, mended, by_distribution: None }
}

const NOVEMBER_2025: &[Version] =
    &[Version::new(1, 2, 8), Version::new(1, 3, 3), Version::candidate(1, 4, 0, 3)];

const HOLES: &[Hole] = &[
    hole("runc", "CVE-2019-5736", &[Version::candidate(1, 0, 0, 7)]),
    hole("runc", "CVE-2021-30465", &[Version::candidate(1, 0, 0, 95)]),
    hole("runc", "CVE-2022-29162", &[Version::new(1, 1, 2)]),
    hole("runc", "CVE-2023-27561", &[Version::new(1, 1, 5)]),
    hole("runc", "CVE-2023-28642", &[Version::new(1, 1, 5)]),
    Hole {
        // Debian's changelog of 2 February 2024.
        by_distribution: Some(("1.1.5+ds1-1+deb12u", 1)),
        ..hole("runc", "CVE-2024-21626", &[Version::new(1, 1, 12)])
    },
    hole("runc", "CVE-2024-45310", &[Version::new(1, 1, 14), Version::candidate(1, 2, 0, 3)]),
    hole("runc", "CVE-2025-31133", NOVEMBER_2025),
    hole("runc", "CVE-2025-52565", NOVEMBER_2025),
    hole("runc", "CVE-2025-52881", NOVEMBER_2025),
    hole(
        "runc",
        "CVE-2026-41579",
        &[Version::new(1, 3, 6), Version::new(1, 4, 3), Version::candidate(1, 5, 0, 3)],
    ),
    hole("crun", "CVE-2022-27650", &[Version::new(1, 4, 4)]),
    hole("crun", "CVE-2025-24965", &[Version::new(1, 20, 0)]),
    hole("crun", "CVE-2026-30892", &[Version::new(1, 27, 0)]),
    hole("crun", "CVE-2026-47766", &[Version::new(1, 28, 0)]),
];

impl Hole {
    fn is_in(&self, release: &Release) -> bool {
        if self.program != release.name {
            return false;
        }
        let by_numbers = match self.mended.iter().find(|mended| is_of_line(mended, release.version)) {
            Some(mended) => release.version >= *mended,
            None => self.mended.last().is_none_or(|newest| release.version > *newest),
        };
        !by_numbers && !self.is_mended_by_distribution(release)
    }

    fn is_mended_by_distribution(&self, release: &Release) -> bool {
        let Some((beginning, least)) = self.by_distribution else { return false };
        let number = release.of_distribution().and_then(|text| text.strip_prefix(beginning)).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().unwrap_or(0)
        });
        number.is_some_and(|number| number >= least)
    }
}

fn is_of_line(mended: &Version, version: Version) -> bool {
    mended.numbers[..2] == version.numbers[..2]
}

/// One sentence about the holes of a version, without the program's name at its beginning; none where none is known.
pub fn sentence(release: &Release) -> Option<String> {
    let open: Vec<&Hole> = HOLES.iter().filter(|hole| hole.is_in(release)).collect();
    let names: Vec<&str> = open.iter().map(|hole| hole.name).collect();
    // What mends the most recent one mends all: it is the newest of each line.
    let newest = open.last()?;
    let versions: Vec<String> = newest.mended.iter().map(Version::to_string).collect();
    let unless = match release.of_distribution() {
        Some(text) => format!(", unless your distribution has mended it in {text}"),
        None => String::new(),
    };
    let shown = if release.of_distribution().is_some() { &release.commit } else { &release.text };
    let shown = if shown.is_empty() { &release.text } else { shown };
    Some(format!(
        "{} {shown} has {} known {}, {}{unless}; install {} or newer",
        release.name,
        open.len(),
        if open.len() == 1 { "hole" } else { "holes" },
        names.join(", "),
        versions.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(answer: &str) -> Vec<&'static str> {
        let release = Release::parse(answer).expect("a version");
        HOLES.iter().filter(|hole| hole.is_in(&release)).map(|hole| hole.name).collect()
    }

    const NEWEST: &str = "CVE-2026-41579";
    const AUTUMN: [&str; 3] = ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"];

    #[test]
    fn versions_have_the_holes_of_their_time() {
        let of_autumn = |answer: &str| names(answer).into_iter().filter(|name| AUTUMN.contains(name)).count();
        for mended in ["1.2.8", "1.2.9", "1.3.3", "1.4.0-rc.3", "1.4.0", "1.5.0", "2.0.0"] {
            assert_eq!(of_autumn(&format!("runc version {mended}")), 0, "{mended}");
        }
        for open in ["1.0.0-rc93", "1.1.15", "1.2.7", "1.3.2", "1.4.0-rc.2"] {
            assert_eq!(of_autumn(&format!("runc version {open}")), 3, "{open}");
        }
        assert_eq!(names("runc version 1.3.5"), [NEWEST]);
        assert_eq!(names("runc version 1.2.9"), [NEWEST], "its line was not mended");
        assert!(names("runc version 1.3.6").is_empty());
        assert!(names("runc version 1.5.0").is_empty());
        assert_eq!(names("runc version 1.1.11").len(), 6);
        assert!(names("crun version 1.28").is_empty());
        assert_eq!(names("crun version 1.8.1").len(), 3);
        assert!(names("youki version 0.1.0").is_empty(), "nothing is known of it");
    }

    /// Debian mends old versions: the numbers alone would accuse its packages for ever.
    #[test]
    fn a_distribution_that_has_mended_a_hole_is_believed() {
        let debian = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n";
        assert!(!names(debian).contains(&"CVE-2024-21626"));
        assert!(names(debian).contains(&"CVE-2025-31133"));
        assert!(names("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+b1\n").contains(&"CVE-2024-21626"));
    }

    #[test]
    fn the_sentence_says_what_to_install() {
        let release = Release::parse("runc version 1.3.5\ncommit: v1.3.5-0-gabc\n").expect("a version");
        assert_eq!(
            sentence(&release).as_deref(),
            Some("runc 1.3.5 has 1 known hole, CVE-2026-41579; install 1.3.6, 1.4.3, 1.5.0-rc.3 or newer")
        );
        let debian = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n";
        let said = sentence(&Release::parse(debian).expect("a version")).expect("holes");
        assert!(said.starts_with("runc 1.1.5+ds1-1+deb12u1 has 5 known holes, CVE-2024-45310, "), "{said}");
        assert!(said.contains("unless your distribution has mended it in 1.1.5+ds1-1+deb12u1"), "{said}");
        assert_eq!(sentence(&Release::parse("runc version 1.5.0").expect("a version")), None);
    }
}
