//! What a handler says of its shim, and how that shim is told.
//!
//! Owns: the message that goes with a new container. Never: knows what an option does.

use std::path::{Path, PathBuf};

use mainstay_task_api::extension as wire;
use mainstay_task_api::well_known_types::any::Any;

use crate::failure::Failure;

/// The type of the options of runc's shim.
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";
/// The number of the field that says where runc keeps its state.
const RUNC_ROOT_FIELD: u8 = 7;

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
        })
    }
}

impl Settings {
    /// The options of a new container. Those of runc's shim say, where nothing else is said, that runc keeps its state below
    /// the pod's directory, so that it goes with that.
    pub(super) fn any(&self, runtime_root: &Path) -> Option<Any> {
        let mut value = self.options.clone();
        if self.options_type == RUNC_OPTIONS {
            // A later field of the same number counts, so what the handler says goes last.
            value = [text_field(RUNC_ROOT_FIELD, &runtime_root.to_string_lossy()), value].concat();
        }
        let named = !self.options_type.is_empty();
        named.then(|| Any { type_url: self.options_type.clone(), value, ..Default::default() })
    }
}

/// A text in the form of protobuf. A path is shorter than the 16,383 bytes that fit this length.
fn text_field(number: u8, text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(0);
    let low = (length & 0x7f) as u8 | if length > 0x7f { 0x80 } else { 0 };
    let mut bytes = vec![number << 3 | 2, low];
    if length > 0x7f {
        bytes.push((length >> 7) as u8);
    }
    bytes.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
    bytes
}
