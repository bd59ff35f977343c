//! Values of flags: what is read, and what is refused with a word on what is right.

use rstest::rstest;

use super::*;

#[rstest]
#[case("64m", 64 << 20)]
#[case("64M", 64 << 20)]
#[case("64MiB", 64 << 20)]
#[case("64mb", 64 << 20)]
#[case("1.5g", 3 << 29)]
#[case("512k", 512 << 10)]
#[case("1t", 1 << 40)]
#[case("1048576", 1_048_576)]
#[case("100b", 100)]
#[case("0", 0)]
#[case(".5k", 512)]
#[case("16777215t", 16_777_215 << 40)]
fn reads_sizes(#[case] text: &str, #[case] bytes: u64) {
    assert_eq!(size(text), Ok(bytes));
}

#[rstest]
#[case("")]
#[case("m")]
#[case("-1m")]
#[case("64x")]
#[case("64 m")]
#[case("1.2.3m")]
#[case("64mib ib")]
#[case("64ib")]
#[case("1e3")]
#[case("NaN")]
#[case("99999999999999999999")]
#[case("16777216t")]
fn refuses_sizes_and_says_what_is_right(#[case] text: &str) {
    let error = size(text).expect_err("not a size");
    assert!(error.contains("64m"), "{error}");
}

#[rstest]
#[case("1", 1_000)]
#[case("1.5", 1_500)]
#[case("0.25", 250)]
#[case("0.0001", 0)]
#[case("1.", 1_000)]
fn reads_cpus(#[case] text: &str, #[case] millis: u64) {
    assert_eq!(cpus(text), Ok(millis));
}

#[rstest]
#[case("")]
#[case(".")]
#[case("-1")]
#[case("two")]
#[case("inf")]
#[case("1000001")]
fn refuses_cpus(#[case] text: &str) {
    assert!(cpus(text).expect_err("not CPUs").contains("1.5"));
}

#[rstest]
#[case("10", 10_000)]
#[case("500ms", 500)]
#[case("1.5s", 1_500)]
#[case("2m", 120_000)]
#[case("3h", 10_800_000)]
#[case("1d", 86_400_000)]
#[case("0", 0)]
fn reads_durations(#[case] text: &str, #[case] millis: u64) {
    assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
}

#[rstest]
#[case("")]
#[case("s")]
#[case("-5")]
#[case("5 weeks")]
#[case("99999999999999999d")]
fn refuses_durations(#[case] text: &str) {
    assert!(duration(text).expect_err("not a time").contains("500ms"));
}

#[rstest]
#[case("10m", Since::Ago(Duration::from_secs(600)))]
#[case("1709251199.5", Since::At(Timestamp(1_709_251_199_500_000_000)))]
#[case("1970-01-01T00:00:00Z", Since::At(Timestamp(0)))]
#[case("2000-02-29T00:00:00.000000001Z", Since::At(Timestamp(951_782_400_000_000_001)))]
#[case("2024-02-29T23:59:59.999999999Z", Since::At(Timestamp(1_709_251_199_999_999_999)))]
#[case("2024-03-01T00:59:59.5+01:00", Since::At(Timestamp(1_709_251_199_500_000_000)))]
#[case("2024-02-29T22:59:59-01:00", Since::At(Timestamp(1_709_251_199_000_000_000)))]
fn reads_points_in_time(#[case] text: &str, #[case] expected: Since) {
    assert_eq!(since(text), Ok(expected));
}

#[rstest]
#[case("")]
#[case("yesterday")]
#[case("2024-02-30T00:00:00Z")]
#[case("2023-02-29T00:00:00Z")]
#[case("2024-13-01T00:00:00Z")]
#[case("2024-01-01T24:00:00Z")]
#[case("2024-01-01T00:00:00")]
#[case("2024-01-01")]
#[case("1969-12-31T23:59:59Z")]
#[case("2024-01-01T00:00:00+1")]
#[case("2024-01-01T00:00:00é")]
fn refuses_points_in_time(#[case] text: &str) {
    assert!(since(text).expect_err("not a time").contains("2026-11-29T16:00:00Z"));
}

/// Whatever the vocabulary's own writer prints is read back as it was.
#[rstest]
#[case(0)]
#[case(1)]
#[case(951_782_400_000_000_001)]
#[case(4_107_542_400_123_456_789)]
fn reads_what_time_stamps_print(#[case] nanos: u64) {
    assert_eq!(since(&Timestamp(nanos).to_string()), Ok(Since::At(Timestamp(nanos))));
}

fn bind(source: &str, target: &str, access: Access) -> Mount {
    Mount::bind(source, target, access)
}

