//! Becoming a shim.
//!
//! Owns: what the process is to the kernel (sub-reaper, mount namespace, session, signals), the runtime with its one
//! thread, and the end. Never: returns to the program that embeds it.
//!
//! ```text
//!   executed as a zygote ──▶ waits ──▶ forked ──┐
//!   executed as a shim ─────────────────────────┴──▶ isolates itself ──▶ serves
//! ```

use std::ffi::{CStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use futures::stream;
use mainstay_cgroups::Layout;
use mainstay_task_api::extension::create_extension;
use mainstay_task_api::{TASK_V2_SERVICE, TASK_V3_SERVICE, task_v2};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{DumpableBehavior, set_child_subreaper, set_dumpable_behavior, setsid};
use rustix::thread::{UnshareFlags, set_name, unshare_unsafe};
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use ttrpc::asynchronous::transport::Listener;

use crate::arguments::Arguments;
use crate::backend::task_shim::{LOGGER_NAME, be_logger};
use crate::door::{Door, door};
use crate::extension::ExtensionService;
use crate::leftovers::{self, Leftovers};
use crate::logger::{self, Chain};
use crate::service::TaskService;
use crate::shim::Shim;
use crate::sockets::{accept, inherit, listener};
use crate::zygote::{self, Born};
use crate::{containerd, delete, reaper, streams};

/// The name under which a program is a shim: the last component of its `argv[0]`.
pub const SHIM_NAME: &str = "mainstay-shim";
/// What a shim is called in the process table; the kernel would name it after the descriptor that it is executed from.
const PROCESS_NAME: &CStr = c"mainstay-shim";
/// What a zygote is called there; 15 bytes fit.
const ZYGOTE_PROCESS_NAME: &CStr = c"mainstay-zygote";
/// After so many polls of tasks the runtime looks for IO, SIGCHLD among it: a busy pump must not delay it.
const POLLS_BETWEEN_IO: u32 = 8;

/// Runs the shim and does not return, if this process was started as one; else returns at once.
///
/// To be called first thing in `main`, before anything starts a thread.
pub fn run_if_shim() {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = Path::new(&name).file_name().unwrap_or_default();
    if containerd::is_named(program) {
        std::process::exit(containerd::main(arguments.collect()));
    }
    if program == LOGGER_NAME {
        let arguments: Vec<OsString> = arguments.collect();
        let outcome = be_logger(Path::new(&name), &arguments);
        if let Err(reason) = &outcome {
            eprintln!("{LOGGER_NAME}: {reason}");
        }
        std::process::exit(i32::from(outcome.is_err()));
    }
    if program != SHIM_NAME {
        return;
    }
    let arguments: Vec<OsString> = arguments.collect();
    let outcome = match zygote::socket(&arguments) {
        None => become_shim(arguments),
        Some(socket) => become_zygote(socket, Leftovers::parse(&arguments)),
    };
    if let Err(error) = &outcome {
        logger::error!("{error}");
    }
    std::process::exit(i32::from(outcome.is_err()));
}

/// Why there is no shim, in one sentence.
struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn failed<E: std::error::Error>(doing: &'static str) -> impl Fn(E) -> StartError {
    move |error| StartError(format!("the shim cannot start: {doing}: {}", Chain(&error)))
}

/// Ends as a shim in each process that is forked, and as a zygote in this one.
fn become_zygote(socket: RawFd, leftovers: Option<Leftovers>) -> Result<(), StartError> {
    let serve = |socket| {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        set_name(ZYGOTE_PROCESS_NAME)?;
        zygote::serve(inherit(socket)?)
    };
    match serve(socket).map_err(failed("being a zygote"))? {
        Some(Born { arguments }) => become_shim(arguments),
        None => {
            if let Some(leftovers) = leftovers {
                leftovers.clear();
            }
            Ok(())
        }
    }
}

fn become_shim(arguments: Vec<OsString>) -> Result<(), StartError> {
    let arguments = Arguments::parse(arguments).map_err(failed("reading its arguments"))?;
    let host_mounts = isolate().map_err(failed("isolating itself"))?;
    let layout = Layout::detect().map_err(failed("finding the cgroups"))?;
    let result = block_on(serve(arguments, layout, host_mounts)).map_err(failed("starting its runtime"))?;
    result.map_err(failed("taking over its sockets"))
}

/// Runs a shim's life on the one thread that it has.
pub(crate) fn block_on<T>(life: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(POLLS_BETWEEN_IO)
        .build()?;
    Ok(LocalSet::new().block_on(&runtime, life))
}

/// Makes the process what a parent of containers has to be; answers with the host's mount namespace.
pub(crate) fn isolate() -> io::Result<OwnedFd> {
    // Its memory and descriptors are nobody's business, a container's least of all.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_name(PROCESS_NAME)?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    // It fails for a leader of a process group, who need not become one.
    let _ = setsid();
    let host_mounts = OwnedFd::from(File::open("/proc/self/ns/mnt")?);
    // SAFETY: there is one thread, and unsharing mounts takes nothing from it that it has borrowed.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    // What is mounted on the host later is seen here where the host's root is shared; what is mounted here is never seen
    // on the host.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // Logs and their directories have the modes that they are made with.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    std::env::set_current_dir("/")?;
    Ok(host_mounts)
}

async fn serve(arguments: Arguments, layout: Layout, host_mounts: OwnedFd) -> io::Result<()> {
    let lifeline =
        arguments.lifeline.map(inherit).transpose()?.map(pipe::Receiver::from_owned_fd).transpose()?;
    let requests_socket = listener(arguments.listen)?;
    let streams_socket = listener(arguments.streams)?;
    let children = reaper::listen()?;
    // Only `Shutdown`, the lifeline and SIGKILL end a shim: a signal that was meant for a group must not.
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    logger::note!("shim of pod {} is process {}", arguments.sandbox, std::process::id());

    let shim = Shim::new(arguments, layout, host_mounts);
    let (door, requests) = door();
    let mut server = ttrpc_server(requests_socket, &door);
    server.start().await.map_err(io::Error::other)?;
    tokio::task::spawn_local(reaper::run(shim.clone(), children));
    tokio::task::spawn_local(requests.serve(shim.clone()));
    tokio::task::spawn_local(streams::run(shim.clone(), streams_socket));
    crate::create::trim_memory();
    tokio::select! {
        () = shim.closed() => {}
        () = cut(lifeline) => end_with_daemon(&shim).await,
    }
    logger::note!("ending");
    // Waits for the answers that are on their way, for a bounded time.
    server.shutdown().await.map_err(io::Error::other)
}

fn ttrpc_server(socket: UnixListener, door: &Door) -> ttrpc::r#async::Server {
    task_server(socket, Arc::new(TaskService { door: door.clone() }))
        .register_service(create_extension(Arc::new(ExtensionService { door: door.clone() })))
}

