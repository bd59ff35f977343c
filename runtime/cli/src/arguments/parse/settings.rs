//! Values of the flags for devices, disks, kernel parameters and the look-up of names.

use std::net::IpAddr;
use std::path::PathBuf;

use mainstay_messages::spec::{
    Device, DeviceKind, DeviceRule, HostEntry, HugepageLimit, IdMapping, IdMappings, UNLIMITED, UserNamespace,
};

use super::size;

/// What lifts a limit.
const UNLIMITED_WORDS: [&str; 2] = ["unlimited", "-1"];

/// A rate of a disk: its node, and how much a second.
pub type DiskRate = (PathBuf, u64);

/// A size, or `unlimited`.
pub fn size_or_unlimited(text: &str) -> Result<u64, String> {
    match UNLIMITED_WORDS.contains(&text) {
        true => Ok(UNLIMITED),
        false => size(text).map_err(|error| format!("{error}, or unlimited")),
    }
}

/// CPUs, or `unlimited`.
pub fn cpus_or_unlimited(text: &str) -> Result<u64, String> {
    match UNLIMITED_WORDS.contains(&text) {
        true => Ok(UNLIMITED),
        false => super::cpus(text).map_err(|error| format!("{error}, or unlimited")),
    }
}

/// A number, or `unlimited`.
pub fn count_or_unlimited(text: &str) -> Result<u64, String> {
    match UNLIMITED_WORDS.contains(&text) {
        true => Ok(UNLIMITED),
        false => text.parse().map_err(|_| "expected a number, or unlimited".to_owned()),
    }
}

/// `SOURCE[:TARGET][:ACCESS]`, as in `/dev/fuse`, `/dev/sda:/dev/xvda:r`.
pub fn device(text: &str) -> Result<Device, String> {
    let expected = || {
        "expected SOURCE, SOURCE:TARGET or SOURCE:TARGET:ACCESS with letters of rwm, as in /dev/sda:/dev/xvda:r"
            .to_owned()
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (path, target, access) = match parts[..] {
        [path] => (path, None, "rwm"),
        [path, access] if is_access(access) => (path, None, access),
        [path, target] => (path, Some(target), "rwm"),
        [path, target, access] if is_access(access) => (path, Some(target), access),
        _ => return Err(expected()),
    };
    if !path.starts_with('/') || target.is_some_and(|target| !target.starts_with('/')) {
        return Err(expected());
    }
    Ok(Device { path: path.into(), target: target.map(Into::into), access: access.to_owned() })
}

fn is_access(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|letter| b"rwm".contains(&letter))
}

/// `KIND MAJOR:MINOR ACCESS`, as in `c 10:* rw`.
pub fn device_rule(text: &str) -> Result<DeviceRule, String> {
    let expected = || {
        "expected KIND MAJOR:MINOR ACCESS, with the kind a, b or c, numbers or *, and letters of rwm, as in 'c 10:* rw'"
            .to_owned()
    };
    let [kind, numbers, access] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(expected());
    };
    let kind = match kind {
        "a" => DeviceKind::All,
        "b" => DeviceKind::Block,
        "c" => DeviceKind::Character,
        _ => return Err(expected()),
    };
    let number = |text: &str| match text {
        "*" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| expected()),
    };
    let (major, minor) = numbers.split_once(':').ok_or_else(expected)?;
    if !is_access(access) {
        return Err(expected());
    }
    Ok(DeviceRule { kind, major: number(major)?, minor: number(minor)?, access: access.to_owned() })
}

/// `SIZE=BYTES`, as in `2MB=64m`.
pub fn hugepages(text: &str) -> Result<HugepageLimit, String> {
    let expected = || "expected a size of huge pages and a limit, as in 2MB=64m or 1GB=0".to_owned();
    let (page_size, bytes) = text.split_once('=').ok_or_else(expected)?;
    Ok(HugepageLimit {
        page_size: page_size.to_ascii_uppercase(),
        bytes: size_or_unlimited(bytes).map_err(|_| expected())?,
    })
}

