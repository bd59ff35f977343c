//! The BPF program that holds the device rules of a v2 group.
//!
//! Owns: the few instructions that it takes, and their order. Never: talks to the kernel.
//!
//! The kernel hands the program `struct bpf_cgroup_dev_ctx { access_type, major, minor }`, three 32-bit words, the
//! first holding the kind of device below and the access wanted above 16 bits. The answer is 1 for "go on", 0 for EPERM.
//!
//! Rules are tried from the last to the first. A register holds the access that no rule has decided yet: an allowing rule
//! takes its bits out, and the request passes when none are left; a denying rule that names one of the bits left ends it.
//!
//! Needs no helper function and no map, so any kernel with `BPF_PROG_TYPE_CGROUP_DEVICE` (4.15) runs it.

use super::{Effect, Kind, Rule, Scope};

/// `struct bpf_insn` (linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub code: u8,
    /// Destination in the low four bits, source in the high four.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

/// The answer.
const R0: u8 = 0;
/// The address of the context, from the start to the end.
const CONTEXT: u8 = 1;
/// Holds nothing from one comparison to the next. What the device is, is loaded anew for each: were it kept, each outcome
/// of a comparison would be knowledge that the kernel's verifier carries along, and its work would grow with the square of
/// the number of rules (870 ms for a thousand).
const SCRATCH: u8 = 2;
/// The access that no rule has decided yet.
const WANTED: u8 = 3;

const ACCESS_TYPE_AT: i16 = 0;
const MAJOR_AT: i16 = 4;
const MINOR_AT: i16 = 8;

/// dst = *(u32 *)(src + offset): BPF_LDX | BPF_MEM | BPF_W.
pub(super) const LOAD_WORD: u8 = 0x61;
/// dst = immediate: BPF_ALU64 | BPF_MOV | BPF_K.
pub(super) const SET: u8 = 0xb7;
/// dst = src: BPF_ALU64 | BPF_MOV | BPF_X.
pub(super) const COPY: u8 = 0xbf;
/// dst &= immediate: BPF_ALU64 | BPF_AND | BPF_K.
pub(super) const AND: u8 = 0x57;
/// dst >>= immediate: BPF_ALU64 | BPF_RSH | BPF_K.
pub(super) const SHIFT_RIGHT: u8 = 0x77;
/// if dst == immediate jump: BPF_JMP | BPF_JEQ | BPF_K.
pub(super) const JUMP_IF_EQUAL: u8 = 0x15;
/// if dst != immediate jump: BPF_JMP | BPF_JNE | BPF_K.
pub(super) const JUMP_UNLESS_EQUAL: u8 = 0x55;
/// BPF_JMP | BPF_EXIT.
pub(super) const EXIT: u8 = 0x95;

const DEVICE_BLOCK: i32 = 1;
const DEVICE_CHAR: i32 = 2;
const ACCESS_MASK: i32 = 7;
const KIND_MASK: i32 = 0xffff;

const fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: source << 4 | destination, offset, immediate }
}

/// The program for these rules; `default` answers for what none of them decides.
pub(super) fn assemble(default: Effect, rules: &[Rule]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD_WORD, WANTED, CONTEXT, ACCESS_TYPE_AT, 0),
        instruction(SHIFT_RIGHT, WANTED, 0, 0, 16),
    ];
    for rule in rules.iter().rev() {
        let decision = decision(rule);
        program.extend(conditions(&rule.scope, decision.len()));
        program.extend(decision);
    }
    program.extend(answer(default));
    program
}

/// Jumps over `decision_len` instructions, to the next rule, unless the device is in the scope.
fn conditions(scope: &Scope, decision_len: usize) -> Vec<Instruction> {
    let mut conditions = Vec::new();
    if let Some(kind) = scope.kind {
        let kind = match kind {
            Kind::Block => DEVICE_BLOCK,
            Kind::Char => DEVICE_CHAR,
        };
        conditions.push(instruction(LOAD_WORD, SCRATCH, CONTEXT, ACCESS_TYPE_AT, 0));
        conditions.push(instruction(AND, SCRATCH, 0, 0, KIND_MASK));
        conditions.push(instruction(JUMP_UNLESS_EQUAL, SCRATCH, 0, 0, kind));
    }
    for (at, number) in [(MAJOR_AT, scope.major), (MINOR_AT, scope.minor)] {
        if let Some(number) = number {
            conditions.push(instruction(LOAD_WORD, SCRATCH, CONTEXT, at, 0));
            // Major numbers have 12 bits and minor numbers 20, so they fit.
            conditions.push(instruction(JUMP_UNLESS_EQUAL, SCRATCH, 0, 0, number as i32));
        }
    }
    let end = conditions.len() + decision_len;
    for (at, condition) in conditions.iter_mut().enumerate() {
        if condition.code == JUMP_UNLESS_EQUAL {
            // A rule has a dozen instructions at most.
            condition.offset = (end - at - 1) as i16;
        }
    }
    conditions
}

/// What a rule does with a device in its scope; runs on into the next rule when that leaves access undecided. A rule on
/// all access decides whatever is left, and saying so without a test spares the kernel's verifier most of its work. (A rule
/// on all devices and all access never comes here, so the rules that follow stay reachable, as the verifier wants.)
fn decision(rule: &Rule) -> Vec<Instruction> {
    let bits = i32::from(rule.scope.access.bits());
    let mut decision = match rule.effect {
        _ if bits == ACCESS_MASK => Vec::new(),
        Effect::Allow => {
            vec![
                instruction(AND, WANTED, 0, 0, ACCESS_MASK & !bits),
                instruction(JUMP_UNLESS_EQUAL, WANTED, 0, 2, 0),
            ]
        }
        Effect::Deny => vec![
            instruction(COPY, SCRATCH, WANTED, 0, 0),
            instruction(AND, SCRATCH, 0, 0, bits),
            instruction(JUMP_IF_EQUAL, SCRATCH, 0, 2, 0),
        ],
    };
    decision.extend(answer(rule.effect));
    decision
}

fn answer(effect: Effect) -> [Instruction; 2] {
    let value = match effect {
        Effect::Allow => 1,
        Effect::Deny => 0,
    };
    [instruction(SET, R0, 0, 0, value), instruction(EXIT, 0, 0, 0, 0)]
}
