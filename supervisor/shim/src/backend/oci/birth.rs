//! A process that a runtime makes: its streams, the call, its number, and its adoption.
//!
//! ```text
//!  pipes, or a console socket ──▶ call ──▶ pid file ──▶ streams connected ──▶ adopted
//! ```
//!
//! Owns: the order of these. Never: connects a stream before the call has succeeded: what a runtime that fails has written to
//! the container's standard error is its reason, and no output of the container's.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mainstay_launch::{Io, Preparation};
use mainstay_task_api::streams::Terminal;
use rustix::process::Pid;

use super::call::Call;
use super::console::{self, Console};
use super::files::Files;
use super::{Oci, reason};
use crate::child_io::{self, ShimEnds};
use crate::container::Container;
use crate::create::connect;
use crate::failure::Failure;
use crate::process::Process;
use crate::shim::Shim;

/// The longest pid file that is read, in bytes.
const PID_FILE_MAX_BYTES: usize = 64;

/// What a process is made with.
pub(super) struct Birthplace<'a> {
    pub(super) verb: &'static str,
    pub(super) arguments: &'a mut Vec<OsString>,
    pub(super) files: &'a Files,
    pub(super) preparation: Preparation<'a>,
    pub(super) limit: Duration,
}

impl Oci {
    /// Has the runtime make a process, and takes charge of it.
    pub(super) async fn bear(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        process: &Rc<Process>,
        place: Birthplace<'_>,
    ) -> Result<(), Failure> {
        let Birthplace { verb, arguments, files, preparation, limit } = place;
        arguments.extend(["--pid-file".into(), files.pid.clone().into()]);
        let (io, ends) = child_io::make(process).map_err(Failure::system("making pipes"))?;
        let mut console = None;
        let stdio = match io {
            Io::Pipes(stdio) => Some(stdio),
            Io::Terminal { .. } => {
                let listening = Console::listen(&files.console)?;
                arguments.extend(["--console-socket".into(), files.console.clone().into()]);
                console = Some(listening);
                None
            }
        };
        arguments.push(container.id.as_str().into());
        let call = Call { verb, arguments: std::mem::take(arguments), stdio, preparation, limit, files };
        let birth = shim.expect_birth();
        let called = async {
            let master = async {
                match &console {
                    Some(console) => console.master().await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::pin!(master);
            let run = call.run(self, shim, container);
            tokio::pin!(run);
            let mut received = None;
            loop {
                tokio::select! {
                    outcome = &mut run => {
                        outcome?;
                        break;
                    }
                    master = &mut master, if received.is_none() && console.is_some() => {
                        let master = master?;
                        // Before the program runs, if that can be; a runtime may not care for the size that the spec has.
                        if let (Some(master), Some(size)) = (&master, process.initial_size()) {
                            console::set_size(master, size);
                        }
                        received = Some(master);
                    }
                }
            }
            match (received, &console) {
                (Some(master), _) => Ok(master),
                // It was sent before the runtime ended.
                (None, Some(console)) => console.master_at_once().map(Some),
                (None, None) => Ok(None),
            }
        };
        let master: Option<OwnedFd> = match called.await {
            Ok(master) => master,
            Err(failure) => return Err(self.with_output(failure, verb, &ends)),
        };
        let pid = self.read_pid(verb, &files.pid)?;
        match (process.terminal, master) {
            (Terminal::Yes, Some(master)) => process.connect_terminal(master),
            _ => connect(process, ends),
        }
        shim.adopt(container, process, pid, &birth)
    }

    /// Adds what the runtime has said to the container's standard error, where it has not said anything to its log.
    fn with_output(&self, failure: Failure, verb: &'static str, ends: &ShimEnds) -> Failure {
        match failure {
            Failure::Runtime { reason, .. } if reason.is_empty() => {
                let said = match ends {
                    ShimEnds::Pipes { output, .. } => reason::last_words(output),
                    ShimEnds::Terminal => String::new(),
                };
                self.refusal(verb, said)
            }
            other => other,
        }
    }

    fn read_pid(&self, verb: &'static str, file: &Path) -> Result<Pid, Failure> {
        let text = std::fs::read(file).unwrap_or_default();
        let number = text.get(..text.len().min(PID_FILE_MAX_BYTES)).and_then(|text| {
            let text = std::str::from_utf8(text).ok()?;
            text.trim().parse().ok().filter(|number| *number > 0).and_then(Pid::from_raw)
        });
        number.ok_or_else(|| {
            let said = String::from_utf8_lossy(&text[..text.len().min(PID_FILE_MAX_BYTES)]).into_owned();
            self.refusal(verb, format!("it succeeded, but its pid file has {said:?} and no process id"))
        })
    }
}
