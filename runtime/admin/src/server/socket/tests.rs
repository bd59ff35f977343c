//! The socket file, with real files and sockets.

use rstest::rstest;

use super::*;

fn directory() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(DIRECTORY_MODE)).tempdir().expect("a temporary directory")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it exists").mode() & 0o7777
}

#[test]
fn directory_and_socket_are_closed_to_others() {
    let root = directory();
    let path = root.path().join("a/b/admin.sock");
    let _socket = Socket::bind(&path).expect("a free path");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&root.path().join("a/b")), 0o700);
    assert_eq!(mode(&root.path().join("a")), 0o700);
    assert_eq!(mode(&lock_path(&path)), 0o600);
}

/// A socket path below /tmp must neither be served there nor turn /tmp into a directory of root's own.
#[rstest]
#[case(0o1777)]
#[case(0o755)]
#[case(0o710)]
fn an_open_directory_is_refused_and_left_as_it_is(#[case] open: u32) {
    let root = directory();
    let shared = root.path().join("shared");
    fs::create_dir(&shared).expect("a fresh directory");
    fs::set_permissions(&shared, Permissions::from_mode(open)).expect("our directory");
    let error = Socket::bind(&shared.join("admin.sock")).expect_err("it is open to others");
    assert!(matches!(error, BindError::DirectoryOpen { mode, .. } if mode == open), "{error}");
    assert!(error.to_string().contains(&format!("{open:04o}")), "{error}");
    assert_eq!(mode(&shared), open);
}

/// After kill -9 the socket file is still there: the next daemon must take over without help.
#[test]
fn a_stale_socket_is_taken_over() {
    let root = directory();
    let path = root.path().join("admin.sock");
    drop(UnixListener::bind(&path).expect("a free path"));
    assert!(path.exists(), "std leaves the file, as a killed daemon does");
    let socket = Socket::bind(&path).expect("nobody answers there");
    UnixStream::connect(&path).expect("the new one answers");
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_socket_that_answers_is_left_alone() {
    let root = directory();
    let path = root.path().join("admin.sock");
    let first = Socket::bind(&path).expect("a free path");
    let error = Socket::bind(&path).expect_err("the first one answers").to_string();
    assert!(error.starts_with("another daemon answers on"), "{error}");
    UnixStream::connect(&path).expect("the first one still answers");
    drop(first);
}

/// A hung daemon whose queue of connections is full does not accept, but it is there all the same.
#[test]
fn a_daemon_with_a_full_queue_still_answers() {
    let root = directory();
    let path = root.path().join("admin.sock");
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let address = SocketAddrUnix::new(&path).expect("a short path");
    let hung = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
    rustix::net::bind(&hung, &address).expect("a free path");
    rustix::net::listen(&hung, 0).expect("a bound socket");
    let mut waiting = Vec::new();
    let full = loop {
        let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        match connect(&client, &address) {
            Ok(()) => waiting.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(full, rustix::io::Errno::AGAIN);
    assert!(matches!(Socket::bind(&path), Err(BindError::InUse { .. })));
}

/// Two daemons started at the same moment both found the socket stale, and the second one removed the file of
/// the first, which then served a socket that nobody could reach.
#[test]
fn of_many_daemons_that_start_at_once_one_gets_the_socket() {
    let root = directory();
    let path = root.path().join("admin.sock");
    drop(UnixListener::bind(&path).expect("a free path"));
    let start = std::sync::Barrier::new(8);
    let won: Vec<_> = std::thread::scope(|scope| {
        let bind = || {
            start.wait();
            Socket::bind(&path)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    let winners: Vec<_> = won.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1);
    for error in won.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(matches!(error, BindError::InUse { .. } | BindError::Starting { .. }), "{error}");
    }
    UnixStream::connect(&path).expect("the winner answers");
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let root = directory();
    let path = root.path().join("admin.sock");
    fs::write(&path, "precious").expect("a fresh file");
    assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket { .. })));
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn the_socket_of_a_successor_is_not_removed() {
    let root = directory();
    let path = root.path().join("admin.sock");
    let old = Socket::bind(&path).expect("a free path");
    fs::remove_file(&path).expect("somebody tidies up");
    let new = Socket::bind(&path).expect("a free path again");
    drop(old);
    UnixStream::connect(&path).expect("the new one is still there");
    drop(new);
}

#[test]
fn a_long_path_gets_a_clear_error() {
    let path = Path::new("/tmp").join("x".repeat(200));
    let error = Socket::bind(&path).expect_err("too long").to_string();
    assert!(error.contains("205 bytes") && error.contains("at most 107"), "{error}");
}
