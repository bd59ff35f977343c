//! Blobs are fetched once, layers unpacked once, nothing is listed that is not whole.

use std::sync::Mutex;

use mainstay_images::{BlobClaim, ImagesError, LayerClaim, NewImage, Observer, Tenure};
use mainstay_oci_image::{Digest, Event, Part, Step};

use crate::world::{World, archive, fetch, image, image_of, is_root, pull, read};

#[test]
fn a_pulled_image_is_listed_found_inspected_and_still_there_after_a_restart() {
    if !is_root() {
        return;
    }
    let made = image(&[&[("etc/a", "1"), ("etc/b", "1")], &[("etc/.wh.a", ""), ("etc/b", "2")]]);
    let world = World::new();
    let record = world.pull("busybox", &made);
    assert_eq!(record.name, "docker.io/library/busybox:latest");
    let world = world.reopened();
    for text in [
        "busybox",
        "docker.io/library/busybox:latest",
        made.manifest.digest.hex(),
        &made.config.digest.to_string(),
        made.config.digest.short(),
    ] {
        assert_eq!(world.images.find(text).expect(text), record);
    }
    assert_eq!(world.images.inspect("busybox").expect("whole").config.config.cmd, ["sh"]);
    for text in ["busybox:other", "sha256:", "abc", "0000000000"] {
        assert!(matches!(world.images.find(text), Err(ImagesError::NoImage { .. })), "{text}");
    }
    let plan = world.images.lease("c1", "busybox").expect("whole");
    assert_eq!(plan.lower.len(), 2);
    assert_eq!(read(plan.lower[0].join("etc/b")), "2");
    assert_eq!(read(plan.lower[1].join("etc/a")), "1");
}

/// A pull of an image that was here waited for the disk, to write down what was written there before.
#[test]
fn a_pull_that_finds_the_image_as_it_is_leaves_its_record() {
    if !is_root() {
        return;
    }
    let (one, two) = (image(&[&[("a", "1")]]), image(&[&[("a", "2")]]));
    let world = World::new();
    let first = world.pull("busybox", &one);
    assert_eq!(world.pull("busybox", &one), first, "with the time of the first pull");
    let other = world.pull("busybox", &two);
    assert_eq!(world.images.find("busybox").expect("pulled"), other);
    assert_ne!(other.manifest, first.manifest);
}

/// Case 51: ten pods with one image made ten downloads and ten unpacks, or waited in back-off.
#[test]
fn many_pulls_at_once_fetch_each_blob_once_and_unpack_each_layer_once() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let big = "x".repeat(300_000);
    let base: &[(&str, &str)] = &[("base", &big)];
    let made: Vec<_> = (0..6).map(|n| image(&[base, &[("own", &n.to_string())]])).collect();
    std::thread::scope(|scope| {
        for n in 0..18 {
            let (world, made) = (&world, &made);
            scope.spawn(move || {
                // Whoever waited for another one that was not done takes its place.
                let again = |_| pull(&world.images, &format!("image{}", n % 6), &made[n % 6]).ok();
                (0..10).find_map(again).expect("pulled");
            });
        }
    });
    assert_eq!(world.images.list().len(), 6);
    assert_eq!(world.names("layers").len(), 7, "one base and six layers over it");
    assert_eq!(world.names("layers").last().map(String::as_str), Some("7"), "no layer was unpacked twice");
    assert_eq!((world.names("unpacking"), world.names("partial")), (vec![], vec![]));
}

