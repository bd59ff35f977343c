//! One connection to a port of a pod, and the client's side of it.
//!
//! ```text
//!   the client sends its last ─► the pod is told, and may go on sending
//!   the pod sends its last    ─► the client is told, and may go on sending
//!   either breaks             ─► both are over
//! ```
//!
//! Owns: the bytes on their way. Never: keeps more than one piece of each direction.

use std::future::Future;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::PortConnection;
use crate::spdy::connection::Piece;
use crate::spdy::frame::DATA_PIECE_BYTES_MAX;

/// What the client sends to a port.
pub(super) trait Inbound: Send {
    /// The next piece; none when it is gone.
    fn next(&mut self) -> impl Future<Output = Option<Piece>> + Send;
}

/// What the client gets from a port.
pub(super) trait Outbound: Send {
    /// Sends bytes; false when nobody wants them any more.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = bool> + Send;
    /// The pod sends no more.
    fn finish(&mut self) -> impl Future<Output = AfterPod> + Send;
}

/// What the end of the pod's direction is to the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterPod {
    /// It goes on until the client says otherwise.
    GoesOn,
    /// It is over as well: there is no way for the client to end it alone.
    IsOver,
}

/// How it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// Both sides have sent their last.
    Done,
    /// The client is gone, or has reset its stream.
    ClientLeft,
    /// The pod has reset the connection.
    PodReset,
}

/// Passes bytes until both directions are over.
pub(super) async fn forward(
    connection: Box<dyn PortConnection>,
    inbound: &mut impl Inbound,
    outbound: &mut impl Outbound,
) -> Forwarded {
    let (mut pod_read, mut pod_write) = tokio::io::split(connection);
    let up = async {
        loop {
            match inbound.next().await {
                Some(Piece::Data(bytes)) => {
                    if pod_write.write_all(&bytes).await.is_err() {
                        // What it says last is still to be read.
                        return Ok(());
                    }
                }
                Some(Piece::End) => {
                    let _ = pod_write.shutdown().await;
                    return Ok(());
                }
                None => return Err(Forwarded::ClientLeft),
            }
        }
    };
    let down = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(DATA_PIECE_BYTES_MAX);
            match pod_read.read_buf(&mut buffer).await {
                Ok(0) => {
                    return match outbound.finish().await {
                        AfterPod::GoesOn => Ok(()),
                        AfterPod::IsOver => Err(Forwarded::Done),
                    };
                }
                Ok(_) => {
                    if !outbound.send(buffer.split().freeze()).await {
                        return Err(Forwarded::ClientLeft);
                    }
                }
                Err(_) => return Err(Forwarded::PodReset),
            }
        }
    };
    match futures::future::try_join(up, down).await {
        Ok(_) => Forwarded::Done,
        Err(end) => end,
    }
}
