//! Debian's docker-registry on this machine, filled by skopeo: a registry and a client that we did not write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::peer;

/// `user:hunter2`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";
/// The same for skopeo.
const CREDENTIALS: &str = "user:hunter2";

/// Whom a registry lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guests {
    /// Everyone.
    Everyone,
    /// The user `user` with the password `hunter2`.
    User,
}

/// A registry with the tool to fill it. It ends with this value.
#[derive(Debug)]
pub struct DockerRegistry {
    child: Child,
    address: String,
    directory: TempDir,
    guests: Guests,
    skopeo: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
}

impl DockerRegistry {
    /// Starts one; none where a program is missing, and then that was said.
    pub fn start(guests: Guests) -> Option<Self> {
        let program = peer::find("docker-registry", "docker-registry")?;
        let skopeo = peer::find("skopeo", "skopeo")?;
        let directory = tempfile::tempdir().expect("a directory");
        let (file, root) = (directory.path().join("config.yml"), directory.path().display());
        fs::write(directory.path().join("htpasswd"), HTPASSWD).expect("written");
        let auth = match guests {
            Guests::Everyone => String::new(),
            Guests::User => format!("auth:\n  htpasswd:\n    realm: test\n    path: {root}/htpasswd\n"),
        };
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {root}/data\nhttp:\n  addr: 127.0.0.1:0\n{auth}"
        );
        fs::write(&file, config).expect("written");
        let child = Command::new(program)
            .arg("serve")
            .arg(file)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry runs");
        let (address, requests) = (String::new(), Arc::default());
        let mut registry = Self { child, address, directory, guests, skopeo, requests };
        registry.listen();
        Some(registry)
    }

    /// Learns its address, and goes on listening to it: it must not wait for a reader.
    fn listen(&mut self) {
        let mut lines = BufReader::new(self.child.stderr.take().expect("piped")).lines();
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split(['"', ' ', ',']).next().unwrap_or(rest).to_owned())
        });
        self.address = said.expect("it says where it listens");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let log = BufReader::new(self.child.stdout.take().expect("piped"));
        let kept = Arc::clone(&self.requests);
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                kept.lock().expect("no panic").push(line);
            }
        });
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A name in it.
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// The directory of its files, and of others that end with it.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// GETs of blobs of which the registry has told so far. It tells of one a little after its answer: whoever counts waits for
    /// those that there must be.
    pub fn blobs_fetched(&self) -> usize {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|line| line.contains("\"GET ") && line.contains("/blobs/")).count()
    }

    /// Gives a name in it to an image, which is in a place that skopeo knows, such as `oci:DIRECTORY:TAG`.
    pub fn push(&self, from: &str, name: &str, options: &[&str]) {
        let mut all = vec!["--dest-tls-verify=false"];
        if self.guests == Guests::User {
            all.extend(["--dest-creds", CREDENTIALS]);
        }
        all.extend(options);
        self.copy(&all, from, &format!("docker://{}", self.name(name)));
    }

    /// `skopeo copy`
    pub fn copy(&self, options: &[&str], from: &str, to: &str) {
        run(Command::new(&self.skopeo).args(["--insecure-policy", "copy"]).args(options).args([from, to]));
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        // It is our own child, and not waited for yet.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, which must be a good one.
pub fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
