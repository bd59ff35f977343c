//! The plan: what the shim does wrong. Owns: its text form. Never: strikes.

use std::path::Path;

/// A fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Refuse(String),
    Unknown,
    Hang,
    Die,
    HangAfter,
    DieAfter,
    LateMs(u64),
    Twice,
    Garbage,
    Noise,
    Pid(u32),
}

/// Lines of `KEY=VALUE`.
#[derive(Clone, Debug, Default)]
pub struct Plan(Vec<(String, String)>);

impl Plan {
    /// The plan in a folder; an empty one if there is none.
    pub fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("plan")).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
    }

    /// The value of a key; empty if there is none.
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().rev().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    }

    /// What a call meets.
    pub fn fault(&self, method: &str) -> Option<Fault> {
        let own = self.get(method);
        let text = if own.is_empty() { self.get("any") } else { own };
        let (name, argument) = text.split_once(':').unwrap_or((text, ""));
        Some(match name {
            "refuse" => Fault::Refuse(argument.to_owned()),
            "unknown" => Fault::Unknown,
            "hang" => Fault::Hang,
            "die" => Fault::Die,
            "hang-after" => Fault::HangAfter,
            "die-after" => Fault::DieAfter,
            "late" => Fault::LateMs(argument.parse().expect("late:MS")),
            "twice" => Fault::Twice,
            "garbage" => Fault::Garbage,
            "noise" => Fault::Noise,
            "pid" => Fault::Pid(argument.parse().expect("pid:N")),
            "" => return None,
            other => panic!("{other} is no fault"),
        })
    }
}
