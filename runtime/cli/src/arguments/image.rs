//! The flags of the commands on images.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mainstay_messages::image::{Credentials, ImageName};

/// Of `pull`.
#[derive(Debug, Args)]
pub struct PullArguments {
    /// The platform, as in linux/arm64; this machine's when not given
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// Who asks: a user and its password or token; those of the daemon's credential file when not given
    #[arg(long, value_name = "USER:PASSWORD", value_parser = credentials, env = "MAINSTAY_CREDENTIALS", hide_env_values = true)]
    pub creds: Option<Credentials>,
    /// Print the ids alone
    #[arg(short, long)]
    pub quiet: bool,
    /// The images
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<ImageName>,
}

/// Of `images`.
#[derive(Debug, Args)]
pub struct ListImagesArguments {
    /// Print the ids alone, whole
    #[arg(short, long)]
    pub quiet: bool,
}

/// Of commands on one or more images.
#[derive(Debug, Args)]
pub struct Images {
    /// Names, ids, or the beginnings of ids
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<ImageName>,
}

/// A command on images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Take images from an archive: OCI or Docker, or a directory in OCI layout
    Import(ImportArguments),
    /// Write images to an OCI archive
    Export(ExportArguments),
    /// Show all that is known of images
    Inspect(Images),
    /// Read images against their digests; what is damaged is put out of use, and a pull brings it again
    Verify {
        /// The images; all when not given
        #[arg(value_name = "IMAGE")]
        images: Vec<ImageName>,
    },
    /// Give back the room of what no image and no container needs
    Gc,
}

/// Of `image import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The name of an image that has none in the archive
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// The archive, or the directory of an OCI layout; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Of `image export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The archive to write; standard output when not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The images.
    #[command(flatten)]
    pub images: Images,
}

fn credentials(text: &str) -> Result<Credentials, String> {
    match text.split_once(':') {
        Some((user, password)) if !user.is_empty() => {
            Ok(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
        }
        _ => Err("expected USER:PASSWORD".to_owned()),
    }
}