#[test]
fn bytes_of_a_broken_off_download_are_gone_on_from_and_wrong_ones_are_not() {
    let world = World::new();
    let made = image(&[&[("f", "content")]]);
    let layer = &made.layers[0];
    let bytes = &made.blobs[&layer.digest];
    let hold = world.images.hold();
    let claim = || hold.blob(layer, &Observer::none()).expect("claimed");
    let BlobClaim::Write(mut writer) = claim() else { panic!("nobody has it") };
    writer.write(&bytes[..50]).expect("written");
    assert!(matches!(claim(), BlobClaim::Running(_)));
    let text = writer.commit(&Observer::none()).expect_err("too short").to_string();
    assert!(text.contains("50 bytes came"), "{text}");

    let BlobClaim::Write(mut writer) = claim() else { panic!("nobody has it") };
    assert_eq!(writer.offset(), 50);
    let text = writer.write(&vec![0; bytes.len()]).expect_err("too long").to_string();
    assert!(text.contains("its descriptor says"), "{text}");
    writer.write(&vec![0; bytes.len() - 50]).expect("written");
    let text = writer.commit(&Observer::none()).expect_err("wrong").to_string();
    assert!(text.contains("nothing of them was kept") && text.contains(&layer.digest.to_string()), "{text}");

    let BlobClaim::Write(mut writer) = claim() else { panic!("nobody has it") };
    assert_eq!(writer.offset(), 0);
    writer.write(bytes).expect("written");
    drop(writer);
    // All bytes were there, and only the last word was missing.
    assert!(matches!(claim(), BlobClaim::Present));
}

#[test]
fn a_layer_that_is_read_while_it_is_fetched_ends_with_the_fetch() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = image(&[&[("f", &"content".repeat(10_000))]]);
    let hold = world.images.hold();
    fetch(&hold, &made.manifest, &made).expect("stored");
    fetch(&hold, &made.config, &made).expect("stored");
    let layers = hold.layers(&made.manifest).expect("whole");
    let bytes = &made.blobs[&layers[0].blob.digest];

    let BlobClaim::Write(mut writer) = hold.blob(&layers[0].blob, &Observer::none()).expect("claimed") else {
        panic!()
    };
    let LayerClaim::Unpack(unpacking) = hold.layer(&layers, 0).expect("claimed") else { panic!() };
    let reader = writer.reader().expect("readable");
    let unpacked = std::thread::spawn(move || unpacking.run(reader, &Observer::none()));
    writer.write(&bytes[..bytes.len() - 1]).expect("written");
    drop(writer);
    let text = unpacked.join().expect("ran").expect_err("broken off").to_string();
    assert!(text.contains("cannot be read"), "{text}");
    assert_eq!((world.names("layers"), world.names("unpacking")), (vec![], vec![]));

    // A record of what is not whole is refused.
    let (target, manifest) = (made.manifest.clone(), made.manifest.clone());
    let image = NewImage { name: None, target, manifest };
    assert!(matches!(hold.record(image), Err(ImagesError::NoBlob { .. })));
    assert!(world.images.list().is_empty());
}

#[test]
fn a_layer_with_other_content_than_its_diff_id_is_never_committed() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let mut made = image_of(&[archive(&[("f", "right")])]);
    let wrong = crate::world::gzip(&archive(&[("f", "wrong")]));
    // The manifest names other bytes than those that the configuration describes.
    let layer = mainstay_oci_image::Descriptor::new("".into(), Digest::of(&wrong), wrong.len() as u64);
    let text = String::from_utf8(made.blobs[&made.manifest.digest].clone()).expect("text");
    let mut manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    manifest["layers"][0] = serde_json::to_value(&layer).expect("JSON");
    let bytes = manifest.to_string().into_bytes();
    made.manifest.digest = Digest::of(&bytes);
    made.manifest.size = bytes.len() as u64;
    made.blobs.insert(made.manifest.digest.clone(), bytes);
    made.blobs.insert(layer.digest.clone(), wrong);
    let error = pull(&world.images, "bad", &made).expect_err("wrong content");
    assert!(matches!(error, ImagesError::WrongDiffId { .. }), "{error}");
    assert!(world.images.list().is_empty());
    assert_eq!((world.names("layers"), world.names("unpacking")), (vec![], vec![]));
}

