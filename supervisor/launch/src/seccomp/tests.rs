//! Filters are checked by running them: in a small interpreter of classic BPF, against a plain reading of the profile.

use std::collections::HashSet;
use std::str::FromStr;

use libc::sock_filter;
use oci_spec::runtime::{Capability, LinuxSeccomp};
use syscalls::Sysno;

use super::{compile, default_seccomp};
use crate::error::LaunchError;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

fn errno(code: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | code as u32
}

fn number(name: &str) -> u32 {
    Sysno::from_str(name).unwrap().id() as u32
}

/// Runs a filter as the kernel does; a program that does not end by a return, or jumps out, panics.
fn run(program: &[sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let load = |offset: u32| match offset {
        0 => number,
        4 => arch,
        16..64 => {
            let value = args[(offset as usize - 16) / 8];
            if offset % 8 == 4 { (value >> 32) as u32 } else { value as u32 }
        }
        _ => panic!("offset {offset}"),
    };
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match u32::from(code) {
            0x20 => accumulator = load(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => branch(accumulator == k),
            0x25 => branch(accumulator > k),
            0x35 => branch(accumulator >= k),
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn profile(json: &str) -> LinuxSeccomp {
    serde_json::from_str(json).unwrap()
}

fn answer(json: &str, name: &str, args: [u64; 6]) -> u32 {
    run(&compile(&profile(json)).unwrap().program, NATIVE, number(name), args)
}

#[test]
fn every_comparison_sees_all_64_bits() {
    let values = [0, 1, 2, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001, 0x2_0000_0000, u64::MAX - 1, u64::MAX];
    type Holds = fn(u64, u64) -> bool;
    let operators: [(&str, Holds); 6] = [
        ("SCMP_CMP_NE", |a, b| a != b),
        ("SCMP_CMP_LT", |a, b| a < b),
        ("SCMP_CMP_LE", |a, b| a <= b),
        ("SCMP_CMP_EQ", |a, b| a == b),
        ("SCMP_CMP_GE", |a, b| a >= b),
        ("SCMP_CMP_GT", |a, b| a > b),
    ];
    for (name, holds) in operators {
        for wanted in values {
            let json = format!(
                r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":7,
                "args":[{{"index":5,"value":{wanted},"op":"{name}"}}]}}]}}"#
            );
            let program = compile(&profile(&json)).unwrap().program;
            for value in values {
                let expected = if holds(value, wanted) { errno(7) } else { ALLOW };
                let found = run(&program, NATIVE, number("read"), [0, 0, 0, 0, 0, value]);
                assert_eq!(found, expected, "{value:#x} {name} {wanted:#x}");
            }
        }
    }
}

#[test]
fn masked_equality() {
    let json = r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["clone"],"action":"SCMP_ACT_ALLOW",
        "args":[{"index":0,"value":12884901888,"valueTwo":4294967296,"op":"SCMP_CMP_MASKED_EQ"}]}]}"#;
    for (flags, expected) in [
        (0x1_0000_0000, ALLOW),
        (0x1_ffff_ffff, ALLOW),
        (0x3_0000_0000, errno(libc::EPERM)),
        (0, errno(libc::EPERM)),
    ] {
        assert_eq!(answer(json, "clone", [flags, 0, 0, 0, 0, 0]), expected, "{flags:#x}");
    }
}

#[test]
fn which_of_several_rules_decides() {
    let json = r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":13,"syscalls":[
        {"names":["read","no_such_call"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"}]},
        {"names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":5,"args":[{"index":0,"value":9,"op":"SCMP_CMP_LT"},
                                                                       {"index":1,"value":3,"op":"SCMP_CMP_EQ"}]},
        {"names":["write"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"},
                                                             {"index":0,"value":2,"op":"SCMP_CMP_EQ"}]},
        {"names":["close"],"action":"SCMP_ACT_ERRNO","errnoRet":5,"args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"}]},
        {"names":["close"],"action":"SCMP_ACT_ALLOW"},
        {"names":["close"],"action":"SCMP_ACT_TRAP"}]}"#;
    for (name, first, second, expected) in [
        ("read", 1, 3, ALLOW),
        ("read", 2, 3, errno(5)),
        ("read", 2, 4, errno(13)),
        ("read", 9, 3, errno(13)),
        ("write", 1, 0, ALLOW),
        ("write", 2, 0, ALLOW),
        ("write", 3, 0, errno(13)),
        ("close", 1, 0, ALLOW),
        ("lseek", 0, 0, errno(libc::EPERM)),
    ] {
        let expected = if name == "lseek" { answer_of_unnamed(json) } else { expected };
        assert_eq!(answer(json, name, [first, second, 0, 0, 0, 0]), expected, "{name} {first} {second}");
    }
}

