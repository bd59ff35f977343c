//! Images over the interface: from registries that are real, late, guarded or away.

use std::os::unix::fs::MetadataExt;

use mainstay_cri_api::{
    AuthConfig, Image, ImageFilter, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ImageStatusResponse,
    ListImagesRequest, PullImageRequest, RemoveImageRequest, StreamImagesRequest,
};
use mainstay_images_testing::content::Content;
use mainstay_images_testing::docker_registry::Guests;
use mainstay_images_testing::image::{image, layer};
use mainstay_images_testing::stub::{Ending, Reply, Stub};
use mainstay_integration_tests::registry::Registry;
use mainstay_integration_tests::wait;
use serde_json::Value;
use tonic::{Code, Request, Status};

use crate::rig::Rig;
use crate::{assert_refused, rig};

/// Bytes of a layer that takes a moment.
const LAYER_BYTES: usize = 400_000;

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() })
}

async fn pull(rig: &Rig, image: &str, auth: Option<AuthConfig>) -> Result<String, Status> {
    let request = PullImageRequest { image: spec(image), auth, sandbox_config: None };
    let answer = wait::finish("a pull ends", rig.images().pull_image(request)).await?;
    Ok(answer.into_inner().image_ref)
}

async fn look(rig: &Rig, image: &str, verbose: bool) -> ImageStatusResponse {
    let request = ImageStatusRequest { image: spec(image), verbose };
    rig.images().image_status(request).await.expect("answered").into_inner()
}

async fn status(rig: &Rig, image: &str) -> Option<Image> {
    look(rig, image, false).await.image
}

async fn list(rig: &Rig, filter: &str) -> Vec<Image> {
    let filter = Some(ImageFilter { image: spec(filter) });
    rig.images().list_images(ListImagesRequest { filter }).await.expect("answered").into_inner().images
}

async fn remove(rig: &Rig, image: &str) {
    rig.images().remove_image(RemoveImageRequest { image: spec(image) }).await.expect("removed");
}

#[tokio::test]
async fn an_image_is_the_same_by_each_of_its_names() {
    let rig = rig!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("named", &[], &["--config.cmd=sh", "--config.user=1234:app"]);
    let id = pull(&rig, &name, None).await.expect("pulled");
    let image = status(&rig, &name).await.expect("here");
    assert_eq!(image.id, id, "what a pull answers is the id");
    assert_eq!(image.repo_tags, std::slice::from_ref(&name));
    assert_eq!(image.repo_digests.len(), 1);
    assert!(
        image.repo_digests[0].starts_with(&format!("{}@sha256:", name.rsplit_once(':').expect("a tag").0))
    );
    assert!(image.size > 0);
    assert_eq!(image.uid.expect("a number").value, 1234);
    assert_eq!(image.username, "");
    assert!(!image.pinned);
    let short = &id["sha256:".len()..][..12];
    for other in [&id, &image.repo_digests[0], short, &format!("{name}@{}", id_of(&image.repo_digests[0]))] {
        assert_eq!(status(&rig, other).await.as_ref(), Some(&image), "{other}");
    }
    assert_eq!(list(&rig, "").await, std::slice::from_ref(&image));
    assert_eq!(list(&rig, &name).await, std::slice::from_ref(&image));
    assert_eq!(list(&rig, "busybox:none").await, []);
    let mut pieces =
        rig.images().stream_images(StreamImagesRequest::default()).await.expect("open").into_inner();
    let piece = pieces.message().await.expect("read").expect("one");
    assert_eq!(piece.images, [image]);
    assert!(pieces.message().await.expect("read").is_none());
    rig.finish().await;
}

fn id_of(digest: &str) -> &str {
    digest.split_once('@').expect("a digest").1
}

#[tokio::test]
async fn an_image_without_a_tag_goes_by_its_digest() {
    let rig = rig!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("untagged", &[], &["--config.user=app"]);
    pull(&rig, &name, None).await.expect("pulled");
    let digest = status(&rig, &name).await.expect("here").repo_digests[0].clone();
    remove(&rig, &name).await;
    assert_eq!(status(&rig, &digest).await, None);
    let id = pull(&rig, &digest, None).await.expect("pulled by its digest");
    let image = status(&rig, &digest).await.expect("here");
    assert_eq!((image.id, image.repo_tags, image.repo_digests), (id, vec![], vec![digest.clone()]));
    assert_eq!((image.uid, image.username.as_str()), (None, "app"));
    // A tag beside the digest is a remark.
    let both = format!("{name}@{}", id_of(&digest));
    pull(&rig, &both, None).await.expect("pulled");
    assert_eq!(status(&rig, &both).await.expect("here").repo_tags, Vec::<String>::new());
    rig.finish().await;
}

