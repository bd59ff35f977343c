//! Debian's docker-registry and skopeo: a registry that we did not write, filled by a client that we did not write.

mod world;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use mainstay_oci_image::{Algorithm, Digest, Platform, media};
use mainstay_registry::{Credentials, Problem, Secret, Sink};
use world::content::Content;
use world::{finish, open, settings};

/// Set (to anything) where a missing program is a failure and not a reason to skip.
const REQUIRE_PEERS: &str = "MAINSTAY_TEST_REQUIRE_PEERS";
/// `user:hunter2`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";

/// The path of a program, or none; then it was said, past the macros, that the test is skipped.
fn find(program: &str) -> Option<PathBuf> {
    let dirs = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let found = dirs.into_iter().map(|dir| dir.join(program)).find(|path| path.is_file());
    if found.is_none() {
        let text = format!("{program} is not installed (Debian package {program})");
        assert!(std::env::var_os(REQUIRE_PEERS).is_none(), "{text}, and {REQUIRE_PEERS} is set");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // A standard error that is gone needs no words.
        let _ = writeln!(std::io::stderr(), "skipped {test}: {text}");
    }
    found
}

/// A docker-registry with user and password. It ends with this value.
struct Peer {
    child: Child,
    address: String,
    dir: tempfile::TempDir,
    skopeo: PathBuf,
}

impl Peer {
    fn start() -> Option<Self> {
        let (registry, skopeo) = (find("docker-registry")?, find("skopeo")?);
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().display();
        std::fs::write(dir.path().join("htpasswd"), HTPASSWD).expect("written");
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {root}/data\nhttp:\n  addr: 127.0.0.1:0\n\
             auth:\n  htpasswd:\n    realm: test\n    path: {root}/htpasswd\n"
        );
        std::fs::write(dir.path().join("config.yml"), config).expect("written");
        let child = Command::new(registry)
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry runs");
        let mut peer = Self { child, address: String::new(), dir, skopeo };
        let mut lines = BufReader::new(peer.child.stderr.take().expect("piped")).lines();
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split(['"', ' ', ',']).next().unwrap_or(rest).to_owned())
        });
        peer.address = said.expect("it says where it listens");
        // It goes on speaking, and must not wait for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Some(peer)
    }

    fn skopeo(&self, layout: &Path, name: &str, more: &[&str]) {
        let output = Command::new(&self.skopeo)
            .args(["--insecure-policy", "copy", "--dest-tls-verify=false", "--dest-creds", "user:hunter2"])
            .args(more)
            .arg(format!("oci:{}:latest", layout.display()))
            .arg(format!("docker://{}/{name}", self.address))
            .output()
            .expect("skopeo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is our own child, and not waited for yet.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An OCI layout with one image of one layer; the layer's bytes and the manifest's digest.
fn layout(dir: &Path) -> (Vec<u8>, Digest) {
    let files = dir.join("files");
    std::fs::create_dir_all(&files).expect("made");
    std::fs::write(files.join("data"), Content::bytes(3_000_000, 5)).expect("written");
    let tar = |flags: &str| {
        let output =
            Command::new("tar").args([flags, "-", "-C"]).arg(&files).arg(".").output().expect("tar runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let layer = tar("-czf");
    let diff_id = Digest::of(&tar("-cf"));
    let blobs = dir.join("layout/blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("made");
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).expect("written");
        format!(r#""digest":"{digest}","size":{}"#, bytes.len())
    };
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"mediaType":"{}",{}}},"layers":[{{"mediaType":"{}+gzip",{}}}]}}"#,
        media::OCI_MANIFEST,
        media::OCI_CONFIG,
        put(config.as_bytes()),
        media::OCI_LAYER,
        put(&layer)
    );
    let entry = put(manifest.as_bytes());
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{}",{entry},"annotations":{{"org.opencontainers.image.ref.name":"latest"}}}}]}}"#,
        media::OCI_MANIFEST
    );
    std::fs::write(dir.join("layout/index.json"), index).expect("written");
    std::fs::write(dir.join("layout/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    (layer, Digest::of(manifest.as_bytes()))
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
    let Some(peer) = Peer::start() else { return };
    let (layer, digest) = layout(peer.dir.path());
    peer.skopeo(&peer.dir.path().join("layout"), "team/app:v1", &["--preserve-digests"]);
    let name = format!("{}/team/app:v1", peer.address);
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
    let Some(peer) = Peer::start() else { return };
    layout(peer.dir.path());
    peer.skopeo(&peer.dir.path().join("layout"), "docker/app:v2s2", &["--format", "v2s2"]);
    let ask = async |name: &str, credentials| {
        let (repository, _) = open(settings(), &format!("{}/{name}", peer.address), credentials).await;
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
