//! From `linux.seccomp` to a BPF program.
//!
//! What decides a system call, in effect as with libseccomp:
//! 1. another architecture than the native one kills the process (a listed second architecture is not compiled);
//! 2. the first rule without conditions for that name; else the first rule in the list whose conditions all hold (two
//!    conditions on the same argument are alternatives); rules that say what the default says are left out;
//! 3. `defaultAction`. A call that is newer than all that the profile names, and the x32 table, answers ENOSYS instead of the
//!    default's errno, so that programs fall back to what the profile knows.
//!
//! Names that this architecture does not have are skipped. The program decides by a binary search over the numbers: about
//! eight comparisons per call.

use std::collections::BTreeMap;
use std::str::FromStr;

use libc::sock_filter;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
    LinuxSyscall,
};
use syscalls::Sysno;

use super::assembler::{Assembler, AssemblerError, Label, Test, To};
use crate::error::{Result, invalid, unsupported};

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH_NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH_NATIVE: u32 = 0xc000_00b7;
/// The first number of the x32 table; on other architectures no number is that high.
const X32_FIRST: u32 = 0x4000_0000;
/// The errno of a denial that names none.
const ERRNO_DEFAULT: u32 = libc::EPERM as u32;
/// The highest errno that the kernel passes on.
const ERRNO_MAX: u32 = 4095;

/// What the kernel itself answers for a number that it does not have.
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Offsets in `struct seccomp_data`.
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;
const ARGS_MAX: usize = 6;

/// A compiled filter.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) program: Vec<sock_filter>,
    /// `SECCOMP_FILTER_FLAG_*`.
    pub(crate) flags: libc::c_ulong,
}

/// What a filter answers: the kernel's `SECCOMP_RET_*` with its data.
type Answer = u32;

/// A rule with conditions that must all hold.
struct Conditional<'a> {
    conditions: Vec<&'a LinuxSeccompArg>,
    answer: Answer,
}

/// All that the profile says about one number.
#[derive(Default)]
struct Verdict<'a> {
    unconditional: Option<Answer>,
    conditional: Vec<Conditional<'a>>,
}

/// A run of numbers with the same fate; it reaches to the next one's first.
struct Range {
    first: u32,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answer(Answer),
    Conditional { number: u32 },
}

/// Compiles a profile.
pub(crate) fn compile(profile: &LinuxSeccomp) -> Result<Filter> {
    let default =
        answer(profile.default_action(), profile.default_errno_ret(), "linux.seccomp.defaultAction")?;
    let rules = profile.syscalls().as_deref().unwrap_or_default();
    let verdicts = verdicts(rules, default)?;
    let unknown = if verdicts.is_empty() { default } else { unknown_answer(default) };
    let ranges = ranges(&verdicts, default, unknown);
    let program = assemble(&ranges, &verdicts, default).map_err(|error| match error {
        AssemblerError::TooLong { instructions } => invalid(
            "linux.seccomp",
            format!("{instructions} instructions are more than the kernel takes (4096)"),
        ),
        AssemblerError::TooFar => invalid("linux.seccomp.syscalls", "one rule has too many conditions"),
    })?;
    Ok(Filter { program, flags: flags(profile)? })
}

fn flags(profile: &LinuxSeccomp) -> Result<libc::c_ulong> {
    let mut flags = 0;
    for flag in profile.flags().iter().flatten() {
        flags |= match flag {
            LinuxSeccompFilterFlag::SeccompFilterFlagLog => libc::SECCOMP_FILTER_FLAG_LOG,
            LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            // There is one thread.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 0,
            LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => {
                return Err(unsupported("linux.seccomp.flags", "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"));
            }
        };
    }
    Ok(flags)
}

