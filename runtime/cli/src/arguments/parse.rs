//! Values of flags, from text: sizes, CPUs, times, mounts, limits. Pure; every error says what would be
//! right.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_messages::Timestamp;
use mainstay_messages::image::ImageName;
use mainstay_messages::spec::{
    Access, MissingSource, Mount, Owners, Propagation, RLIMIT_NAMES, Relabel, Restriction, Rlimit, Submounts,
};

mod network;
mod settings;

pub use network::port_mapping;
pub use settings::*;

/// The most CPUs that `--cpus` takes; far above any machine, far below what overflows.
const CPUS_MAX: u64 = 1_000_000;
/// What `--ulimit` calls no limit: RLIM_INFINITY.
const RLIMIT_UNLIMITED: u64 = u64::MAX;
const MILLIS_PER_SECOND: u64 = 1_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A variable for a process, as `--env` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `KEY=VALUE`
    Set(String, String),
    /// `KEY`: as it is in our own environment; left out when it is not there.
    Inherit(String),
}

/// Where reading of a log begins, as `--since` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// At this time.
    At(Timestamp),
}

/// A size in bytes: `512k`, `64m`, `1.5g`, `64MiB`, `1048576`. Units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as 64m, 1.5g, 512k or a number of bytes".to_owned();
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit) {
        "" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(expected()),
    };
    let (value, scale) = decimal(number).ok_or_else(expected)?;
    let bytes = (u128::from(value) << shift) / u128::from(scale);
    u64::try_from(bytes).map_err(|_| format!("more bytes than can be counted; {}", expected()))
}

/// CPUs in thousandths: `1.5` is 1500.
pub fn cpus(text: &str) -> Result<u64, String> {
    let expected = || "expected a number of CPUs such as 2, 1.5 or 0.25".to_owned();
    let (value, scale) = decimal(text.trim()).ok_or_else(expected)?;
    let millis = u128::from(value) * 1_000 / u128::from(scale);
    u64::try_from(millis).ok().filter(|millis| *millis <= CPUS_MAX * 1_000).ok_or_else(expected)
}

/// A non-negative decimal number as a whole number and the power of ten that divides it. Exact, unlike a
/// float.
fn decimal(text: &str) -> Option<(u64, u64)> {
    /// More digits after the point than this make no difference to any unit that we have.
    const FRACTION_DIGITS_MAX: usize = 9;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let value = format!("{whole}{fraction}").parse().ok()?;
    // At most 10^9.
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    Some((value, scale))
}

/// A whole number.
pub fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, as in 100".to_owned())
}

/// The number of a group. Names are those of the container, which nobody can look up yet.
pub fn group(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected the number of a group, as in 27".to_owned())
}

/// A duration: `10` is seconds; `500ms`, `1.5s`, `2m`, `3h`, `1d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 10 (seconds), 500ms, 1.5s, 2m, 3h or 1d".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let nanos_per_unit = match unit {
        "ms" => NANOS_PER_SECOND / MILLIS_PER_SECOND,
        "" | "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3_600 * NANOS_PER_SECOND,
        "d" => 86_400 * NANOS_PER_SECOND,
        _ => return Err(expected()),
    };
    let (value, scale) = decimal(number).ok_or_else(expected)?;
    let nanos = u128::from(value) * u128::from(nanos_per_unit) / u128::from(scale);
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| expected())
}

/// A point in time: `10m` (so long ago), `2026-11-29T16:00:00Z` or seconds since 1970.
pub fn since(text: &str) -> Result<Since, String> {
    let expected = || {
        "expected so long ago (10m, 2h), a time such as 2026-11-29T16:00:00Z, or seconds since 1970"
            .to_owned()
    };
    let text = text.trim();
    if text.ends_with(|c: char| c.is_ascii_lowercase()) {
        return duration(text).map(Since::Ago).map_err(|_| expected());
    }
    if text.contains('T') {
        return rfc_3339(text).map(Since::At).ok_or_else(expected);
    }
    let (value, scale) = decimal(text).ok_or_else(expected)?;
    let nanos = u128::from(value) * u128::from(NANOS_PER_SECOND) / u128::from(scale);
    u64::try_from(nanos).map(|nanos| Since::At(Timestamp(nanos))).map_err(|_| expected())
}

