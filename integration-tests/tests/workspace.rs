//! The shape of the workspace: a boundary that matters is a test.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use mainstay_integration_tests::peer;
use serde_json::Value;

/// Who may use whom, by package. Everything else of the workspace is off limits; dev-dependencies count too.
const ALLOWED: &[(&str, &[&str])] = &[
    ("mainstay-messages", &[]),
    ("mainstay-actors", &["mainstay-messages"]),
    ("mainstay-cgroups", &[]),
    ("mainstay-launch", &[]),
    ("mainstay-task-api", &["mainstay-messages"]),
    ("mainstay-nri-api", &[]),
    ("mainstay-nri", &["mainstay-messages", "mainstay-nri-api", "mainstay-nri-plugin"]),
    ("mainstay-nri-plugin", &["mainstay-nri-api"]),
    ("mainstay-shim", &["mainstay-messages", "mainstay-cgroups", "mainstay-launch", "mainstay-task-api"]),
    ("mainstay-shim-testing", &["mainstay-task-api"]),
    (
        "mainstay-supervisor",
        &[
            "mainstay-messages",
            "mainstay-cgroups",
            "mainstay-launch",
            "mainstay-nri",
            "mainstay-shim",
            "mainstay-task-api",
        ],
    ),
    ("mainstay-store", &["mainstay-messages", "mainstay-actors"]),
    ("mainstay-network-testing", &[]),
    ("mainstay-network", &["mainstay-messages", "mainstay-network-testing"]),
    ("mainstay-metrics", &["mainstay-messages"]),
    ("mainstay-admin", &["mainstay-messages"]),
    ("mainstay-oci-image", &[]),
    ("mainstay-images-testing", &["mainstay-oci-image"]),
    ("mainstay-registry", &["mainstay-oci-image", "mainstay-images-testing"]),
    ("mainstay-images", &["mainstay-messages", "mainstay-oci-image", "mainstay-images-testing"]),
    (
        "mainstay-image-pull",
        &[
            "mainstay-actors",
            "mainstay-images",
            "mainstay-images-testing",
            "mainstay-messages",
            "mainstay-oci-image",
            "mainstay-registry",
        ],
    ),
    (
        "mainstay",
        &[
            "mainstay-messages",
            "mainstay-actors",
            "mainstay-supervisor",
            "mainstay-shim",
            "mainstay-task-api",
            "mainstay-store",
            "mainstay-admin",
            "mainstay-metrics",
            "mainstay-images",
            "mainstay-image-pull",
            "mainstay-network",
            "mainstay-oci-image",
            "mainstay-registry",
        ],
    ),
    ("mainstay-cri-api", &[]),
    ("mainstay-cri-streaming", &[]),
    // Over the embedding API, and beside it: who embeds the core compiles no gRPC.
    ("mainstay-cri", &["mainstay", "mainstay-cri-api", "mainstay-cri-streaming", "mainstay-messages"]),
    (
        "mainstay-cli",
        &["mainstay", "mainstay-messages", "mainstay-admin", "mainstay-cri", "mainstay-nri-plugin"],
    ),
    (
        "mainstay-integration-tests",
        &[
            "mainstay",
            "mainstay-messages",
            "mainstay-admin",
            "mainstay-actors",
            "mainstay-cli",
            "mainstay-cri-api",
            "mainstay-cri-streaming",
            "mainstay-nri-api",
            "mainstay-nri-plugin",
            "mainstay-images-testing",
            "mainstay-network-testing",
            "mainstay-oci-image",
            "mainstay-shim-testing",
            "mainstay-task-api",
        ],
    ),
];

/// What may lie at the top of the repository beside dot files.
const TOP_LEVEL: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "actors",
    "integration-tests",
    "messages",
    "runtime",
    "supervisor",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent of this crate")
}

#[test]
fn crates_use_only_whom_they_may() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert_eq!(packages.len(), allowed.len(), "a crate is missing in the table, or is gone");
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            // A crate may name itself, to have its own test features in its tests.
            if used.starts_with("mainstay") && used != name {
                assert!(may.contains(&used), "{name} must not use {used}");
            }
        }
    }
}

#[test]
fn the_top_level_is_as_agreed() {
    let output = Command::new("git").args(["ls-tree", "--name-only", "HEAD"]).current_dir(root()).output();
    let Ok(output) = output.filter_success() else {
        peer::skipped("this is not a git checkout");
        return;
    };
    for entry in String::from_utf8_lossy(&output.stdout).lines().filter(|entry| !entry.starts_with('.')) {
        assert!(TOP_LEVEL.contains(&entry), "{entry} does not belong at the top level");
    }
}

/// `target/` in `.gitignore`, without a slash before it, hid the tests of the module `mounts::target` as well:
/// all was well here, and no clone could be built with its tests.
#[test]
fn no_source_is_hidden_from_git() {
    let arguments =
        ["ls-files", "--others", "--ignored", "--exclude-standard", "--", "*.rs", "*.toml", "*.md"];
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let Ok(output) = output.filter_success() else {
        peer::skipped("this is not a git checkout");
        return;
    };
    let hidden = String::from_utf8_lossy(&output.stdout);
    let built = ["target/", "runtime/cri/streaming/fuzz/target/", "runtime/images/fuzz/target/"];
    let hidden: Vec<_> =
        hidden.lines().filter(|path| !built.iter().any(|folder| path.starts_with(folder))).collect();
    assert!(hidden.is_empty(), "ignored by git, so missing in every clone: {hidden:?}");
}

#[test]
fn no_stub_is_left() {
    let words = ["todo!(", "unimplemented!(", "dbg!("];
    let mut pending = vec![root().to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).expect("readable").map(|entry| entry.expect("readable")) {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            // Cargo's own folder, not a module that happens to have its name.
            if path.is_dir() && !hidden && path != root().join("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "rs")
                && path.file_name() != Some("workspace.rs".as_ref())
            {
                let text = std::fs::read_to_string(&path).expect("text");
                for word in words {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
            }
        }
    }
}

trait FilterSuccess {
    fn filter_success(self) -> Result<std::process::Output, ()>;
}

impl FilterSuccess for std::io::Result<std::process::Output> {
    fn filter_success(self) -> Result<std::process::Output, ()> {
        self.ok().filter(|output| output.status.success()).ok_or(())
    }
}