fn answer(action: LinuxSeccompAction, errno: Option<u32>, field: &str) -> Result<Answer> {
    let errno = errno.unwrap_or(ERRNO_DEFAULT);
    if errno > ERRNO_MAX {
        return Err(invalid(field, format!("{errno} is no errno; the highest is {ERRNO_MAX}")));
    }
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => {
            libc::SECCOMP_RET_KILL_THREAD
        }
        LinuxSeccompAction::ScmpActKillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        LinuxSeccompAction::ScmpActTrap => libc::SECCOMP_RET_TRAP,
        LinuxSeccompAction::ScmpActErrno => libc::SECCOMP_RET_ERRNO | errno,
        LinuxSeccompAction::ScmpActTrace => libc::SECCOMP_RET_TRACE | errno,
        LinuxSeccompAction::ScmpActLog => libc::SECCOMP_RET_LOG,
        LinuxSeccompAction::ScmpActAllow => libc::SECCOMP_RET_ALLOW,
        LinuxSeccompAction::ScmpActNotify => return Err(unsupported(field, "SCMP_ACT_NOTIFY")),
    })
}

/// For calls that did not exist when the profile was written.
fn unknown_answer(default: Answer) -> Answer {
    if default & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO { NO_SUCH_CALL } else { default }
}

fn verdicts(rules: &[LinuxSyscall], default: Answer) -> Result<BTreeMap<u32, Verdict<'_>>> {
    let mut verdicts: BTreeMap<u32, Verdict<'_>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let field = || format!("linux.seccomp.syscalls[{index}]");
        let answer = answer(rule.action(), rule.errno_ret(), &field())?;
        let arguments = rule.args().as_deref().unwrap_or_default();
        if let Some(argument) = arguments.iter().find(|argument| argument.index() >= ARGS_MAX) {
            return Err(invalid(
                field(),
                format!("argument {} does not exist; they go from 0 to 5", argument.index()),
            ));
        }
        for number in rule.names().iter().filter_map(|name| Sysno::from_str(name).ok()) {
            let verdict = verdicts.entry(number.id() as u32).or_default();
            if answer == default {
                continue;
            }
            if arguments.is_empty() {
                verdict.unconditional.get_or_insert(answer);
            } else {
                verdict.conditional.extend(conditionals(arguments, answer));
            }
        }
    }
    Ok(verdicts)
}

/// Conditions on one argument each must all hold; when two are on the same argument, each is a rule of its own.
fn conditionals(arguments: &[LinuxSeccompArg], answer: Answer) -> Vec<Conditional<'_>> {
    let repeated = arguments.iter().enumerate().any(|(position, argument)| {
        arguments[..position].iter().any(|earlier| earlier.index() == argument.index())
    });
    if repeated {
        arguments.iter().map(|argument| Conditional { conditions: vec![argument], answer }).collect()
    } else {
        vec![Conditional { conditions: arguments.iter().collect(), answer }]
    }
}

fn ranges(verdicts: &BTreeMap<u32, Verdict<'_>>, default: Answer, unknown: Answer) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut push = |first: u32, fate: Fate| {
        if ranges.last().is_none_or(|last| last.fate != fate) {
            ranges.push(Range { first, fate });
        }
    };
    let mut next = 0;
    for (&number, verdict) in verdicts {
        if number > next {
            push(next, Fate::Answer(default));
        }
        push(
            number,
            match verdict.unconditional {
                Some(answer) => Fate::Answer(answer),
                None if verdict.conditional.is_empty() => Fate::Answer(default),
                None => Fate::Conditional { number },
            },
        );
        next = number + 1;
    }
    push(next, Fate::Answer(unknown));
    // The same calls by other numbers: whatever the profile denies must not be reachable there.
    push(X32_FIRST, Fate::Answer(NO_SUCH_CALL));
    ranges
}

fn assemble(
    ranges: &[Range],
    verdicts: &BTreeMap<u32, Verdict<'_>>,
    default: Answer,
) -> std::result::Result<Vec<sock_filter>, AssemblerError> {
    let mut program = Assembler::default();
    let native = program.label();
    program.load(OFFSET_ARCH);
    program.branch(Test::Equal, AUDIT_ARCH_NATIVE, To::Label(native), To::Next);
    program.answer(libc::SECCOMP_RET_KILL_PROCESS);
    program.place(native);
    program.load(OFFSET_NUMBER);
    search(&mut program, ranges, verdicts, default);
    program.finish()
}

