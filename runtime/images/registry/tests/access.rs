//! Who is asked, in which order, and who gets to see credentials.
//!
//! The faults that these guard (case 72, the class of CVE-2020-15157): credentials were sent to the host that a redirect,
//! a realm or a layer's `urls` named, or were printed in errors.

mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_oci_image::{Descriptor, Digest, Platform, Step, media};
use mainstay_registry::{Credentials, Problem, Registry, Secret};
use rstest::rstest;
use world::content::Content;
use world::stub::{Reply, Request, Stub};
use world::{Events, finish, open, settings, settings_with};

fn basic() -> Credentials {
    Credentials::Basic { user: "user".to_owned(), password: Secret::new("hunter2") }
}

/// `user:hunter2`, as a header has it.
const BASIC: &str = "Basic dXNlcjpodW50ZXIy";

/// A registry that wants tokens, and gives them to whom it knows; the realm is at `realm` or on itself.
fn with_tokens(
    content: Content,
    realm: Option<String>,
    good: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |request| {
        if request.path == "/token" {
            return token(request);
        }
        let sent = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if sent.is_some_and(&good) {
            return content.serve(request);
        }
        let host = request.header("host").unwrap_or_default();
        let realm = realm.clone().unwrap_or_else(|| format!("http://{host}/token"));
        let challenge = format!("Bearer realm=\"{realm}\",service=\"test\",scope=\"repository:a/b:pull\"");
        Reply::new(401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}"#)
            .header("www-authenticate", challenge)
    }
}

/// A token for whoever asks, with its number.
fn token(request: &Request) -> Reply {
    Reply::new(200, format!(r#"{{"token":"t{}","expires_in":300}}"#, request.nth))
}

#[tokio::test]
async fn one_token_serves_a_whole_pull_and_its_scope_is_right() {
    let mut content = Content::default();
    let (_, layer) = content.image("latest");
    let more: Vec<_> = (0..8).map(|n| content.blob(Content::bytes(10_000, n))).collect();
    let stub = Stub::start(with_tokens(content, None, |_| true)).await;
    let (repository, events) = open(settings(), &stub.name("a/b"), Some(basic())).await;
    let image = finish("the image", repository.image(&Platform::host())).await.expect("an image");
    assert_eq!(image.manifest.layers, [layer]);
    let fetch = |descriptor: Descriptor| {
        let repository = &repository;
        async move { repository.small_blob(&descriptor).await }
    };
    let [a, b, c, d, e, f, g, h] = more.try_into().expect("eight");
    let all = async {
        tokio::try_join!(fetch(a), fetch(b), fetch(c), fetch(d), fetch(e), fetch(f), fetch(g), fetch(h))
    };
    finish("eight blobs", all).await.expect("eight blobs");
    let tokens: Vec<_> = stub.seen().into_iter().filter(|request| request.path == "/token").collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].query, "service=test&scope=repository%3Aa%2Fb%3Apull&account=user");
    assert_eq!(tokens[0].header("authorization"), Some(BASIC));
    assert_eq!(events.count(|step| matches!(step, Step::TokenFetched { .. })), 1);
    assert_eq!(
        stub.seen().iter().filter(|request| request.header("authorization") == Some(BASIC)).count(),
        1
    );
}

#[tokio::test]
async fn nobody_gets_a_token_too() {
    let mut content = Content::default();
    let (manifest, _) = content.image("latest");
    let stub = Stub::start(with_tokens(content, None, |_| true)).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    let resolved = finish("the answer", repository.resolve()).await.expect("anybody may");
    assert_eq!(resolved, manifest);
    let tokens: Vec<_> = stub.seen().into_iter().filter(|request| request.path == "/token").collect();
    assert_eq!((tokens.len(), tokens[0].header("authorization")), (1, None));
}

/// A token that the registry takes no more in the middle of a pull is replaced, and the pull goes on.
#[tokio::test]
async fn a_token_that_is_refused_is_replaced() {
    let mut content = Content::default();
    let first = content.blob(Content::bytes(10_000, 1));
    let second = content.blob(Content::bytes(10_000, 2));
    let used = Arc::new(AtomicUsize::new(0));
    let good = move |token: &str| token != "t0" || used.fetch_add(1, Ordering::SeqCst) == 0;
    let stub = Stub::start(with_tokens(content, None, good)).await;
    let (repository, events) = open(settings(), &stub.name("a/b"), None).await;
    for blob in [&first, &second] {
        finish("a blob", repository.small_blob(blob)).await.expect("a blob");
    }
    assert_eq!(events.count(|step| matches!(step, Step::TokenFetched { .. })), 2);
    assert_eq!(events.retries(), 0);
}

