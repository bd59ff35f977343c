//! Debian's docker-registry on this machine, and images that umoci makes of busybox: parts that we did not write.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peer;
use mainstay_images_testing::docker_registry::{DockerRegistry, Guests, run};

/// Programs of busybox that the scripts of tests use.
const APPLETS: [&str; 10] = ["sh", "cat", "id", "env", "sleep", "echo", "pwd", "stat", "ls", "mkdir"];

/// A registry with the tools to fill it. It ends with this value.
#[derive(Debug)]
pub struct Registry {
    registry: DockerRegistry,
    umoci: PathBuf,
}

impl Deref for Registry {
    type Target = DockerRegistry;

    fn deref(&self) -> &DockerRegistry {
        &self.registry
    }
}

impl Registry {
    /// Starts one; none where a program is missing, and then that was said.
    pub fn start() -> Option<Self> {
        Self::for_guests(Guests::Everyone)
    }

    /// Starts one that lets these in.
    pub fn for_guests(guests: Guests) -> Option<Self> {
        let umoci = peer::find("umoci", "umoci")?;
        peer::find("busybox", "busybox-static")?;
        Some(Self { registry: DockerRegistry::start(guests)?, umoci })
    }

    /// The layout that images are made in.
    pub fn layout(&self) -> PathBuf {
        self.path().join("layout")
    }

    /// Makes an image of busybox with these files and this configuration, and gives it a tag here and a name in the registry.
    pub fn make(&self, tag: &str, files: &[(&str, &[u8])], config: &[&str]) -> String {
        let layer = |root: &Path| {
            files.iter().for_each(|(name, bytes)| {
                fs::create_dir_all(root.join("data")).expect("made");
                fs::write(root.join("data").join(name), bytes).expect("written");
            })
        };
        self.make_with(tag, config, if files.is_empty() { None } else { Some(&layer) })
    }

    /// The same, with a layer that a function makes in a directory.
    pub fn make_with(&self, tag: &str, config: &[&str], layer: Option<&dyn Fn(&Path)>) -> String {
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
        if let Some(fill) = layer {
            let more = self.path().join(format!("more-{tag}"));
            fs::create_dir(&more).expect("made");
            fill(&more);
            run(Command::new(&self.umoci).args(["insert", "--image", &image]).arg(&more).arg("/"));
        }
        run(Command::new(&self.umoci).args(["config", "--image", &image]).args(config));
        self.publish(tag, &image)
    }

    /// Makes an image without any layer, and gives it a name in the registry.
    pub fn make_empty(&self, tag: &str) -> String {
        let image = self.begin(tag);
        self.publish(tag, &image)
    }

    fn begin(&self, tag: &str) -> String {
        if !self.layout().exists() {
            run(Command::new(&self.umoci).arg("init").arg("--layout").arg(self.layout()));
        }
        let image = format!("{}:{tag}", self.layout().display());
        run(Command::new(&self.umoci).args(["new", "--image", &image]));
        image
    }

    fn publish(&self, tag: &str, image: &str) -> String {
        let name = format!("made:{tag}");
        self.push(&format!("oci:{image}"), &name, &[]);
        self.name(&name)
    }
}
