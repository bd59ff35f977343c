use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn root_with(build: impl FnOnce(&Path)) -> (tempfile::TempDir, ContainerRoot) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    build(&dir.path().join("root"));
    let root = ContainerRoot::new(open_host_directory(&dir.path().join("root")).unwrap());
    (dir, root)
}

/// An image once pointed `/etc` at `../../../host/dir`, and the runtime made its mount point there, on the host
/// (CVE-2022-23648, CVE-2024-5154).
#[test]
fn links_that_lead_out_end_inside() {
    let (dir, root) = root_with(|root| {
        symlink("../../../../canary", root.join("relative")).unwrap();
        symlink("/canary", root.join("absolute")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
    });
    for (path, real) in
        [("/relative/a", "canary/a"), ("/absolute/b", "canary/b"), ("/../../up/c", "up/c"), ("/x/../y", "y")]
    {
        root.directory(Path::new(path), Links::Inside).unwrap();
        assert!(dir.path().join("root").join(real).is_dir(), "{path}");
    }
    root.mount_point(Path::new("/relative/file"), Kind::File).unwrap();
    assert!(dir.path().join("root/canary/file").is_file());
    assert!(!dir.path().join("canary").exists());
    assert!(root.directory(Path::new("/loop/d"), Links::Inside).is_err());
}

#[test]
fn links_can_be_refused() {
    let (dir, root) = root_with(|root| {
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("proc")).unwrap();
        symlink("missing", root.join("sys")).unwrap();
    });
    for path in ["/proc", "/sys"] {
        let error = root.directory(Path::new(path), Links::Refuse).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{path}");
    }
    assert!(!dir.path().join("root/missing").exists());
}

#[test]
fn a_kind_that_does_not_fit_is_an_error() {
    let (_dir, root) = root_with(|root| {
        fs::create_dir(root.join("dir")).unwrap();
        fs::write(root.join("file"), "").unwrap();
    });
    let error = root.mount_point(Path::new("/dir"), Kind::File).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
    let error = root.mount_point(Path::new("/file"), Kind::Directory).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    assert!(root.directory(Path::new("/file/below"), Links::Inside).is_err());
}

#[test]
fn the_root_itself_is_found() {
    let (_dir, root) = root_with(|_| {});
    for path in ["/", "", ".", "/..", "/../.."] {
        let found = root.find(Path::new(path), Links::Inside).unwrap();
        let (found, root) = (fstat(&found).unwrap(), fstat(&root).unwrap());
        assert_eq!((found.st_dev, found.st_ino), (root.st_dev, root.st_ino), "{path:?}");
    }
}
