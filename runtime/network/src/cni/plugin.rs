//! One plugin, run once.
//!
//! Owns: the process, its deadline, its output. Never: knows what a network is.
//!
//! Input and output are files in memory, not pipes: a plugin that does not read, writes too much, or leaves a child behind that
//! keeps them open holds nobody up.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;

use super::error::CniError;

/// What a plugin may write, in bytes, to standard output and to standard error each; more and it is killed.
pub const OUTPUT_LENGTH_MAX: u64 = 1024 * 1024;
/// How often a running plugin's output is measured, in milliseconds.
const MEASURE_MS: u64 = 50;
/// What of a plugin's standard error gets into a message, in characters.
const REASON_LENGTH_MAX: usize = 500;

/// The program of a plugin.
pub(super) fn find(directories: &[PathBuf], name: &str) -> Result<PathBuf, CniError> {
    let found = directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file());
    let list = || directories.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| CniError::NoPlugin { name: name.into(), directories: list() })
}

/// A call of a plugin.
pub(super) struct Call<'a> {
    pub(super) program: &'a Path,
    pub(super) command: &'static str,
    pub(super) directories: &'a [PathBuf],
    pub(super) environment: &'a [(&'a str, &'a str)],
    pub(super) timeout: Duration,
}

enum End {
    Exited(ExitStatus),
    Late,
    Flooded,
}

impl Call<'_> {
    /// Runs the plugin; its answer, null when it has none.
    pub(super) fn run(&self, input: &str) -> Result<Value, CniError> {
        let fault = |source| CniError::File { path: self.program.to_owned(), operation: "run", source };
        let (mut output, mut errors) = (memory().map_err(fault)?, memory().map_err(fault)?);
        let end = self.run_to_end(input, &output, &errors).map_err(fault)?;
        let answer: Option<Value> = serde_json::from_slice(&read(&mut output).map_err(fault)?).ok();
        match end {
            End::Exited(status) if status.success() => match answer {
                Some(answer) => Ok(answer),
                None if self.command == "ADD" => Err(self.refused("it answered no JSON".into())),
                None => Ok(Value::Null),
            },
            End::Exited(status) => {
                let said = answer.and_then(|answer| reason(&answer));
                let errors = read(&mut errors).map_err(fault)?;
                let errors: String =
                    String::from_utf8_lossy(&errors).trim().chars().take(REASON_LENGTH_MAX).collect();
                let how = match status.code() {
                    Some(code) => format!("exit code {code}"),
                    None => format!("signal {}", status.signal().unwrap_or_default()),
                };
                Err(self.refused(said.unwrap_or_else(|| format!("{how}, {errors:?}"))))
            }
            End::Late => Err(CniError::Timeout {
                plugin: self.name(),
                command: self.command,
                after_ms: self.timeout.as_millis(),
            }),
            End::Flooded => {
                Err(self.refused(format!("it wrote more than {OUTPUT_LENGTH_MAX} bytes and was killed")))
            }
        }
    }

    fn run_to_end(&self, input: &str, output: &File, errors: &File) -> io::Result<End> {
        let mut stdin = memory()?;
        stdin.write_all(input.as_bytes())?;
        stdin.seek(SeekFrom::Start(0))?;
        let path = std::env::join_paths(self.directories).map_err(io::Error::other)?;
        let mut child = Command::new(self.program)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", self.command)
            .env("CNI_PATH", path)
            .envs(self.environment.iter().copied())
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(errors.try_clone()?))
            .spawn()?;
        let ended = self.wait(&mut child, output, errors);
        if !matches!(ended, Ok(End::Exited(_))) {
            kill(&mut child)?;
        }
        ended
    }

    fn wait(&self, child: &mut Child, output: &File, errors: &File) -> io::Result<End> {
        let deadline = Instant::now() + self.timeout;
        let process = pidfd_open(pid(child), PidfdFlags::empty())?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(End::Exited(status));
            }
            if output.metadata()?.len().max(errors.metadata()?.len()) > OUTPUT_LENGTH_MAX {
                return Ok(End::Flooded);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::Late);
            }
            let pause = left.min(Duration::from_millis(MEASURE_MS));
            let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&pause)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn refused(&self, reason: String) -> CniError {
        CniError::Plugin { plugin: self.name(), command: self.command, reason }
    }

    fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The plugin and what it started, and no more: it leads a group of its own, and is not reaped yet.
fn kill(child: &mut Child) -> io::Result<()> {
    kill_process_group(pid(child), Signal::KILL)?;
    child.wait().map(drop)
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("cni", MemfdFlags::CLOEXEC)?.into())
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a plugin says of its failure: the specification's code, message and details.
fn reason(answer: &Value) -> Option<String> {
    let message = answer["msg"].as_str()?;
    let code = answer["code"].as_u64().unwrap_or_default();
    let details = answer["details"].as_str().filter(|details| !details.is_empty());
    let details = details.map(|details| format!(" ({details})")).unwrap_or_default();
    Some(format!("{message}{details}, code {code}").chars().take(REASON_LENGTH_MAX).collect())
}
