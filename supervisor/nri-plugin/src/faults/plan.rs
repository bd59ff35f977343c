//! Which call meets which fault.
//!
//! Owns: the plan and how it is written. Never: strikes.

use std::str::FromStr;
use std::time::Duration;

/// The word for every call.
const ANY: &str = "any";

/// What a plugin does wrong. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers with an error.
    Refuse(String),
    /// Never answers.
    Hang,
    /// Answers after that time, rightly.
    Late(Duration),
    /// Closes the connection; a program ends.
    Die,
    /// Answers with bytes that are no answer.
    Garbage,
    /// Sends bytes that are no frame.
    Noise,
    /// Asks for so many updates at once, and then answers.
    Flood(u32),
    /// Sends so many answers that nobody asked for, and then answers.
    Frames(u32),
    /// Does not know the call.
    Unknown,
    /// Panics.
    Panic,
}

/// A plan that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fault {0:?} is not valid; expected CALL=FAULT or CALL*TIMES=FAULT")]
pub struct PlanError(String);

/// The faults, the last set of which comes first.
#[derive(Debug, Default)]
pub(super) struct Plan(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    call: String,
    fault: Fault,
    left: Option<u32>,
}

impl Plan {
    pub fn set(&mut self, call: &str, fault: Fault, times: Option<u32>) {
        self.0.push(Entry { call: call.to_owned(), fault, left: times });
    }

    /// Adds what is written, a line each. Empty lines, and those that begin with `#`, say nothing.
    pub fn read(&mut self, text: &str) -> Result<(), PlanError> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || PlanError(line.to_owned());
            let (call, fault) = line.split_once('=').ok_or_else(wrong)?;
            let (call, times) = match call.split_once('*') {
                Some((call, times)) => (call, Some(times.parse().map_err(|_| wrong())?)),
                None => (call, None),
            };
            self.set(call, fault.parse().map_err(|PlanError(_)| wrong())?, times);
        }
        Ok(())
    }

    /// The fault that a call meets now.
    pub fn next(&mut self, call: &str) -> Option<Fault> {
        let meets = |entry: &&mut Entry| (entry.call == call || entry.call == ANY) && entry.left != Some(0);
        let entry = self.0.iter_mut().rev().find(meets)?;
        if let Some(left) = &mut entry.left {
            *left -= 1;
        }
        Some(entry.fault.clone())
    }
}

impl FromStr for Fault {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wrong = || PlanError(text.to_owned());
        let (word, value) = text.split_once(':').unwrap_or((text, ""));
        let number = || value.parse::<u32>().map_err(|_| wrong());
        Ok(match word {
            "refuse" if value.is_empty() => Self::Refuse("no".to_owned()),
            "refuse" => Self::Refuse(value.to_owned()),
            "hang" => Self::Hang,
            "late" => Self::Late(Duration::from_millis(number()?.into())),
            "die" => Self::Die,
            "garbage" => Self::Garbage,
            "noise" => Self::Noise,
            "flood" => Self::Flood(number()?),
            "frames" => Self::Frames(number()?),
            "unknown" => Self::Unknown,
            "panic" => Self::Panic,
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_and_met_as_often_as_it_says() {
        let mut plan = Plan::default();
        plan.read("# what a test wants\n any=late:5\n\nRunPodSandbox*1=refuse:the weather\n").expect("valid");
        assert_eq!(plan.next("RunPodSandbox"), Some(Fault::Refuse("the weather".to_owned())));
        assert_eq!(plan.next("RunPodSandbox"), Some(Fault::Late(Duration::from_millis(5))));
        assert_eq!(plan.next("Configure"), Some(Fault::Late(Duration::from_millis(5))));
    }

    #[test]
    fn what_is_no_plan_is_named() {
        for wrong in ["hang", "any=explode", "any*often=hang", "any=late:soon", "any=flood"] {
            let error = Plan::default().read(wrong).expect_err("not valid");
            assert_eq!(
                error.to_string(),
                format!("the fault {wrong:?} is not valid; expected CALL=FAULT or CALL*TIMES=FAULT")
            );
        }
    }
}
