//! Numbers as people say them: ages, sizes, shares. Pure.

use mainstay_messages::Timestamp;

const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A span of time in its largest sensible unit: `3 minutes`.
pub fn span(nanos: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const WEEK: u64 = 7 * DAY;
    const YEAR: u64 = 365 * DAY;
    let seconds = nanos / NANOS_PER_SECOND;
    // Up to two of a larger unit are said in the smaller one, so that no answer is off by half.
    let (count, unit) = match seconds {
        0 => return "less than a second".to_owned(),
        1..MINUTE => (seconds, "second"),
        MINUTE..HOUR => (seconds / MINUTE, "minute"),
        HOUR..172_800 => (seconds / HOUR, "hour"),
        172_800..1_209_600 => (seconds / DAY, "day"),
        1_209_600..63_072_000 => (seconds / WEEK, "week"),
        _ => (seconds / YEAR, "year"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// How long ago something was: `3 minutes ago`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    format!("{} ago", span(now.nanos_since(then)))
}

/// A size in bytes: `64 MiB`, `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1_024 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1_024;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1_024;
        unit = larger;
    }
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, _) if whole >= 100 => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// CPU time: `850 ms`, `12.3 s`, `5 min 7 s`.
pub fn cpu_time(nanos: u64) -> String {
    let millis = nanos / NANOS_PER_MILLI;
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// A share in per cent with one digit: `12.5 %`. Of one CPU, so several CPUs make more than 100 %.
pub fn per_cent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = u128::from(part) * 1_000 / u128::from(whole);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// An offset in milliseconds with microseconds: `+12.345`.
pub fn offset_ms(nanos: u64) -> String {
    format!("+{}.{:03}", nanos / NANOS_PER_MILLI, nanos % NANOS_PER_MILLI / 1_000)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "less than a second")]
    #[case(1, "1 second")]
    #[case(59, "59 seconds")]
    #[case(60, "1 minute")]
    #[case(3_599, "59 minutes")]
    #[case(3_600, "1 hour")]
    #[case(172_799, "47 hours")]
    #[case(172_800, "2 days")]
    #[case(1_209_600, "2 weeks")]
    #[case(63_072_000, "2 years")]
    fn spans(#[case] seconds: u64, #[case] words: &str) {
        assert_eq!(span(seconds * NANOS_PER_SECOND), words);
    }

    #[test]
    fn a_time_in_the_future_is_now() {
        assert_eq!(age(Timestamp(9_000_000_000), Timestamp(1)), "less than a second ago");
    }

    #[rstest]
    #[case(0, "0 B")]
    #[case(1_023, "1023 B")]
    #[case(1_024, "1 KiB")]
    #[case(1_536, "1.5 KiB")]
    #[case(64 << 20, "64 MiB")]
    #[case(3 << 29, "1.5 GiB")]
    #[case(123_456_789, "117 MiB")]
    #[case((1 << 20) - 1, "1023 KiB")]
    #[case(u64::MAX, "16383 PiB")]
    fn sizes(#[case] count: u64, #[case] words: &str) {
        assert_eq!(bytes(count), words);
    }

    #[rstest]
    #[case(999_999_999, "999 ms")]
    #[case(1_000_000_000, "1.0 s")]
    #[case(59_990_000_000, "59.9 s")]
    #[case(307_000_000_000, "5 min 7 s")]
    fn cpu_times(#[case] nanos: u64, #[case] words: &str) {
        assert_eq!(cpu_time(nanos), words);
    }

    #[rstest]
    #[case(1, 8, "12.5 %")]
    #[case(3, 2, "150.0 %")]
    #[case(1, 0, "-")]
    fn shares(#[case] part: u64, #[case] whole: u64, #[case] words: &str) {
        assert_eq!(per_cent(part, whole), words);
    }

    #[rstest]
    #[case(0, "+0.000")]
    #[case(12_345_678, "+12.345")]
    #[case(1_000_000_000, "+1000.000")]
    fn offsets(#[case] nanos: u64, #[case] words: &str) {
        assert_eq!(offset_ms(nanos), words);
    }
}
