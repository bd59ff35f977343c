//! The shim's socket. Owns: frames in and out, and the faults that strike there. Never: knows what a call does.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_task_api::task::CreateTaskResponse;
use mainstay_task_api::{Message as _, MessageField};
use rustix::io::write as write_raw;
use rustix::process::Signal;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use ttrpc::proto::Message;
use ttrpc::{Code, Request, Response, Status, get_status};

use crate::arguments::Arguments;
use crate::commands::note;
use crate::events::Publisher;
use crate::plan::{Fault, Plan};
use crate::sandbox;
use crate::task::Shim;

/// What the program calls itself for to serve.
pub const COMMAND: &str = "serve";
/// The variable that holds the path of its socket.
pub const SOCKET: &str = "FAULT_SHIM_SOCKET";
/// What a process says that ends because the plan says so.
const DIED: i32 = 70;

/// What a call comes to.
pub type Answer = Result<Vec<u8>, Status>;

/// Serves until it is told to end.
pub fn run(arguments: Arguments) -> io::Result<u8> {
    let plan = Plan::read(&arguments.folder);
    // SAFETY: `start` has put them there, and nothing else in this program knows of them.
    let (listener, started) = unsafe { (OwnedFd::from_raw_fd(3), OwnedFd::from_raw_fd(4)) };
    match plan.get("serve") {
        "die" => {
            // The end of the pipe comes when `start` has ended.
            rustix::io::read(&started, &mut [0; 1])?;
            return Ok(0);
        }
        "deaf" => loop {
            std::thread::park();
        },
        _ => {}
    }
    // It holds nothing that `start` had, or whoever waits for the end of that would wait for us.
    drop(started);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    eprintln!("the fault shim serves {}", arguments.id);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = std::os::unix::net::UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let events = std::env::var("TTRPC_ADDRESS").ok().filter(|address| !address.is_empty());
        let publisher = Publisher::start(events, arguments.namespace.clone());
        let shim = Arc::new(Shim::new(arguments.namespace, arguments.folder, publisher));
        loop {
            tokio::select! {
                connection = listener.accept() => {
                    tokio::spawn(connected(Arc::clone(&shim), connection?.0));
                }
                () = shim.told_to_end() => break,
            }
        }
        if let Some(socket) = std::env::var_os(SOCKET) {
            std::fs::remove_file(PathBuf::from(socket))?;
        }
        Ok(0)
    })
}

async fn connected(shim: Arc<Shim>, stream: UnixStream) {
    if shim.plan().get("serve") == "close" {
        return;
    }
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(Mutex::new(writer));
    // A connection that is closed, or says what is no frame, is over.
    while let Ok(frame) = Message::<Request>::read_from(&mut reader).await {
        let (shim, writer) = (Arc::clone(&shim), Arc::clone(&writer));
        tokio::spawn(async move { called(&shim, &writer, frame).await });
    }
}

async fn called(shim: &Shim, writer: &Mutex<OwnedWriteHalf>, frame: Message<Request>) {
    let Request { service, method, payload, .. } = &frame.payload;
    let plan = shim.plan();
    note(&shim.folder, &format!("{method} {}", shim.named(method, payload)));
    let stream = frame.header.stream_id;
    let fault = plan.fault(method);
    match &fault {
        Some(Fault::Refuse(text)) => {
            return send(writer, stream, Err(get_status(Code::UNKNOWN, text.clone()))).await;
        }
        Some(Fault::Unknown) => return send(writer, stream, Err(unimplemented(service, method))).await,
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::Die) => die(shim),
        _ => {}
    }
    let v3 = plan.get("task") == "v3";
    let mut answer = match service.as_str() {
        mainstay_task_api::TASK_V3_SERVICE if v3 => shim.call(method, payload).await,
        mainstay_task_api::TASK_V2_SERVICE if !v3 => shim.call(method, payload).await,
        mainstay_task_api::SANDBOX_SERVICE if plan.get("sandbox") == "yes" => {
            sandbox::call(shim, method, payload).await
        }
        _ => Err(unimplemented(service, method)),
    };
    match fault {
        Some(Fault::HangAfter) => std::future::pending().await,
        Some(Fault::DieAfter) => die(shim),
        Some(Fault::LateMs(time)) => tokio::time::sleep(Duration::from_millis(time)).await,
        Some(Fault::Twice) => send(writer, stream, answer.clone()).await,
        Some(Fault::Garbage) => answer = answer.map(|_| vec![0xff; 33]),
        Some(Fault::Noise) => {
            let noise = writer.lock().await;
            // Whoever sees it closes the connection.
            let _ = write_raw(noise.as_ref(), &[0xff; 64]);
            return;
        }
        // The first field of every answer that has a process id.
        Some(Fault::Pid(pid)) => {
            let wrong = CreateTaskResponse { pid, ..Default::default() };
            answer = answer.map(|_| wrong.write_to_bytes().expect("it is small"));
        }
        _ => {}
    }
    send(writer, stream, answer).await;
    shim.answered(method, payload);
}

async fn send(writer: &Mutex<OwnedWriteHalf>, stream: u32, answer: Answer) {
    let mut response = Response::new();
    match answer {
        Ok(payload) => {
            response.status = MessageField::some(get_status(Code::OK, ""));
            response.payload = payload;
        }
        Err(status) => response.status = MessageField::some(status),
    }
    let payload = response.write_to_bytes().expect("it is small");
    let header =
        ttrpc::MessageHeader::new_response(stream, u32::try_from(payload.len()).expect("it is small"));
    let message = Message { header, payload: response };
    // The other side may be gone.
    let _ = message.write_to(&mut *writer.lock().await).await;
}

/// What is said of a call that is not there.
pub fn unimplemented(service: &str, method: &str) -> Status {
    get_status(Code::UNIMPLEMENTED, format!("{service}/{method}"))
}

fn die(shim: &Shim) -> ! {
    if shim.plan().get("death") == "clean" {
        shim.groups().iter().for_each(|group| group.signal(Signal::KILL));
    }
    std::process::exit(DIED)
}
