//! The meaning of device rules, and that both translations keep it.

use super::program::*;
use super::*;

fn rule(effect: Effect, kind: Option<Kind>, major: Option<u32>, minor: Option<u32>, access: u8) -> Rule {
    Rule { effect, scope: Scope { kind, major, minor, access: Access(access) } }
}

/// The definition: each kind of access by itself, decided by the last rule that names it.
fn model(rules: &[Rule], kind: Kind, major: u32, minor: u32, access: u8) -> bool {
    let one = |bit: u8| {
        let wanted = Scope { kind: Some(kind), major: Some(major), minor: Some(minor), access: Access(bit) };
        let last =
            rules.iter().rev().find(|r| r.scope.covers_devices_of(&wanted) && r.scope.access.0 & bit != 0);
        last.is_some_and(|rule| rule.effect == Effect::Allow)
    };
    [1, 2, 4].into_iter().filter(|bit| access & bit != 0).all(one)
}

/// As much of a BPF machine as the program uses.
fn run(program: &[Instruction], kind: Kind, major: u32, minor: u32, access: u8) -> bool {
    let kind = if kind == Kind::Block { 1 } else { 2 };
    let context = [u32::from(access) << 16 | kind, major, minor];
    let mut registers = [0u64; 11];
    let mut at = 0;
    loop {
        let i = program[at];
        let (dst, src) = ((i.registers & 15) as usize, (i.registers >> 4) as usize);
        let immediate = i64::from(i.immediate) as u64;
        at += 1;
        match i.code {
            LOAD_WORD => registers[dst] = u64::from(context[i.offset as usize / 4]),
            SET => registers[dst] = immediate,
            COPY => registers[dst] = registers[src],
            AND => registers[dst] &= immediate,
            SHIFT_RIGHT => registers[dst] >>= immediate,
            JUMP_IF_EQUAL if registers[dst] == immediate => at += i.offset as usize,
            JUMP_UNLESS_EQUAL if registers[dst] != immediate => at += i.offset as usize,
            JUMP_IF_EQUAL | JUMP_UNLESS_EQUAL => {}
            EXIT => return registers[0] == 1,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

/// The v1 controller as the kernel's documentation describes it: it allows what one exception covers whole, and denies
/// what one exception touches.
fn run_v1(list: &ExceptionList, kind: Kind, major: u32, minor: u32, access: u8) -> bool {
    let wanted = Scope { kind: Some(kind), major: Some(major), minor: Some(minor), access: Access(access) };
    let mut matching = list.exceptions.iter().filter(|exception| exception.covers_devices_of(&wanted));
    match list.default {
        Effect::Deny => matching.any(|exception| access & !exception.access.0 == 0),
        Effect::Allow => !matching.any(|exception| access & exception.access.0 != 0),
    }
}

fn all_rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for effect in [Effect::Allow, Effect::Deny] {
        for kind in [None, Some(Kind::Char)] {
            for (major, minor) in [(None, None), (Some(1), None), (Some(1), Some(3))] {
                for access in [Access::READ, Access::READ | Access::WRITE, Access::ALL.0] {
                    rules.push(rule(effect, kind, major, minor, access));
                }
            }
        }
    }
    rules
}

fn requests() -> impl Iterator<Item = (Kind, u32, u32, u8)> {
    [Kind::Block, Kind::Char].into_iter().flat_map(|kind| {
        [(1, 3), (1, 5), (8, 3)]
            .into_iter()
            .flat_map(move |(major, minor)| (1..=7).map(move |access| (kind, major, minor, access)))
    })
}

/// Every list of one, two and three of 36 rules against every request.
#[test]
fn the_program_keeps_the_meaning() {
    let every = all_rules();
    let mut lists: Vec<Vec<Rule>> = every.iter().map(|a| vec![*a]).collect();
    for a in &every {
        for b in &every {
            lists.push(vec![*a, *b]);
            lists.extend(every.iter().step_by(5).map(|c| vec![*a, *b, *c]));
        }
    }
    for list in lists {
        let rules = Rules(list);
        let program = rules.program();
        for (kind, major, minor, access) in requests() {
            let expected = model(&rules.0, kind, major, minor, access);
            let answer = run(&program, kind, major, minor, access);
            assert_eq!(answer, expected, "{rules:?}: {kind:?} {major}:{minor} {access}");
        }
    }
}

/// The v1 list must never allow what the rules deny. (It may deny a combination that two exceptions allow together.)
#[test]
fn the_v1_list_never_allows_more() {
    let every = all_rules();
    for start in [Effect::Allow, Effect::Deny] {
        for a in &every {
            for b in &every {
                let rules = Rules(vec![Rule { effect: start, scope: Scope::ALL }, *a, *b]);
                let Ok(list) = rules.exception_list() else { continue };
                for (kind, major, minor, access) in requests() {
                    let expected = model(&rules.0, kind, major, minor, access);
                    let answer = run_v1(&list, kind, major, minor, access);
                    assert!(expected || !answer, "{rules:?} as {list:?}: {kind:?} {major}:{minor} {access}");
                    if access.count_ones() == 1 {
                        assert_eq!(
                            answer, expected,
                            "{rules:?} as {list:?}: {kind:?} {major}:{minor} {access}"
                        );
                    }
                }
            }
        }
    }
}

/// "Deny all, allow c 1:*, deny c 1:3" written to the v1 files one by one leaves c 1:3 allowed: the kernel looks for an
/// exception "c 1:3" to take away, finds none, and says nothing.
#[test]
fn v1_refuses_what_it_would_weaken() {
    let rules = Rules(vec![
        rule(Effect::Allow, Some(Kind::Char), Some(1), None, 7),
        rule(Effect::Deny, Some(Kind::Char), Some(1), Some(3), 7),
    ]);
    assert!(matches!(rules.exception_list(), Err(CgroupError::Unsupported { .. })));
    assert!(!run(&rules.program(), Kind::Char, 1, 3, Access::READ));
    assert!(run(&rules.program(), Kind::Char, 1, 5, Access::READ));
}

/// The kernel takes any line that begins with "a" for everything, so a rule on both kinds with a number or less than
/// "rwm" must not be written that way.
#[test]
fn v1_lines_name_kinds() {
    let rules = Rules(vec![rule(Effect::Allow, None, None, None, Access::MKNOD)]);
    let list = rules.exception_list().unwrap();
    assert_eq!(list.files(), ("devices.deny", "devices.allow"));
    assert_eq!(list.lines().collect::<Vec<_>>(), ["b *:* m", "c *:* m"]);
}

#[test]
fn default_rules_are_valid_and_restrict() {
    let rules = Rules::parse(&default_device_rules()).unwrap();
    assert!(rules.restricts());
    assert!(model(&rules.0, Kind::Char, 1, 3, 7));
    assert!(!model(&rules.0, Kind::Char, 1, 1, Access::READ), "/dev/mem");
    assert!(!model(&rules.0, Kind::Block, 8, 0, Access::READ), "disks");
}

#[test]
fn refuses_invalid_rules() {
    let parse = |json: &str| Rules::parse(&[serde_json::from_str(json).unwrap()]);
    assert!(parse(r#"{"allow": true, "type": "c", "major": 1, "minor": -1, "access": "r"}"#).is_ok());
    for bad in [
        r#"{"allow": true, "type": "p", "access": "rwm"}"#,
        r#"{"allow": true, "type": "c", "major": 4096, "access": "r"}"#,
        r#"{"allow": true, "type": "c", "minor": 1048576, "access": "r"}"#,
        r#"{"allow": true, "type": "c", "major": -2, "access": "r"}"#,
        r#"{"allow": true, "type": "c", "major": 1, "access": "rx"}"#,
        r#"{"allow": true, "type": "c", "major": 1}"#,
    ] {
        assert!(matches!(parse(bad), Err(CgroupError::Invalid { .. })), "{bad}");
    }
}
