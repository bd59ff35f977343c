//! Signals as the interface names them.

use mainstay::Signal;
use mainstay_cri_api as api;

/// What the names of signals begin with.
const PREFIX: &str = "SIGNAL_";
/// The first and the last of the real-time signals that have names of their own.
const REAL_TIME: std::ops::RangeInclusive<u8> = 34..=64;
/// From which one on they are named by their distance from the last.
const BY_THE_LAST: u8 = 50;

/// The signal that a container asks to be stopped with; none when the image's, or the usual one, is to be used.
pub(crate) fn asked(signal: api::Signal) -> Option<Signal> {
    if signal == api::Signal::RuntimeDefault {
        return None;
    }
    let name = signal.as_str_name().strip_prefix(PREFIX)?.strip_prefix("SIG")?;
    // Older names of the same ones.
    let name = match name {
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        name => name,
    };
    name.replace("MINUS", "-").replace("PLUS", "+").parse().ok()
}

/// The same as it is shown: TERM where none is set.
pub(crate) fn shown(signal: Option<Signal>) -> api::Signal {
    let signal = signal.unwrap_or(Signal::TERM);
    let name = match signal.0 {
        number if REAL_TIME.contains(&number) => real_time(number),
        _ => signal.to_string(),
    };
    api::Signal::from_str_name(&format!("{PREFIX}{name}")).unwrap_or(api::Signal::RuntimeDefault)
}

fn real_time(number: u8) -> String {
    match (number - REAL_TIME.start(), REAL_TIME.end() - number) {
        (0, _) => "SIGRTMIN".to_owned(),
        (_, 0) => "SIGRTMAX".to_owned(),
        (above, below) if number >= BY_THE_LAST => {
            debug_assert!(above > below);
            format!("SIGRTMAXMINUS{below}")
        }
        (above, _) => format!("SIGRTMINPLUS{above}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_signals_are_known_on_both_sides() {
        for number in 1..=65 {
            let signal = api::Signal::try_from(number).expect("all numbers are taken");
            let known = asked(signal).expect("all but the first are signals");
            // Some have two names.
            assert_eq!(asked(shown(Some(known))), Some(known), "{signal:?}");
        }
        assert_eq!(asked(api::Signal::RuntimeDefault), None);
        assert_eq!(shown(None), api::Signal::Sigterm);
        assert_eq!(asked(api::Signal::Sigrtmaxminus14), Some(Signal(50)));
        assert_eq!(shown(Some(Signal(49))), api::Signal::Sigrtminplus15);
    }
}