/// Finds the range of the number in the accumulator; the lower half follows at once, the upper half after it.
fn search(program: &mut Assembler, ranges: &[Range], verdicts: &BTreeMap<u32, Verdict<'_>>, default: Answer) {
    match ranges {
        [] => program.answer(default),
        [only] => match only.fate {
            Fate::Answer(answer) => program.answer(answer),
            Fate::Conditional { number } => {
                for rule in &verdicts[&number].conditional {
                    let next_rule = program.label();
                    for condition in &rule.conditions {
                        check(program, condition, next_rule);
                    }
                    program.answer(rule.answer);
                    program.place(next_rule);
                }
                program.answer(default);
            }
        },
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let (here, there) = (program.label(), program.label());
            program.branch(Test::GreaterOrEqual, upper[0].first, To::Next, To::Label(here));
            program.go_to(there);
            program.place(here);
            search(program, lower, verdicts, default);
            program.place(there);
            search(program, upper, verdicts, default);
        }
    }
}

/// Goes on with the next instruction when the condition holds, and to `no` when it does not. Arguments have 64 bits, the
/// machine 32: the upper half is compared first.
fn check(program: &mut Assembler, condition: &LinuxSeccompArg, no: Label) {
    use LinuxSeccompOperator as Op;
    let low_offset = OFFSET_ARGS + 8 * condition.index() as u32;
    let high_offset = low_offset + 4;
    let (high, low) = halves(condition.value());
    match condition.op() {
        Op::ScmpCmpMaskedEq => {
            let (wanted_high, wanted_low) = halves(condition.value_two().unwrap_or(0));
            for (offset, mask, wanted) in [(high_offset, high, wanted_high), (low_offset, low, wanted_low)] {
                program.load(offset);
                program.and(mask);
                program.branch(Test::Equal, wanted, To::Next, To::Label(no));
            }
        }
        Op::ScmpCmpEq => {
            program.load(high_offset);
            program.branch(Test::Equal, high, To::Next, To::Label(no));
            program.load(low_offset);
            program.branch(Test::Equal, low, To::Next, To::Label(no));
        }
        Op::ScmpCmpNe => {
            let yes = program.label();
            program.load(high_offset);
            program.branch(Test::Equal, high, To::Next, To::Label(yes));
            program.load(low_offset);
            program.branch(Test::Equal, low, To::Label(no), To::Next);
            program.place(yes);
        }
        Op::ScmpCmpGt => order(program, condition, Test::Greater, Wanted::Holds, no),
        Op::ScmpCmpGe => order(program, condition, Test::GreaterOrEqual, Wanted::Holds, no),
        Op::ScmpCmpLt => order(program, condition, Test::GreaterOrEqual, Wanted::Fails, no),
        Op::ScmpCmpLe => order(program, condition, Test::Greater, Wanted::Fails, no),
    }
}

/// Whether an order must hold, or its contrary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Holds,
    Fails,
}

fn order(program: &mut Assembler, condition: &LinuxSeccompArg, test: Test, wanted: Wanted, no: Label) {
    let low_offset = OFFSET_ARGS + 8 * condition.index() as u32;
    let (high, low) = halves(condition.value());
    let yes = program.label();
    let (greater, less) = match wanted {
        Wanted::Holds => (To::Label(yes), To::Label(no)),
        Wanted::Fails => (To::Label(no), To::Label(yes)),
    };
    program.load(low_offset + 4);
    program.branch(Test::Greater, high, greater, To::Next);
    program.branch(Test::Equal, high, To::Next, less);
    program.load(low_offset);
    let (holds, fails) = match wanted {
        Wanted::Holds => (To::Next, To::Label(no)),
        Wanted::Fails => (To::Label(no), To::Next),
    };
    program.branch(test, low, holds, fails);
    program.place(yes);
}

fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
