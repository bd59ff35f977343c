//! Rules on the use of device nodes.
//!
//! Owns: what an ordered list of OCI rules means, and its two translations: the exception list of the v1 devices
//! controller, and a BPF program for v2 ([`program`]). Never: makes device nodes.
//!
//! **Meaning.** A non-empty list starts from "nothing is allowed"; each rule decides anew for the devices and the
//! kinds of access (`r`, `w`, `m` for mknod) that it names, so the last rule that names an access decides it. An
//! empty list changes nothing.

mod kernel;
mod program;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use crate::error::CgroupError;

pub(crate) use kernel::replace as attach_program;

/// The most rules of one group. The kernel's verifier takes 90 ms for the program of so many here, and refuses that of four
/// times as many.
pub(crate) const DEVICE_RULES_MAX: usize = 1024;
/// The largest major number (12 bits, linux/kdev_t.h).
const MAJOR_MAX: i64 = 0xfff;
/// The largest minor number (20 bits).
const MINOR_MAX: i64 = 0xf_ffff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Char,
}

/// A set of `r`, `w`, `m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access(u8);

/// Which devices and which access a rule names; `None` stands for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    pub kind: Option<Kind>,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub effect: Effect,
    pub scope: Scope,
}

/// A valid list, not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules(Vec<Rule>);

/// What the v1 controller can hold: one answer for all, and exceptions to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExceptionList {
    pub default: Effect,
    pub exceptions: Vec<Scope>,
}

impl Access {
    /// The bits are those of the kernel's BPF_DEVCG_ACC_*.
    pub const MKNOD: u8 = 1;
    pub const READ: u8 = 2;
    pub const WRITE: u8 = 4;
    pub const ALL: Access = Access(7);

    pub fn bits(self) -> u8 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let bit = |letter| match letter {
            'r' => Some(Access::READ),
            'w' => Some(Access::WRITE),
            'm' => Some(Access::MKNOD),
            _ => None,
        };
        text.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)).map(Access)
    }

    fn text(self) -> String {
        let letters = [(Access::READ, 'r'), (Access::WRITE, 'w'), (Access::MKNOD, 'm')];
        letters.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, letter)| *letter).collect()
    }
}

impl Scope {
    const ALL: Scope = Scope { kind: None, major: None, minor: None, access: Access::ALL };

    fn same_devices(&self, other: &Scope) -> bool {
        (self.kind, self.major, self.minor) == (other.kind, other.major, other.minor)
    }

    fn covers_devices_of(&self, other: &Scope) -> bool {
        fn covers<T: PartialEq>(ours: Option<T>, theirs: Option<T>) -> bool {
            ours.is_none() || ours == theirs
        }
        covers(self.kind, other.kind) && covers(self.major, other.major) && covers(self.minor, other.minor)
    }

    fn touches_devices_of(&self, other: &Scope) -> bool {
        fn touches<T: PartialEq>(ours: Option<T>, theirs: Option<T>) -> bool {
            ours.is_none() || theirs.is_none() || ours == theirs
        }
        touches(self.kind, other.kind) && touches(self.major, other.major) && touches(self.minor, other.minor)
    }

    /// A line for `devices.allow` and `devices.deny`.
    fn line(&self) -> String {
        let kind = match self.kind {
            None => 'a',
            Some(Kind::Block) => 'b',
            Some(Kind::Char) => 'c',
        };
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
        format!("{kind} {}:{} {}", number(self.major), number(self.minor), self.access.text())
    }
}

impl Rules {
    pub fn parse(list: &[LinuxDeviceCgroup]) -> Result<Self, CgroupError> {
        if list.len() > DEVICE_RULES_MAX {
            return Err(CgroupError::invalid("linux.resources.devices", list.len(), "at most 1024 rules"));
        }
        list.iter()
            .enumerate()
            .map(|(index, rule)| parse_rule(index, rule))
            .collect::<Result<_, _>>()
            .map(Rules)
    }

    /// Whether any access is denied by the list; one that ends in "allow all" needs no controller.
    pub fn restricts(&self) -> bool {
        self.deciding() != (Effect::Allow, &[])
    }

    /// The rules that can still decide something: those after the last one that names everything.
    fn deciding(&self) -> (Effect, &[Rule]) {
        match self.0.iter().rposition(|rule| rule.scope == Scope::ALL) {
            Some(at) => (self.0[at].effect, &self.0[at + 1..]),
            None => (Effect::Deny, &self.0),
        }
    }

