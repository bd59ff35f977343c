//! Plugins that are installed on the machine, and started by the runtime.
//!
//! Owns: finding them and their configuration ([`scan`], [`config_of`]), and their processes ([`PluginProcess`]): start,
//! output, end. Never: decides which of them run, or how often one is started again.
//!
//! A plugin is an executable file `NN-name`. It is started with nothing but three variables in its environment and its
//! connection as descriptor 3, in a process group of its own; what it prints goes to the log of the runtime.

mod fork;
mod output;
mod process;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::name::PluginName;

pub use output::{LINE_MAX_BYTES, LINES_PER_MINUTE_MAX};
pub use process::{End, LaunchError, PluginProcess, STOP_GRACE_MS, launch};

/// How many plugins of one directory are looked at.
pub const PREINSTALLED_MAX: usize = 100;
/// The longest configuration of a plugin, in bytes.
pub const CONFIG_MAX_BYTES: u64 = 1 << 20;
/// Permission to execute, of anybody.
const EXECUTE: u32 = 0o111;
/// Permission to write, of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// A plugin that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preinstalled {
    /// What it is called.
    pub name: PluginName,
    /// Its program.
    pub path: PathBuf,
}

/// What is in the directory and is not started, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The file.
    pub path: PathBuf,
    /// Why, in a sentence.
    pub reason: String,
}

/// What is in a directory of plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Those to be started, in the order in which they are called.
    pub plugins: Vec<Preinstalled>,
    /// Files that are none, or must not be started.
    pub ignored: Vec<Ignored>,
}

/// A configuration that cannot be given to its plugin.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("the configuration {} of a plugin cannot be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too long.
    #[error("the configuration {} of a plugin is longer than {CONFIG_MAX_BYTES} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
}

/// Looks for plugins. A directory that is not there has none.
pub fn scan(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let looked = match found.plugins.len() {
            PREINSTALLED_MAX.. => Err(format!("only {PREINSTALLED_MAX} plugins are looked at")),
            _ => look_at(&path),
        };
        match looked {
            Ok(name) => found.plugins.push(Preinstalled { name, path }),
            Err(reason) => found.ignored.push(Ignored { path, reason }),
        }
    }
    found.plugins.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// What is set for a plugin: the file `NN-name.conf`, or else `name.conf`; nothing where there is neither.
pub fn config_of(directory: &Path, name: &PluginName) -> Result<String, ConfigError> {
    for file in [format!("{name}.conf"), format!("{}.conf", name.name())] {
        let path = directory.join(file);
        match read_limited(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ConfigError::Io { path, source }),
            Ok(text) if text.len() as u64 > CONFIG_MAX_BYTES => return Err(ConfigError::TooLong { path }),
            Ok(text) => return Ok(text),
        }
    }
    Ok(String::new())
}

/// The name of the plugin that a file is, or why it is none.
fn look_at(path: &Path) -> Result<PluginName, String> {
    let file = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not UTF-8")?;
    let name: PluginName = file.parse()?;
    let found = fs::metadata(path).map_err(|error| format!("it cannot be looked at: {error}"))?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    if found.mode() & EXECUTE == 0 {
        return Err("it is not executable".to_owned());
    }
    if found.uid() != own || found.mode() & OTHERS_WRITE != 0 {
        return Err(format!(
            "it is of user {} and has mode {:o}; it must be of user {own} and writable by nobody else",
            found.uid(),
            found.mode() & 0o7777
        ));
    }
    Ok(name)
}

/// A byte more than is allowed is enough to see that it is too long.
fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(CONFIG_MAX_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(directory: &Path, name: &str, mode: u32) {
        let path = directory.join(name);
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_calling_and_nothing_is_passed_over_silently() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, mode) in
            [("20-late", 0o755), ("05-early", 0o700), ("readme.txt", 0o644), ("30-plain", 0o644)]
        {
            file(dir.path(), name, mode);
        }
        file(dir.path(), "40-anybody", 0o777);
        fs::create_dir(dir.path().join("50-directory")).expect("made");
        let found = scan(dir.path()).expect("read");
        let names: Vec<_> = found.plugins.iter().map(|plugin| plugin.name.to_string()).collect();
        assert_eq!(names, ["05-early", "20-late"]);
        let reasons: Vec<_> = found.ignored.iter().map(|ignored| ignored.reason.as_str()).collect();
        assert_eq!(reasons.len(), 4);
        assert_eq!(reasons[0], "it is not executable");
        assert!(reasons[1].contains("writable by nobody else"), "{}", reasons[1]);
        assert_eq!(reasons[2], "it is not a file");
        assert!(reasons[3].contains("expected two digits"), "{}", reasons[3]);
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_plugins() {
        assert_eq!(scan(Path::new("/nonexistent/plugins")).expect("none"), Found::default());
    }

    #[test]
    fn the_configuration_with_the_index_comes_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let name: PluginName = "10-a".parse().expect("valid");
        assert_eq!(config_of(dir.path(), &name).expect("none"), "");
        fs::write(dir.path().join("a.conf"), "for all").expect("written");
        assert_eq!(config_of(dir.path(), &name).expect("read"), "for all");
        fs::write(dir.path().join("10-a.conf"), "for this one").expect("written");
        assert_eq!(config_of(dir.path(), &name).expect("read"), "for this one");
        fs::write(dir.path().join("10-a.conf"), vec![b'x'; CONFIG_MAX_BYTES as usize + 1]).expect("written");
        assert!(matches!(config_of(dir.path(), &name), Err(ConfigError::TooLong { .. })));
    }
}
