//! The two services of the interface over a [`Node`]: how calls are run and answered.
//!
//! Owns: that work which was begun goes on when its caller leaves (P4, P5), that a call which panics harms itself alone (P9), and that
//! no answer is larger than a client takes (P11). Never: knows what a call does.

mod image;
mod runtime;

use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use mainstay_cri_api::Message;
use mainstay_messages::Error;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::failure::{Failure, Result};
use crate::limits::{MESSAGE_BYTES_MAX, STREAM_ITEMS_MAX, STREAM_PIECE_BYTES};
use crate::node::Node;

/// The answers of a call that streams them.
pub(crate) type Answers<A> = BoxStream<'static, Result<A>>;
/// The answer to a client.
type Answer<A> = Result<Response<A>, Status>;
/// The answers to a client.
type Streaming<A> = BoxStream<'static, Result<A, Status>>;
/// The answer to a client that has a stream in it.
type StreamAnswer<A> = Answer<Streaming<A>>;

/// A list as a stream of answers with up to [`STREAM_ITEMS_MAX`] items and about [`STREAM_PIECE_BYTES`] each; none for an empty list.
pub(crate) fn in_pieces<T: Message + 'static, A: Send + 'static>(
    items: Vec<T>,
    answer: impl Fn(Vec<T>) -> A + Send + 'static,
) -> Answers<A> {
    let mut items = items.into_iter().peekable();
    let pieces = std::iter::from_fn(move || {
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while piece.len() < STREAM_ITEMS_MAX
            && let Some(item) =
                items.next_if(|item| piece.is_empty() || bytes + item.encoded_len() <= STREAM_PIECE_BYTES)
        {
            bytes += item.encoded_len();
            piece.push(item);
        }
        (!piece.is_empty()).then(|| Ok(answer(piece)))
    });
    stream::iter(pieces).boxed()
}

/// The services.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    node: Arc<Node>,
    /// Its sender is gone when the daemon ends.
    ending: watch::Receiver<()>,
}

impl Calls {
    /// The services of a node, until the sender of `ending` is gone.
    pub(crate) fn new(node: Arc<Node>, ending: watch::Receiver<()>) -> Self {
        Self { node, ending }
    }

    /// A question: it ends with its caller.
    async fn look<Q, A: Message, F: Future<Output = Result<A>>>(
        &self,
        call: &'static str,
        run: impl FnOnce(Arc<Node>, Q) -> F,
        request: Request<Q>,
    ) -> Answer<A> {
        answer(call, run(self.node.clone(), request.into_inner()).await)
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
        let work = tokio::spawn(run(self.node.clone(), request.into_inner()));
        answer(call, work.await.unwrap_or_else(|_| Err(Error::internal(call, "it panicked").into())))
    }

    /// A stream: it ends with its caller, and with the daemon, which would wait for a client that reads events as long as it drains.
    async fn open<Q, A: Message + 'static, F: Future<Output = Result<Answers<A>>>>(
        &self,
        call: &'static str,
        run: impl FnOnce(Arc<Node>, Q) -> F,
        request: Request<Q>,
    ) -> StreamAnswer<A> {
        let answers =
            run(self.node.clone(), request.into_inner()).await.map_err(|failure| told(call, failure))?;
        let answers = answers
            .take_until(ended(self.ending.clone()))
            .map(move |item| item.and_then(|item| sized(call, item)));
        Ok(Response::new(answers.map(move |item| item.map_err(|failure| told(call, failure))).boxed()))
    }
}

/// Resolves when the sender, which never sends, is gone.
pub(crate) async fn ended(mut ending: watch::Receiver<()>) {
    while ending.changed().await.is_ok() {}
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

#[cfg(test)]
mod tests {
    use mainstay_cri_api::Image;

    use super::*;

    #[tokio::test]
    async fn a_list_is_cut_by_number_and_by_size() {
        let image = |bytes: usize| Image { id: "x".repeat(bytes), ..Image::default() };
        let cut = async |images: Vec<Image>| {
            let pieces: Vec<_> = in_pieces(images, |images| images.len()).collect().await;
            pieces.into_iter().map(|piece| piece.expect("good")).collect::<Vec<_>>()
        };
        assert_eq!(cut(Vec::new()).await, Vec::<usize>::new());
        assert_eq!(cut(vec![image(1); STREAM_ITEMS_MAX + 1]).await, [STREAM_ITEMS_MAX, 1]);
        assert_eq!(cut(vec![image(STREAM_PIECE_BYTES * 2 / 5); 3]).await, [2, 1]);
        assert_eq!(cut(vec![image(STREAM_PIECE_BYTES * 2); 2]).await, [1, 1], "each fits into a message");
    }

    /// kubelet stops reading at 16 MiB, and does not say of what.
    #[test]
    fn an_answer_that_no_client_takes_is_an_error_that_says_so() {
        let image = Image { id: "x".repeat(MESSAGE_BYTES_MAX), ..Image::default() };
        let status = answer("ListImages", Ok(image)).expect_err("too large");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(status.message().contains("ListImages"), "{status:?}");
    }
}
