//! Which volumes of an image a container gets. Pure.
//!
//! A volume is a directory of the container's own at a place that the image names, filled with what the image has there. What
//! the caller mounts at that place, or above it, is what the caller wants to see there, and is never written to on behalf of an
//! image. The places that the runtime fills in every container are no image's to cover.

use std::path::{Path, PathBuf};

use super::{Mount, PATH_LENGTH_MAX};
use crate::error::{Error, Result};

/// The most volumes that are taken of an image.
pub const VOLUMES_MAX: usize = 256;
/// The places that the runtime fills.
const OWN_PLACES: [&str; 6] = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// The places of volumes, each once, outer ones before those inside them.
pub(super) fn of(image: &[String], mounts: &[Mount]) -> Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    for text in image {
        let place = absolute("volumes", text)?;
        if place == Path::new("/") {
            let shown: String = text.chars().take(128).collect();
            return Err(Error::invalid(
                "volumes",
                format!("{shown:?}"),
                "a directory below the image's root",
            ));
        }
        let of_runtime = OWN_PLACES.iter().any(|own| place.starts_with(own));
        let of_caller = mounts.iter().any(|mount| place.starts_with(&mount.target));
        if !of_runtime && !of_caller {
            places.push(place);
        }
    }
    places.sort();
    places.dedup();
    if places.len() > VOLUMES_MAX {
        let expected = format!("an image with at most {VOLUMES_MAX}");
        return Err(Error::invalid("volumes", places.len().to_string(), expected));
    }
    Ok(places)
}

/// A path of an image from its root, as text: what leads above the root ends there. Links are for whoever opens it.
pub(super) fn absolute(field: &str, text: &str) -> Result<PathBuf> {
    if text.contains('\0') || text.len() >= PATH_LENGTH_MAX {
        let shown: String = text.chars().take(128).collect();
        let expected =
            format!("an image with a path shorter than {PATH_LENGTH_MAX} bytes, without a NUL byte");
        return Err(Error::invalid(field, format!("{shown:?}"), expected));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Ok(PathBuf::from(format!("/{}", names.join("/"))))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::spec::Access;

    fn texts(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// CVE-2022-23648 (case 63): a volume that leads above the root was looked for on the host.
    #[rstest]
    #[case("/b /a/c /a", "", "/a /a/c /b")]
    #[case("/../../etc/x data ./data/ /data/../data", "", "/data /etc/x")]
    #[case("/proc /sys/fs/cgroup /dev/shm /etc/hosts /etc /process", "", "/etc /process")]
    #[case("/data /data/sub /datax /other", "/data", "/datax /other")]
    #[case("/data", "/data/sub", "/data")]
    fn places(#[case] image: &str, #[case] mounts: &str, #[case] expected: &str) {
        let mounts: Vec<_> =
            texts(mounts).iter().map(|target| Mount::bind("/host", target, Access::ReadOnly)).collect();
        let found = of(&texts(image), &mounts).expect("good");
        assert_eq!(found, texts(expected).iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_a_volume_is_named() {
        for (image, said) in
            [("/..".to_owned(), "\"/..\""), ("a\0b".to_owned(), "NUL"), ("x".repeat(5_000), "4096")]
        {
            let error = of(&[image], &[]).expect_err("no volume").to_string();
            assert!(error.starts_with("volumes: ") && error.contains(said), "{error}");
        }
        let many: Vec<_> = (0..=VOLUMES_MAX).map(|number| format!("/v{number}")).collect();
        let error = of(&many, &[]).expect_err("too many").to_string();
        assert!(error.contains("257") && error.contains("256"), "{error}");
    }
}
