//! The processes of containers. Owns: making them (they wait until they are started), and what is known of each. Never: knows
//! the protocol.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use mainstay_task_api::MessageField;
use mainstay_task_api::well_known_types::timestamp::Timestamp;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::watch;

use crate::control_groups::ControlGroup;
use crate::output::{self, Wanted};

/// What the program is called by itself to wait and then become a container's process.
pub const INIT: &str = "containerd-shim-fault-init";

/// A process is known by its container and, unless it is PID 1, its exec.
pub type Key = (String, String);

/// How and when a process ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: u32,
    pub at: SystemTime,
}

/// One process.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub wanted: Wanted,
    pub bundle: PathBuf,
    pub group: ControlGroup,
    /// Written to, it runs.
    pub gate: Option<OwnedFd>,
    pub ended: watch::Receiver<Option<Ended>>,
}

/// All of a shim's.
pub type Processes = BTreeMap<Key, Process>;

/// The spec of a bundle.
pub fn spec_of(bundle: &Path) -> io::Result<Value> {
    let text = std::fs::read(bundle.join("config.json"))?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Makes a process that waits until it is started. `process` is that of an OCI spec.
pub fn make(
    process: &Value,
    streams: output::Streams,
    group: ControlGroup,
    wanted: Wanted,
    bundle: PathBuf,
) -> io::Result<(Process, tokio::process::Child, watch::Sender<Option<Ended>>)> {
    let words = |key: &str| -> Vec<String> {
        let list = process.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
    };
    let arguments = words("args");
    let environment = words("env");
    let pairs = || environment.iter().filter_map(|pair| pair.split_once('='));
    let path = pairs().rev().find(|(key, _)| *key == "PATH").map_or("/usr/bin:/bin", |(_, value)| value);
    find(arguments.first().map_or("", String::as_str), path)?;
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(INIT).args(&arguments).env_clear().envs(pairs());
    command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
    if let Some(cwd) = process.get("cwd").and_then(Value::as_str).filter(|cwd| Path::new(cwd).is_dir()) {
        command.current_dir(cwd);
    }
    let files = group.enter()?;
    // SAFETY: the closure only writes to open files.
    unsafe {
        command.pre_exec(move || {
            files.iter().try_for_each(|file| rustix::io::write(file, b"0").map(drop)).map_err(Into::into)
        })
    };
    with_descriptors(&mut command, [wait]);
    let mut command = tokio::process::Command::from(command);
    let child = command.spawn()?;
    let (announce, ended) = watch::channel(None);
    let pid = child.id().ok_or_else(|| io::Error::other("it has no process id"))?;
    Ok((Process { pid, wanted, bundle, group, gate: Some(gate), ended }, child, announce))
}

/// Gives a child descriptors, from number 3 on.
pub fn with_descriptors<const N: usize>(command: &mut Command, descriptors: [OwnedFd; N]) {
    // SAFETY: the closure only duplicates descriptors.
    unsafe { command.pre_exec(move || output::place_descriptors(&descriptors)) };
}

/// What the program is as [`INIT`]: waits until it is told to go on, and becomes the container's process.
pub fn init(arguments: &[String]) -> u8 {
    // SAFETY: the shim has put it there, and nothing else in this program knows of it.
    let gate = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(3) };
    let told = rustix::io::read(&gate, &mut [0; 1]);
    drop(gate);
    let Some((program, rest)) = arguments.split_first().filter(|_| told == Ok(1)) else { return 1 };
    let error = Command::new(program).args(rest).exec();
    eprintln!("{program}: {error}");
    127
}

fn find(program: &str, path: &str) -> io::Result<()> {
    let is_there = program.contains('/') && Path::new(program).is_file()
        || std::env::split_paths(path).any(|folder| folder.join(program).is_file());
    if is_there && !program.is_empty() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("exec: {program:?}: executable file not found")))
}

impl Process {
    /// Whether it has ended.
    pub fn ended(&self) -> Option<Ended> {
        *self.ended.borrow()
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&self, number: u32) -> io::Result<()> {
        let signal = Signal::from_named_raw(number.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        let pid = Pid::from_raw(self.pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Ended {
    /// Of a child that was waited for.
    pub fn of(status: io::Result<std::process::ExitStatus>) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = status.ok().and_then(|status| status.code().or_else(|| Some(128 + status.signal()?)));
        Self { status: code.map_or(255, i32::cast_unsigned), at: SystemTime::now() }
    }

    /// When, as the wire has it.
    pub fn stamp(&self) -> MessageField<Timestamp> {
        stamp(self.at)
    }
}

/// A time as the wire has it.
pub fn stamp(at: SystemTime) -> MessageField<Timestamp> {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut stamp = Timestamp::new();
    stamp.seconds = since.as_secs().cast_signed();
    stamp.nanos = since.subsec_nanos().cast_signed();
    MessageField::some(stamp)
}