/// Promise 8: what unpacking does is seen by whoever judges whether a pull lives, with bytes or without.
#[test]
fn unpacking_reports_entries_syncing_and_its_end() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = image(&[&[("a", "1"), ("b", "2")]]);
    let events = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&events);
    let observer = Observer::new(move |event: Event| seen.lock().expect("sound").push(event));
    let hold = world.images.hold();
    for blob in [&made.manifest, &made.config, &made.layers[0]] {
        fetch(&hold, blob, &made).expect("stored");
    }
    let layers = hold.layers(&made.manifest).expect("whole");
    let LayerClaim::Unpack(unpacking) = hold.layer(&layers, 0).expect("claimed") else { panic!() };
    unpacking.run(hold.read_blob(&layers[0].blob).expect("there"), &observer).expect("unpacked");
    let part = Part::Layer(layers[0].blob.digest.clone());
    let steps: Vec<Step> = events
        .lock()
        .expect("sound")
        .iter()
        .filter(|event| event.part == part)
        .map(|event| event.step.clone())
        .collect();
    let entries: u64 =
        steps.iter().map(|step| if let Step::Extracted { entries, .. } = step { *entries } else { 0 }).sum();
    assert_eq!(entries, 2);
    assert_eq!(&steps[steps.len() - 2..], [Step::Syncing, Step::Done]);

    observer.cancel();
    let made = image(&[&[("other", "1")]]);
    for blob in [&made.manifest, &made.config, &made.layers[0]] {
        fetch(&hold, blob, &made).expect("stored");
    }
    let layers = hold.layers(&made.manifest).expect("whole");
    let LayerClaim::Unpack(unpacking) = hold.layer(&layers, 0).expect("claimed") else { panic!() };
    let error =
        unpacking.run(hold.read_blob(&layers[0].blob).expect("there"), &observer).expect_err("cancelled");
    assert!(matches!(error, ImagesError::Cancelled { .. }), "{error}");
}

#[test]
fn a_second_process_is_kept_away_and_damaged_records_are_set_aside_with_the_layers_kept() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.pull("one", &image(&[&[("a", "1")]]));
    let error =
        mainstay_images::Images::open(world.root(), mainstay_images::Settings::new("b")).expect_err("locked");
    assert!(matches!(error, ImagesError::Locked { holder: Some(_), tenure: Tenure::Kept, .. }), "{error}");
    let said = format!("the runtime of process {} has them open as long as it runs", std::process::id());
    assert!(error.to_string().contains(&said), "{error}");
    let world = world.reopened();
    let lower = world.images.lease("c1", "one").expect("leased").lower;
    let keep = image(&[&[("a", "1")]]);
    let directory = world.root();
    let closed = world.closed();
    std::fs::remove_file(directory.join("images.db-wal")).ok();
    std::fs::write(
        directory.join("images.db"),
        "this is no database, and long enough to be looked at as one",
    )
    .expect("written");
    let opened =
        mainstay_images::Images::open(&directory, mainstay_images::Settings::new(crate::world::BOOT))
            .expect("opened");
    assert!(opened.set_aside.as_ref().is_some_and(|path| path.exists()));
    assert!(opened.images.list().is_empty());
    opened.images.collect(mainstay_images::Partials::All).expect("collected");
    assert_eq!(read(lower[0].join("a")), "1", "containers run on it");
    // The layer that is there is used again.
    pull(&opened.images, "one", &keep).expect("pulled");
    assert_eq!(opened.images.lease("c2", "one").expect("leased").lower, lower);
    drop(opened);
    // After a boot nothing runs.
    let after = mainstay_images::Images::open(&directory, mainstay_images::Settings::new("another boot"))
        .expect("opened")
        .images;
    after.remove("docker.io/library/one:latest").expect("removed");
    after.release("c2").expect("released");
    after.collect(mainstay_images::Partials::All).expect("collected");
    assert!(!lower[0].exists());
    drop(after);
    drop(closed);
}
