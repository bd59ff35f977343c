//! Case 50 of the field reports: a file damaged after the pull stayed damaged, because committed layers were never looked at
//! again, and removing and pulling did not heal it.

use std::fs;

use mainstay_images::{Damaged, ImagesError, Observer, Partials, Remedy};

use crate::world::{World, image, is_root, read};

#[test]
fn removing_and_pulling_heals_also_what_others_share_and_run_on() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let base: &[(&str, &str)] = &[("base", "whole")];
    let (one, two) = (image(&[base, &[("a", "1")]]), image(&[base, &[("b", "1")]]));
    world.pull("one", &one);
    world.pull("two", &two);
    let running = world.images.lease("c", "two").expect("leased");
    fs::write(running.lower[1].join("base"), "").expect("damaged");
    let blob = world.root().join("blobs/sha256").join(one.layers[0].digest.hex());
    fs::write(&blob, "damaged").expect("damaged");
    world.images.remove("docker.io/library/one:latest").expect("removed");
    world.images.collect(Partials::All).expect("collected");
    // The other image starts as before: nobody said that anything is wrong.
    world.images.lease("d", "two").expect("leased");
    world.pull("one", &one);
    let plan = world.images.lease("e", "one").expect("leased");
    assert_eq!(read(plan.lower[1].join("base")), "whole");
    assert!(running.lower[1].exists(), "a container runs on the old one");
    assert_eq!(fs::read(&blob).expect("there"), one.blobs[&one.layers[0].digest]);
    for holder in ["c", "d", "e"] {
        world.images.release(holder).expect("released");
    }
    world.images.collect(Partials::All).expect("collected");
    assert!(!running.lower[1].exists());
    assert_eq!(world.images.verify(None, &Observer::none()).expect("looked at").damage, []);
}

#[test]
fn verify_finds_every_damage_and_heals_layers_from_their_blobs() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let made = image(&[&[("d/f", "content"), ("d/g", "1")], &[("d/.wh.g", ""), ("h", "2")]]);
    world.pull("one", &made);
    let sound = world.images.verify(None, &Observer::none()).expect("looked at");
    assert_eq!((sound.blobs, sound.layers, sound.damage.len()), (4, 2, 0));
    let lower = || world.images.lease("c", "one").expect("leased").lower;
    type Damage = fn(&std::path::Path);
    let damages: [(Damage, &str); 6] = [
        (|root| fs::write(root.join("d/f"), "CONTENT").expect("damaged"), "time"),
        (|root| fs::write(root.join("d/f"), "").expect("damaged"), "time"),
        (|root| fs::remove_file(root.join("d/f")).expect("damaged"), "/d"),
        (|root| fs::write(root.join("d/new"), "").expect("damaged"), "/d"),
        (|root| std::os::unix::fs::chown(root.join("d/f"), Some(1), None).expect("damaged"), "owner"),
        (|root| fs::remove_dir_all(root).expect("damaged"), "not there"),
    ];
    for (damage, expected) in damages {
        let before = lower();
        damage(&before[1]);
        let found = world.images.verify(Some("one"), &Observer::none()).expect("looked at");
        let [damage] = &found.damage[..] else { panic!("{found:?} where {expected} was wrong") };
        assert_eq!(
            (damage.remedy, damage.images.as_slice()),
            (Remedy::Healed, &["docker.io/library/one:latest".to_owned()][..])
        );
        assert!(matches!(damage.what, Damaged::Layer(_)) && damage.how.contains(expected), "{damage:?}");
        let after = lower();
        assert_ne!(before[1], after[1]);
        assert_eq!(read(after[1].join("d/f")), "content");
        assert_eq!(world.images.verify(None, &Observer::none()).expect("looked at").damage, []);
    }
    // A damaged blob is dropped, and the next pull brings it back.
    let blob = world.root().join("blobs/sha256").join(made.layers[1].digest.hex());
    fs::write(&blob, "x").expect("damaged");
    let found = world.images.verify(None, &Observer::none()).expect("looked at");
    assert_eq!(found.damage.len(), 1, "{found:?}");
    assert_eq!(
        (&found.damage[0].what, found.damage[0].remedy),
        (&Damaged::Blob(made.layers[1].digest.clone()), Remedy::Dropped)
    );
    assert!(!blob.exists());
    // An answer is how the images are: until the pull it is missing, and is not dropped a second time.
    let again = world.images.verify(Some("one"), &Observer::none()).expect("looked at");
    assert_eq!(again.damage.len(), 1, "{again:?}");
    assert_eq!((&again.damage[0].what, again.damage[0].remedy), (&found.damage[0].what, Remedy::Missing));
    let error = world.images.export(&["one"], std::io::sink()).expect_err("a blob is missing");
    assert!(matches!(error, ImagesError::NoBlob { .. }), "{error}");
    world.pull("one", &made);
    world.images.export(&["one"], std::io::sink()).expect("whole");
    assert_eq!(world.images.verify(None, &Observer::none()).expect("looked at").damage, []);
}
