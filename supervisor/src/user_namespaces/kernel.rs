//! The ids that user namespaces of this machine have, whoever made them.
//!
//! Owns: reading them from /proc. Never: knows one in which no process runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use mainstay_messages::spec::IdMapping;

/// The ranges of the host's ids of all user namespaces in which processes run, but for our own.
pub(super) fn ranges_in_use() -> io::Result<Vec<IdMapping>> {
    let own = fs::read_to_string("/proc/self/uid_map")?;
    let mut tables = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // One that has ended meanwhile uses nothing.
        if is_process && let Ok(table) = fs::read_to_string(entry.path().join("uid_map")) {
            // Those in the same namespace have the same one.
            if table != own && tables.insert(table.clone()) {
                tables.extend(fs::read_to_string(entry.path().join("gid_map")));
            }
        }
    }
    Ok(tables.iter().flat_map(|table| ranges(table)).collect())
}

/// The lines of a table of ids: the first inside, the first as we see it, and how many (user_namespaces(7)).
fn ranges(table: &str) -> impl Iterator<Item = IdMapping> {
    table.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        Some(IdMapping { container: next()?, host: next()?, size: next()? })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_table_is_read() {
        let table = "         0 1879048192      65536\n     65536     100000          1\n";
        let read: Vec<_> = ranges(table).map(|range| (range.container, range.host, range.size)).collect();
        assert_eq!(read, [(0, 1_879_048_192, 65_536), (65_536, 100_000, 1)]);
        assert_eq!(ranges("nonsense\n1 2\n").count(), 0);
    }

    #[test]
    fn the_namespace_of_another_program_is_seen() {
        /// An id that nobody on the machine of a test has.
        const HOST: u32 = 1_879_000_321;
        let child = Command::new("unshare")
            .args(["--user", "sh", "-c", "echo; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("util-linux is installed");
        let mut line = [0; 1];
        let up = child.stdout.take().expect("piped").read_exact(&mut line);
        let mapped =
            up.and_then(|()| fs::write(format!("/proc/{}/uid_map", child.id()), format!("0 {HOST} 7")));
        let seen = ranges_in_use();
        drop(child.stdin.take());
        child.wait().expect("ours");
        if let Err(error) = mapped {
            eprintln!("skipped: this machine or user makes no user namespace with these ids: {error}");
            return;
        }
        assert!(seen.expect("readable").iter().any(|range| (range.host, range.size) == (HOST, 7)));
    }
}
