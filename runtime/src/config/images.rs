//! The section `[images]` of the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_actors::image::liveness::PULL_PROGRESS_TIMEOUT_DEFAULT_MS;
use mainstay_actors::image::{Floor, Patience};
use mainstay_image_pull::settings::{DOWNLOADS_MAX_DEFAULT, UNPACKS_MAX_DEFAULT};
use mainstay_images::Limits;
use serde::{Deserialize, Serialize};

/// The directory of images in the root directory, when no other one is set.
pub const IMAGES_DIRECTORY: &str = "images";
/// The window in which the least has to come that a pull must bring, when such a floor is set, in milliseconds.
pub const PULL_FLOOR_WINDOW_DEFAULT_MS: u64 = 60_000;
/// The time from one collection of what no image needs to the next, in milliseconds.
pub const GC_INTERVAL_DEFAULT_MS: u64 = 3_600_000;
/// Keys whose 0 means that there is no such limit.
pub(super) const ZERO_IS_OFF: [&str; 3] = ["pull_progress_timeout_ms", "pull_floor_bytes", "gc_interval_ms"];

/// Where images are, how they are pulled, and what is taken of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageSettings {
    /// Where images are kept; [`IMAGES_DIRECTORY`] in the root directory when not given. Runtimes may share it when
    /// all but one of them are private ones.
    pub directory: Option<PathBuf>,
    /// Docker's credential file; `.docker/config.json` in the home directory, or what `DOCKER_CONFIG` says, when not
    /// given.
    pub docker_config: Option<PathBuf>,
    /// Directories of hosts, as containerd has them (`HOST/hosts.toml`); the first that knows a host decides.
    pub certs_dirs: Vec<PathBuf>,
    /// The longest silence of a pull (P8); 0 is for ever: [`PULL_PROGRESS_TIMEOUT_DEFAULT_MS`].
    pub pull_progress_timeout_ms: u64,
    /// The least that a pull has to bring in each window, in bytes; 0 bears trickles.
    pub pull_floor_bytes: u64,
    /// That window: [`PULL_FLOOR_WINDOW_DEFAULT_MS`].
    pub pull_floor_window_ms: u64,
    /// Blobs that are fetched at the same time, over all pulls: [`DOWNLOADS_MAX_DEFAULT`].
    pub downloads_max: usize,
    /// Layers that are unpacked at the same time, over all pulls: [`UNPACKS_MAX_DEFAULT`].
    pub unpacks_max: usize,
    /// The time from one collection of what no image needs to the next; 0 collects on request, after a removal, and after a
    /// pull that found no room, alone: [`GC_INTERVAL_DEFAULT_MS`].
    pub gc_interval_ms: u64,
    /// The largest blob that is taken, in bytes: [`mainstay_images::BLOB_BYTES_MAX`].
    pub blob_bytes_max: u64,
    /// The most bytes of one layer, unpacked: [`mainstay_images::LAYER_BYTES_MAX`].
    pub layer_bytes_max: u64,
    /// The most entries of one layer: [`mainstay_images::LAYER_ENTRIES_MAX`].
    pub layer_entries_max: u64,
    /// The longest path of an entry, in bytes: [`mainstay_images::PATH_BYTES_MAX`].
    pub path_bytes_max: u64,
    /// The most directories above one another: [`mainstay_images::DEPTH_MAX`].
    pub depth_max: u64,
    /// How many bytes one compressed byte may become: [`mainstay_images::RATIO_MAX`].
    pub ratio_max: u64,
}

impl Default for ImageSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            directory: None,
            docker_config: None,
            certs_dirs: vec![mainstay_registry::settings::HOSTS_DIR.into()],
            pull_progress_timeout_ms: PULL_PROGRESS_TIMEOUT_DEFAULT_MS,
            pull_floor_bytes: 0,
            pull_floor_window_ms: PULL_FLOOR_WINDOW_DEFAULT_MS,
            downloads_max: DOWNLOADS_MAX_DEFAULT,
            unpacks_max: UNPACKS_MAX_DEFAULT,
            gc_interval_ms: GC_INTERVAL_DEFAULT_MS,
            blob_bytes_max: limits.blob_bytes_max,
            layer_bytes_max: limits.layer_bytes_max,
            layer_entries_max: limits.layer_entries_max,
            path_bytes_max: limits.path_bytes_max,
            depth_max: limits.depth_max,
            ratio_max: limits.ratio_max,
        }
    }
}

impl ImageSettings {
    /// Paths, with their keys.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let certs_dirs = self.certs_dirs.iter().map(|path| ("images.certs_dirs", path));
        let directory = self.directory.iter().map(|path| ("images.directory", path));
        let docker_config = self.docker_config.iter().map(|path| ("images.docker_config", path));
        directory.chain(docker_config).chain(certs_dirs)
    }

    /// Where images are kept.
    pub fn directory_in(&self, root_dir: &Path) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| root_dir.join(IMAGES_DIRECTORY))
    }

    pub(crate) fn patience(&self) -> Patience {
        let floor = Floor { bytes: self.pull_floor_bytes, window_ms: self.pull_floor_window_ms };
        let floor = Some(floor).filter(|floor| floor.bytes > 0);
        Patience { silence_ms: self.pull_progress_timeout_ms, floor }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            blob_bytes_max: self.blob_bytes_max,
            layer_bytes_max: self.layer_bytes_max,
            layer_entries_max: self.layer_entries_max,
            path_bytes_max: self.path_bytes_max,
            depth_max: self.depth_max,
            ratio_max: self.ratio_max,
        }
    }

    pub(crate) fn engine(&self) -> mainstay_image_pull::Settings {
        mainstay_image_pull::Settings {
            downloads_max: self.downloads_max,
            unpacks_max: self.unpacks_max,
            progress_timeout: Duration::from_millis(self.pull_progress_timeout_ms),
        }
    }

    pub(crate) fn registry(&self) -> mainstay_registry::Settings {
        let default = mainstay_registry::Settings::default();
        mainstay_registry::Settings {
            hosts_dirs: self.certs_dirs.clone(),
            docker_config: self.docker_config.clone().or(default.docker_config),
            ..default
        }
    }

    /// The section as a commented text.
    pub(super) fn text(&self) -> String {
        let directory = self.directory_in("/var/lib/mainstay".as_ref());
        format!(
            "# Images.\n\
             [images]\n\
             # Where they are kept: `images` in root_dir when not given. `mainstay run` without a daemon uses it too.\n\
             # directory = {directory:?}\n\
             # Docker's file of credentials, with its helpers: that of the daemon's user when not given.\n\
             # docker_config = \"/root/.docker/config.json\"\n\
             # Then: directories of hosts as containerd has them (HOST/hosts.toml); the longest silence of a pull\n\
             # (0 is for ever), and the least that it has to bring in a window (0 bears trickles); what is done at the\n\
             # same time; how often what no image needs is collected (0: on request, after `rmi`, and after a pull that\n\
             # found no room); and what is taken of a stranger's image.\n\
             {}",
            super::section(self)
        )
    }
}
