//! Registries through a whole daemon: mirrors, credentials, silence, resumption, and no secret in any word.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_admin::{Client, StreamHandle};
use mainstay_images_testing::content::Content;
use mainstay_images_testing::docker_registry::Guests;
use mainstay_images_testing::image::{image, layer};
use mainstay_images_testing::stub::{Ending, Reply, Request, Stub};
use mainstay_integration_tests::{Daemon, wait, world};
use mainstay_messages::Error;
use mainstay_messages::admin::{Item, StreamRequest};
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{Credentials, PullActivity, PullProgress};
use mainstay_oci_image::Platform;

use super::*;
use mainstay_integration_tests::registry::Registry;

/// What must be in no word of the daemon.
const SECRET: &str = "hunter2";
/// The same with a user, as it is on the wire.
const SECRET_ENCODED: &str = "dXNlcjpodW50ZXIy";
/// Bytes of a layer that comes in pieces.
const LAYER_BYTES: usize = 400_000;
/// A silence that a test waits for, in milliseconds.
const SILENCE_MS: u64 = 3_000;
/// A silence in which a test has time to do something, and that it can wait for, in milliseconds.
const STANDSTILL_MS: u64 = 20_000;

/// A daemon that says all that it can.
struct Node {
    daemon: Daemon,
    client: Client,
    log: PathBuf,
}

impl Node {
    async fn start(world: &World, change: impl FnOnce(&mut ImageSettings)) -> Self {
        Self::start_in(world, change, &[]).await
    }

    async fn start_in(
        world: &World,
        change: impl FnOnce(&mut ImageSettings),
        environment: &[(&str, PathBuf)],
    ) -> Self {
        let mut config = config(world);
        change(&mut config.images);
        let environment = [&[("MAINSTAY_LOG", PathBuf::from("trace"))], environment].concat();
        let daemon = Daemon::start_with(world, &config, &environment).await;
        let client = Client::connect(daemon.socket()).await.expect("it listens");
        Self { daemon, client, log: world.path().join("daemon.log") }
    }

    async fn begin(&self, name: &str, credentials: Option<Credentials>) -> StreamHandle {
        let spec = PullSpec { credentials, ..PullSpec::new(named(name)) };
        self.client.open(StreamRequest::PullImage(Box::new(spec))).await.expect("open")
    }

    async fn pull(&self, name: &str, credentials: Option<Credentials>) -> mainstay::Result<()> {
        end(self.begin(name, credentials).await).await
    }

    /// That a pull fails, how, and in which words. They are one line without a secret.
    async fn failure(&self, name: &str, credentials: Option<Credentials>) -> (PullFault, String) {
        let error = self.pull(name, credentials).await.expect_err("it fails");
        let Error::PullFailed { fault, .. } = error else { panic!("{error}") };
        let text = error.to_string();
        assert!(!text.contains('\n') && text.starts_with(&format!("cannot pull {name}: ")), "{text}");
        assert_no_secret(&text);
        (fault, text)
    }

    async fn tags(&self) -> Vec<String> {
        let images = self.client.list_images().await.expect("listed");
        images.into_iter().flat_map(|image| image.tags).collect()
    }

    fn assert_discreet(&self) {
        assert_no_secret(&fs::read_to_string(&self.log).expect("readable"));
    }
}

async fn end(mut stream: StreamHandle) -> mainstay::Result<()> {
    let ended = async {
        while stream.next().await.is_some() {}
        stream.end().await.map(drop)
    };
    wait::finish("a pull ends", ended).await
}

/// Waits until so many bytes of a layer are here.
async fn fetching(stream: &mut StreamHandle, least: u64) {
    let moved = async {
        while let Some(item) = stream.next().await {
            if let Item::Pull(PullProgress::Part { activity: PullActivity::Fetching, bytes, of, .. }) = item
                && bytes >= least
                && of.is_some_and(|of| of > LAYER_BYTES as u64)
            {
                return;
            }
        }
        panic!("it ended before");
    };
    wait::finish("bytes of a layer come", moved).await;
}

