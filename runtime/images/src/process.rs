//! What an image runs, with what the caller wants instead. Pure: the caller turns it into a process.
//!
//! Docker's rules: an entrypoint of the caller's drops the image's command; a command replaces the image's command and
//! goes behind the entrypoint. Variables of the caller win over those of the image. User names are looked up in the
//! container's own files by whoever starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mainstay_oci_image::ImageConfig;

use crate::error::ImagesError;

/// The longest text of a configuration that an error repeats, in characters.
const SHOWN_LENGTH_MAX: usize = 80;

/// What the caller wants instead of what the image says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Instead of the image's entrypoint. An empty list takes it away.
    pub entrypoint: Option<Vec<String>>,
    /// Instead of the image's command.
    pub command: Option<Vec<String>>,
    /// Variables beside, or instead of, those of the image.
    pub env: BTreeMap<String, String>,
    /// Instead of the image's working directory.
    pub workdir: Option<PathBuf>,
    /// Instead of the image's user.
    pub user: Option<String>,
    /// Instead of the image's stop signal, a name or a number.
    pub stop_signal: Option<String>,
}

/// What is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageProcess {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute; none where neither says.
    pub workdir: Option<PathBuf>,
    /// `USER[:GROUP]`, names or numbers; none where neither says.
    pub user: Option<String>,
    /// A signal's name or number; none where neither says.
    pub stop_signal: Option<String>,
    /// Absolute paths whose contents should outlive a container.
    pub volumes: BTreeSet<PathBuf>,
}

impl ImageProcess {
    /// Puts an image's configuration and a caller's wishes together.
    pub fn resolve(config: &ImageConfig, overrides: &Overrides) -> Result<Self, ImagesError> {
        let image = &config.config;
        let entrypoint = overrides.entrypoint.as_ref().unwrap_or(&image.entrypoint);
        let arguments = match (&overrides.command, &overrides.entrypoint) {
            (Some(command), _) => command.as_slice(),
            (None, Some(_)) => &[],
            (None, None) => image.cmd.as_slice(),
        };
        let command: Vec<String> = entrypoint.iter().chain(arguments).cloned().collect();
        match command.first() {
            None => {
                return Err(fault(
                    "Cmd",
                    "",
                    "neither the image nor the caller says what to run; name a command",
                ));
            }
            Some(program) if program.is_empty() => {
                return Err(fault("Entrypoint", "", "the name of the program must not be empty"));
            }
            Some(_) => {}
        }
        let mut env = BTreeMap::new();
        for variable in &image.env {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            if name.is_empty() || variable.contains('\0') {
                return Err(fault("Env", variable, "it should be NAME=VALUE"));
            }
            env.insert(name.to_owned(), value.to_owned());
        }
        env.extend(overrides.env.clone());
        let workdir = match &overrides.workdir {
            Some(workdir) => Some(workdir.clone()),
            None if image.working_dir.is_empty() => None,
            None => Some(absolute("WorkingDir", &image.working_dir)?),
        };
        let volumes = image
            .volumes
            .iter()
            .map(|volume| match absolute("Volumes", volume)? {
                root if root.as_os_str() == "/" => {
                    Err(fault("Volumes", volume, "a volume must not be the root"))
                }
                path => Ok(path),
            })
            .collect::<Result<_, _>>()?;
        let user =
            overrides.user.clone().or_else(|| Some(image.user.clone()).filter(|user| !user.is_empty()));
        let stop_signal =
            overrides.stop_signal.clone().or_else(|| image.stop_signal.clone()).filter(|s| !s.is_empty());
        Ok(Self { command, env, workdir, user, stop_signal, volumes })
    }
}

/// A path of the image from its root. What leads above the root stays at the root; links are for whoever opens it.
fn absolute(field: &'static str, text: &str) -> Result<PathBuf, ImagesError> {
    if text.contains('\0') || text.len() >= 4096 {
        return Err(fault(field, text, "it should be a path of at most 4,095 bytes without a zero byte"));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Ok(PathBuf::from(format!("/{}", names.join("/"))))
}

fn fault(field: &'static str, value: &str, expected: &'static str) -> ImagesError {
    ImagesError::Configuration { field, value: value.chars().take(SHOWN_LENGTH_MAX).collect(), expected }
}

#[cfg(test)]
mod tests;
