//! Debian's docker-registry on this machine, and images that umoci makes of busybox: parts that we did not write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use mainstay_integration_tests::peer;
use tempfile::TempDir;

/// Programs of busybox that the scripts of tests use.
const APPLETS: [&str; 9] = ["sh", "cat", "id", "env", "sleep", "echo", "pwd", "stat", "ls"];

/// A registry with the tools to fill it. It ends with this value.
pub struct Registry {
    child: Child,
    address: String,
    directory: TempDir,
    skopeo: PathBuf,
    umoci: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    /// Starts one; none where a program is missing, and then that was said.
    pub fn start() -> Option<Self> {
        let program = peer::find("docker-registry", "docker-registry")?;
        let (skopeo, umoci) = (peer::find("skopeo", "skopeo")?, peer::find("umoci", "umoci")?);
        peer::find("busybox", "busybox-static")?;
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.yml");
        let data = directory.path().join("data");
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            data.display()
        );
        fs::write(&file, config).expect("written");
        let mut child = Command::new(program)
            .arg("serve")
            .arg(file)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split(['"', ' ', ',']).next().unwrap_or(rest).to_owned())
        });
        // It goes on speaking, and must not wait for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (log, kept) = (BufReader::new(child.stdout.take().expect("piped")), Arc::clone(&requests));
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                kept.lock().expect("no panic").push(line);
            }
        });
        let address = said.expect("it says where it listens");
        Some(Self { child, address, directory, skopeo, umoci, requests })
    }

    /// A name in it.
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// GETs of blobs so far, once the registry has told of all that it had told a moment ago.
    pub fn blobs_fetched(&self) -> usize {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|line| line.contains("\"GET ") && line.contains("/blobs/")).count()
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The layout that images are made in.
    pub fn layout(&self) -> PathBuf {
        self.path().join("layout")
    }

    /// Makes an image of busybox with these files and this configuration, and gives it a tag here and a name in the registry.
    pub fn make(&self, tag: &str, files: &[(&str, &[u8])], config: &[&str]) -> String {
        let image = self.begin(tag);
        let root = self.path().join(format!("root-{tag}"));
        for directory in ["bin", "etc", "tmp", "srv"] {
            fs::create_dir_all(root.join(directory)).expect("made");
        }
        let busybox = peer::find("busybox", "busybox-static").expect("found before");
        fs::copy(busybox, root.join("bin/busybox")).expect("copied");
        APPLETS.iter().for_each(|name| symlink("busybox", root.join("bin").join(name)).expect("made"));
        let users = "root:x:0:0::/:/bin/sh\napp:x:1234:1235::/srv:/bin/sh\n";
        fs::write(root.join("etc/passwd"), users).expect("written");
        fs::write(root.join("etc/group"), "root:x:0:\napp:x:1235:\n").expect("written");
        run(Command::new(&self.umoci).args(["insert", "--image", &image]).arg(&root).arg("/"));
        if !files.is_empty() {
            let more = self.path().join(format!("more-{tag}"));
            fs::create_dir(&more).expect("made");
            files.iter().for_each(|(name, bytes)| fs::write(more.join(name), bytes).expect("written"));
            run(Command::new(&self.umoci).args(["insert", "--image", &image]).arg(&more).arg("/data"));
        }
        run(Command::new(&self.umoci).args(["config", "--image", &image]).args(config));
        self.push(tag, &image)
    }

    /// Makes an image without any layer, and gives it a name in the registry.
    pub fn make_empty(&self, tag: &str) -> String {
        let image = self.begin(tag);
        self.push(tag, &image)
    }

    fn begin(&self, tag: &str) -> String {
        if !self.layout().exists() {
            run(Command::new(&self.umoci).arg("init").arg("--layout").arg(self.layout()));
        }
        let image = format!("{}:{tag}", self.layout().display());
        run(Command::new(&self.umoci).args(["new", "--image", &image]));
        image
    }

    fn push(&self, tag: &str, image: &str) -> String {
        let name = self.name(&format!("made:{tag}"));
        self.copy(&["--dest-tls-verify=false"], &format!("oci:{image}"), &format!("docker://{name}"));
        name
    }

    /// `skopeo copy`
    pub fn copy(&self, options: &[&str], from: &str, to: &str) {
        run(Command::new(&self.skopeo).args(["--insecure-policy", "copy"]).args(options).args([from, to]));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