#[rstest]
#[case("/a:/b", bind("/a", "/b", Access::ReadWrite))]
#[case("/a:/b:rw", bind("/a", "/b", Access::ReadWrite))]
#[case("/a:/b:ro", bind("/a", "/b", Access::ReadOnly))]
#[case("/a:/b:rro", bind("/a", "/b", Access::ReadOnly))]
#[case("/a:/b:ro,slave", Mount { propagation: Propagation::Slave, ..bind("/a", "/b", Access::ReadOnly) })]
#[case("/a:/b:rshared", Mount { propagation: Propagation::Shared, ..bind("/a", "/b", Access::ReadWrite) })]
#[case("./a:/b", bind("./a", "/b", Access::ReadWrite))]
#[case("/a:/b:ro-top,nosuid,mkdir", Mount {
    submounts: Submounts::AsOnHost,
    restrictions: [Restriction::NoSuid].into(),
    missing: MissingSource::DirectoryMade,
    ..bind("/a", "/b", Access::ReadOnly)
})]
fn reads_volumes(#[case] text: &str, #[case] mount: Mount) {
    assert_eq!(volume(text), Ok(mount));
}

#[test]
fn reads_images_that_are_mounted() {
    let image = |name: &str| name.parse().expect("a name");
    assert_eq!(image_mount("/m=box:1"), Ok(Mount::image(image("box:1"), None, "/m")));
    assert_eq!(image_mount("/m=box:1,a/b"), Ok(Mount::image(image("box:1"), Some("a/b".into()), "/m")));
    for text in ["box:1", "m=box", "/m=", "/m=box,"] {
        assert!(image_mount(text).expect_err("not one").contains("/models=box:1,data"), "{text}");
    }
}

#[rstest]
#[case("")]
#[case("/a")]
#[case(":/b")]
#[case("/a:")]
#[case("/a:b")]
#[case("/a:/b:rx")]
#[case("/a:/b:")]
#[case("/a:/b:ro,")]
#[case("/a:/b:ro:z")]
fn refuses_volumes(#[case] text: &str) {
    assert!(volume(text).expect_err("not a volume").contains("/srv/data:/data:ro"));
}

#[rstest]
#[case("/tmp", None, Access::ReadWrite)]
#[case("/tmp:size=64m", Some(64 << 20), Access::ReadWrite)]
#[case("/tmp:size=1k,ro", Some(1024), Access::ReadOnly)]
fn reads_tmpfs(#[case] text: &str, #[case] size_bytes: Option<u64>, #[case] access: Access) {
    let mount = Mount { access, ..Mount::tmpfs("/tmp", size_bytes) };
    assert_eq!(tmpfs(text), Ok(mount));
}

#[rstest]
#[case("tmp")]
#[case("/tmp:64m")]
#[case("/tmp:size=x")]
#[case("/tmp:mode=1777")]
fn refuses_tmpfs(#[case] text: &str) {
    assert!(tmpfs(text).is_err());
}

#[rstest]
#[case("nofile=1024", "NOFILE", 1024, 1024)]
#[case("NOFILE=1024:4096", "NOFILE", 1024, 4096)]
#[case("RLIMIT_CORE=unlimited", "CORE", u64::MAX, u64::MAX)]
#[case("memlock=0:-1", "MEMLOCK", 0, u64::MAX)]
fn reads_ulimits(#[case] text: &str, #[case] name: &str, #[case] soft: u64, #[case] hard: u64) {
    assert_eq!(ulimit(text), Ok(Rlimit { name: name.into(), soft, hard }));
}

#[rstest]
#[case("nofile")]
#[case("nofiles=1")]
#[case("nofile=a")]
#[case("nofile=1:")]
#[case("nofile=1:2:3")]
fn refuses_ulimits(#[case] text: &str) {
    assert!(ulimit(text).is_err());
}

#[test]
fn the_environment_is_that_of_the_last_one_who_sets_it() {
    let variables =
        ["A=1", "B=x=y", "C=", "A=2", "HOME", "MISSING", "B"].map(|text| variable(text).expect("good"));
    let environment = environment(variables, |key| (key == "HOME").then(|| "/root".to_owned()));
    let expected = [("A", "2"), ("C", ""), ("HOME", "/root")];
    assert_eq!(environment, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[test]
fn an_env_file_may_have_comments_and_empty_lines() {
    let variables = env_file("# a comment\n\nA=1\n  B=two words # not a comment\nC\n").expect("good");
    let expected = [
        Variable::Set("A".into(), "1".into()),
        Variable::Set("B".into(), "two words # not a comment".into()),
        Variable::Inherit("C".into()),
    ];
    assert_eq!(variables, expected);
}

#[test]
fn an_env_file_that_is_wrong_says_in_which_line() {
    assert_eq!(env_file("A=1\n\n=x\n").expect_err("wrong").0, 3);
}

#[rstest]
#[case("NET_ADMIN", Some("NET_ADMIN"))]
#[case("cap_net_admin", Some("NET_ADMIN"))]
#[case("all", Some("ALL"))]
#[case("", None)]
#[case("CAP_", None)]
#[case("net-admin", None)]
fn reads_capabilities(#[case] text: &str, #[case] name: Option<&str>) {
    assert_eq!(capability(text).ok().as_deref(), name);
}

#[rstest]
#[case("a=b=c", Some(("a", "b=c")))]
#[case("a", Some(("a", "")))]
#[case("=b", None)]
fn reads_labels(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(label(text).ok(), expected);
}
