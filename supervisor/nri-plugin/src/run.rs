//! Running a plugin.
//!
//! Owns: connecting, and connecting again with growing pauses. Never: knows what is spoken.

use std::sync::Arc;
use std::time::Duration;

use mainstay_nri_api::mux::Closed;
use tokio::net::UnixStream;

use crate::options::{Door, Options, Reconnect};
use crate::plugin::Plugin;
use crate::session::{ConnectError, Session};

/// The pause before the first attempt to connect again, in milliseconds. It doubles with each that fails.
pub const RECONNECT_FIRST_MS: u64 = 100;
/// The longest pause, in milliseconds.
pub const RECONNECT_MAX_MS: u64 = 10_000;

/// Runs a plugin until its connection ends, or for ever with [`Reconnect::Always`]. A runtime that does not want it ends it in any
/// case, as does a first attempt that fails.
pub async fn run<P: Plugin>(plugin: P, options: Options) -> Result<Closed, ConnectError> {
    let plugin = Arc::new(plugin);
    let path = match &options.door {
        Door::Socket(path) => path.clone(),
        Door::Connection(connection) => {
            let socket = connection.try_clone()?;
            socket.set_nonblocking(true)?;
            return live(&plugin, &options, UnixStream::from_std(socket)?).await;
        }
    };
    let closed = live(&plugin, &options, UnixStream::connect(&path).await?).await?;
    if options.reconnect == Reconnect::Never {
        return Ok(closed);
    }
    let mut pause_ms = RECONNECT_FIRST_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        pause_ms = (pause_ms * 2).min(RECONNECT_MAX_MS);
        let Ok(socket) = UnixStream::connect(&path).await else { continue };
        match live(&plugin, &options, socket).await {
            Ok(_) => pause_ms = RECONNECT_FIRST_MS,
            Err(error @ ConnectError::Refused(_)) => return Err(error),
            Err(error) => tracing::debug!(%error, "the runtime is tried again"),
        }
    }
}

async fn live<P: Plugin>(
    plugin: &Arc<P>,
    options: &Options,
    socket: UnixStream,
) -> Result<Closed, ConnectError> {
    let session = Session::open(
        Arc::clone(plugin),
        &options.identity,
        socket,
        #[cfg(feature = "faults")]
        options.faults.clone(),
    )
    .await?;
    let closed = session.closed().await;
    plugin.closed(closed.clone()).await;
    Ok(closed)
}