/// Waits until a pull has joined another one. Nothing moves meanwhile: that so much of a layer is here already is what it is told
/// at its beginning.
async fn joined(stream: &mut StreamHandle, least: u64) {
    let told = async {
        let mut heard = Vec::new();
        while let Some(item) = stream.next().await {
            if let Item::Pull(PullProgress::Part { activity, bytes, .. }) = &item
                && [PullActivity::Fetching, PullActivity::Waiting].contains(activity)
                && (least..LAYER_BYTES as u64).contains(bytes)
            {
                return;
            }
            heard.push(item);
        }
        panic!("it ended before: {heard:?}");
    };
    wait::finish("a pull joins another", told).await;
}

fn assert_no_secret(text: &str) {
    for secret in [SECRET, SECRET_ENCODED] {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{line:?}");
    }
}

fn password(text: &str) -> Option<Credentials> {
    Some(Credentials::Password { user: "user".into(), password: text.into() })
}

/// A repository with an image of one layer under `v1`.
fn repository() -> Content {
    let mut content = Content::default();
    let layer = content.blob(layer("file", LAYER_BYTES, 3));
    image(&mut content, "v1", &[&layer]);
    content
}

/// Whether a request is for the layer.
fn is_layer(content: &Content, request: &Request) -> bool {
    request.method == "GET"
        && request.path.contains("/blobs/")
        && content.serve(&Request { headers: Default::default(), ..request.clone() }).body.len() > LAYER_BYTES
}

/// Lets in whoever has the password.
fn guarded(content: &Content, request: &Request) -> Reply {
    match request.header("authorization") {
        Some(given) if given == format!("Basic {SECRET_ENCODED}") => content.serve(request),
        _ => Reply::new(401, "").header("www-authenticate", "Basic realm=\"test\""),
    }
}

#[tokio::test]
async fn a_mirror_of_hosts_toml_is_asked_before_the_registry() {
    let world = world!();
    let content = repository();
    let mirror = Stub::start(move |request| content.serve(request)).await;
    let hosts = world.path().join("certs.d/registry.example");
    fs::create_dir_all(&hosts).expect("made");
    // A place where nobody listens, in front and behind.
    let text = format!(
        "server = \"http://127.0.0.1:1\"\n[host.\"http://127.0.0.1:1\"]\n[host.\"http://{}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n",
        mirror.address
    );
    fs::write(hosts.join("hosts.toml"), text).expect("written");
    let certs = world.path().join("certs.d");
    let node = Node::start(&world, |images| images.certs_dirs = vec![certs.clone()]).await;
    node.pull("registry.example/team/app:v1", None).await.expect("the mirror has it");
    assert_eq!(node.tags().await, ["registry.example/team/app:v1"]);
    let asked = mirror.seen();
    assert!(asked.iter().all(|request| request.query.contains("ns=registry.example")), "{asked:?}");

    fs::write(hosts.join("hosts.toml"), "[host.\"http://127.0.0.1:1\"]\ncapabilities = [\"fetch\"]\n")
        .expect("written");
    let (_, text) = node.failure("registry.example/team/app:v1", None).await;
    assert!(text.contains("hosts.toml") && text.contains("fetch"), "{text}");
}

