//! Garbage collection takes what nothing needs, and nothing else, whatever happens at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_images::{BlobClaim, Collected, Observer, Partials};

use crate::world::{World, fetch, image, is_root, pull, read};

#[test]
fn what_images_share_stays_until_the_last_one_goes() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let base: &[(&str, &str)] = &[("base", "1")];
    world.pull("one", &image(&[base, &[("a", "1")]]));
    world.pull("two", &image(&[base, &[("b", "1")]]));
    assert_eq!(world.images.collect(Partials::All).expect("collected"), Collected::default());
    world.images.remove("docker.io/library/one:latest").expect("removed");
    let collected = world.images.collect(Partials::All).expect("collected");
    assert_eq!((collected.blobs, collected.layers), (3, 1));
    assert_eq!(world.images.lease("c", "two").expect("whole").lower.len(), 2);
    world.images.remove("docker.io/library/two:latest").expect("removed");
    // A container runs on it.
    let collected = world.images.collect(Partials::All).expect("collected");
    assert_eq!((collected.blobs, collected.layers), (4, 0));
    assert_eq!(world.images.holders().expect("listed"), ["c"]);
    world.images.release("c").expect("released");
    assert_eq!(world.images.collect(Partials::All).expect("collected").layers, 2);
    for directory in ["layers", "blobs/sha256", "unpacking", "trash", "partial"] {
        assert_eq!(world.names(directory), Vec::<String>::new(), "{directory}");
    }
    assert!(world.images.remove("docker.io/library/two:latest").is_err());
}

#[test]
fn what_a_running_pull_holds_stays_and_strangers_files_go() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = image(&[&[("a", "1")]]);
    let hold = world.images.hold();
    fetch(&hold, &made.manifest, &made).expect("stored");
    let BlobClaim::Write(mut writer) = hold.blob(&made.layers[0], &Observer::none()).expect("claimed") else {
        panic!()
    };
    writer.write(&made.blobs[&made.layers[0].digest][..10]).expect("written");
    std::fs::write(world.root().join("blobs/sha256/what"), "?").expect("written");
    std::fs::create_dir_all(world.root().join("layers/77/fs/deep")).expect("made");
    std::fs::create_dir_all(world.root().join("unpacking/78/fs")).expect("made");
    world.images.collect(Partials::All).expect("collected");
    assert_eq!(world.names("blobs/sha256"), [made.manifest.digest.hex()]);
    assert_eq!(
        (world.names("layers"), world.names("unpacking"), world.names("partial").len()),
        (vec![], vec![], 1)
    );
    drop(writer);
    drop(hold);
    // Left a moment ago: the next try may go on from there.
    let collected = world.images.collect(Partials::Aged).expect("collected");
    assert_eq!((collected.partials, collected.blobs), (0, 1));
    let collected = world.images.collect(Partials::All).expect("collected");
    assert_eq!((collected.partials, collected.blobs), (1, 0));
}

#[test]
fn pulls_removals_leases_and_collections_at_the_same_time_harm_nothing() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let base: &[(&str, &str)] = &[("base", "1")];
    let made: Vec<_> = (0..3).map(|n| image(&[base, &[("own", &n.to_string())]])).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (n, made) in made.iter().enumerate() {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                for round in 0..15 {
                    let name = format!("image{n}");
                    let Some(record) = (0..20).find_map(|_| pull(&world.images, &name, made).ok()) else {
                        panic!("image {n} could not be pulled in round {round}")
                    };
                    let holder = format!("c{n}");
                    let plan = world
                        .images
                        .lease(&holder, &name)
                        .expect("it was just pulled, and nobody removes it");
                    world.images.remove(&record.name).expect("removed");
                    world.images.collect(Partials::All).expect("collected");
                    assert_eq!(read(plan.lower[0].join("own")), n.to_string());
                    assert_eq!(read(plan.lower[1].join("base")), "1");
                    world.images.release(&holder).expect("released");
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                world.images.collect(Partials::All).expect("collected");
            }
        });
    });
    world.images.collect(Partials::All).expect("collected");
    assert_eq!((world.names("layers"), world.names("blobs/sha256")), (vec![], vec![]));
}
