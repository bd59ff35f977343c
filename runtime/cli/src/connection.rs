//! Where the daemon is. It never starts one.

use std::path::{Path, PathBuf};

use mainstay::config::CONFIG_PATH_DEFAULT;
use mainstay::{Config, ImageSettings};
use mainstay_admin::Client;
use mainstay_messages::Error;

use crate::arguments::{Format, GlobalArguments};
use crate::failure::Result;

/// What every command works with.
#[derive(Debug)]
pub struct Context {
    global: GlobalArguments,
}

impl Context {
    /// The context of one command line.
    pub fn new(global: GlobalArguments) -> Self {
        Self { global }
    }

    /// How results are shown.
    pub fn format(&self) -> Format {
        self.global.format()
    }

    /// The configuration file that was named, or the usual one if it is there.
    pub fn config_path(&self) -> Option<PathBuf> {
        self.global.config.clone().or_else(|| {
            let usual = Path::new(CONFIG_PATH_DEFAULT);
            usual.exists().then(|| usual.to_path_buf())
        })
    }

    /// The configuration, with the socket that was named.
    pub fn config(&self) -> Result<Config> {
        let mut config = match self.config_path() {
            Some(path) => Config::load(&path)?,
            None => Config::default(),
        };
        if let Some(socket) = &self.global.socket {
            config.admin_socket = absolute(socket);
        }
        Ok(config)
    }

    /// Images as the daemon of the configuration has them, in its directory.
    pub fn image_settings(&self) -> Result<ImageSettings> {
        let Config { images, root_dir, .. } = self.config()?;
        Ok(ImageSettings { directory: Some(images.directory_in(&root_dir)), ..images })
    }

    /// The socket of the daemon: the one that was named, or that of the configuration.
    pub fn socket(&self) -> Result<PathBuf> {
        match &self.global.socket {
            Some(socket) => Ok(socket.clone()),
            None => Ok(self.config()?.admin_socket),
        }
    }

    /// Connects to the daemon.
    pub async fn daemon(&self) -> Result<Client> {
        Ok(Client::connect(self.socket()?).await?)
    }

    /// Connects to the daemon if one answers. One that does not let us in is an error.
    pub async fn daemon_if_any(&self) -> Result<Option<Client>> {
        match Client::connect(self.socket()?).await {
            Ok(client) => Ok(Some(client)),
            Err(Error::Unavailable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The whole path of what somebody typed, without `..` where it is there.
pub fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}