#[tokio::test]
async fn credentials_come_from_the_file_of_docker_or_from_its_helper() {
    let world = world!();
    let Some(registry) = Registry::for_guests(Guests::User) else { return };
    let name = registry.make("guarded", &[], &["--config.cmd=sh"]);
    let file = world.path().join("config.json");
    let bin = world.path().join("bin");
    fs::create_dir(&bin).expect("made");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let environment = [("PATH", PathBuf::from(path))];
    let set = |images: &mut ImageSettings| images.docker_config = Some(file.clone());
    let node = Node::start_in(&world, set, &environment).await;

    let (fault, text) = node.failure(&name, None).await;
    assert_eq!(fault, PullFault::Denied, "{text}");
    assert!(text.contains("401") && text.contains("credentials are needed"), "{text}");
    let (fault, text) = node.failure(&name, password("hunter3")).await;
    assert_eq!(fault, PullFault::Denied, "{text}");
    assert!(!text.contains("hunter3"), "{text}");

    let auths = format!(r#"{{"auths":{{"{}":{{"auth":"{SECRET_ENCODED}"}}}}}}"#, registry.address());
    fs::write(&file, auths).expect("written");
    node.pull(&name, None).await.expect("the file has them");
    node.client.remove_image(named(&name)).await.expect("removed");

    fs::write(&file, r#"{"credsStore":"of-test"}"#).expect("written");
    let helper = bin.join("docker-credential-of-test");
    let answer = format!(r#"{{"ServerURL":"x","Username":"user","Secret":"{SECRET}"}}"#);
    fs::write(&helper, format!("#!/bin/sh\n[ \"$1\" = get ] && cat > /dev/null && echo '{answer}'\n"))
        .expect("written");
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).expect("set");
    node.pull(&name, None).await.expect("the helper has them");
    node.client.remove_image(named(&name)).await.expect("removed");

    fs::write(&helper, format!("#!/bin/sh\necho {SECRET}\nexit 1\n")).expect("written");
    let (_, text) = node.failure(&name, None).await;
    assert!(text.contains("docker-credential-of-test"), "{text}");
    node.assert_discreet();
}

/// Case 51: who joins a pull that runs was given the image on the first one's credentials.
#[tokio::test]
async fn who_joins_a_pull_needs_credentials_of_its_own() {
    let world = world!();
    let content = repository();
    let gate = Arc::new(Mutex::new(Ending::Stall(LAYER_BYTES / 2)));
    let held = Arc::clone(&gate);
    let stub = Stub::start(move |request| {
        let reply = guarded(&content, request);
        let ending = *held.lock().expect("no panic");
        if is_layer(&content, request) && reply.status == 200 { reply.ending(ending) } else { reply }
    });
    let stub = stub.await;
    let name = stub.name("team/app:v1");
    // It stands still while others come; and when it is tried again, whoever is left goes on.
    let node = Node::start(&world, |images| images.pull_progress_timeout_ms = STANDSTILL_MS).await;
    let mut first = node.begin(&name, password(SECRET)).await;
    fetching(&mut first, LAYER_BYTES as u64 / 2).await;
    *gate.lock().expect("no panic") = Ending::Whole;
    for credentials in [None, password("hunter3")] {
        let (fault, text) = node.failure(&name, credentials).await;
        assert_eq!(fault, PullFault::Denied, "{text}");
    }
    let mut second = node.begin(&name, password(SECRET)).await;
    joined(&mut second, LAYER_BYTES as u64 / 2).await;
    // The first one leaves in the middle; the second goes on where it was.
    drop(first);
    end(second).await.expect("its credentials are good");
    assert_eq!(node.tags().await, std::slice::from_ref(&name));
    // It is here now, and still nobody's who may not have it.
    let (fault, text) = node.failure(&name, None).await;
    assert_eq!(fault, PullFault::Denied, "{text}");
    node.assert_discreet();
}

/// Case 52: a pull was given up because a window had no bytes, or hung for ever where nothing came any more. What is silent is
/// tried again alone, and named with its bytes when that does not help.
#[tokio::test]
async fn a_registry_that_falls_silent_ends_a_pull_and_a_trickle_does_not() {
    let world = world!();
    let content = repository();
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        match (is_layer(&content, request), request.path.contains("silent")) {
            (true, true) => reply.ending(Ending::Stall(0)),
            // Longer than the silence that is borne, in all.
            (true, false) => {
                reply.ending(Ending::Trickle(LAYER_BYTES / 100, Duration::from_millis(SILENCE_MS / 50)))
            }
            _ => reply,
        }
    });
    let stub = stub.await;
    let node = Node::start(&world, |images| images.pull_progress_timeout_ms = SILENCE_MS).await;
    let (fault, text) = node.failure(&stub.name("silent/app:v1"), None).await;
    assert_eq!(fault, PullFault::Registry, "{text}");
    for said in [stub.address.to_string().as_str(), "sha256:", "0 bytes of"] {
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(node.tags().await, Vec::<String>::new(), "nothing half is listed");
    node.pull(&stub.name("slow/app:v1"), None).await.expect("it moves");
}

/// Case 54, with a daemon that is killed: what had come was fetched again.
#[tokio::test]
async fn a_pull_of_a_killed_daemon_goes_on_where_it_was() {
    let world = world!();
    let content = repository();
    let whole = Arc::new(Mutex::new(false));
    let open = Arc::clone(&whole);
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let stalls = is_layer(&content, request) && !*open.lock().expect("no panic");
        if stalls { reply.ending(Ending::Stall(LAYER_BYTES / 2)) } else { reply }
    });
    let stub = stub.await;
    let name = stub.name("team/app:v1");
    let mut node = Node::start(&world, |_| {}).await;
    let mut pull = node.begin(&name, None).await;
    fetching(&mut pull, LAYER_BYTES as u64 / 2).await;
    // What is told to have come is written a little later.
    let partial = world.path().join("root/images/partial");
    wait::until("a quarter of the layer is on the disk", || {
        let files = fs::read_dir(&partial).expect("there").flatten();
        let bytes: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        (bytes >= LAYER_BYTES as u64 / 4).then_some(())
    })
    .await;
    node.daemon.kill();
    *whole.lock().expect("no panic") = true;
    let node = Node::start(&world, |_| {}).await;
    assert_eq!(node.tags().await, Vec::<String>::new());
    node.pull(&name, None).await.expect("pulled");
    let resumed = stub.seen().into_iter().find_map(|request| request.header("range").map(str::to_owned));
    let from = resumed.expect("it asks for the rest");
    let from: usize =
        from.strip_prefix("bytes=").and_then(|from| from.strip_suffix('-')?.parse().ok()).expect("a range");
    assert!((LAYER_BYTES / 4..=LAYER_BYTES / 2).contains(&from), "{from}");
    assert_eq!(node.client.verify_images(None).await.expect("looked"), []);
}