/// `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`, from 1970 on.
fn rfc_3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let offset = match zone {
        "Z" => 0,
        _ => {
            let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
            (hours * 3_600 + minutes * 60) * if zone.starts_with('-') { -1 } else { 1 }
        }
    };
    let in_range = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let seconds =
        days_since_1970(year, month, day) * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second - offset;
    let (value, scale) = decimal(&format!("0.{fraction}"))?;
    let nanos = value * (NANOS_PER_SECOND / scale);
    u64::try_from(seconds).ok()?.checked_mul(NANOS_PER_SECOND)?.checked_add(nanos).map(Timestamp)
}

/// `N` numbers of these lengths, separated by `separator`.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut out = [0; N];
    for (slot, length) in out.iter_mut().zip(lengths) {
        let part = parts.next()?;
        if part.len() != length || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *slot = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date; negative before it (proleptic Gregorian calendar, years from March).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_FROM_0000_03_01_TO_1970: i64 = 719_468;
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month_from_march + 2) / 5 + day - 1 - DAYS_FROM_0000_03_01_TO_1970
}

/// `SOURCE:TARGET[:OPTIONS]`, options being those of `volume_option`. A relative source is made absolute by the caller.
pub fn volume(text: &str) -> Result<Mount, String> {
    let expected = || {
        "expected SOURCE:TARGET or SOURCE:TARGET:OPTIONS with ro, ro-top, rw, rbind, bind, private, slave, shared, idmap, \
         noidmap, noexec, nosuid, nodev, nosymfollow, noatime, mkdir, z or Z, as in /srv/data:/data:ro"
            .to_owned()
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts[..] {
        [source, target] => (source, target, ""),
        [source, target, options] if !options.is_empty() => (source, target, options),
        _ => return Err(expected()),
    };
    if source.is_empty() || !target.starts_with('/') {
        return Err(format!("{}; the target is an absolute path", expected()));
    }
    let mut mount = Mount::bind(source, target, Access::ReadWrite);
    for option in options.split(',').filter(|_| !options.is_empty()) {
        volume_option(&mut mount, option).ok_or_else(expected)?;
    }
    Ok(mount)
}

/// Applies one option, if it is one. `ro` is all the way down, and so is `rro`; `ro-top` is not.
fn volume_option(mount: &mut Mount, option: &str) -> Option<()> {
    match option {
        "rw" => mount.access = Access::ReadWrite,
        "ro" | "rro" => mount.access = Access::ReadOnly,
        "ro-top" => (mount.access, mount.submounts) = (Access::ReadOnly, Submounts::AsOnHost),
        "rbind" => mount.submounts = Submounts::Alike,
        "bind" => mount.submounts = Submounts::Absent,
        "private" | "rprivate" => mount.propagation = Propagation::Private,
        "slave" | "rslave" => mount.propagation = Propagation::Slave,
        "shared" | "rshared" => mount.propagation = Propagation::Shared,
        "idmap" => mount.owners = Owners::Mapped,
        "noidmap" => mount.owners = Owners::Host,
        "mkdir" => mount.missing = MissingSource::DirectoryMade,
        "z" => mount.relabel = Relabel::Shared,
        "Z" => mount.relabel = Relabel::Private,
        _ => {
            mount.restrictions.insert(restriction(option)?);
        }
    }
    Some(())
}

fn restriction(option: &str) -> Option<Restriction> {
    match option {
        "noexec" => Some(Restriction::NoExec),
        "nosuid" => Some(Restriction::NoSuid),
        "nodev" => Some(Restriction::NoDev),
        "nosymfollow" => Some(Restriction::NoSymfollow),
        "noatime" => Some(Restriction::NoAtime),
        _ => None,
    }
}

/// `TARGET=IMAGE[,PART]`: an image that is mounted, or the file or directory of it at a path.
pub fn image_mount(text: &str) -> Result<Mount, String> {
    let expected = || "expected TARGET=IMAGE or TARGET=IMAGE,PATH, as in /models=box:1,data".to_owned();
    let (target, image) =
        text.split_once('=').filter(|(target, _)| target.starts_with('/')).ok_or_else(expected)?;
    let (image, part) = image.split_once(',').map_or((image, None), |(image, part)| (image, Some(part)));
    if part == Some("") {
        return Err(expected());
    }
    let image = image.parse::<ImageName>().map_err(|error| format!("{}: {error}", expected()))?;
    Ok(Mount::image(image, part.map(PathBuf::from), target))
}

/// `TARGET[:size=SIZE][:ro]`, as in `/tmp:size=64m`.
pub fn tmpfs(text: &str) -> Result<Mount, String> {
    let expected = || "expected TARGET or TARGET:size=SIZE, as in /tmp:size=64m".to_owned();
    let mut parts = text.split(':');
    let target = PathBuf::from(parts.next().filter(|target| target.starts_with('/')).ok_or_else(expected)?);
    let (mut size_bytes, mut access) = (None, Access::ReadWrite);
    for option in parts.flat_map(|options| options.split(',')) {
        match option.split_once('=') {
            Some(("size", value)) => size_bytes = Some(size(value)?),
            None if option == "ro" => access = Access::ReadOnly,
            None if option == "rw" => access = Access::ReadWrite,
            _ => return Err(expected()),
        }
    }
    Ok(Mount { access, ..Mount::tmpfs(target, size_bytes) })
}

/// `NAME=SOFT[:HARD]`, as in `nofile=1024:4096`; `unlimited` and `-1` are no limit.
pub fn ulimit(text: &str) -> Result<Rlimit, String> {
    let expected =
        || "expected NAME=SOFT or NAME=SOFT:HARD, as in nofile=1024:4096 or core=unlimited".to_owned();
    let value = |text: &str| match text {
        "unlimited" | "-1" => Some(RLIMIT_UNLIMITED),
        _ => text.parse().ok(),
    };
    let (name, limits) = text.split_once('=').ok_or_else(expected)?;
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("RLIMIT_").unwrap_or(&name).to_owned();
    if !RLIMIT_NAMES.contains(&name.as_str()) {
        return Err(format!("expected a limit among {}", RLIMIT_NAMES.join(", ").to_ascii_lowercase()));
    }
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    let soft = value(soft).ok_or_else(expected)?;
    let hard = value(hard).ok_or_else(expected)?;
    Ok(Rlimit { name, soft, hard })
}

/// `KEY=VALUE`, or `KEY` to take it from our own environment.
pub fn variable(text: &str) -> Result<Variable, String> {
    match text.split_once('=') {
        Some(("", _)) => Err("expected KEY=VALUE, or KEY to pass on our own".to_owned()),
        Some((key, value)) => Ok(Variable::Set(key.to_owned(), value.to_owned())),
        None if text.is_empty() => Err("expected KEY=VALUE, or KEY to pass on our own".to_owned()),
        None => Ok(Variable::Inherit(text.to_owned())),
    }
}

/// The text of an `--env-file`: a variable a line; empty lines and lines that begin with `#` do not count.
/// An error is the number of the line, from 1, and what is wrong with it.
pub fn env_file(text: &str) -> Result<Vec<Variable>, (usize, String)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_start()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| variable(line).map_err(|reason| (number, reason)))
        .collect()
}

/// The environment that a list of variables makes; later ones win. `own` looks up a variable of ours.
pub fn environment(
    variables: impl IntoIterator<Item = Variable>,
    own: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for variable in variables {
        match variable {
            Variable::Set(key, value) => environment.insert(key, value),
            Variable::Inherit(key) => match own(&key) {
                Some(value) => environment.insert(key, value),
                None => environment.remove(&key),
            },
        };
    }
    environment
}

/// `KEY=VALUE`, or `KEY` for an empty value.
pub fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err("expected KEY=VALUE, as in team=storage".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// `NET_ADMIN`, `cap_net_admin` or `ALL`, as specs have it. Which names exist is for the runtime to say.
pub fn capability(text: &str) -> Result<String, String> {
    let upper = text.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
        return Err("expected the name of a capability such as NET_ADMIN, or ALL".to_owned());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
