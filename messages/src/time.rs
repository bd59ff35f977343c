//! The time stamp of records and facts. Made by whoever owns a clock; here it is only a number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Wall-clock time in nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
const DAYS_FROM_0000_03_01_TO_1970: u64 = 719_468;

impl Timestamp {
    /// The time stamp of a [`std::time::SystemTime`]; times before 1970 become 0.
    pub fn from_system(time: std::time::SystemTime) -> Self {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Nanoseconds from `earlier` to `self`; 0 when the clock was set back in between.
    pub fn nanos_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with nanoseconds, as CRI log lines have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_date(self.seconds() / SECONDS_PER_DAY);
        let second = self.seconds() % SECONDS_PER_DAY;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
            second / 3600,
            second / 60 % 60,
            second % 60,
            self.0 % NANOS_PER_SECOND
        )
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    /// Reads RFC 3339 in UTC, with zero to nine digits of a second: `2026-11-29T16:37:25.5Z`.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_rfc_3339(text.as_bytes()).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Error::invalid("time", format!("{shown:?}"), "a UTC time such as 2026-11-29T16:37:25Z")
        })
    }
}

fn parse_rfc_3339(text: &[u8]) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| {
        text.get(range)?
            .iter()
            .try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
    };
    let shape = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if shape.iter().any(|(index, byte)| text.get(*index) != Some(byte)) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let fraction = match text.get(19..)? {
        b"Z" => 0,
        [b'.', digits @ .., b'Z'] if (1..=9).contains(&digits.len()) => {
            let value = number(20..20 + digits.len())?;
            // At most nine digits, so the exponent is 0 to 8.
            value * 10u64.pow(9 - digits.len() as u32)
        }
        _ => return None,
    };
    let days = days_since_1970(year, month, day).filter(|days| civil_date(*days) == (year, month, day))?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    Some(Timestamp(seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(fraction)?))
}

/// The inverse of [`civil_date`], for dates from 1970 on; what is no date gives some day all the same.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year.checked_sub(u64::from(month <= 2))?;
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(DAYS_FROM_0000_03_01_TO_1970)
}

/// Year, month and day of a number of days since 1970-01-01 (proleptic Gregorian calendar).
///
/// Years are counted from March, so that the leap day is the last day of a year and falls out of the sums.
fn civil_date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days_since_1970 + DAYS_FROM_0000_03_01_TO_1970;
    let era = days / DAYS_PER_ERA;
    let day_of_era = days % DAYS_PER_ERA;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "1970-01-01T00:00:00.000000000Z")]
    #[case(951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z")]
    #[case(1_709_251_199_999_999_999, "2024-02-29T23:59:59.999999999Z")]
    #[case(1_798_761_600_000_000_000, "2027-01-01T00:00:00.000000000Z")]
    #[case(4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z")]
    fn shows_rfc_3339(#[case] nanos: u64, #[case] text: &str) {
        assert_eq!(Timestamp(nanos).to_string(), text);
        assert_eq!(text.parse::<Timestamp>().expect("a good time"), Timestamp(nanos));
    }

    #[rstest]
    #[case("2026-11-29T16:37:25Z")]
    #[case("2026-11-29T16:37:25.5Z")]
    fn reads_short_fractions(#[case] text: &str) {
        let seconds = text.parse::<Timestamp>().expect("a good time").seconds();
        assert_eq!(seconds, 1_795_970_245);
    }

    #[rstest]
    #[case("")]
    #[case("2026-11-29")]
    #[case("2026-02-30T00:00:00Z")]
    #[case("2026-13-01T00:00:00Z")]
    #[case("2026-00-01T00:00:00Z")]
    #[case("1969-12-31T23:59:59Z")]
    #[case("2026-11-29T24:00:00Z")]
    #[case("2026-11-29T16:37:25+01:00")]
    #[case("2026-11-29T16:37:25.Z")]
    #[case("2026-11-29T16:37:25.1234567890Z")]
    fn refuses(#[case] text: &str) {
        assert!(text.parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_clock_set_back_never_underflows() {
        assert_eq!(Timestamp(5).nanos_since(Timestamp(9)), 0);
    }
}
