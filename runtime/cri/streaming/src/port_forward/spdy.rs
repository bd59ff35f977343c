//! Port-forward over SPDY: each connection has a stream with its data and one for what goes wrong.
//!
//! Owns: the pairs of one client, each served by a task of its own. Never: ends one because of another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::STALL_MS;
use super::forward::{AfterPod, Forwarded, Inbound, Outbound, forward};
use super::pairs::{Announced, Arrived, Pairs};
use crate::backend::OpenPort;
use crate::peer::Peer;
use crate::settings::STREAM_CREATION_MS;
use crate::spdy::connection::{Connection, NewStream, OnStall, Piece, StreamReader, StreamWriter};
use crate::spdy::frame::ResetCode;
use crate::spdy::table::STREAMS_MAX;

/// The most connections of one client at the same time: as many as it has streams for.
pub const FORWARDS_MAX: usize = STREAMS_MAX / 2;

/// Serves all connections of one client.
pub(crate) async fn serve<Io>(io: Io, peer: Peer, idle: Duration, ports: Arc<dyn OpenPort>)
where
    Io: AsyncRead + AsyncWrite + Send + 'static,
{
    let stall = OnStall::Reset(Duration::from_millis(STALL_MS));
    let (connection, mut arriving) = Connection::start(io, peer, idle, stall);
    let mut pairs = Pairs::new(Duration::from_millis(STREAM_CREATION_MS));
    let mut forwards = JoinSet::new();
    loop {
        while forwards.try_join_next().is_some() {}
        let late = async {
            match pairs.next_deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        let stream = tokio::select! {
            stream = arriving.recv() => stream,
            () = late => {
                for (announced, stream) in pairs.expired(Instant::now()) {
                    give_up(&announced, stream).await;
                }
                continue;
            }
        };
        let Some(stream) = stream else { break };
        let announced = match Announced::read(stream.id, &stream.headers) {
            Ok(announced) => announced,
            Err(unclear) => {
                tracing::debug!(%unclear, "a client opened a stream that a port-forward does not have");
                let _ = stream.writer.reset(ResetCode::PROTOCOL_ERROR).await;
                continue;
            }
        };
        let accepted = stream.writer.clone();
        match pairs.arrived(announced, stream, Instant::now()) {
            Arrived::Waits => {
                let _ = accepted.accept().await;
            }
            Arrived::Twice(stream) => {
                let _ = stream.writer.reset(ResetCode::PROTOCOL_ERROR).await;
            }
            Arrived::TooMany(stream) => {
                let _ = stream.writer.reset(ResetCode::REFUSED_STREAM).await;
            }
            Arrived::Pair { port, data, error } => {
                let _ = accepted.accept().await;
                if forwards.len() >= FORWARDS_MAX {
                    let message =
                        format!("{FORWARDS_MAX} connections are forwarded already, which is the limit");
                    fail(message, &data.writer, &error.writer).await;
                    continue;
                }
                forwards.spawn(serve_pair(port, data, error.writer, Arc::clone(&ports)));
            }
        }
    }
    // The client is gone: whatever is still forwarded for it is, too.
    drop(forwards);
    drop(connection);
}

async fn give_up(announced: &Announced, stream: NewStream) {
    let Announced { request, role, port } = announced;
    let message = format!(
        "request {request:?} for port {port} has no other stream than {role:?} after {STREAM_CREATION_MS} ms; it needs data and error"
    );
    tracing::debug!("{message}");
    if *role == super::pairs::Role::Error {
        let _ = stream.writer.data(message.into()).await;
        let _ = stream.writer.finish().await;
    } else {
        let _ = stream.writer.reset(ResetCode::CANCEL).await;
    }
}

async fn serve_pair(port: u16, data: NewStream, error: StreamWriter, ports: Arc<dyn OpenPort>) {
    let NewStream { mut reader, writer, .. } = data;
    match ports.connect(port).await {
        Ok(connection) => {
            let mut outbound = ToStream { data: &writer, error: &error };
            match forward(connection, &mut reader, &mut outbound).await {
                Forwarded::Done => {}
                Forwarded::ClientLeft | Forwarded::PodReset => {
                    let _ = writer.reset(ResetCode::CANCEL).await;
                }
            }
        }
        Err(failure) => fail(failure.0, &writer, &error).await,
    }
    let _ = error.finish().await;
}

async fn fail(message: String, data: &StreamWriter, error: &StreamWriter) {
    let _ = error.data(message.into()).await;
    let _ = error.finish().await;
    let _ = data.reset(ResetCode::INTERNAL_ERROR).await;
}

impl Inbound for StreamReader {
    async fn next(&mut self) -> Option<Piece> {
        StreamReader::next(self).await
    }
}

struct ToStream<'a> {
    data: &'a StreamWriter,
    error: &'a StreamWriter,
}

impl Outbound for ToStream<'_> {
    async fn send(&mut self, bytes: Bytes) -> bool {
        self.data.data(bytes).await.is_ok()
    }

    async fn finish(&mut self) -> AfterPod {
        let _ = self.data.finish().await;
        // Clients wait for the end of both before they end their own direction.
        let _ = self.error.finish().await;
        AfterPod::GoesOn
    }
}
