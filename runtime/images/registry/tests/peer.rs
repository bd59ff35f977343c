//! Debian's docker-registry and skopeo: a registry that we did not write, filled by a client that we did not write.

mod world;

use bytes::Bytes;
use mainstay_images_testing::docker_registry::{DockerRegistry, Guests};
use mainstay_images_testing::layout::{self, Layout};
use mainstay_oci_image::{Algorithm, Digest, Platform, media};
use mainstay_registry::{Credentials, Problem, Secret, Sink};
use world::{finish, open, settings};

/// A registry with user and password, and an image of this name in it.
fn filled(name: &str, options: &[&str]) -> Option<(DockerRegistry, Layout)> {
    let registry = DockerRegistry::start(Guests::User)?;
    let from = registry.path().join("layout");
    let layout = layout::make(&from);
    registry.push(&format!("oci:{}:latest", from.display()), name, options);
    Some((registry, layout))
}

fn user() -> Option<Credentials> {
    Some(Credentials::Basic { user: "user".to_owned(), password: Secret::new("hunter2") })
}

/// Takes so many bytes, and fails.
struct Short(Vec<u8>, usize);

impl Sink for Short {
    async fn write(&mut self, bytes: Bytes) -> std::io::Result<()> {
        if self.0.len() >= self.1 {
            return Err(std::io::Error::other("enough"));
        }
        self.0.extend_from_slice(&bytes);
        Ok(())
    }

    async fn restart(&mut self) -> std::io::Result<()> {
        unreachable!("nothing was wrong");
    }

    async fn digest(&mut self, _: Algorithm) -> std::io::Result<Digest> {
        unreachable!("it never has everything");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_registry_serves_a_whole_image_and_the_rest_of_a_layer() {
    let Some((registry, Layout { layer, manifest: digest, .. })) =
        filled("team/app:v1", &["--preserve-digests"])
    else {
        return;
    };
    let name = registry.name("team/app:v1");
    let (repository, events) = open(settings(), &name, user()).await;
    assert_eq!(finish("the answer", repository.resolve()).await.expect("there").digest, digest);
    let image =
        finish("the image", repository.image(&Platform::new("linux", "amd64", None))).await.expect("there");
    assert_eq!(image.manifest_descriptor.digest, digest);
    let config =
        finish("the configuration", repository.small_blob(&image.manifest.config)).await.expect("there");
    let config = mainstay_oci_image::ImageConfig::parse(&config).expect("a configuration");
    let pairs: Vec<_> = image.manifest.layers_with_diff_ids(&config).expect("as many").collect();
    let descriptor = pairs[0].0;

    let mut short = Short(Vec::new(), 500_000);
    let error =
        finish("the first part", repository.blob(descriptor, 0, &mut short)).await.expect_err("enough");
    assert!(matches!(*error.problem, Problem::Sink(_)), "{error}");
    let mut bytes = short.0;
    let there = bytes.len() as u64;
    let before = events.bytes();
    finish("the rest", repository.blob(descriptor, there, &mut bytes)).await.expect("the rest");
    assert!(bytes == layer);
    assert!(events.bytes() - before < layer.len() as u64, "only the rest was fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_registry_refuses_in_its_own_words() {
    let Some((registry, _)) = filled("docker/app:v2s2", &["--format", "v2s2"]) else { return };
    let ask = async |name: &str, credentials| {
        let (repository, _) = open(settings(), &registry.name(name), credentials).await;
        finish("the answer", repository.target()).await
    };
    let docker = ask("docker/app:v2s2", user()).await.expect("schema 2");
    assert_eq!(docker.descriptor.media_type.as_str(), media::DOCKER_MANIFEST);
    let error = ask("docker/app:none", user()).await.expect_err("no such tag").to_string();
    assert!(error.contains("404, not found: MANIFEST_UNKNOWN"), "{error}");
    let error = ask("docker/app:v2s2", None).await.expect_err("nobody").to_string();
    assert!(error.contains("401, credentials are needed: UNAUTHORIZED"), "{error}");
    let wrong = Some(Credentials::Basic { user: "user".to_owned(), password: Secret::new("wrong") });
    let error = ask("docker/app:v2s2", wrong).await.expect_err("somebody else").to_string();
    assert!(error.contains("401, the credentials were not taken"), "{error}");
}
