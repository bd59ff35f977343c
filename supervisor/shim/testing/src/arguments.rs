//! The command line that containerd gives a shim. Owns: its parsing. Never: acts.

use std::path::{Path, PathBuf};

use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::BootstrapParams;

/// What the program was called for.
#[derive(Debug)]
pub struct Arguments {
    /// `-namespace`.
    pub namespace: String,
    /// `-id`.
    pub id: String,
    /// `-bundle`, or where it was started.
    pub bundle: PathBuf,
    /// The folder of the name that it was started by.
    pub folder: PathBuf,
    /// `start`, `delete`, or what the program calls itself for.
    pub command: String,
}

impl Arguments {
    /// Reads them; the error is the sentence to say.
    pub fn parse(words: Vec<String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        let folder = Path::new(&name).parent().unwrap_or(Path::new("")).to_path_buf();
        if !folder.is_absolute() {
            return Err(format!("{name}: started by a name without a folder: there is no plan"));
        }
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let mut arguments = Self {
            namespace: String::new(),
            id: String::new(),
            bundle: here,
            folder,
            command: String::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word}: needs a value"));
            match word.as_str() {
                "-namespace" => arguments.namespace = value()?,
                "-id" => arguments.id = value()?,
                "-bundle" => arguments.bundle = value()?.into(),
                "-address" | "-publish-binary" | "-socket" => drop(value()?),
                "-debug" => {}
                command if !command.starts_with('-') => arguments.command = command.to_owned(),
                _ => return Err(format!("{word}: flag provided but not defined")),
            }
        }
        for (flag, value) in [("-namespace", &arguments.namespace), ("-id", &arguments.id)] {
            if value.is_empty() {
                return Err(format!("{flag}: shim {flag} cannot be empty"));
            }
        }
        Ok(arguments)
    }

    /// Whether what stands on standard input is for this instance, as the shims of containerd main want it.
    pub fn agree_with(&self, params: &[u8]) -> Result<(), String> {
        let params = BootstrapParams::parse_from_bytes(params).map_err(|error| format!("params: {error}"))?;
        let said = (params.instance_id.as_str(), params.namespace.as_str());
        if said == (&self.id, &self.namespace) {
            Ok(())
        } else {
            Err(format!("params: {said:?} is not what the flags say"))
        }
    }
}
