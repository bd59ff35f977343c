//! Archives in and out, and damage.

use mainstay_integration_tests::{Shorthand, wait, world};

use super::*;
use mainstay_integration_tests::registry::Registry;

#[tokio::test]
async fn archives_of_others_come_in_and_ours_are_read_by_others() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    registry.make("arch", &[("file", b"in an archive")], &["--config.env=PATH=/bin"]);
    let layout = format!("oci:{}:arch", registry.layout().display());
    let saved = registry.path().join("saved.tar");
    registry.copy(&[], &layout, &format!("docker-archive:{}:some/name:tag", saved.display()));
    let runtime = start(&world).await;
    let file = fs::read(&saved).expect("readable");
    let mut import = runtime.import_images(std::io::Cursor::new(file.clone()), None).expect("begun");
    wait::finish("its news end", async { while import.progress().await.is_some() {} }).await;
    let ids = wait::finish("it is imported", import.images()).await.expect("imported");
    assert_eq!(runtime.images().await.expect("listed")[0].tags, ["docker.io/some/name:tag"]);
    let pod = runtime.pod("p").await;
    let spec = spec("c", &ids[0].0, &["cat", "/data/file"]);
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    assert_eq!(runtime.exit_of(&container).await.code(), 0);
    assert_eq!(output(&runtime, &container).await, "in an archive\n");

    let half = std::io::Cursor::new(file[..file.len() / 2].to_vec());
    let mut import = runtime.import_images(half, Some(named("half"))).expect("begun");
    wait::finish("it fails", import.images()).await.expect_err("half an archive");
    assert_eq!(runtime.images().await.expect("listed").len(), 1, "nothing half is listed");

    let written = registry.path().join("exported.tar");
    let to = tokio::fs::File::create(&written).await.expect("made");
    runtime.export_images(vec![named("some/name:tag")], to).await.expect("exported");
    let copy = registry.path().join("copy");
    registry.copy(&[], &format!("oci-archive:{}", written.display()), &format!("dir:{}", copy.display()));
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_damaged_blob_is_found_and_the_next_pull_heals_it() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("hurt", &[], &["--config.cmd=sh"]);
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let blobs = runtime.config().root_dir.join("images/blobs/sha256");
    let paths = fs::read_dir(blobs).expect("there").map(|entry| entry.expect("readable").path());
    let largest = paths.max_by_key(|path| fs::metadata(path).expect("there").len()).expect("there are some");
    damage(&largest);
    let damage = runtime.verify_images(None).await.expect("looked");
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].digest.ends_with(&*largest.file_name().expect("named").to_string_lossy()));
    pull(&runtime, &name).await;
    assert_eq!(runtime.verify_images(Some(&named(&name))).await.expect("looked"), []);
    world.finish(runtime).await;
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(path, bytes).expect("written");
}
