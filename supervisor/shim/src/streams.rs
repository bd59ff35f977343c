//! The stream socket's server: who may attach to which process (STREAMS.md of `mainstay-task-api`).
//!
//! Owns: the opening, and what a client writes. What it reads is written by output/attach.rs. Never: lets one client
//! hold up another's, or keeps a client that says nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::codec::HEADER_LENGTH;
use mainstay_task_api::streams::{
    Decoder, FRAME_PAYLOAD_MAX_BYTES, Frame, OPEN_FORMAT, OpenAnswer, OpenRefusal, OpenRequest, Opened,
    StdinUse,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::logger;
use crate::output::attach::{Client, serve};
use crate::output::{ATTACH_CLIENTS_MAX, AttachRefusal};
use crate::process::Process;
use crate::shim::Shim;
use crate::sockets::accept;

/// How long a client may take to say what it wants, in milliseconds.
const OPEN_MS: u64 = 10_000;

/// The most connections at a time; more wait to be accepted.
const STREAM_CONNECTIONS_MAX: usize = 1_024;

/// A client that has been attached.
struct Attached {
    process: Rc<Process>,
    client: Rc<Client>,
    /// To be sent before anything else.
    answer: Vec<u8>,
}

/// Accepts clients for as long as the shim lives.
pub(crate) async fn run(shim: Rc<Shim>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(STREAM_CONNECTIONS_MAX));
    // It fails only when the semaphore is closed, which nobody does.
    while let Ok(place) = places.clone().acquire_owned().await {
        let socket = accept(&listener).await;
        let shim = shim.clone();
        tokio::task::spawn_local(async move {
            client(shim, socket).await;
            drop(place);
        });
    }
}

async fn client(shim: Rc<Shim>, mut socket: UnixStream) {
    let request = match timeout(Duration::from_millis(OPEN_MS), read_request(&mut socket)).await {
        Ok(Ok(request)) => request,
        Ok(Err(reason)) => return refuse(socket, OpenRefusal::Malformed { reason }).await,
        Err(_) => return,
    };
    match attach(&shim, &request) {
        Ok(Attached { process, client, answer }) => {
            let socket = Rc::new(socket);
            tokio::task::spawn_local(serve(client.clone(), process.output.clone(), socket.clone(), answer));
            read_input(&request, &process, &client, &socket).await;
        }
        Err(refusal) => refuse(socket, refusal).await,
    }
}

async fn read_request(socket: &mut UnixStream) -> Result<OpenRequest, String> {
    let cut = |error: std::io::Error| error.to_string();
    let bad = |error: mainstay_messages::codec::CodecError| logger::Chain(&error).to_string();
    let mut header = [0; HEADER_LENGTH];
    socket.read_exact(&mut header).await.map_err(cut)?;
    let header = OPEN_FORMAT.header(&header).map_err(bad)?;
    let mut body = vec![0; header.length];
    socket.read_exact(&mut body).await.map_err(cut)?;
    OPEN_FORMAT.open_body(header, &body).map_err(bad)
}

/// Attaches a client.
fn attach(shim: &Shim, request: &OpenRequest) -> Result<Attached, OpenRefusal> {
    let key = request.process();
    let name = key.to_string();
    let Ok(process) = shim.process(&key) else {
        return Err(OpenRefusal::NotFound { process: name });
    };
    if request.stdin == StdinUse::Yes && process.stdin.is_closed() && process.exit().is_none() {
        return Err(OpenRefusal::StdinClosed { process: name });
    }
    let answer: OpenAnswer = Ok(Opened { terminal: process.terminal });
    let answer =
        OPEN_FORMAT.seal(&answer).map_err(|error| OpenRefusal::Malformed { reason: error.to_string() })?;
    let client = Client::new(request.on_lag);
    match process.output.attach(client.clone()) {
        Ok(()) => Ok(Attached { process, client, answer }),
        Err(AttachRefusal::Over) => Err(OpenRefusal::Ended { process: name }),
        Err(AttachRefusal::TooMany) => {
            Err(OpenRefusal::TooManyClients { process: name, limit: ATTACH_CLIENTS_MAX as u32 })
        }
    }
}

async fn refuse(mut socket: UnixStream, refusal: OpenRefusal) {
    let answer: OpenAnswer = Err(refusal);
    if let Ok(frame) = OPEN_FORMAT.seal(&answer) {
        // A client that has left need not be told.
        let _ = timeout(Duration::from_millis(OPEN_MS), socket.write_all(&frame)).await;
    }
}

/// Reads what a client writes until it leaves or its streams are over.
async fn read_input(request: &OpenRequest, process: &Process, client: &Rc<Client>, socket: &UnixStream) {
    let mut writes = request.stdin;
    let mut decoder = Decoder::default();
    loop {
        let more = tokio::select! {
            more = read_more(socket, &mut decoder) => more,
            () = client.left() => return done(writes, process),
        };
        if !more {
            break;
        }
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(Frame::Stdin(bytes))) if writes == StdinUse::Yes => tokio::select! {
                    () = process.stdin.write(&bytes) => {}
                    () = client.left() => return done(writes, process),
                },
                Ok(Some(Frame::StdinEof)) if writes == StdinUse::Yes => {
                    process.stdin.client_done();
                    writes = StdinUse::No;
                }
                Ok(Some(_)) => {
                    logger::warning!("{}: a client sent a frame that is not its to send", process.key);
                    client.leave();
                    return done(writes, process);
                }
                Err(error) => {
                    logger::warning!("{}: a client sent nonsense: {error}", process.key);
                    client.leave();
                    return done(writes, process);
                }
            }
        }
    }
    client.leave();
    done(writes, process);
}

fn done(writes: StdinUse, process: &Process) {
    if writes == StdinUse::Yes {
        process.stdin.client_done();
    }
}

/// Reads once; `false` when the client has left.
async fn read_more(socket: &UnixStream, decoder: &mut Decoder) -> bool {
    loop {
        if socket.readable().await.is_err() {
            return false;
        }
        let mut buffer = [0; FRAME_PAYLOAD_MAX_BYTES / 8];
        match socket.try_read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => {
                decoder.push(&buffer[..count]);
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}
