//! The way from ttrpc's handlers, which must be able to move between threads, to the shim, which never does.
//!
//! Owns: the queue of requests. Never: looks into one. A request that was handed over is carried out also when its
//! caller leaves.

use std::future::Future;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;
use crate::shim::Shim;

/// The most requests that wait to be begun; more are held back on their connections.
const REQUESTS_WAITING_MAX: usize = 64;

type Work = Box<dyn FnOnce(Rc<Shim>) -> LocalBoxFuture<'static, ()> + Send>;

/// The handlers' end.
#[derive(Clone)]
pub(crate) struct Door {
    requests: mpsc::Sender<Work>,
}

/// The shim's end.
pub(crate) struct Requests(mpsc::Receiver<Work>);

/// Makes both ends.
pub(crate) fn door() -> (Door, Requests) {
    let (sender, receiver) = mpsc::channel(REQUESTS_WAITING_MAX);
    (Door { requests: sender }, Requests(receiver))
}

impl Door {
    /// Has the shim do something, and waits for what comes of it.
    pub(crate) async fn ask<T, F, W>(&self, work: F) -> ttrpc::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shim>) -> W + Send + 'static,
        W: Future<Output = Result<T, Failure>> + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |shim| {
            Box::pin(async move {
                // The caller may have left.
                let _ = reply.send(work(shim).await.map_err(ttrpc::Error::from));
            })
        });
        let lost = |what| ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::INTERNAL, what));
        self.requests.send(work).await.map_err(|_| lost("this shim is shutting down"))?;
        answer.await.map_err(|_| lost("the request failed inside the shim; its log says how"))?
    }
}

impl Requests {
    /// Begins each request in a task of its own, so that one that panics or hangs harms itself alone.
    pub(crate) async fn serve(mut self, shim: Rc<Shim>) {
        while let Some(work) = self.0.recv().await {
            tokio::task::spawn_local(work(shim.clone()));
        }
    }
}