/// A server of the Task API in both of its versions.
pub(crate) fn task_server(
    socket: UnixListener,
    tasks: Arc<dyn task_v2::Task + Send + Sync>,
) -> ttrpc::r#async::Server {
    let mut services = task_v2::create_task(tasks.clone());
    // The versions differ in the name alone.
    let mut again = task_v2::create_task(tasks);
    if let Some(service) = again.remove(TASK_V2_SERVICE) {
        services.insert(TASK_V3_SERVICE.to_owned(), service);
    }
    let connections = stream::unfold(socket, |socket| async {
        let connection = accept(&socket).await;
        Some((io::Result::Ok(connection), socket))
    });
    ttrpc::r#async::Server::new().add_listener(Listener::new(connections)).register_service(services)
}

/// Waits until the daemon's end of the lifeline is closed; for ever without one.
async fn cut(lifeline: Option<pipe::Receiver>) {
    let Some(mut lifeline) = lifeline else {
        return std::future::pending().await;
    };
    let mut byte = [0; 1];
    // Nothing is ever written to it; if something is, it means nothing.
    while lifeline.read(&mut byte).await.is_ok_and(|count| count > 0) {}
}

/// The daemon that this shim was not to outlive is gone.
async fn end_with_daemon(shim: &Rc<Shim>) {
    logger::note!("the daemon is gone, everything ends");
    shim.close();
    delete::end_pod(shim, delete::EndTime::Free).await;
    if let Some(pod) = &*shim.pod.borrow() {
        pod.unmount_shm();
    }
    if let Err(error) = delete::remove_own(&shim.arguments.directory) {
        logger::error!("{:?} stays: {error}", shim.arguments.directory);
    }
    // The cgroup above was that daemon's own. It goes with the last of its pods.
    leftovers::leave(&shim.layout, &shim.arguments.cgroup, shim.arguments.throw_away.as_deref());
}
