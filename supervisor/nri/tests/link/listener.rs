//! The socket on which plugins connect.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use mainstay_nri::link::{AcceptError, ListenError, Listener};

use crate::world::within;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}

#[tokio::test]
async fn nobody_else_may_connect_or_look_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a/b/nri.sock");
    let listener = Listener::bind(&path).expect("a socket");
    assert_eq!((mode(&path), mode(&dir.path().join("a/b"))), (0o600, 0o700));
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_of_a_runtime_that_is_gone_is_replaced_and_one_that_is_there_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("nri.sock");
    // What kill -9 leaves.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let first = Listener::bind(&path).expect("replaced");
    let second = Listener::bind(&path).expect_err("in use");
    assert!(matches!(second, ListenError::InUse { .. }), "{second}");
    // One that has been replaced does not take away its successor.
    fs::remove_file(&path).expect("removed");
    let third = Listener::bind(&path).expect("a socket");
    drop(first);
    assert!(path.exists());
    drop(third);
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone_and_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("nri.sock");
    fs::write(&path, "precious").expect("written");
    let error = Listener::bind(&path).expect_err("in the way");
    assert_eq!(error.to_string(), format!("{} is in the way: it is not a socket", path.display()));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
}

#[tokio::test]
async fn a_directory_that_others_can_write_to_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("changed");
    let error = Listener::bind(&dir.path().join("nri.sock")).expect_err("exposed");
    assert!(matches!(error, ListenError::Exposed { mode: 0o777, .. }), "{error}");
}

#[tokio::test]
async fn a_stranger_is_turned_away_though_the_files_would_let_it_in() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped listener::a_stranger_is_turned_away: only root can be somebody else");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("nri.sock");
    let listener = Listener::bind(&path).expect("a socket");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("changed");
    let stranger = std::thread::spawn(move || {
        // SAFETY: a plain system call, which changes the user of this thread alone; the thread ends soon.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) };
        assert_eq!(changed, 0);
        UnixStream::connect(path).expect("the kernel lets it in")
    });
    let refused = within(listener.accept()).await.err().expect("refused");
    assert!(matches!(refused, AcceptError::Stranger { uid: 65_534, .. }), "{refused}");
    drop(stranger.join().expect("it connected"));
}
