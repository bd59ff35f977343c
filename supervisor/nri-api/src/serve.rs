//! Serving on one connection, the same at both ends.
//!
//! Owns: the server of ttrpc, for as long as the connection lives. Never: listens.

use std::collections::HashMap;
use std::io;

use ttrpc::asynchronous::transport::Listener;
use ttrpc::asynchronous::{Server, Service};

use crate::mux::{Channel, Closing};

/// Serves `services` on a channel until the connection has ended. Must be called in a tokio runtime.
pub async fn serve(services: HashMap<String, Service>, channel: Channel, closing: Closing) -> io::Result<()> {
    let listener = Listener::new(futures::stream::iter([Ok(channel)]));
    let mut server = Server::new().register_service(services).add_listener(listener);
    server.start().await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        closing.closed().await;
        // What it was asked and has not answered ends with it.
        drop(server);
    });
    Ok(())
}
