//! The root of a container that is made of an image, and what the image says where the caller says nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ContainerSpec, ImageMount, LayeredMount, Mount, MountSource, Rootfs, volumes};
use crate::error::{Error, Result};
use crate::image::{Image, ImageId, ImageName};

/// An image as the root of a container, as a caller asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRoot {
    /// The image: a name, or the id of one that is here.
    pub image: ImageName,
    /// What stands before the command instead of the image's entrypoint; the image's own command is not used then.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
}

/// An image as the root of a container, as the runtime writes it down: an image that is kept as long as the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayeredRoot {
    /// The image.
    pub image: ImageId,
    /// Its unpacked layers, the uppermost first.
    pub layers: Vec<PathBuf>,
    /// Where the container has a directory of its own, filled with what the image has there. Outer ones come first.
    #[serde(default)]
    pub volumes: Vec<PathBuf>,
}

impl Rootfs {
    /// Where the container has a directory of its own, filled with what its image has there.
    pub fn volumes(&self) -> &[PathBuf] {
        match self {
            Self::Layers(root) => &root.volumes,
            Self::Image(_) | Self::Host | Self::Directory { .. } | Self::CopyOnWrite { .. } => &[],
        }
    }
}

impl ContainerSpec {
    /// The image that it asks for, if it asks for one.
    pub fn image(&self) -> Option<&ImageRoot> {
        match &self.rootfs {
            Rootfs::Image(root) => Some(root),
            Rootfs::Layers(_) | Rootfs::Host | Rootfs::Directory { .. } | Rootfs::CopyOnWrite { .. } => None,
        }
    }

    /// The images that are to be mounted into it, each with the place of its mount in the list.
    pub fn mounted_images(&self) -> impl Iterator<Item = (usize, &ImageName)> {
        self.mounts.iter().enumerate().filter_map(|(index, mount)| match &mount.source {
            MountSource::Image(ImageMount { image, .. }) => Some((index, image)),
            MountSource::Layers(_) | MountSource::Bind { .. } | MountSource::Tmpfs { .. } => None,
        })
    }

    /// The container with the layers of an image in one of its mounts that asks for an image. Others stay as they are.
    #[must_use]
    pub fn with_mounted_image(mut self, index: usize, image: ImageId, layers: Vec<PathBuf>) -> Self {
        if let Some(mount) = self.mounts.get_mut(index)
            && let MountSource::Image(ImageMount { sub_path, .. }) = &mut mount.source
        {
            let sub_path = sub_path.take();
            mount.source = MountSource::Layers(LayeredMount { image, layers, sub_path });
        }
        self
    }

    /// The images that it stands on, its root's and those that are mounted, once the runtime has found them.
    pub fn stands_on(&self) -> impl Iterator<Item = &ImageId> {
        self.rootfs.stands_on().into_iter().chain(self.mounts.iter().filter_map(Mount::stands_on))
    }

    /// The container with what `image` says where the caller has said nothing, on the image's layers. One that asks for
    /// no image stays as it is.
    ///
    /// The command is made as `docker run` makes it: entrypoint, then the caller's command, or the image's own where
    /// the caller gave neither a command nor an entrypoint.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when nothing says what to run, or when the image has a stop signal or a volume that is none.
    pub fn on_image(mut self, image: &Image, layers: Vec<PathBuf>) -> Result<Self> {
        let Rootfs::Image(root) = self.rootfs else { return Ok(self) };
        let run = &image.run;
        let own_command = root.entrypoint.is_none() && self.process.command.is_empty();
        let mut command = root.entrypoint.unwrap_or_else(|| run.entrypoint.clone());
        command.append(&mut self.process.command);
        if own_command {
            command.extend(run.command.iter().cloned());
        }
        if command.is_empty() {
            let expected =
                format!("a program: the image {} has neither an entrypoint nor a command", root.image);
            return Err(Error::invalid("command", "[]", expected));
        }
        self.process.command = command;
        let mut env: BTreeMap<_, _> = run.environment.iter().filter_map(|variable| split(variable)).collect();
        env.append(&mut self.process.env);
        self.process.env = env;
        if self.process.workdir.is_none() && !run.working_directory.is_empty() {
            self.process.workdir = Some(volumes::absolute("workdir", &run.working_directory)?);
        }
        if self.process.user.is_none() && !run.user.is_empty() {
            self.process.user = Some(run.user.clone());
        }
        if self.stop_signal.is_none()
            && let Some(signal) = &run.stop_signal
        {
            let wrong = |_| {
                let expected = "a signal; give one, since the image has none that is known".to_owned();
                Error::invalid("stop_signal", format!("{signal:?}"), expected)
            };
            self.stop_signal = Some(signal.parse().map_err(wrong)?);
        }
        let volumes = volumes::of(&run.volumes, &self.mounts)?;
        self.rootfs = Rootfs::Layers(LayeredRoot { image: image.id.clone(), layers, volumes });
        Ok(self)
    }
}

