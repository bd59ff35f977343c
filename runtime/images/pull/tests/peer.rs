//! Debian's docker-registry, filled by skopeo: a registry and a client that we did not write.

mod world;

use mainstay_images_testing::docker_registry::{DockerRegistry, Guests};
use mainstay_images_testing::layout::{self, Layout};

use world::{World, finish};

#[actix::test]
async fn an_image_of_a_real_registry_is_pulled_by_many_at_once_and_is_what_was_put_in() {
    let Some(registry) = DockerRegistry::start(Guests::Everyone) else { return };
    let from = registry.path().join("layout");
    let Layout { data, .. } = layout::make(&from);
    let from = format!("oci:{}:latest", from.display());
    registry.push(&from, "team/app:v1", &[]);
    let world = World::at(&registry.path().join("images"));
    let name = registry.name("team/app:v1");
    let mut pulls: Vec<_> = (0..10).map(|_| world.pull(&name)).collect();
    for pull in &mut pulls {
        finish("it is pulled", pull.image()).await.expect("the image");
    }
    assert_eq!(world.core.counters.pulls_started.get(), 1);
    let plan = world.images.lease("a-test", &name).expect("its layers");
    assert!(std::fs::read(plan.lower[0].join("data")).expect("the file") == data);
    // The same again under another tag: no blob comes twice, and both names are there.
    registry.push(&from, "team/app:v2", &[]);
    let again = registry.name("team/app:v2");
    finish("it is here", world.pull(&again).image()).await.expect("the image");
    let mut listed = world.listed();
    listed.sort();
    assert_eq!(listed, [name, again]);
}
