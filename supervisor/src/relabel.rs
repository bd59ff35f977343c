//! The SELinux label of files that containers mount from the host.
//!
//! A volume may be another container's at the same time, which moves things about while they are labelled: everything is found by
//! descriptor, from the top of the volume down, and links are labelled and never followed (P12).
//!
//! Owns: which label files get, and giving it to them. Never: relabels what the machine itself stands on.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use mainstay_messages::spec::{Mount, MountSource, Relabel, SelinuxLabel};
use mainstay_messages::{Error, Result};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, XattrFlags, fstat, openat, setxattr};
use rustix::io::Errno;

use crate::files::at;

/// The extended attribute with the label.
const ATTRIBUTE: &str = "security.selinux";
/// The role of everything that is no process.
const OBJECT_ROLE: &str = "object_r";
/// The type of files that containers may use.
const FILE_TYPE: &str = "container_file_t";
/// The level of files that all containers may use.
const SHARED_LEVEL: &str = "s0";
/// The deepest directory that is looked into below a mount.
const DEPTH_MAX: usize = 256;
/// What programs of the machine would no longer be let into.
const NEVER: [&str; 14] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin",
    "/sys", "/usr",
];

/// The label of a file for a container with this label.
pub(crate) fn label_of(container: &SelinuxLabel, relabel: Relabel) -> Option<SelinuxLabel> {
    let level = match relabel {
        Relabel::Never => return None,
        Relabel::Shared => SHARED_LEVEL.to_owned(),
        Relabel::Private => container.level.clone(),
    };
    Some(SelinuxLabel {
        user: container.user.clone(),
        role: OBJECT_ROLE.to_owned(),
        kind: FILE_TYPE.to_owned(),
        level,
    })
}

/// Labels what the mounts of a container that ask for it have on the host.
pub(crate) fn relabel(mounts: &[Mount], container: &SelinuxLabel) -> Result<()> {
    for (index, mount) in mounts.iter().enumerate() {
        let MountSource::Bind { path } = &mount.source else { continue };
        let Some(label) = label_of(container, mount.relabel) else { continue };
        let resolved = path.canonicalize().map_err(at(path))?;
        if NEVER.iter().any(|never| resolved == Path::new(never)) {
            let expected = "never: the machine's own programs could use it no more";
            return Err(Error::invalid(format!("mounts[{index}].relabel"), format!("{path:?}"), expected));
        }
        label_all(&resolved, ATTRIBUTE, &label.to_string()).map_err(at(path))?;
    }
    Ok(())
}

fn label_all(top: &Path, attribute: &str, label: &str) -> io::Result<()> {
    let top = openat(CWD, top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let device = fstat(&top)?.st_dev;
    label_below(top.as_fd(), &Labelling { attribute, label, device }, 0)
}

struct Labelling<'a> {
    attribute: &'a str,
    label: &'a str,
    /// What is mounted below is left as it is.
    device: u64,
}

fn label_below(entry: BorrowedFd<'_>, with: &Labelling<'_>, depth: usize) -> io::Result<()> {
    let stat = fstat(entry)?;
    if stat.st_dev != with.device {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    match setxattr(&path, with.attribute, with.label.as_bytes(), XattrFlags::empty()) {
        // A file system without labels has nothing to be labelled.
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(());
    }
    if depth >= DEPTH_MAX {
        let what = format!("more than {DEPTH_MAX} directories inside one another");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let directory = openat(entry, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for name in names(&directory)? {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&directory, name.as_c_str(), flags, Mode::empty()) {
            Ok(entry) => label_below(entry.as_fd(), with, depth + 1)?,
            // It was removed meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn container() -> SelinuxLabel {
        SelinuxLabel {
            user: "u".into(),
            role: "r".into(),
            kind: "container_t".into(),
            level: "s0:c1,c2".into(),
        }
    }

    #[test]
    fn files_are_everybodys_or_the_containers() {
        let of = |relabel| label_of(&container(), relabel).map(|label| label.to_string());
        assert_eq!(of(Relabel::Never), None);
        assert_eq!(of(Relabel::Shared).as_deref(), Some("u:object_r:container_file_t:s0"));
        assert_eq!(of(Relabel::Private).as_deref(), Some("u:object_r:container_file_t:s0:c1,c2"));
    }

    #[test]
    fn the_machines_own_directories_stay_as_they_are() {
        let mount =
            Mount { relabel: Relabel::Shared, ..Mount::bind("/usr/../etc", "/e", Default::default()) };
        let error = relabel(&[mount], &container()).expect_err("no").to_string();
        assert!(error.starts_with("mounts[0].relabel"), "{error}");
    }

    /// A link in a volume to a file of the host must not hand that file to containers.
    #[test]
    fn all_below_is_labelled_and_nothing_that_a_link_leads_to() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root sets attributes of this kind");
        }
        let directory = tempfile::tempdir().expect("made");
        let volume = directory.path().join("volume");
        fs::create_dir_all(volume.join("deep")).expect("made");
        fs::write(volume.join("deep/file"), "").expect("written");
        fs::write(directory.path().join("secret"), "").expect("written");
        symlink(directory.path().join("secret"), volume.join("link")).expect("made");
        match label_all(&volume, "trusted.mainstay-test", "label") {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return eprintln!("skipped: no such attributes here ({error})");
            }
            labelled => labelled.expect("labelled"),
        }
        let label = |path: &Path| {
            let mut value = [0; 64];
            let read = rustix::fs::lgetxattr(path, "trusted.mainstay-test", &mut value[..]);
            read.ok().map(|length| value[..length].to_vec())
        };
        for name in ["", "deep", "deep/file", "link"] {
            let found = label(&volume.join(name));
            assert_eq!(found.as_deref(), Some(b"label".as_slice()), "{name}");
        }
        assert_eq!(label(&directory.path().join("secret")), None);
    }
}
