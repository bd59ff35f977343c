//! Creating a container: everything up to the point where its PID 1 waits to be let go.
//!
//! Owns: the order of the steps, and undoing them. Never: announces an exit of what never became a container, or
//! removes the bundle after a failure; that is its maker's.
//!
//! The steps: ids and streams read → spec read → entry in the table → limits checked → cgroup → log → what the backend does.
//! Undo, in reverse: child killed and reaped → cgroup removed → what the backend undoes → log removed if it is new and empty
//! → entry removed.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{Cgroup, Controllers};
use mainstay_launch::RootMount;
use mainstay_messages::Signal;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task::{CreateTaskRequest, Mount};
use oci_spec::runtime::Spec;
use tokio::time::timeout;

use crate::backend::Parts;
use crate::child_io::ShimEnds;
use crate::container::{Container, read_spec, remove_cgroup};
use crate::exit_record::bundle_path;
use crate::failure::Failure;
use crate::hooks::LATE_HOOKS_MS;
use crate::logger::{self, Chain};
use crate::output::log::CriLog;
use crate::output::{Output, WithoutClient, pump};
use crate::process::{Process, StreamNames, console_size};
use crate::shim::Shim;
use crate::stdin::{Stdin, StdinMode};

/// How long the set-up of a container may take, in milliseconds. It hangs when a file system does.
pub(crate) const TASK_CREATE_MS: u64 = 60_000;
/// How long a failed creation waits for its child to die before it leaves that to the background, in milliseconds.
const UNDO_WAIT_MS: u64 = 2_000;
/// What `stdout` of a request begins with when the output goes to a CRI log.
const CRI_LOG_SCHEME: &str = "cri-log://";

/// A request that has been read.
pub(crate) struct Plan {
    pub(crate) spec: Spec,
    pub(crate) root: RootMount,
    pub(crate) log: Option<PathBuf>,
}

/// Creates a container; answers with the process id of its PID 1.
pub(crate) async fn create(shim: Rc<Shim>, request: CreateTaskRequest) -> Result<u32, Failure> {
    let (container, plan) = admit(&shim, &request)?;
    make(shim, container, plan).await
}

/// Makes what was admitted, or undoes all of it.
pub(crate) async fn make(shim: Rc<Shim>, container: Rc<Container>, plan: Plan) -> Result<u32, Failure> {
    match set_up(&shim, &container, plan).await {
        Ok(()) => {
            trim_memory();
            Ok(container.init.pid_or_zero())
        }
        Err(failure) => {
            logger::warning!("creating container {}: {}", container.id, failure.sentence());
            undo(&shim, &container).await;
            Err(failure)
        }
    }
}

/// Reads the request and enters the container into the table.
fn admit(shim: &Rc<Shim>, request: &CreateTaskRequest) -> Result<(Rc<Container>, Plan), Failure> {
    let key = ProcessKey::parse(&request.id, "")?;
    if !request.checkpoint.is_empty() {
        return Err(Failure::Unsupported { what: "restoring a checkpoint" });
    }
    let bundle = bundle_path(&shim.arguments.directory, &key.container);
    if Path::new(&request.bundle) != bundle {
        return Err(Failure::Invalid {
            field: "bundle",
            value: format!("{:?}", request.bundle),
            expected: "the directory c/ID below the shim's own",
        });
    }
    let stdin = stdin_mode(&request.stdin)?;
    let log = log_path(&request.stdout)?;
    let terminal = if request.terminal { Terminal::Yes } else { Terminal::No };
    let root = root_mount(&request.rootfs)?;
    let spec = read_spec(&bundle)?;
    let names = StreamNames {
        stdin: request.stdin.clone(),
        stdout: request.stdout.clone(),
        stderr: request.stderr.clone(),
    };
    let output = Output::new(shim.scratch.clone(), WithoutClient::Flow);
    let init = Process::new(key.clone(), names, terminal, output, Stdin::new(stdin));
    let cgroup = shim.pod_cgroup().child(key.container.as_str()).map_err(|_| Failure::Invalid {
        field: "id",
        value: format!("{:?}", request.id),
        expected: "a name that can be that of a cgroup",
    })?;
    let cgroup = Cgroup::open(&shim.layout, &cgroup);
    let container = Container::new(key.container, bundle, cgroup, init, shim.backend());
    shim.add_container(container.clone())?;
    Ok((container, Plan { spec, root, log }))
}

async fn set_up(shim: &Rc<Shim>, container: &Rc<Container>, plan: Plan) -> Result<(), Failure> {
    let Plan { spec, root, log } = plan;
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let needs = resources.map(|resources| shim.layout.check(resources)).transpose()?;
    let path = container.cgroup.path();
    Cgroup::create(&shim.layout, path, needs.unwrap_or(Controllers::NONE))?;
    if let Some(resources) = resources {
        container.limit(resources)?;
    }
    container.begin_counting_oom_kills();
    if let Some(path) = log {
        container.init.output.set_log(CriLog::create(&path)?);
    }
    if let Some(size) = spec.process().as_ref().and_then(console_size) {
        container.init.set_initial_size(size);
    }
    make_root_directory(&container.bundle)?;
    container.backend.set_up(shim, container, Parts { spec, root }).await
}

