//! The shim under containerd, as `containerd-shim-mainstay-v2` (CONTAINERD.md).
//!
//! Owns: what containerd wants otherwise than our supervisor does: its command line, where bundles and sockets are, roots
//! that it sends as mounts, streams by FIFO, file or program, events, and the clearing after a shim that died. Never: has a
//! pod, namespaces or a cgroup of its own; what makes, reaps and ends containers is the shim's, as it is for everybody.
//!
//! | module | holds |
//! |---|---|
//! | `command` | the command line |
//! | `start`, `bootstrap`, `socket` | `start`: whose shim it is, the fork, the answer |
//! | `serve` | the process that stays |
//! | `face` | what the shim knows of its containerd |
//! | `service` | the Task service |
//! | `create`, `rootfs`, `apart` | creating a container and an exec |
//! | `streams`, `program` | stdin, stdout and stderr |
//! | `events` | what containerd is told |
//! | `oom` | watching for want of memory |
//! | `metrics` | what a container uses, as containerd wants it |
//! | `bundle` | the files that are left in a bundle |
//! | `clean` | `delete`: what is done when the shim is dead |

mod apart;
mod bootstrap;
mod bundle;
mod clean;
mod command;
mod create;
mod events;
mod face;
mod metrics;
mod oom;
mod program;
mod rootfs;
mod serve;
mod service;
mod socket;
mod start;
mod streams;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;

use mainstay_task_api::introspection::{RuntimeInfo, RuntimeVersion};
use mainstay_task_api::{Message, MessageField};

use self::command::{Action, CommandLine};
pub(crate) use self::face::Face;
use crate::logger::Chain;

/// The name under which a program is a shim of containerd's, which looks for it in its `PATH`.
pub const CONTAINERD_SHIM_NAME: &str = "containerd-shim-mainstay-v2";
/// The name of the runtime that is asked for, as containerd's clients write it.
const RUNTIME_NAME: &str = "io.containerd.mainstay.v2";

/// Why something was not done, in one sentence.
#[derive(Debug)]
pub(super) struct Sentence(String);

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error as a sentence, with what was being done.
fn failed<E: std::error::Error>(doing: impl fmt::Display) -> impl FnOnce(E) -> Sentence {
    move |error| Sentence(format!("{doing}: {}", Chain(&error)))
}

/// Whether a program that was started under this name is such a shim.
pub(crate) fn is_named(name: &OsStr) -> bool {
    name == CONTAINERD_SHIM_NAME
}

/// Does what containerd asks for; the exit status.
pub(crate) fn main(arguments: Vec<OsString>) -> i32 {
    match act(arguments) {
        Ok(()) => 0,
        Err(sentence) => {
            // Without it there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{CONTAINERD_SHIM_NAME}: {sentence}");
            1
        }
    }
}

fn act(arguments: Vec<OsString>) -> Result<(), Sentence> {
    let line = CommandLine::parse(arguments).map_err(failed("reading the command line"))?;
    let answer = match line.action {
        Action::Start => match start::start(&line)? {
            start::Side::Caller { answer } => answer,
            start::Side::Shim => return Ok(()),
        },
        Action::Delete => clean::clean(&line)?,
        Action::Version => {
            format!("{CONTAINERD_SHIM_NAME}:\n  Version: {}\n", env!("CARGO_PKG_VERSION")).into()
        }
        Action::Info => info()?,
    };
    std::io::stdout().write_all(&answer).map_err(failed("answering"))
}

fn info() -> Result<Vec<u8>, Sentence> {
    let version =
        RuntimeVersion { version: env!("CARGO_PKG_VERSION").to_owned(), ..RuntimeVersion::default() };
    let info = RuntimeInfo {
        name: RUNTIME_NAME.to_owned(),
        version: MessageField::some(version),
        ..RuntimeInfo::default()
    };
    info.write_to_bytes().map_err(failed("writing what this is"))
}