/// `FILE=VALUE`: a file of cgroup v2, as in `memory.high=64M`.
pub fn unified(text: &str) -> Result<(String, String), String> {
    let expected = || "expected a file of cgroup v2 and its value, as in memory.high=67108864".to_owned();
    let (file, value) = text.split_once('=').filter(|(file, _)| file.contains('.')).ok_or_else(expected)?;
    Ok((file.to_owned(), value.to_owned()))
}

/// `DISK:SIZE`: bytes a second, as in `/dev/sda:10m`.
pub fn disk_bytes(text: &str) -> Result<DiskRate, String> {
    let expected = || "expected a disk and bytes a second, as in /dev/sda:10m".to_owned();
    let (disk, rate) =
        text.rsplit_once(':').filter(|(disk, _)| disk.starts_with('/')).ok_or_else(expected)?;
    Ok((disk.into(), size_or_unlimited(rate).map_err(|_| expected())?))
}

/// `DISK:N`: operations a second, or a weight.
pub fn disk_number(text: &str) -> Result<DiskRate, String> {
    let expected = || "expected a disk and a number, as in /dev/sda:100".to_owned();
    let (disk, rate) =
        text.rsplit_once(':').filter(|(disk, _)| disk.starts_with('/')).ok_or_else(expected)?;
    Ok((disk.into(), count_or_unlimited(rate).map_err(|_| expected())?))
}

/// `DISK:N`: a weight.
pub fn disk_weight(text: &str) -> Result<(PathBuf, u16), String> {
    let expected = || "expected a disk and a weight from 10 to 1000, as in /dev/sda:200".to_owned();
    let (disk, weight) =
        text.rsplit_once(':').filter(|(disk, _)| disk.starts_with('/')).ok_or_else(expected)?;
    Ok((disk.into(), weight.parse().map_err(|_| expected())?))
}

/// `NAME=VALUE`, as in `net.core.somaxconn=1024`.
pub fn sysctl(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, as in net.core.somaxconn=1024".to_owned()),
    }
}

/// `NAME:ADDRESS` or `NAME=ADDRESS`, as in `db:10.0.0.7`.
pub fn host(text: &str) -> Result<HostEntry, String> {
    let expected = || "expected NAME:ADDRESS, as in db:10.0.0.7 or db=fd00::7".to_owned();
    let (name, address) = text.split_once([':', '=']).ok_or_else(expected)?;
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address: IpAddr = bare.parse().map_err(|_| expected())?;
    if name.is_empty() {
        return Err(expected());
    }
    Ok(HostEntry { name: name.to_owned(), address })
}

/// `host`, `auto`, or ranges of ids for users and groups, as in `0:100000:65536`.
pub fn user_namespace(text: &str) -> Result<UserNamespace, String> {
    match text {
        "host" => Ok(UserNamespace::Host),
        "auto" => Ok(UserNamespace::Auto),
        _ => {
            let ranges = text.split(',').map(id_mapping).collect::<Result<Vec<_>, _>>();
            let ranges = ranges.map_err(|error| error.replacen("expected", "expected host, auto or", 1))?;
            Ok(UserNamespace::Mapped(IdMappings::both(ranges)))
        }
    }
}

