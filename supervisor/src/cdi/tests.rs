//! Devices that are found, and those that are not.

use oci_spec::runtime::Spec;
use serde_json::json;

use super::*;

const FILE: &str = r#"{
    "cdiVersion": "0.6.0", "kind": "vendor.com/gpu",
    "containerEdits": { "env": ["DRIVER=1"], "hooks": [
        { "hookName": "createContainer", "path": "/usr/bin/hook", "args": ["hook", "link"], "timeout": 5 } ] },
    "devices": [
        { "name": "0", "containerEdits": {
            "env": ["GPU=0"],
            "deviceNodes": [{ "path": "/dev/gpu0", "type": "c", "major": 195, "minor": 7, "permissions": "rw" },
                            { "path": "/dev/gpunull", "hostPath": "/dev/null" }],
            "mounts": [{ "hostPath": "/usr/lib/gpu.so", "containerPath": "/lib/gpu.so", "options": ["ro", "bind"] }],
            "netDevices": [{ "hostInterfaceName": "ib0", "name": "eth9" }],
            "additionalGids": [44] } },
        { "name": "1", "containerEdits": { "env": ["GPU=1"] } },
        { "name": "gone", "containerEdits": { "deviceNodes": [{ "path": "/dev/not-there" }] } },
        { "name": "rdt", "containerEdits": { "intelRdt": { "closID": "x" } } }
    ] }"#;

fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    let (etc, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(etc.path().join("vendor.json"), FILE).unwrap();
    (etc, run)
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_device_changes_what_its_file_says() {
    let (etc, run) = folders();
    let directories = [etc.path().to_owned(), run.path().to_owned()];
    let all = edits(&named(&["vendor.com/gpu=0", "vendor.com/gpu=1"]), &directories).unwrap();
    // What is for all devices of the file comes once.
    assert_eq!(all.len(), 3);
    let mut spec: Spec = serde_json::from_value(json!({
        "ociVersion": "1.1.0",
        "process": { "user": { "uid": 0, "gid": 0, "additionalGids": [7] }, "cwd": "/", "env": ["GPU=none", "A=1"] },
    }))
    .unwrap();
    all.iter().for_each(|edits| edits.apply(&mut spec, None));
    let value = serde_json::to_value(&spec).unwrap();
    assert_eq!(value["process"]["env"], json!(["A=1", "DRIVER=1", "GPU=1"]));
    assert_eq!(value["process"]["user"]["additionalGids"], json!([7, 44]));
    assert_eq!(value["mounts"][0]["destination"], "/lib/gpu.so");
    assert_eq!(value["mounts"][0]["type"], "bind");
    assert_eq!(value["hooks"]["createContainer"][0]["args"], json!(["hook", "link"]));
    assert_eq!(value["linux"]["netDevices"]["ib0"]["name"], "eth9");
    let nodes = &value["linux"]["devices"];
    assert_eq!((&nodes[0]["path"], &nodes[0]["major"]), (&json!("/dev/gpu0"), &json!(195)));
    assert_eq!(
        (&nodes[1]["path"], &nodes[1]["major"], &nodes[1]["minor"]),
        (&json!("/dev/gpunull"), &json!(1), &json!(3))
    );
    let rules = &value["linux"]["resources"]["devices"];
    assert_eq!((&rules[0]["access"], &rules[1]["access"]), (&json!("rw"), &json!("rwm")));
}

#[test]
fn the_stronger_directory_wins() {
    let (etc, run) = folders();
    let other = r#"{ "cdiVersion": "1.0.0", "kind": "vendor.com/gpu",
        "devices": [{ "name": "1", "containerEdits": { "env": ["GPU=other"] } }] }"#;
    fs::write(run.path().join("other.json"), other).unwrap();
    let all = edits(&named(&["vendor.com/gpu=1"]), &[etc.path().to_owned(), run.path().to_owned()]).unwrap();
    let mut spec: Spec = serde_json::from_value(json!({
        "ociVersion": "1.1.0", "process": { "user": { "uid": 0, "gid": 0 }, "cwd": "/" },
    }))
    .unwrap();
    all.iter().for_each(|edits| edits.apply(&mut spec, None));
    assert_eq!(spec.process().as_ref().unwrap().env().as_ref().unwrap(), &["GPU=other"]);
}

/// nvidia-ctk writes YAML when it is not asked for anything else.
#[test]
fn yaml_is_read_too() {
    let (_, run) = folders();
    let text = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n\
                containerEdits:\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  hooks:\n  - hookName: createContainer\n    path: /usr/bin/nvidia-ctk\n    \
                args:\n    - nvidia-ctk\n    - hook\n";
    fs::write(run.path().join("nvidia.yaml"), text).unwrap();
    let all = edits(&named(&["nvidia.com/gpu=all"]), &[run.path().to_owned()]).unwrap();
    assert_eq!(all.len(), 2);
}

#[test]
fn what_is_wrong_is_named() {
    let (etc, run) = folders();
    fs::write(run.path().join("broken.json"), "{").unwrap();
    fs::write(run.path().join("vendor.yaml"), "kind: vendor.com/gpu").unwrap();
    // Nine levels of nine are more than anybody has memory for.
    let bomb = (1..9).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        let below = vec![format!("*a{}", level - 1); 9].join(",");
        format!("{text}a{level}: &a{level} [{below}]\n")
    });
    fs::write(run.path().join("bomb.yml"), bomb).unwrap();
    let cases = [
        ("vendor.com/gpu=9", "\"vendor.com/gpu=9\" is not valid"),
        ("vendor.com/gpu=9", "broken.json"),
        ("vendor.com/gpu=9", "vendor.yaml"),
        ("vendor.com/gpu=9", "bomb.yml"),
        ("vendor.com/gpu=gone", "/dev/not-there"),
        ("vendor.com/gpu=rdt", "intelRdt"),
    ];
    for (name, part) in cases {
        let error =
            edits(&named(&[name]), &[etc.path().to_owned(), run.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(edits(&[], &["/none".into()]), Ok(Vec::new()));
}
