use std::io::Write;
use std::os::unix::fs::MetadataExt;

use mainstay_messages::Timestamp;

use super::sheet::{RECORD_HEADER_BYTES, text_bytes};
use super::*;

const AT: Timestamp = Timestamp(951_782_400_000_000_001);

fn write(log: &mut CriLog, stream: Stream, text: &str) {
    log.write(stream, text.as_bytes(), AT, &mut Vec::new());
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a log")
}

#[test]
fn writes_records_with_each_stream_keeping_its_own_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pod/app.log");
    let mut log = CriLog::create(&path).expect("opened");
    write(&mut log, Stream::Stdout, "one\ntw");
    write(&mut log, Stream::Stderr, "err\nla");
    write(&mut log, Stream::Stdout, "o\n");
    log.finish(AT, &mut Vec::new());
    let time = "2000-02-29T00:00:00.000000001Z";
    let expected = ["stdout F one", "stderr F err", "stdout F two", "stderr P la"];
    let expected: String = expected.iter().map(|record| format!("{time} {record}\n")).collect();
    assert_eq!(read(&path), expected);
    assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
}

#[test]
fn counts_the_bytes_of_whole_records() {
    let time = AT.to_string();
    let records = format!("{time} stdout F abc\n{time} stderr P xy\n");
    assert_eq!(text_bytes(records.as_bytes()), 4 + 2);
    assert_eq!(format!("{time} stdout F ").len(), RECORD_HEADER_BYTES);
}

/// Case 63: a log path that an image had made a symbolic link wrote to the host. A FIFO in its place hung the runtime.
#[test]
fn opens_nothing_but_a_regular_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let canary = directory.path().join("canary");
    std::fs::write(&canary, "x").expect("written");
    let link = directory.path().join("link.log");
    std::os::unix::fs::symlink(&canary, &link).expect("linked");
    assert!(CriLog::create(&link).is_err());
    assert_eq!(read(&canary), "x");
    let fifo = directory.path().join("fifo.log");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    assert!(CriLog::create(&fifo).is_err());
    assert!(CriLog::create(Path::new("relative.log")).is_err());
    assert!(CriLog::create(&directory.path().join("a/../b.log")).is_err());
}

/// Case 40: a failed rotation left the writer with a closed file.
#[test]
fn a_failed_reopen_keeps_the_old_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("sub/app.log");
    let mut log = CriLog::create(&path).expect("opened");
    write(&mut log, Stream::Stdout, "1\n");
    let moved = directory.path().join("moved");
    std::fs::rename(path.parent().expect("sub"), &moved).expect("moved");
    assert!(log.reopen().is_err());
    write(&mut log, Stream::Stdout, "2\n");
    assert_eq!(read(&moved.join("app.log")).lines().count(), 2);
    std::fs::create_dir(path.parent().expect("sub")).expect("made");
    log.reopen().expect("opened");
    write(&mut log, Stream::Stdout, "3\n");
    assert_eq!(read(&path).lines().count(), 1);
}

/// Somebody deleted the directory of the logs to make room, and made it again. The output went on into the deleted file,
/// for days, and nobody could read it or knew that it was lost.
#[test]
fn a_deleted_file_is_left_for_the_one_that_has_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("sub/app.log");
    let mut log = CriLog::create(&path).expect("opened");
    write(&mut log, Stream::Stdout, "1\n");
    std::fs::remove_file(&path).expect("deleted");
    write(&mut log, Stream::Stdout, "2\n");
    assert_eq!((read(&path).lines().count(), log.bytes_lost()), (1, 0));

    std::fs::remove_dir_all(directory.path().join("sub")).expect("deleted");
    write(&mut log, Stream::Stdout, "345\n");
    assert_eq!(log.bytes_lost(), 4);
    std::fs::create_dir(directory.path().join("sub")).expect("made");
    log.trouble.as_mut().expect("it has failed").retry_at = Instant::now();
    write(&mut log, Stream::Stdout, "6\n");
    assert!(read(&path).ends_with("stdout F 6\n"));
    assert_eq!(log.bytes_lost(), 4);
}

#[test]
fn an_unused_new_log_is_removed_and_an_old_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.log");
    CriLog::create(&path).expect("opened").discard_if_unused();
    assert!(!path.exists());
    File::create(&path).expect("made");
    CriLog::create(&path).expect("opened").discard_if_unused();
    assert!(path.exists());
}

/// Mounts a small file system that only this thread sees; it vanishes with the thread. `None` without the right to.
fn small_disk(path: &Path, bytes: usize) -> Option<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // SAFETY: the thread keeps everything that it has borrowed; only what it mounts from here on is its own.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS).ok()? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
    let options = std::ffi::CString::new(format!("size={bytes}")).expect("no NUL");
    mount("small", path, "tmpfs", MountFlags::empty(), options.as_c_str()).ok()
}

/// A disk that was full in the middle of a record left half of it, and the next record was glued to it.
#[test]
fn a_record_that_does_not_fit_is_cut_off_and_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    if small_disk(directory.path(), 64 * 1024).is_none() {
        let name = "a_record_that_does_not_fit_is_cut_off_and_counted";
        // Past the macros, whose output the harness swallows when a test passes.
        let _ = writeln!(std::io::stderr(), "skipped {name}: mounting a small file system needs root");
        return;
    }
    let path = directory.path().join("app.log");
    let mut log = CriLog::create(&path).expect("opened");
    let line = format!("{}\n", "x".repeat(9_999));
    let mut written: u64 = 0;
    while log.bytes_lost() == 0 {
        write(&mut log, Stream::Stdout, &line);
        written += 10_000;
    }
    assert_eq!(log.bytes_lost(), 10_000);
    let kept = read(&path);
    assert_eq!(kept.len() as u64, (written / 10_000 - 1) * (10_000 + RECORD_HEADER_BYTES as u64));
    assert!(kept.ends_with("x\n"));
    // Dropped without another attempt.
    write(&mut log, Stream::Stdout, &line);
    assert_eq!(log.bytes_lost(), 20_000);

    std::fs::rename(&path, directory.path().join("app.log.1")).expect("rotated");
    log.reopen().expect("an empty file fits");
    std::fs::remove_file(directory.path().join("app.log.1")).expect("removed");
    write(&mut log, Stream::Stdout, "again\n");
    assert_eq!(log.bytes_lost(), 20_000);
    assert!(read(&path).ends_with("again\n"));
}