/// `CONTAINER:HOST:SIZE`, as in `0:100000:65536`.
pub fn id_mapping(text: &str) -> Result<IdMapping, String> {
    let numbers = text.split(':').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>();
    match numbers.as_deref() {
        Some([container, host, size]) => Ok(IdMapping { container: *container, host: *host, size: *size }),
        _ => Err("expected CONTAINER:HOST:SIZE, as in 0:100000:65536".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/dev/fuse", "/dev/fuse", None, "rwm")]
    #[case("/dev/fuse:rw", "/dev/fuse", None, "rw")]
    #[case("/dev/sda:/dev/xvda", "/dev/sda", Some("/dev/xvda"), "rwm")]
    #[case("/dev/sda:/dev/xvda:r", "/dev/sda", Some("/dev/xvda"), "r")]
    fn reads_devices(
        #[case] text: &str,
        #[case] path: &str,
        #[case] target: Option<&str>,
        #[case] access: &str,
    ) {
        let expected = Device { path: path.into(), target: target.map(Into::into), access: access.into() };
        assert_eq!(device(text), Ok(expected));
    }

    #[rstest]
    #[case("fuse")]
    #[case("/dev/sda:xvda")]
    #[case("/dev/sda:/dev/xvda:x")]
    #[case("/dev/sda:/dev/xvda:")]
    #[case("/dev/sda:/a:r:w")]
    fn refuses_devices(#[case] text: &str) {
        assert!(device(text).expect_err("not a device").contains("/dev/sda:/dev/xvda:r"));
    }

    #[test]
    fn reads_rules() {
        let rule = |kind, major, minor| DeviceRule { kind, major, minor, access: "rw".into() };
        assert_eq!(device_rule("c 10:* rw"), Ok(rule(DeviceKind::Character, Some(10), None)));
        assert_eq!(device_rule("b 8:1 rw"), Ok(rule(DeviceKind::Block, Some(8), Some(1))));
        assert_eq!(device_rule("a *:* rw"), Ok(rule(DeviceKind::All, None, None)));
        for bad in ["", "c", "c 10 rw", "x 1:1 r", "c 1:1 q", "c 1:x r", "c 1:1 r w"] {
            assert!(device_rule(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reads_hosts() {
        let entry = |address: &str| HostEntry { name: "db".into(), address: address.parse().expect("good") };
        assert_eq!(host("db:10.0.0.7"), Ok(entry("10.0.0.7")));
        assert_eq!(host("db=fd00::7"), Ok(entry("fd00::7")));
        assert_eq!(host("db:[fd00::7]"), Ok(entry("fd00::7")));
        for bad in ["db", ":10.0.0.7", "db:10.0.0", "db:"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reads_user_namespaces() {
        let range = |container, host, size| IdMapping { container, host, size };
        assert_eq!(user_namespace("host"), Ok(UserNamespace::Host));
        assert_eq!(user_namespace("auto"), Ok(UserNamespace::Auto));
        let both = IdMappings::both([range(0, 100_000, 65_536), range(65_536, 7, 1)]);
        assert_eq!(user_namespace("0:100000:65536,65536:7:1"), Ok(UserNamespace::Mapped(both)));
        assert_eq!(id_mapping("1:2:3"), Ok(range(1, 2, 3)));
        for bad in ["", "0", "0:1", "0:1:2:3", "a:1:2", "0:-1:2", "0:1:4294967296", "0:1:2,", "keep-id"] {
            let error = user_namespace(bad).expect_err(bad);
            assert!(error.starts_with("expected host, auto or CONTAINER:HOST:SIZE"), "{error}");
        }
    }

    #[test]
    fn reads_limits() {
        assert_eq!(size_or_unlimited("64m"), Ok(64 << 20));
        assert_eq!(size_or_unlimited("unlimited"), Ok(UNLIMITED));
        assert_eq!(count_or_unlimited("-1"), Ok(UNLIMITED));
        assert_eq!(cpus_or_unlimited("1.5"), Ok(1_500));
        assert_eq!(disk_bytes("/dev/sda:1m"), Ok(("/dev/sda".into(), 1 << 20)));
        assert_eq!(disk_number("/dev/a:b:7"), Ok(("/dev/a:b".into(), 7)));
        assert_eq!(disk_weight("/dev/sda:200"), Ok(("/dev/sda".into(), 200)));
        assert_eq!(hugepages("2mb=4m"), Ok(HugepageLimit { page_size: "2MB".into(), bytes: 4 << 20 }));
        assert!(
            disk_bytes("sda:1m").is_err() && hugepages("2MB").is_err() && disk_weight("/dev/sda:x").is_err()
        );
        assert_eq!(sysctl("net.x=1 2"), Ok(("net.x".into(), "1 2".into())));
        assert!(sysctl("=1").is_err());
    }
}