/// A token that is about to expire is replaced before a request is refused for it.
#[tokio::test]
async fn a_token_that_expires_is_replaced_before_it_is_refused() {
    let mut content = Content::default();
    content.image("latest");
    let stub = Stub::start(move |request| match request.header("authorization") {
        _ if request.path == "/token" => Reply::new(200, r#"{"access_token":"t","expires_in":1}"#),
        Some(_) => content.serve(request),
        None => {
            let realm = format!("http://{}/token", request.header("host").unwrap_or_default());
            Reply::new(401, "").header("www-authenticate", format!("Bearer realm=\"{realm}\""))
        }
    })
    .await;
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    let replaced = async {
        while stub.count("GET", "/token") < 2 {
            repository.resolve().await.expect("anybody may");
        }
    };
    finish("the second token", replaced).await;
    let refused = stub
        .seen()
        .into_iter()
        .filter(|request| request.path != "/token" && request.header("authorization").is_none());
    assert_eq!(refused.count(), 1, "only the first request was refused");
    assert_eq!(stub.seen()[1].query, "scope=repository%3Aa%2Fb%3Apull");
}

#[tokio::test]
async fn a_registry_that_takes_no_token_is_not_asked_for_ever() {
    let stub = Stub::start(with_tokens(Content::default(), None, |_| false)).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(basic())).await;
    let error = finish("the answer", repository.resolve()).await.expect_err("it takes none");
    assert!(matches!(*error.problem, Problem::Unauthorized { with_credentials: true, .. }), "{error}");
    assert!(stub.count("GET", "/token") <= 4);
}

