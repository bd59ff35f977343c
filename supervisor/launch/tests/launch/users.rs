//! Who processes run as.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use mainstay_launch::LaunchError;
use serde_json::json;

use crate::cases;
use crate::world::{WantedIo, World, status_line};

cases![
    users_by_name_and_number,
    what_is_no_user_is_refused,
    the_primary_group_is_never_shed,
    numbers_of_the_spec
];

fn users_by_name_and_number() {
    let mut world = World::new();
    for (user, expected) in [
        ("root", "uid=0(root) gid=0(root) groups=0(root)"),
        ("app", "uid=1000(app) gid=1001 groups=100(users),1001"),
        ("1000", "uid=1000(app) gid=1001 groups=100(users),1001"),
        ("1000:users", "uid=1000(app) gid=100(users) groups=100(users)"),
        ("2147483648:7", "uid=2147483648 gid=7 groups=7"),
    ] {
        let ended = world.args(&["id"]).user(user).run().unwrap();
        assert_eq!(ended.output(), expected, "{user}");
    }
}

/// Users beyond the range of ids, or numeric but absent, once ran as root (CVE-2024-40635, CVE-2026-46680).
fn what_is_no_user_is_refused() {
    let mut world = World::new();
    let line = "4294967296:x:0:0::/:/bin/sh\n0x3e8:x:0:0::/:/bin/sh\n-1:x:0:0::/:/bin/sh\n";
    fs::write(world.image("etc/passwd"), line).unwrap();
    for user in [
        "4294967296",
        "4294967295",
        "-1",
        "0x3e8",
        "99999999999",
        "1000:4294967296",
        " 0",
        "nobody",
        "",
        "1000:",
    ] {
        let error = world.args(&["id"]).user(user).run().unwrap_err();
        assert!(matches!(error, LaunchError::User { .. }), "{user:?}: {error}");
    }
    let container = world.args(&["/bin/sleep", "1000"]).user("1000").start(WantedIo::Pipes).unwrap();
    for user in ["4294967296", "-1", " 0", "nobody", ""] {
        let error = world.exec(&container, Some(user), json!({ "args": ["id"] })).unwrap_err();
        assert!(matches!(error, LaunchError::User { .. }), "{user:?}: {error}");
    }
    container.kill();
}

/// A process whose supplementary list lacks its primary group can give that group up, and read what is denied to it
/// (CVE-2022-2989, CVE-2023-25173).
fn the_primary_group_is_never_shed() {
    let mut world = World::new();
    fs::write(world.image("data/denied"), "secret").unwrap();
    fs::set_permissions(world.image("data/denied"), fs::Permissions::from_mode(0o604)).unwrap();
    chown(world.image("data/denied"), Some(0), Some(1000)).unwrap();
    world.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000, "additionalGids": [5, 6] });
    let script = "cat /proc/self/status; cat /data/denied && echo read";
    let ended = world.shell(script).run().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status_line(&ended.stdout, "Groups"), "5 6 1000");
    assert!(!ended.stdout.contains("secret"));
    let container = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    let status = json!({ "args": ["/bin/cat", "/proc/self/status"] });
    let ended = world.exec(&container, None, status.clone()).unwrap();
    assert_eq!(status_line(ended.output(), "Groups"), "5 6 1000");
    let ended = world.exec(&container, Some("app"), status).unwrap();
    assert_eq!(status_line(ended.output(), "Groups"), "5 6 100 1001");
    container.kill();
}

fn numbers_of_the_spec() {
    let mut world = World::new();
    world.spec["process"]["user"] = json!({ "uid": 4000, "gid": 5000, "umask": 0o077 });
    let ended = world.shell("id -u; id -g; umask; echo $HOME").run().unwrap();
    assert_eq!(ended.output(), "4000\n5000\n0077\n/");
    world.spec["process"]["user"] = json!({ "uid": u32::MAX, "gid": 0 });
    assert!(matches!(world.run(), Err(LaunchError::User { .. })));
}