/// A collection beside a pull took what the pull had just found or fetched.
#[tokio::test]
async fn a_collection_beside_a_pull_takes_nothing_of_it() {
    let world = world!();
    let mut content = Content::default();
    let layers: Vec<_> = (0..4).map(|n| content.blob(layer(&format!("f{n}"), LAYER_BYTES, n))).collect();
    image(&mut content, "base", &layers[..2].iter().collect::<Vec<_>>());
    image(&mut content, "v1", &layers.iter().collect::<Vec<_>>());
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let slow = Ending::Trickle(LAYER_BYTES / 40, Duration::from_millis(10));
        if is_layer(&content, request) { reply.ending(slow) } else { reply }
    });
    let stub = stub.await;
    let (base, name) = (stub.name("team/app:base"), stub.name("team/app:v1"));
    let node = Node::start(&world, |_| {}).await;
    node.pull(&base, None).await.expect("pulled");
    let mut pull = node.begin(&name, None).await;
    fetching(&mut pull, 1).await;
    // What the pull stands on has no other name any more.
    node.client.remove_image(named(&base)).await.expect("removed");
    let mut pulled = std::pin::pin!(end(pull));
    let outcome = loop {
        tokio::select! {
            outcome = &mut pulled => break outcome,
            collected = node.client.collect_images() => drop(collected.expect("collected")),
        }
    };
    outcome.expect("pulled");
    assert_eq!(node.tags().await, [name]);
    assert_eq!(node.client.verify_images(None).await.expect("looked"), []);
}

