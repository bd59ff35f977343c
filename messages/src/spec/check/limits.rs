//! The checks of limits.

use super::*;

impl Resources {
    /// Checks every field.
    pub fn check(&self) -> Result<()> {
        self.check_memory()?;
        self.cpu_time.map_or(Ok(()), CpuTime::check)?;
        if let Some(shares) = self.cpu_shares.filter(|shares| !(2..=262_144).contains(shares)) {
            return Err(Error::invalid("cpu_shares", shares.to_string(), "a number from 2 to 262144"));
        }
        if self.pids == Some(0) {
            return Err(Error::invalid("pids_limit", "0", "at least 1, or no limit at all"));
        }
        for (field, list) in [("cpuset_cpus", &self.cpuset_cpus), ("cpuset_mems", &self.cpuset_mems)] {
            if let Some(list) = list.as_ref().filter(|list| !is_cpu_list(list)) {
                return Err(Error::invalid(field, quoted(list), "numbers and ranges, as in \"0-2,4\""));
            }
        }
        self.check_hugepages()?;
        self.block_io.check()?;
        self.check_unified()
    }

    fn check_unified(&self) -> Result<()> {
        if self.unified.len() > UNIFIED_MAX {
            let count = self.unified.len().to_string();
            return Err(Error::invalid("unified", count, format!("at most {UNIFIED_MAX} files")));
        }
        for (file, value) in &self.unified {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
            let named = file.contains('.') && !file.starts_with('.') && file.bytes().all(plain);
            // Whose processes are in the group is the runtime's affair.
            if !named || file.len() > UNIFIED_LENGTH_MAX || file.starts_with("cgroup.") {
                let expected = "the name of a file of a controller of cgroup v2, as in \"memory.high\"";
                return Err(Error::invalid("unified", quoted(file), expected));
            }
            if value.len() > UNIFIED_LENGTH_MAX || value.contains('\0') {
                let expected = format!("at most {UNIFIED_LENGTH_MAX} bytes without a NUL byte");
                return Err(Error::invalid(format!("unified.{file}"), quoted(value), expected));
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        let limits = [
            ("memory", self.memory_bytes),
            ("memory_swap", self.memory_swap_bytes),
            ("memory_reservation", self.memory_reservation_bytes),
        ];
        for (field, limit) in limits {
            if let Some(bytes) = limit.filter(|bytes| *bytes < MEMORY_LIMIT_MIN) {
                return Err(Error::invalid(
                    field,
                    format!("{bytes} bytes"),
                    format!("at least {MEMORY_LIMIT_MIN} bytes (4 MiB)"),
                ));
            }
        }
        match (self.memory_bytes, self.memory_swap_bytes) {
            (None, Some(swap)) if swap != UNLIMITED => {
                return Err(Error::invalid(
                    "memory_swap",
                    format!("{swap} bytes"),
                    "a limit of memory beside it: it counts memory and swap together",
                ));
            }
            (Some(memory), Some(swap)) if swap < memory => {
                return Err(Error::invalid(
                    "memory_swap",
                    format!("{swap} bytes"),
                    format!("at least the {memory} bytes of memory: it counts memory and swap together"),
                ));
            }
            _ => {}
        }
        match (self.memory_bytes, self.memory_reservation_bytes) {
            (Some(memory), Some(reserved)) if reserved > memory && reserved != UNLIMITED => {
                Err(Error::invalid(
                    "memory_reservation",
                    format!("{reserved} bytes"),
                    format!("at most the {memory} bytes of memory"),
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_hugepages(&self) -> Result<()> {
        if self.hugepages.len() > HUGEPAGE_SIZES_MAX {
            let count = self.hugepages.len().to_string();
            return Err(Error::invalid("hugepages", count, format!("at most {HUGEPAGE_SIZES_MAX} sizes")));
        }
        for (index, limit) in self.hugepages.iter().enumerate() {
            let size = limit.page_size.as_str();
            let digits = size.strip_suffix("KB").or(size.strip_suffix("MB")).or(size.strip_suffix("GB"));
            let good = digits.is_some_and(|digits| digits.parse::<u32>().is_ok_and(|number| number > 0));
            let twice = self.hugepages[..index].iter().any(|earlier| earlier.page_size == limit.page_size);
            if !good || twice {
                let expected = "each size once, as the kernel names it: \"2MB\", \"1GB\"";
                return Err(Error::invalid(format!("hugepages[{index}]"), quoted(size), expected));
            }
        }
        Ok(())
    }
}

impl CpuTime {
    fn check(self) -> Result<()> {
        let Self { quota_us, period_us } = self;
        if !(CPU_TIME_MIN_US..=CPU_PERIOD_MAX_US).contains(&period_us) {
            let expected = format!("a period of {CPU_TIME_MIN_US} to {CPU_PERIOD_MAX_US} microseconds");
            return Err(Error::invalid("cpu_time.period_us", period_us.to_string(), expected));
        }
        if quota_us < CPU_TIME_MIN_US {
            let expected = format!("at least {CPU_TIME_MIN_US} microseconds, or no limit at all");
            return Err(Error::invalid("cpu_time.quota_us", quota_us.to_string(), expected));
        }
        Ok(())
    }
}

impl BlockIo {
    fn check(&self) -> Result<()> {
        check_weight("block_io.weight", self.weight)?;
        if self.devices.len() > BLOCK_DEVICES_MAX {
            let count = self.devices.len().to_string();
            return Err(Error::invalid(
                "block_io.devices",
                count,
                format!("at most {BLOCK_DEVICES_MAX} devices"),
            ));
        }
        for (index, device) in self.devices.iter().enumerate() {
            let field = format!("block_io.devices[{index}]");
            check_absolute(&field, &device.path)?;
            check_weight(&format!("{field}.weight"), device.weight)?;
            if device.rates().contains(&Some(0)) {
                return Err(Error::invalid(field, "a rate of 0", "at least 1 a second, or no limit at all"));
            }
        }
        Ok(())
    }
}

fn check_weight(field: &str, weight: Option<u16>) -> Result<()> {
    match weight.filter(|weight| !(10..=1_000).contains(weight)) {
        Some(weight) => Err(Error::invalid(field, weight.to_string(), "a number from 10 to 1000")),
        None => Ok(()),
    }
}

fn is_cpu_list(list: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    !list.is_empty()
        && list.split(',').all(|range| match range.split_once('-') {
            None => number(range).is_some(),
            Some((from, to)) => matches!((number(from), number(to)), (Some(from), Some(to)) if from <= to),
        })
}
