//! Memory of processes, from `/proc/PID/smaps_rollup` and `/proc/self/status`, and the time that this one has used.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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

/// Lets the peak of this process start anew, from what is resident now; answers that, in bytes.
pub fn restart_peak() -> io::Result<u64> {
    // proc(5): 5 resets the peak to what is resident.
    fs::write("/proc/self/clear_refs", "5")?;
    of_status("VmRSS")
}

/// The most that was resident of this process, in bytes, since it was started anew.
pub fn peak() -> io::Result<u64> {
    of_status("VmHWM")
}

/// Time that the processors have spent on this process.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

fn of_status(key: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = found.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("/proc/self/status has no {key}")))
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