    /// The list for v1. That controller knows no order among its exceptions, so a rule that takes a part out of an
    /// earlier one cannot be kept there, and is refused rather than weakened.
    pub fn exception_list(&self) -> Result<ExceptionList, CgroupError> {
        let (default, rules) = self.deciding();
        let mut exceptions: Vec<Scope> = Vec::new();
        for rule in rules {
            // The controller takes an "a" for everything, whatever numbers follow: name both kinds instead.
            let kinds = match rule.scope.kind {
                Some(kind) => vec![kind],
                None => vec![Kind::Block, Kind::Char],
            };
            for kind in kinds {
                let scope = Scope { kind: Some(kind), ..rule.scope };
                if rule.effect == default {
                    take_out(&mut exceptions, &scope)?;
                } else if let Some(same) = exceptions.iter_mut().find(|earlier| earlier.same_devices(&scope))
                {
                    same.access = Access(same.access.0 | scope.access.0);
                } else {
                    exceptions.push(scope);
                }
            }
        }
        Ok(ExceptionList { default, exceptions })
    }

    /// The program for v2.
    pub fn program(&self) -> Vec<program::Instruction> {
        let (default, rules) = self.deciding();
        program::assemble(default, rules)
    }
}

impl ExceptionList {
    /// The file that sets the answer for all, and the file that the exceptions go to.
    pub fn files(&self) -> (&'static str, &'static str) {
        match self.default {
            Effect::Deny => ("devices.deny", "devices.allow"),
            Effect::Allow => ("devices.allow", "devices.deny"),
        }
    }

    /// The exceptions as lines, each to be written by itself.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.exceptions.iter().map(Scope::line)
    }
}

/// The devices that every container may use, whatever its spec says: making any node, and null, zero, full, random,
/// urandom, tty, console, ptmx and the pseudo-terminals (OCI runtime spec, "Default Devices"). To be put between "deny
/// all" and the container's own rules.
pub fn default_device_rules() -> Vec<LinuxDeviceCgroup> {
    let rule = |typ, major: Option<i64>, minor: Option<i64>, access: &str| {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true).set_typ(Some(typ)).set_major(major).set_minor(minor);
        rule.set_access(Some(access.to_owned()));
        rule
    };
    let numbered = [
        (1, Some(3)),
        (1, Some(5)),
        (1, Some(7)),
        (1, Some(8)),
        (1, Some(9)),
        (5, Some(0)),
        (5, Some(1)),
        (5, Some(2)),
        (136, None),
    ];
    [LinuxDeviceType::C, LinuxDeviceType::B]
        .into_iter()
        .map(|typ| rule(typ, None, None, "m"))
        .chain(numbered.into_iter().map(|(major, minor)| rule(LinuxDeviceType::C, Some(major), minor, "rwm")))
        .collect()
}

fn take_out(exceptions: &mut Vec<Scope>, scope: &Scope) -> Result<(), CgroupError> {
    for earlier in exceptions.iter_mut() {
        if scope.covers_devices_of(earlier) {
            earlier.access = Access(earlier.access.0 & !scope.access.0);
        } else if scope.touches_devices_of(earlier) && scope.access.0 & earlier.access.0 != 0 {
            let reason =
                "it takes a part out of an earlier rule, which the v1 devices controller cannot express";
            return Err(CgroupError::unsupported("linux.resources.devices", scope.line(), reason));
        }
    }
    exceptions.retain(|earlier| earlier.access.0 != 0);
    Ok(())
}

fn parse_rule(index: usize, rule: &LinuxDeviceCgroup) -> Result<Rule, CgroupError> {
    let field = |name: &str| format!("linux.resources.devices[{index}].{name}");
    let kind = match rule.typ().unwrap_or_default() {
        LinuxDeviceType::A => None,
        LinuxDeviceType::B => Some(Kind::Block),
        LinuxDeviceType::C | LinuxDeviceType::U => Some(Kind::Char),
        LinuxDeviceType::P => {
            return Err(CgroupError::invalid(field("type"), "p", "a, b, c or u: FIFOs are not devices"));
        }
    };
    let number = |name, value: Option<i64>, max, expected| match value {
        // -1 is what containerd and runc write for "all".
        None | Some(-1) => Ok(None),
        Some(value) if (0..=max).contains(&value) => Ok(Some(value as u32)),
        Some(value) => Err(CgroupError::invalid(field(name), value, expected)),
    };
    let major = number("major", rule.major(), MAJOR_MAX, "0 to 4095, or -1 for all")?;
    let minor = number("minor", rule.minor(), MINOR_MAX, "0 to 1048575, or -1 for all")?;
    let effect = if rule.allow() { Effect::Allow } else { Effect::Deny };
    let names_all = (kind, major, minor) == (None, None, None);
    let access = match rule.access().as_deref() {
        // A rule that says nothing of access may take everything away, but it grants nothing by accident.
        None | Some("") if effect == Effect::Deny || names_all => Some(Access::ALL),
        None | Some("") => None,
        Some(text) => Access::parse(text),
    };
    let Some(access) = access else {
        let given = rule.access().as_deref().unwrap_or_default();
        return Err(CgroupError::invalid(field("access"), given, "some of the letters r, w and m"));
    };
    Ok(Rule { effect, scope: Scope { kind, major, minor, access } })
}

#[cfg(test)]
mod tests;
