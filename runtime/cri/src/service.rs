//! The two services of the interface over a [`Node`]: how calls are run and answered.
//!
//! Owns: that work which was begun goes on when its caller leaves (P4, P5), that a call which panics harms itself alone (P9), and that
//! no answer is larger than a client takes (P11). Never: knows what a call does.

mod image;
mod runtime;

use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use mainstay_cri_api::Message;
use mainstay_messages::Error;
use tonic::{Request, Response, Status};

use crate::failure::{Failure, Result};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::node::Node;

/// The answers of a call that streams them.
pub(crate) type Answers<A> = BoxStream<'static, Result<A>>;
/// The answer to a client.
type Answer<A> = Result<Response<A>, Status>;
/// The answers to a client.
type Streaming<A> = BoxStream<'static, Result<A, Status>>;
/// The answer to a client that has a stream in it.
type StreamAnswer<A> = Answer<Streaming<A>>;

/// The services.
#[derive(Clone, Debug)]
pub(crate) struct Calls(pub(crate) Arc<Node>);

impl Calls {
    /// A question: it ends with its caller.
    async fn look<Q, A: Message, F: Future<Output = Result<A>>>(
        &self,
        call: &'static str,
        run: impl FnOnce(Arc<Node>, Q) -> F,
        request: Request<Q>,
    ) -> Answer<A> {
        answer(call, run(self.0.clone(), request.into_inner()).await)
    }

    /// A change: it goes on to its end, whether its caller is still there or not.
    async fn work<Q, A, F>(
        &self,
        call: &'static str,
        run: impl FnOnce(Arc<Node>, Q) -> F,
        request: Request<Q>,
    ) -> Answer<A>
    where
        A: Message + 'static,
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let work = tokio::spawn(run(self.0.clone(), request.into_inner()));
        answer(call, work.await.unwrap_or_else(|_| Err(Error::internal(call, "it panicked").into())))
    }

    /// A stream: it ends with its caller.
    async fn open<Q, A: Message + 'static, F: Future<Output = Result<Answers<A>>>>(
        &self,
        call: &'static str,
        run: impl FnOnce(Arc<Node>, Q) -> F,
        request: Request<Q>,
    ) -> StreamAnswer<A> {
        let answers =
            run(self.0.clone(), request.into_inner()).await.map_err(|failure| told(call, failure))?;
        let answers = answers.map(move |item| item.and_then(|item| sized(call, item)));
        Ok(Response::new(answers.map(move |item| item.map_err(|failure| told(call, failure))).boxed()))
    }
}

fn answer<A: Message>(call: &'static str, outcome: Result<A>) -> Answer<A> {
    outcome.and_then(|answer| sized(call, answer)).map(Response::new).map_err(|failure| told(call, failure))
}

/// An answer that the client would not take is an error that it can read.
fn sized<A: Message>(call: &'static str, answer: A) -> Result<A> {
    if answer.encoded_len() > MESSAGE_BYTES_MAX {
        let what = format!(
            "the bytes of an answer to {call} (a filter, or the call that streams, has smaller ones)"
        );
        return Err(Error::ResourceExhausted { what, limit: MESSAGE_BYTES_MAX as u64 }.into());
    }
    Ok(answer)
}

fn told(call: &'static str, failure: Failure) -> Status {
    let status = Status::from(failure);
    tracing::info!(call, code = ?status.code(), error = status.message(), "a call failed");
    status
}
