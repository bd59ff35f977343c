//! CNI plugins that fail now and then, in ADD and in DEL.
//!
//! Owns: the list of two, what they write down, and that they can be told to fail no more.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mainstay::Config;

/// `one` gives an address, and `two` fails one call in four.
const LIST: &str =
    r#"{"cniVersion": "1.0.0", "name": "storm", "plugins": [{"type": "one"}, {"type": "two"}]}"#;
/// Each pod has the address that its id says, so that none waits for another.
const ONE: &str = r#"
case $CNI_COMMAND in
ADD) echo "add $CNI_CONTAINERID" >> $dir/log
     n=$(printf %d 0x$(printf %s $CNI_CONTAINERID | md5sum | cut -c 1-4))
     echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.'$((n / 256))'.'$((n % 256))'/16"}]}' > $given; cat $given;;
DEL) [ -e "$dir/fails" ] && [ $(($(od -An -N1 -tu1 /dev/urandom) % 4)) = 0 ] && { echo '{"code": 11, "msg": "not now"}'; exit 1; }
     rm -f $given; echo "del $CNI_CONTAINERID" >> $dir/log;;
esac"#;
const TWO: &str = r#"
if [ -e "$dir/fails" ] && [ $(($(od -An -N1 -tu1 /dev/urandom) % 4)) = 0 ]; then
  echo '{"code": 11, "msg": "not now"}'; exit 1
fi
if [ $CNI_COMMAND = ADD ]; then cat $given; fi"#;

fn directory(world: &Path) -> PathBuf {
    world.join("fakes")
}

/// Installs them, and has them fail from now on.
pub fn install(config: &mut Config, world: &Path) {
    let dir = directory(world);
    for name in ["conf", "bin", "cache"] {
        fs::create_dir_all(dir.join(name)).expect("made");
    }
    fs::write(dir.join("conf/10-storm.conflist"), LIST).expect("written");
    fs::write(dir.join("fails"), "").expect("written");
    for (name, body) in [("one", ONE), ("two", TWO)] {
        let shown = dir.display();
        let script =
            format!("#!/bin/sh\ndir={shown}\ngiven=$dir/given.$CNI_CONTAINERID\ncat > /dev/null\n{body}\n");
        let path = dir.join("bin").join(name);
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }
    config.network.cni_conf_dir = dir.join("conf");
    config.network.cni_plugin_dirs = vec![dir.join("bin")];
    config.network.cni_cache_dir = dir.join("cache");
}

/// They fail no more.
pub fn behave(world: &Path) {
    fs::remove_file(directory(world).join("fails")).expect("removed");
}

/// How many pods were given an address; each has given it back.
pub fn check(world: &Path) -> usize {
    let log = fs::read_to_string(directory(world).join("log")).unwrap_or_default();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for (what, pod) in log.lines().filter_map(|line| line.split_once(' ')) {
        last.insert(pod, what);
    }
    let left: Vec<_> = last.iter().filter(|(_, what)| **what != "del").collect();
    assert!(left.is_empty(), "these have not given back their address: {left:?}");
    last.len()
}
