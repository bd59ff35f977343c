//! What a handler says of its shim, and how that shim is told.
//!
//! Owns: the message that goes with a new container. Never: knows what an option does.

use std::path::{Path, PathBuf};

use mainstay_task_api::Message;
use mainstay_task_api::extension as wire;
use mainstay_task_api::shim_options::RuncOptions;
use mainstay_task_api::well_known_types::any::Any;

use crate::failure::Failure;

/// The type of the options of runc's shim.
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";

/// How the output of a container comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// By a program that the shim starts: nobody copies.
    Logger,
    /// By FIFOs, which any shim knows.
    Fifo,
}

/// What a handler says of its shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Its program.
    pub(crate) program: PathBuf,
    /// How the output of containers comes here.
    pub(crate) output: Output,
    /// What goes with a new container; nothing when the type is empty.
    pub(crate) options_type: String,
    pub(crate) options: Vec<u8>,
    /// As whoever started this shim has asked it; for show.
    pub(crate) version: String,
}

impl TryFrom<&wire::TaskShim> for Settings {
    type Error = Failure;

    fn try_from(request: &wire::TaskShim) -> Result<Self, Failure> {
        if !request.program.starts_with('/') {
            return Err(Failure::Invalid {
                field: "backend.shim.program",
                value: format!("{:?}", request.program),
                expected: "an absolute path",
            });
        }
        Ok(Self {
            program: PathBuf::from(&request.program),
            output: match request.output.enum_value_or_default() {
                wire::OutputBy::OUTPUT_LOGGER => Output::Logger,
                wire::OutputBy::OUTPUT_FIFO => Output::Fifo,
            },
            options_type: request.options_type.clone(),
            options: request.options.clone(),
            version: request.version.clone(),
        })
    }
}

impl Settings {
    /// The options of a new container. Those of runc's shim say, where nothing else is said, that runc keeps its state below
    /// the pod's directory, so that it goes with that.
    pub(super) fn any(&self, runtime_root: &Path) -> Option<Any> {
        let mut value = self.options.clone();
        if self.options_type == RUNC_OPTIONS {
            // One that cannot be read is for its shim to refuse.
            if let Ok(mut options) = RuncOptions::parse_from_bytes(&value) {
                if options.root.is_empty() {
                    options.root = runtime_root.to_string_lossy().into_owned();
                }
                value = options.write_to_bytes().unwrap_or(value);
            }
        }
        let named = !self.options_type.is_empty();
        named.then(|| Any { type_url: self.options_type.clone(), value, ..Default::default() })
    }
}
