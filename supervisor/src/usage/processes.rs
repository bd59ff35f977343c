//! What processes hold: threads and open files.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use mainstay_messages::ProcessIdentity;
use mainstay_messages::usage::Holdings;
use rustix::process::Pid;

use crate::identity;

/// The most processes of one group that are looked at one by one: a container with more of them is told without.
pub const PROCESSES_MAX: usize = 4_096;
/// The most open files of one process that are looked at.
pub const DESCRIPTORS_MAX: usize = 65_536;

/// What processes have together; none when there are too many of them. One that ends meanwhile has nothing.
pub(super) fn holdings(processes: &HashSet<Pid>) -> Option<Holdings> {
    if processes.len() > PROCESSES_MAX {
        return None;
    }
    let mut sum = Holdings::default();
    for process in processes {
        let directory = Path::new("/proc").join(process.as_raw_nonzero().to_string());
        let tasks = fs::read_to_string(directory.join("stat")).ok();
        sum.threads += tasks.and_then(|stat| threads(&stat)).unwrap_or(0);
        let Ok(files) = fs::read_dir(directory.join("fd")) else { continue };
        for file in files.flatten().take(DESCRIPTORS_MAX) {
            sum.descriptors += 1;
            let is_socket =
                |target: std::path::PathBuf| target.as_os_str().as_encoded_bytes().starts_with(b"socket:");
            sum.sockets += u64::from(fs::read_link(file.path()).is_ok_and(is_socket));
        }
    }
    Some(sum)
}

/// The 20th field of `/proc/PID/stat`. The second one is a name in parentheses that may hold anything.
fn threads(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(17)?.parse().ok()
}

/// How many files a process may have open; none also where it may have any number.
pub(super) fn open_files_limit(process: &ProcessIdentity) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid)).ok()?;
    // The file was that of this process if the process is still there (P10).
    identity::open(process).ok()??;
    soft_limit(&limits, "Max open files")
}

/// `Max open files            1024                 524288               files`
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_behind_any_name() {
        let stat = "12 (a ) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 42 0 99";
        assert_eq!(threads(stat), Some(42));
        assert_eq!(threads("12 (a"), None);
    }

    #[test]
    fn limits_are_found_by_their_names() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 524288               files\n\
                    Max file size             unlimited            unlimited            bytes\n";
        assert_eq!(soft_limit(text, "Max open files"), Some(1_024));
        assert_eq!(soft_limit(text, "Max file size"), None);
    }

    /// Our own process: at least its threads, standard streams, and a socket that it has opened.
    #[test]
    fn holdings_of_this_process_are_counted() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let me = HashSet::from([rustix::process::getpid()]);
        let held = holdings(&me).expect("few enough");
        assert!(held.threads >= 1 && held.descriptors >= 3 && held.sockets >= 2, "{held:?}");
        drop(one);
    }
}
