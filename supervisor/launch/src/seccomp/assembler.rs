//! Classic BPF with labels: instructions are written with names for places, and get their distances at the end.
//!
//! Conditional jumps reach 255 instructions; whatever may be farther is written as a jump over a [`Assembler::go_to`], which
//! reaches everywhere. Only forward jumps exist.

use libc::sock_filter;

/// The most instructions that the kernel takes (BPF_MAXINSNS).
const PROGRAM_MAX_INSTRUCTIONS: usize = 4096;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const GO_TO: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A comparison of the accumulator with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    Greater,
    GreaterOrEqual,
}

impl Test {
    fn code(self) -> u16 {
        let test = match self {
            Test::Equal => libc::BPF_JEQ,
            Test::Greater => libc::BPF_JGT,
            Test::GreaterOrEqual => libc::BPF_JGE,
        };
        (libc::BPF_JMP | test | libc::BPF_K) as u16
    }
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Where a jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Next,
    Label(Label),
}

enum Instruction {
    Plain { code: u16, value: u32 },
    Branch { test: Test, value: u32, yes: To, no: To },
    GoTo(Label),
}

/// A program does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AssemblerError {
    /// It is longer than the kernel takes.
    TooLong { instructions: usize },
    /// One jump is longer than the instruction can say.
    TooFar,
}

/// A program that is being written.
#[derive(Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    places: Vec<Option<usize>>,
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The next instruction is the place of `label`.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    pub(super) fn load(&mut self, offset: u32) {
        self.instructions.push(Instruction::Plain { code: LOAD_WORD, value: offset });
    }

    pub(super) fn and(&mut self, mask: u32) {
        self.instructions.push(Instruction::Plain { code: AND, value: mask });
    }

    pub(super) fn answer(&mut self, value: u32) {
        self.instructions.push(Instruction::Plain { code: RETURN, value });
    }

    pub(super) fn branch(&mut self, test: Test, value: u32, yes: To, no: To) {
        self.instructions.push(Instruction::Branch { test, value, yes, no });
    }

    pub(super) fn go_to(&mut self, label: Label) {
        self.instructions.push(Instruction::GoTo(label));
    }

    pub(super) fn finish(self) -> Result<Vec<sock_filter>, AssemblerError> {
        if self.instructions.len() > PROGRAM_MAX_INSTRUCTIONS {
            return Err(AssemblerError::TooLong { instructions: self.instructions.len() });
        }
        let distance = |from: usize, label: Label| {
            let place = self.places[label.0].expect("every label that is used is placed by the compiler");
            place.checked_sub(from + 1).ok_or(AssemblerError::TooFar)
        };
        let short = |from: usize, to: To| match to {
            To::Next => Ok(0),
            To::Label(label) => u8::try_from(distance(from, label)?).map_err(|_| AssemblerError::TooFar),
        };
        let assemble = |(index, instruction): (usize, &Instruction)| {
            Ok(match *instruction {
                Instruction::Plain { code, value } => sock_filter { code, jt: 0, jf: 0, k: value },
                Instruction::Branch { test, value, yes, no } => {
                    sock_filter { code: test.code(), jt: short(index, yes)?, jf: short(index, no)?, k: value }
                }
                Instruction::GoTo(label) => {
                    sock_filter { code: GO_TO, jt: 0, jf: 0, k: distance(index, label)? as u32 }
                }
            })
        };
        self.instructions.iter().enumerate().map(assemble).collect()
    }
}
