//! One client of the stream socket that reads a process's output.
//!
//! Owns: what waits for the client, and what happens when it is slow. Never: makes the process wait for a client that
//! asked to be cut off instead, or keeps more than [`ATTACH_BUFFER_BYTES`] for it.
//!
//! ```text
//!  Open ──process over──▶ Ending: the queue, then `end`        Open ──too slow──▶ Lagged: `lagged`
//!    └──────────────────── socket broke ──▶ Gone
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mainstay_task_api::streams::{
    FRAME_HEADER_LENGTH, FRAME_PAYLOAD_MAX_BYTES, FrameKind, OnLag, data_header, encode_end, encode_lagged,
};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Output;

/// The most that waits for a client that does not keep up, in bytes.
pub(crate) const ATTACH_BUFFER_BYTES: usize = 256 * 1024;
/// How long the last bytes may take on their way to a client after its process has ended or it was cut off, in
/// milliseconds.
pub(crate) const CLIENT_CLOSE_MS: u64 = 30_000;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    on_lag: OnLag,
    queue: RefCell<Vec<u8>>,
    /// Bytes that the writer has taken from the queue and not written yet.
    in_flight: Cell<usize>,
    state: Cell<State>,
    /// Told when there is something for the writer.
    work: Notify,
    /// Told when the client has gone, for its reader.
    gone: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ending,
    Lagged { dropped_bytes: u64 },
    Gone,
}

/// Whether a client takes more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferRoom {
    /// It does, or is cut off if it does not keep up.
    Go,
    /// It must not lose anything and has not caught up.
    Wait,
}

impl Client {
    /// A new client.
    pub(crate) fn new(on_lag: OnLag) -> Rc<Self> {
        Rc::new(Self {
            on_lag,
            queue: RefCell::default(),
            in_flight: Cell::new(0),
            state: Cell::new(State::Open),
            work: Notify::new(),
            gone: Notify::new(),
        })
    }

    /// Whether it takes more output.
    pub(crate) fn room(&self) -> OfferRoom {
        match self.on_lag {
            OnLag::Block if self.state.get() == State::Open && self.waiting() > 0 => OfferRoom::Wait,
            _ => OfferRoom::Go,
        }
    }

    /// Queues output, or cuts the client off.
    pub(crate) fn offer(&self, kind: FrameKind, bytes: &[u8]) {
        match self.state.get() {
            State::Open => {}
            State::Lagged { dropped_bytes } => {
                let dropped_bytes = dropped_bytes + bytes.len() as u64;
                return self.state.set(State::Lagged { dropped_bytes });
            }
            State::Ending | State::Gone => return,
        }
        let mut queue = self.queue.borrow_mut();
        if self.on_lag == OnLag::Detach && self.waiting_with(&queue) + bytes.len() > ATTACH_BUFFER_BYTES {
            let dropped_bytes = payload_bytes(&queue) + bytes.len() as u64;
            *queue = Vec::new();
            self.state.set(State::Lagged { dropped_bytes });
        } else {
            for chunk in bytes.chunks(FRAME_PAYLOAD_MAX_BYTES) {
                queue.extend_from_slice(&data_header(kind, chunk.len()));
                queue.extend_from_slice(chunk);
            }
        }
        self.work.notify_one();
    }

    /// The process's streams are over.
    pub(crate) fn end(&self) {
        if self.state.get() == State::Open {
            self.state.set(State::Ending);
        }
        self.work.notify_one();
    }

    /// The client has left, or cannot be written to.
    pub(crate) fn leave(&self) {
        self.state.set(State::Gone);
        *self.queue.borrow_mut() = Vec::new();
        self.work.notify_one();
        self.gone.notify_one();
    }

    /// Waits until the client has left or its streams are over.
    pub(crate) async fn left(&self) {
        self.gone.notified().await;
    }

    fn waiting(&self) -> usize {
        self.waiting_with(&self.queue.borrow())
    }

    fn waiting_with(&self, queue: &[u8]) -> usize {
        queue.len() + self.in_flight.get()
    }
}

/// Writes the answer to a client's opening, then output until its streams are over, it was cut off, or it has left.
pub(crate) async fn serve(client: Rc<Client>, output: Rc<Output>, socket: Rc<UnixStream>, answer: Vec<u8>) {
    if send(&socket, &answer).await.is_ok() {
        write_output(&client, &output, &socket).await;
    }
    client.in_flight.set(0);
    client.leave();
    output.detach(&client);
}

async fn write_output(client: &Client, output: &Output, socket: &UnixStream) {
    loop {
        let queued = std::mem::take(&mut *client.queue.borrow_mut());
        client.in_flight.set(queued.len());
        if queued.is_empty() {
            match client.state.get() {
                State::Open => client.work.notified().await,
                State::Ending => return send_last(socket, &encode_end()).await,
                State::Lagged { dropped_bytes } => {
                    return send_last(socket, &encode_lagged(dropped_bytes)).await;
                }
                State::Gone => return,
            }
            continue;
        }
        let sent = tokio::select! {
            sent = send(socket, &queued) => sent,
            () = overdue(client) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        client.in_flight.set(0);
        if sent.is_err() {
            return;
        }
        output.client_caught_up();
    }
}

/// Waits until a client that is on its way out has used up its time.
async fn overdue(client: &Client) {
    while client.state.get() == State::Open {
        client.work.notified().await;
    }
    if client.state.get() != State::Gone {
        tokio::time::sleep(Duration::from_millis(CLIENT_CLOSE_MS)).await;
    }
}

async fn send_last(socket: &UnixStream, frame: &[u8]) {
    // A client that does not take even this is closed without it.
    let _ = timeout(Duration::from_millis(CLIENT_CLOSE_MS), send(socket, frame)).await;
}

async fn send(socket: &UnixStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of output in whole frames.
fn payload_bytes(mut frames: &[u8]) -> u64 {
    let mut sum = 0;
    while let Some(([_, a, b, c, d], rest)) = frames.split_first_chunk::<FRAME_HEADER_LENGTH>() {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        sum += length as u64;
        frames = rest.get(length..).unwrap_or_default();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_after(on_lag: OnLag, bytes: usize) -> State {
        let client = Client::new(on_lag);
        for _ in 0..bytes / 1_000 {
            client.offer(FrameKind::Stdout, &[0; 1_000]);
        }
        client.state.get()
    }

    /// A client that never reads must cost no more than its buffer, and be told what it missed.
    #[test]
    fn a_slow_client_is_cut_off_at_the_limit() {
        assert_eq!(state_after(OnLag::Detach, 100_000), State::Open);
        assert_eq!(state_after(OnLag::Detach, 1_000_000), State::Lagged { dropped_bytes: 1_000_000 });
        let client = Client::new(OnLag::Detach);
        client.offer(FrameKind::Stdout, &vec![0; ATTACH_BUFFER_BYTES + 1]);
        assert_eq!(client.waiting(), 0);
    }

    #[test]
    fn a_lossless_client_makes_the_process_wait() {
        let client = Client::new(OnLag::Block);
        assert_eq!(client.room(), OfferRoom::Go);
        client.offer(FrameKind::Stdout, b"x");
        assert_eq!(client.room(), OfferRoom::Wait);
        client.leave();
        assert_eq!(client.room(), OfferRoom::Go);
    }
}
