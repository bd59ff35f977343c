//! Debian's docker-registry, filled by skopeo: a registry and a client that we did not write.

mod world;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mainstay_oci_image::{Digest, media};
use tempfile::TempDir;

use world::content::Content;
use world::{World, finish};

/// Set (to anything) where a missing program is a failure and not a reason to skip.
const REQUIRE_PEERS: &str = "MAINSTAY_TEST_REQUIRE_PEERS";

/// A docker-registry. It ends with this value.
struct Peer {
    child: Child,
    address: String,
    dir: TempDir,
    skopeo: PathBuf,
}

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

impl Peer {
    fn start() -> Option<Self> {
        let (registry, skopeo) = (find("docker-registry")?, find("skopeo")?);
        let dir = tempfile::tempdir().expect("a directory");
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}/data\nhttp:\n  addr: 127.0.0.1:0\n",
            dir.path().display()
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

    /// Fills a name from the layout below the directory of this peer.
    fn fill(&self, name: &str) {
        let output = Command::new(&self.skopeo)
            .args(["--insecure-policy", "copy", "--dest-tls-verify=false"])
            .arg(format!("oci:{}:latest", self.dir.path().join("layout").display()))
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

fn tar(flags: &str, files: &Path) -> Vec<u8> {
    let output = Command::new("tar").args([flags, "-", "-C"]).arg(files).arg(".").output().expect("tar runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// An OCI layout with one image of one compressed layer, which has one file; that file's bytes.
fn layout(dir: &Path) -> Vec<u8> {
    let (files, data) = (dir.join("files"), Content::bytes(3_000_000, 5));
    std::fs::create_dir_all(&files).expect("made");
    std::fs::write(files.join("data"), &data).expect("written");
    let blobs = dir.join("layout/blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("made");
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).expect("written");
        serde_json::json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let diff_id = Digest::of(&tar("-cf", &files));
    let config = serde_json::json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media::OCI_MANIFEST,
        "config": put(media::OCI_CONFIG, config.to_string().as_bytes()),
        "layers": [put(&format!("{}+gzip", media::OCI_LAYER), &tar("-czf", &files))],
    });
    let mut entry = put(media::OCI_MANIFEST, manifest.to_string().as_bytes());
    entry["annotations"] = serde_json::json!({"org.opencontainers.image.ref.name": "latest"});
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [entry]});
    std::fs::write(dir.join("layout/index.json"), index.to_string()).expect("written");
    std::fs::write(dir.join("layout/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    data
}

#[actix::test]
async fn an_image_of_a_real_registry_is_pulled_by_many_at_once_and_is_what_was_put_in() {
    let Some(peer) = Peer::start() else { return };
    let data = layout(peer.dir.path());
    peer.fill("team/app:v1");
    let world = World::at(&peer.dir.path().join("images"));
    let name = format!("{}/team/app:v1", peer.address);
    let mut pulls: Vec<_> = (0..10).map(|_| world.pull(&name)).collect();
    for pull in &mut pulls {
        finish("it is pulled", pull.image()).await.expect("the image");
    }
    assert_eq!(world.core.counters.pulls_started.get(), 1);
    let plan = world.images.lease("a-test", &name).expect("its layers");
    assert!(std::fs::read(plan.lower[0].join("data")).expect("the file") == data);
    // The same again under another tag: no blob comes twice, and both names are there.
    peer.fill("team/app:v2");
    let again = format!("{}/team/app:v2", peer.address);
    finish("it is here", world.pull(&again).image()).await.expect("the image");
    let mut listed = world.listed();
    listed.sort();
    assert_eq!(listed, [name, again]);
}