/// `lseek` is below the highest named number on one architecture and above it on another.
fn answer_of_unnamed(json: &str) -> u32 {
    let highest = ["read", "write", "close"].map(number).into_iter().max().unwrap();
    assert!(json.contains("defaultErrnoRet"));
    if number("lseek") > highest { errno(libc::ENOSYS) } else { errno(13) }
}

/// A filter that answers EPERM for a call that it has never heard of breaks programs that would have fallen back to an older
/// one: glibc's use of clone3, faccessat2 and statx did so in the field.
#[test]
fn calls_newer_than_the_profile_are_unknown_not_forbidden() {
    let filter = compile(&default_seccomp(&HashSet::new())).unwrap();
    assert_eq!(run(&filter.program, NATIVE, 0x3fff_ffff, [0; 6]), errno(libc::ENOSYS));
    assert_eq!(run(&filter.program, NATIVE, number("mount"), [0; 6]), errno(libc::EPERM));
    assert_eq!(run(&filter.program, NATIVE, number("clone3"), [0; 6]), errno(libc::ENOSYS));
}

#[test]
fn other_ways_to_name_a_call_are_closed() {
    let json =
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mount"],"action":"SCMP_ACT_ERRNO"}]}"#;
    let filter = compile(&profile(json)).unwrap();
    assert_eq!(run(&filter.program, NATIVE, number("mount"), [0; 6]), errno(libc::EPERM));
    assert_eq!(run(&filter.program, NATIVE, 0x4000_0000 | number("mount"), [0; 6]), errno(libc::ENOSYS));
    assert_eq!(run(&filter.program, 0x4000_0003, 21, [0; 6]), KILL);
    assert_eq!(run(&filter.program, NATIVE, number("umount2"), [0; 6]), ALLOW);
}

#[test]
fn the_default_profile_decides_every_call_as_it_says() {
    let mut capabilities = HashSet::new();
    for with in [None, Some(Capability::SysAdmin), Some(Capability::SysChroot), Some(Capability::SysModule)] {
        capabilities.extend(with);
        let profile = default_seccomp(&capabilities);
        let filter = compile(&profile).unwrap();
        let rules = profile.syscalls().as_ref().unwrap();
        for call in Sysno::iter() {
            let named: Vec<_> =
                rules.iter().filter(|rule| rule.names().iter().any(|name| name == call.name())).collect();
            if named.iter().any(|rule| rule.args().is_some()) || call == Sysno::clone3 {
                continue;
            }
            let found = run(&filter.program, NATIVE, call.id() as u32, [0; 6]);
            assert_eq!(found == ALLOW, !named.is_empty(), "{} with {capabilities:?}", call.name());
        }
    }
}

#[test]
fn the_default_profile_looks_at_arguments() {
    let plain = compile(&default_seccomp(&HashSet::new())).unwrap().program;
    let admin = compile(&default_seccomp(&HashSet::from([Capability::SysAdmin]))).unwrap().program;
    let denied = errno(libc::EPERM);
    for (name, first, without, with) in [
        ("clone", libc::SIGCHLD as u64, ALLOW, ALLOW),
        ("clone", libc::CLONE_NEWUSER as u64, denied, ALLOW),
        ("clone", libc::CLONE_NEWNS as u64 | libc::SIGCHLD as u64, denied, ALLOW),
        ("clone3", 0, errno(libc::ENOSYS), ALLOW),
        ("unshare", libc::CLONE_NEWUSER as u64, denied, ALLOW),
        ("socket", libc::AF_INET as u64, ALLOW, ALLOW),
        ("socket", libc::AF_VSOCK as u64, denied, denied),
        ("personality", 0xffff_ffff, ALLOW, ALLOW),
        ("personality", 0x0040_0000, denied, denied),
        ("io_uring_setup", 0, denied, denied),
        ("keyctl", 0, denied, denied),
    ] {
        let args = [first, 0, 0, 0, 0, 0];
        assert_eq!(run(&plain, NATIVE, number(name), args), without, "{name} {first:#x}");
        assert_eq!(run(&admin, NATIVE, number(name), args), with, "{name} {first:#x} with CAP_SYS_ADMIN");
    }
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    let notify =
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}]}"#;
    assert!(matches!(compile(&profile(notify)), Err(LaunchError::Unsupported { .. })));
    let argument = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"],"action":"SCMP_ACT_ERRNO",
        "args":[{"index":6,"value":1,"op":"SCMP_CMP_EQ"}]}]}"#;
    assert!(matches!(compile(&profile(argument)), Err(LaunchError::Spec { .. })));
    let code = r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":4096}"#;
    assert!(matches!(compile(&profile(code)), Err(LaunchError::Spec { .. })));
}

#[test]
fn an_empty_profile_is_its_default_action() {
    let program = compile(&profile(r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#)).unwrap().program;
    assert_eq!(run(&program, NATIVE, number("read"), [0; 6]), errno(libc::EPERM));
    let program = compile(&profile(r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#)).unwrap().program;
    assert_eq!(run(&program, NATIVE, number("read"), [0; 6]), ALLOW);
}