/// What a registry can answer, and what people are told: host, reference, status, in one sentence.
#[tokio::test]
async fn each_refusal_has_words_of_its_own() {
    let world = world!();
    let content = repository();
    let stub = Stub::start(move |request| {
        let answer = |status| {
            let body =
                format!(r#"{{"errors":[{{"code":"CODE","message":"of the registry, about {SECRET}x"}}]}}"#);
            Reply::new(status, body.replace(SECRET, "it"))
        };
        match request.path.split('/').nth(2) {
            Some("forbidden") => answer(403),
            Some("busy") => answer(429).header("retry-after", "0"),
            Some("broken") => answer(503),
            Some("elsewhere") => answer(401)
                .header("www-authenticate", "Bearer realm=\"http://127.0.0.2:1/token\",service=\"s\""),
            _ => content.serve(request),
        }
    });
    let stub = stub.await;
    let node = Node::start(&world, |_| {}).await;
    for (repository, fault, said) in [
        ("team/app:none", PullFault::NotFound, "404"),
        ("forbidden/app:v1", PullFault::Denied, "403"),
        ("busy/app:v1", PullFault::Registry, "429"),
        ("broken/app:v1", PullFault::Registry, "503"),
    ] {
        let name = stub.name(repository);
        let (found, text) = node.failure(&name, password(SECRET)).await;
        assert_eq!(found, fault, "{text}");
        assert!(text.contains(said) && text.contains(&stub.address.to_string()), "{text}");
    }
    node.failure(&stub.name("elsewhere/app:v1"), password(SECRET)).await;
    // There is no index, which would say what there is: the configuration of the image does.
    let single = |platform: &str| {
        let name = named(&stub.name("team/app:v1"));
        StreamRequest::PullImage(Box::new(PullSpec {
            platform: Some(platform.into()),
            ..PullSpec::new(name)
        }))
    };
    let stream = node.client.open(single("linux/s390x")).await.expect("open");
    let error = end(stream).await.expect_err("it is for another one");
    assert!(error.to_string().contains("there is no image for linux/s390x"), "{error}");
    assert_eq!(node.tags().await, Vec::<String>::new());
    let stream = node.client.open(single(&Platform::host().to_string())).await.expect("open");
    end(stream).await.expect("pulled");
    assert_eq!(node.tags().await, [stub.name("team/app:v1")]);
    node.assert_discreet();
}

#[tokio::test]
async fn a_layout_and_an_archive_on_standard_input_come_in_by_the_command() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    registry.make("one", &[("file", b"x")], &["--config.cmd=sh"]);
    let layout = format!("oci:{}:one", registry.layout().display());
    let (directory, saved) = (registry.path().join("single"), registry.path().join("saved.tar"));
    registry.copy(&[], &layout, &format!("oci:{}:v1", directory.display()));
    registry.copy(&[], &layout, &format!("docker-archive:{}:some/name:tag", saved.display()));
    let node = Node::start(&world, |_| {}).await;
    let import = |what: &Path, name: &[&str], input: Stdio| {
        let mut command = Command::new(world.program());
        command.args(["image", "import"]).args(name).arg(what).stdin(input);
        command.env("MAINSTAY_SOCKET", node.daemon.socket());
        command.output().expect("it runs")
    };
    let done = import(&directory, &["--name", "from/layout:v1"], Stdio::null());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let input = fs::File::open(&saved).expect("there");
    let done = import(Path::new("-"), &[], input.into());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut tags = node.tags().await;
    tags.sort();
    assert_eq!(tags, ["docker.io/from/layout:v1", "docker.io/some/name:tag"]);

    // What is no archive is the caller's fault, and said so.
    let text = registry.path().join("text");
    fs::write(&text, "no archive at all").expect("written");
    let refused = import(&text, &[], Stdio::null());
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("archive: what came is not valid"), "{words}");
    assert_eq!(node.tags().await.len(), 2);
}