#[tokio::test]
async fn an_image_goes_with_all_of_its_names_whichever_was_given() {
    let rig = rig!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("one", &[], &["--config.cmd=sh"]);
    let other = registry.name("made:other");
    registry.copy(&["--src-tls-verify=false", "--dest-tls-verify=false"], &docker(&name), &docker(&other));
    let ids =
        [pull(&rig, &name, None).await.expect("pulled"), pull(&rig, &other, None).await.expect("pulled")];
    assert_eq!(ids[0], ids[1]);
    let mut tags = status(&rig, &ids[0]).await.expect("here").repo_tags;
    tags.sort();
    assert_eq!(tags, [name.clone(), other.clone()]);
    remove(&rig, &name).await;
    for gone in [&name, &other, &ids[0]] {
        assert_eq!(status(&rig, gone).await, None, "{gone}");
        remove(&rig, gone).await;
    }
    rig.finish().await;
}

fn docker(name: &str) -> String {
    format!("docker://{name}")
}

#[tokio::test]
async fn what_an_image_is_made_of_is_told_at_length() {
    let rig = rig!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("told", &[], &["--config.cmd=sh", "--config.env=GREETING=hello"]);
    pull(&rig, &name, None).await.expect("pulled");
    let told = look(&rig, &name, true).await;
    let info: Value = serde_json::from_str(&told.info["info"]).expect("JSON");
    assert_eq!(info["imageSpec"]["config"]["Env"][0], "GREETING=hello");
    assert!(info["chainID"].as_str().expect("text").starts_with("sha256:"));
    assert_eq!(info["imageSpec"]["rootfs"]["diff_ids"].as_array().expect("a list").len(), 1);
    assert!(look(&rig, &name, false).await.info.is_empty());
    rig.finish().await;
}

#[tokio::test]
async fn pinned_images_are_those_of_the_configuration() {
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("pinned", &[], &["--config.cmd=sh"]);
    let other = registry.make("free", &[], &["--config.cmd=cat"]);
    let set = name.clone();
    let rig = rig!(|config| config.cri.pinned_images = vec![set]);
    pull(&rig, &name, None).await.expect("pulled");
    pull(&rig, &other, None).await.expect("pulled");
    assert!(status(&rig, &name).await.expect("here").pinned);
    assert!(!status(&rig, &other).await.expect("here").pinned);
    remove(&rig, &name).await;
    assert_eq!(status(&rig, &name).await, None, "it is a wish, and no lock");
    rig.finish().await;
}

#[tokio::test]
async fn credentials_are_taken_in_all_forms_and_for_their_registry_alone() {
    let rig = rig!();
    let Some(registry) = Registry::for_guests(Guests::User) else { return };
    let name = registry.make("guarded", &[], &["--config.cmd=sh"]);
    let none = AuthConfig::default;
    let password = AuthConfig { username: "user".into(), password: "hunter2".into(), ..none() };
    let elsewhere = AuthConfig { server_address: "other.example".into(), ..password.clone() };
    for auth in [None, Some(none()), Some(elsewhere)] {
        assert_refused(pull(&rig, &name, auth).await, Code::PermissionDenied, &["cannot pull", &name, "401"]);
    }
    let wrong = AuthConfig { password: "hunter3".into(), ..password.clone() };
    let refused = pull(&rig, &name, Some(wrong)).await;
    assert!(!format!("{refused:?}").contains("hunter3"), "{refused:?}");
    assert_refused(refused, Code::PermissionDenied, &["401"]);
    let encoded = AuthConfig { auth: "dXNlcjpodW50ZXIy".into(), ..none() };
    let address = AuthConfig { server_address: format!("http://{}", registry.address()), ..password.clone() };
    for auth in [password, encoded, address] {
        pull(&rig, &name, Some(auth)).await.expect("let in");
        remove(&rig, &name).await;
    }
    let no_auth = AuthConfig { auth: "hunter2".into(), ..none() };
    assert_refused(pull(&rig, &name, Some(no_auth)).await, Code::InvalidArgument, &["auth.auth", "base64"]);
    rig.finish().await;
}

