use super::*;

fn database(passwd: &str, group: &str) -> UserDatabase {
    UserDatabase { passwd: passwd.to_owned(), group: group.to_owned() }
}

fn debian() -> UserDatabase {
    database(
        "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www:/var/www:/bin/false\napp:x:1000:1001::/home/app:/bin/sh\n",
        "root:x:0:\nwww-data:x:33:\nusers:x:100:app,other\naudio:x:29:other, app\n",
    )
}

fn resolve(database: &UserDatabase, text: &str) -> Result<(u32, u32, Vec<u32>)> {
    let found = database.resolve(text, &User::default(), Groups::Merge)?;
    Ok((found.uid, found.gid, found.groups))
}

#[test]
fn names_and_numbers() {
    let debian = debian();
    for (text, expected) in [
        ("root", (0, 0, vec![0])),
        ("www-data", (33, 33, vec![33])),
        ("www-data:100", (33, 100, vec![100])),
        ("app", (1000, 1001, vec![1001, 100, 29])),
        ("1000", (1000, 1001, vec![1001, 100, 29])),
        ("1000:users", (1000, 100, vec![100, 29])),
        ("4242", (4242, 0, vec![0])),
        ("4242:4343", (4242, 4343, vec![4343])),
        ("2147483648", (2_147_483_648, 0, vec![0])),
    ] {
        assert_eq!(resolve(&debian, text).unwrap(), expected, "{text}");
    }
}

/// A user beyond the range of ids once wrapped round to 0, and a number that was not in passwd was looked up as a name: an
/// image with the line `4294967296:x:0:0` then ran as root (CVE-2024-40635, CVE-2026-46680).
#[test]
fn what_is_no_id_is_refused_and_never_becomes_root() {
    let hostile = database(
        "4294967296:x:0:0::/:/bin/sh\n0x3e8:x:0:0::/:/bin/sh\n-1:x:0:0::/:/bin/sh\n 0:x:0:0::/:/bin/sh\n\
         :x:0:0::/:/bin/sh\nwrap:x:4294967296:0::/:/bin/sh\nnogroup:x:7:-1::/:/bin/sh\nmax:x:4294967295:0::/:/bin/sh\n\
         short:x\nempty:x:::\n",
        "users:x:\nbad:x:4294967296:wrapped\n",
    );
    for text in [
        "4294967296",
        "4294967295",
        "99999999999",
        "-1",
        "0x3e8",
        " 0",
        "0 ",
        "+0",
        "",
        ":",
        "0:",
        ":0",
        "1000:4294967296",
        "1000:4294967295",
        "1000:-1",
        "1000:0x0",
        "1000:users:0",
        "1000:users",
        "wrap",
        "nogroup",
        "7",
        "max",
        "short",
        "empty",
        "nobody",
        "root\n",
        "٣",
    ] {
        assert!(matches!(resolve(&hostile, text), Err(LaunchError::User { .. })), "{text:?}");
    }
    let long = "a".repeat(USER_STRING_MAX_BYTES + 1);
    assert!(resolve(&hostile, &long).is_err());
}

/// The first line of a name decides, as in every C library.
#[test]
fn a_second_line_of_the_same_name_changes_nothing() {
    let twice = database("app:x:1000:1000::/:/bin/sh\napp:x:0:0::/:/bin/sh\n", "");
    assert_eq!(resolve(&twice, "app").unwrap(), (1000, 1000, vec![1000]));
}

#[test]
fn the_groups_of_the_spec_are_kept_and_the_primary_one_is_among_them() {
    let mut spec = User::default();
    spec.set_uid(1000).set_gid(1000).set_additional_gids(Some(vec![5, 1000, 5, 6]));
    let found = debian().numeric(&spec).unwrap();
    assert_eq!((found.uid, found.gid, found.groups), (1000, 1000, vec![1000, 5, 6]));
    let found = debian().resolve("app", &spec, Groups::Merge).unwrap();
    assert_eq!(found.groups, [1001, 5, 1000, 6, 100, 29]);
    spec.set_additional_gids(Some(vec![u32::MAX]));
    assert!(debian().numeric(&spec).is_err());
    spec.set_additional_gids(None).set_uid(u32::MAX);
    assert!(debian().numeric(&spec).is_err());
}

#[test]
fn the_home_is_that_of_the_user_id() {
    let homes = database("a:x:1:1::/home/a:/bin/sh\nb:x:2:2::relative:/bin/sh\n", "");
    for (text, home) in [("a", "/home/a"), ("1", "/home/a"), ("2", "/"), ("3", "/")] {
        assert_eq!(homes.resolve(text, &User::default(), Groups::Merge).unwrap().home, home, "{text}");
    }
}
