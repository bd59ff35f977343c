//! What the program does by its command line. Owns: `start` and `delete`. Never: serves.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::BootstrapResult;
use mainstay_task_api::task::DeleteResponse;
use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::container::{self, stamp};
use crate::control_groups::ControlGroup;
use crate::plan::Plan;
use crate::serve;

/// Annotations that say which containers share a shim; the first one that is there counts.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];
/// How much a `start` says whose answer is too long, in bytes.
const LONG_BYTES: usize = 8 << 20;
/// The status of a process that was killed.
const KILLED: u32 = 137;

/// The `main` of the program.
pub fn program() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.first().is_some_and(|name| name == container::INIT) {
        return container::init(&words[1..]).into();
    }
    let outcome = Arguments::parse(words).and_then(|arguments| {
        let command = arguments.command.clone();
        let outcome = match command.as_str() {
            "start" => start(&arguments),
            "delete" => delete(&arguments),
            serve::COMMAND => serve::run(arguments),
            other => Err(io::Error::other(format!("{other:?}: no such command"))),
        };
        outcome.map_err(|error| error.to_string())
    });
    match outcome {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("containerd-shim-fault-v2: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes down what was asked for.
pub fn note(folder: &Path, what: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("calls"));
    if let Ok(mut file) = file {
        // The folder is a test's, which may be over.
        let _ = file.write_all(format!("{what}\n").as_bytes());
    }
}

fn start(arguments: &Arguments) -> io::Result<u8> {
    note(&arguments.folder, &format!("start {}", arguments.id));
    let plan = Plan::read(&arguments.folder);
    if plan.get("params") == "required" {
        let mut params = Vec::new();
        io::stdin().read_to_end(&mut params)?;
        arguments.agree_with(&params).map_err(io::Error::other)?;
    }
    let how = plan.get("start");
    match how.split_once(':').unwrap_or((how, "")) {
        ("hang", _) => loop {
            std::thread::park();
        },
        ("exit", status) => {
            eprintln!("the plan says that it cannot start");
            return status.parse().map_err(io::Error::other);
        }
        ("nothing", _) => return Ok(0),
        ("rubbish", _) => {
            io::stdout().write_all(b"\xff\x00\x07 no address at all \xf0\n")?;
            return Ok(0);
        }
        ("long", _) => {
            io::stdout().write_all(&vec![b'x'; LONG_BYTES])?;
            return Ok(0);
        }
        _ => {}
    }
    let address = format!("unix://{}", serving(arguments, &plan)?.display());
    let version = if plan.get("task") == "v3" { 3 } else { 2 };
    match how {
        "json" => println!("{}", json!({"version": version, "address": address, "protocol": "ttrpc"})),
        "protobuf" => {
            let result = BootstrapResult { version, address, protocol: "ttrpc".into(), ..Default::default() };
            io::stdout().write_all(&result.write_to_bytes().map_err(io::Error::other)?)?;
        }
        _ => print!("{address}"),
    }
    io::stdout().flush()?;
    Ok(0)
}

/// The socket of the shim that has this container's group, which is started if there is none.
fn serving(arguments: &Arguments, plan: &Plan) -> io::Result<PathBuf> {
    let spec = container::spec_of(&arguments.bundle).unwrap_or_default();
    let named = |name: &&'static str| spec.get("annotations")?.get(*name).and_then(Value::as_str);
    let group = GROUPS.iter().find_map(named).filter(|_| plan.get("grouping") != "no");
    let socket = arguments.folder.join(format!("s-{}", group.unwrap_or(&arguments.id)));
    if UnixStream::connect(&socket).is_ok() {
        return Ok(socket);
    }
    let _ = std::fs::remove_file(&socket);
    let listener = OwnedFd::from(UnixListener::bind(&socket)?);
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(arguments.folder.join(crate::PROGRAM))
        .args(["-namespace", &arguments.namespace, "-id", &arguments.id, "-socket"])
        .arg(&socket)
        .arg(serve::COMMAND)
        .env(serve::SOCKET, &socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log(&arguments.bundle))
        .process_group(0);
    // The reading end of a pipe whose other end is ours: it closes when `start` has answered.
    let (started, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    container::with_descriptors(&mut command, [listener, started]);
    command.spawn()?;
    // It ends with this process, and not before.
    std::mem::forget(held);
    Ok(socket)
}

/// The FIFO that the caller reads, or nothing.
fn log(bundle: &Path) -> Stdio {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(bundle.join("log"));
    file.map_or_else(|_| Stdio::null(), Into::into)
}

fn delete(arguments: &Arguments) -> io::Result<u8> {
    note(&arguments.folder, &format!("delete {}", arguments.id));
    match Plan::read(&arguments.folder).get("delete") {
        "fail" => return Err(io::Error::other("the plan says that it cannot delete")),
        "hang" => loop {
            std::thread::park();
        },
        _ => {}
    }
    let group = ControlGroup::of(&arguments.bundle);
    group.signal(Signal::KILL);
    group.remove();
    let response =
        DeleteResponse { exit_status: KILLED, exited_at: stamp(SystemTime::now()), ..Default::default() };
    io::stdout().write_all(&response.write_to_bytes().map_err(io::Error::other)?)?;
    Ok(0)
}