/// kubelet knows by the beginning of the text that the registry is away, and says so of the pod.
#[tokio::test]
async fn a_pull_that_fails_says_why() {
    let rig = rig!();
    let registry = Stub::start(|request| match request.path.as_str() {
        path if path.contains("/gone/") => {
            Reply::new(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such tag"}]}"#)
        }
        path if path.contains("/closed/") => {
            Reply::new(403, r#"{"errors":[{"code":"DENIED","message":"pay first"}]}"#)
        }
        _ => Reply::new(200, ""),
    })
    .await;
    let named = |path: &str| registry.name(&format!("{path}/app:v1"));
    assert_refused(
        pull(&rig, &named("gone"), None).await,
        Code::NotFound,
        &["cannot pull", "gone/app:v1", "no such tag"],
    );
    assert_refused(pull(&rig, &named("closed"), None).await, Code::PermissionDenied, &["403", "pay first"]);
    let away = pull(&rig, "127.0.0.1:1/app:v1", None).await.expect_err("nobody listens");
    assert_eq!(away.code(), Code::Unknown);
    assert!(away.message().starts_with("RegistryUnavailable: cannot pull 127.0.0.1:1/app:v1"), "{away:?}");
    assert_refused(pull(&rig, "", None).await, Code::InvalidArgument, &["image.image"]);
    assert_refused(pull(&rig, "UPPER:tag", None).await, Code::InvalidArgument, &["UPPER"]);
    let image = Some(ImageSpec { image: "a".into(), runtime_handler: "kata".into(), ..ImageSpec::default() });
    let request = PullImageRequest { image, ..PullImageRequest::default() };
    assert_refused(
        rig.images().pull_image(request).await,
        Code::InvalidArgument,
        &["runtime_handler", "mainstay"],
    );
    rig.finish().await;
}

/// kubelet that is started anew, or whose deadline is over, asks again: the pull that it began had been for nothing.
#[tokio::test]
async fn a_pull_goes_on_when_its_caller_leaves() {
    let rig = rig!();
    let mut content = Content::default();
    let blob = content.blob(layer("file", LAYER_BYTES, 3));
    image(&mut content, "v1", &[&blob]);
    let registry = Stub::start(move |request| {
        let reply = content.serve(request);
        let is_layer = request.path.contains("/blobs/") && reply.body.len() >= LAYER_BYTES;
        match is_layer {
            true => reply.ending(Ending::Trickle(LAYER_BYTES / 10, std::time::Duration::from_millis(50))),
            false => reply,
        }
    })
    .await;
    let name = registry.name("team/app:v1");
    let mut request = Request::new(PullImageRequest { image: spec(&name), ..PullImageRequest::default() });
    request.set_timeout(std::time::Duration::from_millis(1));
    let late = rig.images().pull_image(request).await.expect_err("too short a time");
    // The library of this client has a clock and a code of its own.
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&late.code()), "{late:?}");
    wait::until_async("the image is here all the same", async || status(&rig, &name).await.is_some()).await;
    assert_eq!(registry.count("GET", "/blobs/"), 2, "a layer and the configuration, once");
    rig.finish().await;
}

#[tokio::test]
async fn the_file_system_of_images_is_told_with_what_they_take() {
    let rig = rig!();
    let Some(registry) = Registry::start() else { return };
    let info = async || {
        let info = rig.images().image_fs_info(ImageFsInfoRequest {}).await.expect("answered").into_inner();
        assert_eq!(info.image_filesystems.len(), 1);
        assert_eq!(info.image_filesystems[0].fs_id, info.container_filesystems[0].fs_id, "one device");
        info.image_filesystems[0].clone()
    };
    let before = info().await;
    let directory = before.fs_id.as_ref().expect("an id").mountpoint.clone();
    assert!(std::fs::metadata(&directory).expect("a directory").dev() > 0);
    let name = registry.make("sized", &[("data", &[7; 1 << 20])], &["--config.cmd=sh"]);
    pull(&rig, &name, None).await.expect("pulled");
    let after = info().await;
    assert!(after.timestamp > before.timestamp);
    let used = |usage: &mainstay_cri_api::FilesystemUsage| {
        (usage.used_bytes.expect("bytes").value, usage.inodes_used.expect("inodes").value)
    };
    let size = status(&rig, &name).await.expect("here").size;
    assert_eq!(used(&before), (0, 0));
    assert!(used(&after).0 >= size, "{after:?} {size}");
    assert!(used(&after).1 > 10, "{after:?}");
    rig.finish().await;
}
