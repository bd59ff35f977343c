//! Images on real parts: from a registry, and from and to archives that others make and read, to containers that run.

mod archives;
mod disks;
mod pulls;
mod registries;
mod running;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};

use mainstay::{
    Config, ContainerSpec, ImageId, ImageName, ImageRoot, ImageSettings, LogOptions, PullSpec, Rootfs,
    Runtime,
};
use mainstay_integration_tests::{World, wait};

/// Configuration without what the machine has set for its own registries.
fn config(world: &World) -> Config {
    let images = ImageSettings {
        certs_dirs: Vec::new(),
        docker_config: Some("/nonexistent/config.json".into()),
        ..ImageSettings::default()
    };
    Config { images, ..world.config() }
}

async fn start(world: &World) -> Runtime {
    Runtime::start(config(world)).await.expect("the runtime starts")
}

fn named(name: &str) -> ImageName {
    name.parse().expect("a name")
}

async fn pull(runtime: &Runtime, name: &str) -> ImageId {
    let mut pull = runtime.pull_image(PullSpec::new(named(name)));
    wait::finish("an image is pulled", pull.image()).await.expect("pulled")
}

fn spec(name: &str, image: &str, command: &[&str]) -> ContainerSpec {
    let root = ImageRoot { image: named(image), entrypoint: None };
    let command = command.iter().map(|word| (*word).to_owned());
    ContainerSpec {
        rootfs: Rootfs::Image(root),
        ..ContainerSpec::new(name.parse().expect("a name"), command)
    }
}

/// All that a container has written.
async fn output(runtime: &Runtime, container: &mainstay::ContainerId) -> String {
    let mut logs = runtime.logs(container, LogOptions::default()).await.expect("logs");
    let mut text = Vec::new();
    while let Some(record) = wait::finish("a log is read", logs.next()).await.expect("readable") {
        text.extend(record.bytes);
        text.push(b'\n');
    }
    String::from_utf8(text).expect("text")
}

fn layers(runtime: &Runtime) -> Vec<PathBuf> {
    let directory = runtime.config().root_dir.join("images/layers");
    fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path()).collect()
}

/// Random enough not to shrink.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..bytes / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect()
}