/// Gives a process that was made just now its streams.
pub(crate) fn connect(process: &Process, ends: ShimEnds) {
    if let ShimEnds::Pipes { stdin, output } = ends {
        if let Some(stdin) = stdin {
            process.stdin.connect(Rc::new(stdin));
        }
        pump::start(&process.output, output);
    }
}

async fn undo(shim: &Rc<Shim>, container: &Rc<Container>) {
    end_child(container);
    let dead = timeout(Duration::from_millis(UNDO_WAIT_MS), wait_dead(container)).await;
    if dead.is_ok() {
        forget(shim, container).await;
    } else {
        // It hangs in the kernel. Its id stays taken until it is gone, so that nothing new meets it.
        logger::error!("the child of container {} cannot be killed yet", container.id);
        let (shim, container) = (shim.clone(), container.clone());
        tokio::task::spawn_local(async move {
            wait_dead(&container).await;
            forget(&shim, &container).await;
        });
    }
}

fn end_child(container: &Container) {
    if let Err(failure) = container.kill_all() {
        logger::error!("container {}: {}", container.id, failure.sentence());
    }
    // It may not be in its cgroup yet.
    let _ = container.init.signal(Signal::KILL);
}

async fn wait_dead(container: &Container) {
    if container.init.identity().is_some() {
        container.init.wait_ended().await;
    }
}

async fn forget(shim: &Rc<Shim>, container: &Rc<Container>) {
    if let Err(error) = remove_cgroup(&container.cgroup).await {
        logger::error!("container {}: {}", container.id, Chain(&error));
    }
    container.backend.tear_down(shim, container, Duration::from_millis(LATE_HOOKS_MS)).await;
    container.init.output.discard_unused_log();
    // Made by us, empty, and gone already if the bundle is.
    let _ = std::fs::remove_dir(container.bundle.join(mainstay_launch::ROOTFS_DIRECTORY));
    shim.remove_container(container);
}

/// Reads the field `stdin` of a request.
pub(crate) fn stdin_mode(text: &str) -> Result<StdinMode, Failure> {
    StdinMode::parse(text).ok_or_else(|| Failure::Invalid {
        field: "stdin",
        value: format!("{text:?}"),
        expected: "\"\", \"stream://\" or \"stream://once\"",
    })
}

fn log_path(stdout: &str) -> Result<Option<PathBuf>, Failure> {
    match stdout.strip_prefix(CRI_LOG_SCHEME) {
        Some(path) => Ok(Some(PathBuf::from(path))),
        None if stdout.is_empty() => Ok(None),
        None => Err(Failure::Invalid {
            field: "stdout",
            value: format!("{stdout:?}"),
            expected: "\"\" or \"cri-log://\" and an absolute path",
        }),
    }
}

fn root_mount(mounts: &[Mount]) -> Result<RootMount, Failure> {
    let invalid = |value: String, expected| Failure::Invalid { field: "rootfs", value, expected };
    let [mount] = mounts else {
        return Err(invalid(
            format!("{} mounts", mounts.len()),
            "exactly one mount, of type overlay or bind",
        ));
    };
    if mount.type_ == "bind" {
        return Ok(RootMount::Bind(PathBuf::from(&mount.source)));
    }
    let option = |name: &str| mount.options.iter().find_map(|option| option.strip_prefix(name));
    match (mount.type_.as_str(), option("lowerdir="), option("upperdir="), option("workdir=")) {
        ("overlay", Some(lower), Some(upper), Some(work)) => Ok(RootMount::Overlay {
            lower: lower.split(':').map(PathBuf::from).collect(),
            upper: PathBuf::from(upper),
            work: PathBuf::from(work),
        }),
        _ => Err(invalid(
            format!("type {:?} with {:?}", mount.type_, mount.options),
            "type bind, or overlay with lowerdir=, upperdir= and workdir=",
        )),
    }
}

fn make_root_directory(bundle: &Path) -> Result<(), Failure> {
    let path = bundle.join(mainstay_launch::ROOTFS_DIRECTORY);
    match std::fs::create_dir(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Failure::File { path, doing: "made", source })
        }
        _ => Ok(()),
    }
}

/// Where in the kernel a process waits, as words for the end of a sentence.
pub(crate) fn kernel_wait(process: &Process) -> String {
    let pid = process.pid_or_zero();
    let place = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match place.as_str() {
        "" | "0" => String::new(),
        place => format!("; its process waits in the kernel, in {place}"),
    }
}

/// Gives freed memory back to the kernel: a spec is large, and the next one may never come.
pub(crate) fn trim_memory() {
    // SAFETY: it only returns free pages of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
