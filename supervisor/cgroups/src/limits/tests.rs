//! What is taken for a valid limit.

use oci_spec::runtime::LinuxMemoryBuilder;

use super::*;

fn memory(limit: i64, swap: i64) -> Result<MemoryLimits, CgroupError> {
    MemoryLimits::parse(&LinuxMemoryBuilder::default().limit(limit).swap(swap).build().unwrap())
}

#[test]
fn zero_is_not_set() {
    assert!(!memory(0, 0).unwrap().is_set());
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(Some(0)).set_quota(Some(0)).set_period(Some(0)).set_burst(Some(0)).set_idle(Some(0));
    assert!(!CpuLimits::parse(&cpu).unwrap().is_set());
    assert_eq!(pids(0), None);
    assert_eq!(cpu_list("f", Some("")).unwrap(), None);
}

#[test]
fn minus_one_lifts_a_limit() {
    assert_eq!(memory(-1, 0).unwrap().limit, Some(Limit::Unlimited));
    assert_eq!(memory(4096, -1).unwrap().swap, Some(Limit::Unlimited));
    assert_eq!(pids(-1), Some(Limit::Unlimited));
    assert!(memory(-2, 0).is_err());
}

#[test]
fn swap_counts_memory_too() {
    assert_eq!(memory(4096, 4096).unwrap().swap, Some(Limit::To(4096)));
    let error = memory(4096, 4095).unwrap_err().to_string();
    assert!(
        error.contains("linux.resources.memory.swap = \"4095\"") && error.contains("memory.limit"),
        "{error}"
    );
    assert!(memory(0, 4096).is_err());
    assert!(memory(-1, 4096).is_err());
}

#[test]
fn cpu_times_are_in_the_range_of_the_kernel() {
    let parse = |quota, period| {
        let mut cpu = LinuxCpu::default();
        cpu.set_quota(Some(quota)).set_period(Some(period));
        CpuLimits::parse(&cpu)
    };
    assert!(parse(1_000, 1_000).is_ok());
    assert_eq!(parse(-1, 100_000).unwrap().quota, Some(Limit::Unlimited));
    assert!(parse(999, 100_000).is_err());
    assert!(parse(50_000, 999).is_err());
    assert!(parse(50_000, 1_000_001).is_err());
}

#[test]
fn cpu_lists_are_checked() {
    for good in ["0", "0-3", "0-3,8,10-11"] {
        assert_eq!(cpu_list("f", Some(good)).unwrap().as_deref(), Some(good));
    }
    for bad in ["a", "-1", "3-1", "0,,1", "0-", "+1", "0 1", "99999999999", "0\n1"] {
        assert!(cpu_list("f", Some(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn huge_page_sizes_become_file_names_only_when_they_are_sizes() {
    let parse = |size: &str| {
        let mut limit = LinuxHugepageLimit::default();
        limit.set_page_size(size.to_owned()).set_limit(0);
        huge_pages(0, &limit).map(|(size, limit)| (size.to_owned(), limit))
    };
    assert_eq!(parse("2MB").unwrap(), ("2MB".to_owned(), Limit::To(0)));
    for bad in ["", "MB", "0MB", "2", "../2MB", "2mb", "+2MB"] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
