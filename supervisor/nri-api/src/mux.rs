//! Two connections over one socket, the same at both ends.
//!
//! Owns: the socket, the frames on it, the two [`Channel`]s, and the one reason why all of it ended ([`Closed`]). Never:
//! knows what is spoken on a channel, or joins, cuts or holds back what is written: one write is one frame.
//!
//! ```text
//!  Channel 1 ──write──► ┌───────────┐            ┌────────┐ ──► queue of channel 1 ──read──► Channel 1
//!                       │ at once,  │ ─ socket ─ │ reader │
//!  Channel 2 ──write──► │ or queued │            └────────┘ ──► queue of channel 2 ──read──► Channel 2
//!                       └───────────┘
//! ```
//!
//! The peers written in Go fail when a frame is longer than the buffer with which they read, which has 4,096 bytes for the
//! head of a message and the length of the rest for the rest. ttrpc writes in just these two pieces. So nothing here may cut or
//! join them.
//!
//! A write never waits. What the socket does not take is queued; more than [`UNSENT_MAX_BYTES`] of it means that the
//! peer does not read, and closes all. In the other direction a full queue holds up the reader for at most
//! [`QUEUE_PATIENCE_MS`]; whoever should read it then never will, and that closes all as well.

mod channel;
mod closed;
mod frame;
mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::task::JoinHandle;

pub use channel::Channel;
pub use closed::{Closed, Closing};
pub use frame::{FRAME_MAX_BYTES, HEADER_BYTES, Header};
pub use incoming::{QUEUE_FRAMES, QUEUE_PATIENCE_MS};
pub use outgoing::UNSENT_MAX_BYTES;

/// The connection on which the plugin serves.
pub const PLUGIN_CONNECTION: u32 = 1;
/// The connection on which the runtime serves.
pub const RUNTIME_CONNECTION: u32 = 2;

/// A socket that carries two connections. Dropped, it closes them.
#[derive(Debug)]
pub struct Mux {
    socket: Arc<UnixStream>,
    closing: Closing,
    tasks: [JoinHandle<()>; 2],
}

/// The two connections of a socket.
#[derive(Debug)]
pub struct Channels {
    /// Number [`PLUGIN_CONNECTION`].
    pub plugin: Channel,
    /// Number [`RUNTIME_CONNECTION`].
    pub runtime: Channel,
}

impl Mux {
    /// Begins to read. Must be called in a tokio runtime.
    pub fn new(socket: UnixStream) -> (Mux, Channels) {
        let socket = Arc::new(socket);
        let closing = Closing::new();
        let outgoing = outgoing::Outgoing::new(Arc::clone(&socket), closing.clone());
        let (plugin, plugin_frames) = incoming::queue();
        let (runtime, runtime_frames) = incoming::queue();
        let queues = incoming::Queues { plugin, runtime };
        let reader = read_and_shut(Arc::clone(&socket), queues, closing.clone());
        let writer = outgoing::write(Arc::clone(&outgoing));
        let channels = Channels {
            plugin: Channel::new(PLUGIN_CONNECTION, plugin_frames, Arc::clone(&outgoing)),
            runtime: Channel::new(RUNTIME_CONNECTION, runtime_frames, outgoing),
        };
        (Mux { socket, closing, tasks: [tokio::spawn(reader), tokio::spawn(writer)] }, channels)
    }

    /// The same with a socket of the standard library.
    pub fn from_std(socket: StdUnixStream) -> io::Result<(Mux, Channels)> {
        socket.set_nonblocking(true)?;
        Ok(Self::new(UnixStream::from_std(socket)?))
    }

    /// To close it, and to wait for its end, from elsewhere.
    pub fn closing(&self) -> Closing {
        self.closing.clone()
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        self.closing.close(Closed::here("it is not needed any more"));
        shut(&self.socket);
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Reads until the end, whoever made it, and lets the other side see it.
async fn read_and_shut(socket: Arc<UnixStream>, queues: incoming::Queues, closing: Closing) {
    incoming::read(Arc::clone(&socket), queues, closing).await;
    shut(&socket);
}

/// Ends the connection now, and not when all who hold a channel have noticed. What was sent is still read.
fn shut(socket: &UnixStream) {
    // It fails only when the other side has ended it.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}
