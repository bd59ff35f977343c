//! Memory of processes, from `/proc/PID/smaps_rollup`.

use std::fs;
use std::io;

/// Memory of one process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its proportional share of all it maps.
    pub pss: u64,
    /// What it alone maps.
    pub private: u64,
}

/// The memory of a process now.
pub fn of(pid: u32) -> io::Result<Memory> {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).map(|text| parse(&text))
}

fn parse(text: &str) -> Memory {
    let sum = |keys: &[&str]| {
        text.lines()
            .filter_map(|line| {
                let (key, rest) = line.split_once(':')?;
                let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
                keys.contains(&key).then_some(kib * 1024)
            })
            .sum()
    };
    Memory { pss: sum(&["Pss"]), private: sum(&["Private_Clean", "Private_Dirty"]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_is_private() {
        let text = "00400000-7fff rollup\nRss: 10 kB\nPss: 4 kB\nPss_Dirty: 3 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\n";
        assert_eq!(parse(text), Memory { pss: 4096, private: 3072 });
    }
}