#[tokio::test]
async fn user_and_password_go_where_they_are_asked_for() {
    let mut content = Content::default();
    content.image("latest");
    let stub = Stub::start(move |request| match request.header("authorization") {
        Some(BASIC) => content.serve(request),
        _ => Reply::new(401, "").header("www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(basic())).await;
    finish("the image", repository.image(&Platform::host())).await.expect("known");
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    let error = finish("the answer", repository.resolve()).await.expect_err("unknown");
    assert!(error.to_string().contains("401, credentials are needed"), "{error}");
    let wrong = Credentials::Basic { user: "user".to_owned(), password: Secret::new("hunter3") };
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(wrong)).await;
    let error = finish("the answer", repository.resolve()).await.expect_err("refused");
    assert!(error.to_string().contains("401, the credentials were not taken"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter3"));
}

#[rstest]
#[case(403, r#"{"errors":[{"code":"DENIED","message":"not yours"}]}"#, "403, not allowed: DENIED: not yours")]
#[case(404, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#, "404, not found: NAME_UNKNOWN")]
#[case(418, "<html>", ": 418")]
#[tokio::test]
async fn a_refusal_is_told_in_one_sentence(
    #[case] status: u16,
    #[case] body: &'static str,
    #[case] text: &str,
) {
    let stub = Stub::start(move |_| Reply::new(status, body)).await;
    let (repository, events) = open(settings(), &stub.name("a/b:x"), None).await;
    let error = finish("the answer", repository.target()).await.expect_err("refused").to_string();
    assert!(error.starts_with(&format!("GET /v2/a/b/manifests/x of {}: ", stub.address)), "{error}");
    assert!(error.ends_with(text), "{error}");
    assert_eq!(events.retries(), 0);
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let mut content = Content::default();
    content.image("latest");
    let stub = Stub::start(with_tokens(content, None, |_| true)).await;
    let credentials = Credentials::IdentityToken(Secret::new("refresh&me"));
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(credentials)).await;
    finish("the answer", repository.resolve()).await.expect("known");
    let token = stub.seen().into_iter().find(|request| request.path == "/token").expect("asked");
    assert_eq!((token.method.as_str(), token.query.as_str()), ("POST", ""));
    let body = "grant_type=refresh_token&refresh_token=refresh%26me&client_id=mainstay&\
                scope=repository%3Aa%2Fb%3Apull&service=test";
    assert_eq!(token.body, body);
}

/// A realm on another host, over plain HTTP, gets nothing.
#[tokio::test]
async fn a_foreign_realm_over_plain_http_gets_no_credentials() {
    let foreign = Stub::start_on("127.0.0.2", None, token).await;
    let realm = format!("http://{}/token", foreign.address);
    let stub = Stub::start(with_tokens(Content::default(), Some(realm), |_| true)).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(basic())).await;
    let error = finish("the answer", repository.resolve()).await.expect_err("a foreign realm");
    assert!(matches!(*error.problem, Problem::Realm { .. }), "{error}");
    assert!(foreign.seen().is_empty());
}

fn write_hosts(root: &Path, host: &str, text: &str) {
    let (name, port) = host.split_once(':').expect("a port");
    let dir = root.join(format!("{name}_{port}_"));
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join("hosts.toml"), text).expect("written");
}

/// The target of a redirect gets neither our token nor the headers of the host that redirects, and its address, which
/// is a secret when it is signed, is in no error.
#[tokio::test]
async fn the_target_of_a_redirect_sees_nothing_of_ours() {
    let mut content = Content::default();
    let blob = content.blob(Content::bytes(50_000, 1));
    let missing = Descriptor { digest: Digest::of(b"missing"), ..blob.clone() };
    let elsewhere = content.clone();
    let foreign = Stub::start_on("127.0.0.2", None, move |request| elsewhere.serve(request)).await;
    let to = foreign.address;
    let stub = Stub::start(move |request| match request.header("authorization") {
        Some(BASIC) => {
            let location = format!("http://{to}{}?sig=SECRET", request.path);
            Reply::new(307, "").header("location", location)
        }
        _ => Reply::new(401, "").header("www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let host = stub.address.to_string();
    let text = format!("[host.\"http://{host}\"]\n[host.\"http://{host}\".header]\nx-secret = \"hunter2\"");
    write_hosts(dir.path(), &host, &text);
    let (repository, events) = open(settings_with(dir.path()), &stub.name("a/b"), Some(basic())).await;
    let bytes = finish("the blob", repository.small_blob(&blob)).await.expect("redirected");
    assert_eq!(Digest::of(&bytes), blob.digest);
    assert!(stub.seen().iter().all(|request| request.header("x-secret") == Some("hunter2")));
    let there = foreign.seen();
    assert!(there.iter().all(|request| request.query == "sig=SECRET"));
    let ours = ["authorization", "x-secret", "referer", "cookie"];
    assert!(there.iter().all(|request| ours.iter().all(|name| request.header(name).is_none())), "{there:?}");
    let error = finish("the answer", repository.small_blob(&missing)).await.expect_err("not there");
    let text = format!("{error} {error:?} {:?}", events.steps());
    assert!(error.to_string().contains(&format!("of {}: 404", foreign.address)), "{error}");
    assert!(!text.contains("SECRET") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn redirects_end() {
    let stub = Stub::start(|_| Reply::new(302, "").header("location", "/v2/again")).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    let error = finish("the answer", repository.target()).await.expect_err("no end");
    assert!(matches!(*error.problem, Problem::Redirect { .. }), "{error}");
    assert!(stub.seen().len() <= 6);
}

#[tokio::test]
async fn the_urls_of_a_layer_are_strangers() {
    let mut content = Content::default();
    let blob = content.blob(Content::bytes(50_000, 1));
    let elsewhere = content.clone();
    let foreign = Stub::start_on("127.0.0.2", None, move |request| elsewhere.serve(request)).await;
    let stub = Stub::start(with_tokens(Content::default(), None, |_| true)).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), Some(basic())).await;
    let urls =
        vec!["ftp://127.0.0.2/x".to_owned(), format!("http://{}/blobs/{}", foreign.address, blob.digest)];
    let named = Descriptor { urls, ..blob.clone() };
    let bytes = finish("the blob", repository.small_blob(&named)).await.expect("from the stranger");
    assert_eq!(Digest::of(&bytes), blob.digest);
    assert!(foreign.seen().iter().all(|request| request.header("authorization").is_none()));
}

#[tokio::test]
async fn mirrors_are_asked_in_turn_and_get_no_credentials_of_the_registry() {
    let mut content = Content::default();
    let (manifest, layer) = content.image("latest");
    let full = content.clone();
    let broken = Stub::start(|_| Reply::new(500, "")).await;
    let mirror = Stub::start(move |request| full.serve(request)).await;
    let blobs_only = content.clone();
    let third = Stub::start(move |request| blobs_only.serve(request)).await;
    let origin = Stub::start(|_| Reply::new(401, "").header("www-authenticate", "Basic realm=\"r\"")).await;
    let dir = tempfile::tempdir().expect("a directory");
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://{}\"]\ncapabilities = [\"pull\"]\n[host.\"http://{}\"]\n\
         [host.\"http://{}/deep\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
        origin.address, third.address, broken.address, mirror.address
    );
    write_hosts(dir.path(), &origin.address.to_string(), &text);
    let name = origin.name("a/b");
    let (repository, events) = open(settings_with(dir.path()), &name, Some(basic())).await;
    assert_eq!(finish("the answer", repository.resolve()).await.expect("the mirror knows"), manifest);
    assert_eq!(
        (third.seen().len(), broken.seen().len(), origin.seen().len()),
        (0, 1, 0),
        "no tags of the first"
    );
    finish("the layer", repository.small_blob(&layer)).await.expect("the first has it");
    assert_eq!(third.count("GET", "/v2/a/b/blobs/"), 1);
    assert_eq!(mirror.count("HEAD", "/deep/v2/a/b/manifests/latest"), 1);
    let namespace = format!("ns={}", origin.address.to_string().replace(':', "%3A"));
    assert_eq!(mirror.seen()[0].query, namespace);
    let to = mirror.address.to_string();
    assert_eq!(events.count(|step| matches!(step, Step::HostSwitched { to: t, .. } if *t == to)), 1);
    let missing = Descriptor { digest: Digest::of(b"missing"), ..layer };
    let error = finish("the answer", repository.small_blob(&missing)).await.expect_err("nobody has it");
    let text = error.to_string();
    for part in [third.address, broken.address, mirror.address, origin.address] {
        assert!(text.contains(&part.to_string()), "{text}");
    }
    let everybody = [third, broken, mirror];
    let seen = everybody.iter().flat_map(Stub::seen);
    assert!(seen.into_iter().all(|request| request.header("authorization").is_none()));
}

/// A mirror that lies holds nobody up: its bytes are taken back, and the registry itself is asked.
#[tokio::test]
async fn wrong_bytes_of_a_mirror_are_replaced_by_those_of_the_registry() {
    let mut content = Content::default();
    let blob = content.blob(Content::bytes(50_000, 1));
    let liar = Stub::start(|_| Reply::new(200, Content::bytes(50_000, 2))).await;
    let origin = Stub::start(move |request| content.serve(request)).await;
    let dir = tempfile::tempdir().expect("a directory");
    write_hosts(dir.path(), &origin.address.to_string(), &format!("[host.\"http://{}\"]", liar.address));
    let (repository, _) = open(settings_with(dir.path()), &origin.name("a/b"), None).await;
    let bytes = finish("the blob", repository.small_blob(&blob)).await.expect("the registry has it");
    assert_eq!(Digest::of(&bytes), blob.digest);
    assert_eq!((liar.seen().len(), origin.count("GET", "/blobs/")), (1, 1));
}

#[tokio::test]
async fn dockers_configuration_is_read_for_each_pull() {
    let mut content = Content::default();
    content.image("latest");
    let stub = Stub::start(move |request| match request.header("authorization") {
        Some(BASIC) => content.serve(request),
        _ => Reply::new(401, "").header("www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.json");
    let registry =
        Registry::new(mainstay_registry::Settings { docker_config: Some(file.clone()), ..settings() });
    let resolve = async || {
        let reference = stub.name("a/b").parse().expect("a name");
        let repository = registry.open(&reference, None, Events::default().reporter()).await.expect("opened");
        finish("the answer", repository.resolve()).await
    };
    let error = resolve().await.expect_err("no file yet");
    assert!(matches!(*error.problem, Problem::Unauthorized { with_credentials: false, .. }));
    let auths = format!(r#"{{"auths":{{"{}":{{"auth":"dXNlcjpodW50ZXIy"}}}}}}"#, stub.address);
    std::fs::write(&file, auths).expect("written");
    resolve().await.expect("a login counts at once");
    std::fs::write(&file, "{").expect("written");
    let error = resolve().await.expect_err("a broken file");
    assert!(matches!(*error.problem, Problem::Credentials(_)), "{error}");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("config.json is not a Docker configuration: line 1"), "{source}");
}

#[rstest]
#[case::not_allowed(405)]
#[case::not_known(404)]
#[tokio::test]
async fn a_registry_without_head_is_asked_with_get(#[case] status: u16) {
    let mut content = Content::default();
    let (manifest, _) = content.image("latest");
    let stub = Stub::start(move |request| match request.method.as_str() {
        "HEAD" => Reply::new(status, ""),
        _ => content.serve(request),
    })
    .await;
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    assert_eq!(finish("the answer", repository.resolve()).await.expect("by GET"), manifest);
}

#[tokio::test]
async fn a_manifest_has_a_limit_and_its_digest_is_verified() {
    let huge =
        Stub::start(|_| Reply::new(200, vec![b' '; 5 << 20]).header("content-type", media::OCI_MANIFEST))
            .await;
    let (repository, _) = open(settings(), &huge.name("a/b"), None).await;
    let error = finish("the answer", repository.target()).await.expect_err("too long");
    assert!(matches!(*error.problem, Problem::TooLong { .. }), "{error}");
    let mut content = Content::default();
    content.image("latest");
    let liar = Stub::start(move |request| {
        let mut reply = content.serve(&Request { path: "/manifests/latest".to_owned(), ..request.clone() });
        reply.headers.retain(|(name, _)| name != "docker-content-digest");
        reply
    })
    .await;
    let name = format!("{}@{}", liar.name("a/b"), Digest::of(b"another one"));
    let (repository, _) = open(settings(), &name, None).await;
    let error = finish("the answer", repository.target()).await.expect_err("another one");
    assert!(matches!(*error.problem, Problem::WrongDigest { .. }), "{error}");
}

#[tokio::test]
async fn an_index_leads_to_the_image_for_the_platform() {
    let mut content = Content::default();
    let (manifest, _) = content.image("inner");
    let entry = |architecture: &str| {
        format!(
            r#"{{"mediaType":"{}","digest":"{}","size":{},"platform":{{"os":"linux","architecture":"{architecture}"}}}}"#,
            manifest.media_type, manifest.digest, manifest.size
        )
    };
    let text = format!(r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#, entry("s390x"), entry("riscv64"));
    let index = content.document(media::DOCKER_LIST, text, Some("latest"));
    let stub = Stub::start(move |request| content.serve(request)).await;
    let (repository, _) = open(settings(), &stub.name("a/b"), None).await;
    let platform = "linux/riscv64".parse().expect("a platform");
    let image = finish("the image", repository.image(&platform)).await.expect("there is one");
    assert_eq!((image.target, image.manifest_descriptor), (index, manifest));
    assert_eq!(image.indexes.len(), 1);
    let error = finish("the image", repository.image(&Platform::new("linux", "m68k", None))).await;
    let error = error.expect_err("there is none");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert_eq!(source, "there is no image for linux/m68k; there is one for linux/s390x, linux/riscv64");
}

/// Several blobs were asked for at once of a registry that speaks no TLS. The first request found that out; the others,
/// which had been sent with TLS as well, failed for it.
#[tokio::test]
async fn requests_at_once_find_out_together_that_no_tls_is_spoken() {
    let mut content = Content::default();
    content.image("v1");
    let stub = Stub::start(move |request| content.serve(request)).await;
    let (repository, _) = open(settings(), &stub.name("team/app:v1"), None).await;
    let asked = async { tokio::join!(repository.resolve(), repository.resolve(), repository.resolve()) };
    let (one, two, three) = finish("the answers", asked).await;
    assert_eq!(
        [one, two, three].map(|answer| answer.map(drop).map_err(|error| error.to_string())),
        [Ok(()), Ok(()), Ok(())]
    );
}