/// `KEY=VALUE`; a key alone has no value, and nothing before the `=` is no variable.
fn split(variable: &str) -> Option<(String, String)> {
    let (key, value) = variable.split_once('=').unwrap_or((variable, ""));
    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::image::ImageRun;
    use crate::time::Timestamp;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn image(run: ImageRun) -> Image {
        Image {
            id: ImageId("sha256:1".into()),
            tags: Vec::new(),
            digests: Vec::new(),
            platform: "linux/amd64".into(),
            created_at: None,
            pulled_at: Timestamp(1),
            blob_bytes: 1,
            unpacked_bytes: 1,
            layers: Vec::new(),
            run,
        }
    }

    fn spec(entrypoint: Option<&str>, command: &str) -> ContainerSpec {
        let root = ImageRoot { image: "box".parse().expect("a name"), entrypoint: entrypoint.map(words) };
        ContainerSpec {
            rootfs: Rootfs::Image(root),
            ..ContainerSpec::new("c".parse().expect("a name"), words(command))
        }
    }

    /// The table of "Understand how CMD and ENTRYPOINT interact", and what an override of the entrypoint does.
    #[rstest]
    #[case("", "sh", None, "", "sh")]
    #[case("", "sh", None, "ls -l", "ls -l")]
    #[case("init", "sh", None, "", "init sh")]
    #[case("init", "sh", None, "ls", "init ls")]
    #[case("init", "sh", Some("other -x"), "", "other -x")]
    #[case("init", "sh", Some("other"), "ls", "other ls")]
    #[case("init", "sh", Some(""), "ls", "ls")]
    fn commands(
        #[case] entrypoint: &str,
        #[case] command: &str,
        #[case] entrypoint_given: Option<&str>,
        #[case] command_given: &str,
        #[case] expected: &str,
    ) {
        let image =
            image(ImageRun { entrypoint: words(entrypoint), command: words(command), ..ImageRun::default() });
        let made = spec(entrypoint_given, command_given).on_image(&image, vec!["/l".into()]).expect("good");
        assert_eq!(made.process.command, words(expected));
        let root = LayeredRoot { image: image.id.clone(), layers: vec!["/l".into()], volumes: Vec::new() };
        assert_eq!(made.rootfs, Rootfs::Layers(root));
    }

    #[test]
    fn nothing_to_run_is_said() {
        let error =
            spec(None, "").on_image(&image(ImageRun::default()), Vec::new()).expect_err("nothing to run");
        assert!(error.to_string().contains("the image box has neither"), "{error}");
    }

    #[test]
    fn the_caller_is_heard_before_the_image() {
        let run = ImageRun {
            entrypoint: words("init"),
            environment: ["A=1", "B=x=y", "C", "=no"].map(str::to_owned).into(),
            user: "app:staff".into(),
            working_directory: "../srv/x/..".into(),
            volumes: ["/data", "/tmp/../given"].map(str::to_owned).into(),
            stop_signal: Some("SIGQUIT".into()),
            ..ImageRun::default()
        };
        let made = spec(None, "").on_image(&image(run.clone()), Vec::new()).expect("good");
        assert_eq!(made.process.user.as_deref(), Some("app:staff"));
        assert_eq!(made.process.workdir.as_deref(), Some(Path::new("/srv")));
        assert_eq!(made.stop_signal, Some("QUIT".parse().expect("a signal")));
        assert_eq!(made.rootfs.volumes(), [Path::new("/data"), Path::new("/given")]);
        let mut given = spec(None, "");
        given.mounts.push(super::super::Mount::bind("/srv", "/given", super::super::Access::ReadWrite));
        given.process.user = Some("0".into());
        given.process.workdir = Some("/tmp".into());
        given.process.env = BTreeMap::from([("A".to_owned(), "2".to_owned())]);
        given.stop_signal = Some("INT".parse().expect("a signal"));
        let made = given.on_image(&image(run), Vec::new()).expect("good");
        let env: Vec<_> =
            made.process.env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(env, [("A", "2"), ("B", "x=y"), ("C", "")]);
        assert_eq!(made.rootfs.volumes(), [Path::new("/data")]);
        assert_eq!(made.process.user.as_deref(), Some("0"));
        assert_eq!(made.process.workdir.as_deref(), Some(Path::new("/tmp")));
        assert_eq!(made.stop_signal, Some("INT".parse().expect("a signal")));
    }

    #[test]
    fn a_stop_signal_that_is_none_is_named() {
        let run = ImageRun {
            entrypoint: words("init"),
            stop_signal: Some("SIGNOPE".into()),
            ..ImageRun::default()
        };
        let error = spec(None, "").on_image(&image(run), Vec::new()).expect_err("no signal").to_string();
        assert!(error.starts_with("stop_signal: \"SIGNOPE\""), "{error}");
    }
}
