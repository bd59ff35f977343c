//! One client and one process, whatever is spoken between them.
//!
//! ```text
//!   first size, if there is a terminal ─► open ─► input, output, sizes ─► the process has ended ─► its outcome is told
//!                                                        └─► the client is gone ─► input ends, a terminal hangs up
//! ```
//!
//! Owns: what goes from one to the other, and when it is over. Never: keeps output: while the client does not read, the process is
//! not read either.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::backend::{Item, OpenProcess, OutputStream, Process, ProcessOutput, Streams, TerminalSize};
use crate::peer::Gone;
use crate::spdy::connection::Piece;
use crate::status::Outcome;

/// How long a process with a terminal waits for the first size of its client's, in milliseconds: what looks at it in its first
/// instruction is to see the real one. Every client sends it at once.
pub const FIRST_SIZE_MS: u64 = 500;

/// What a token for a process was issued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A process of the client's own, whose exit code is told.
    Exec,
    /// One that was there before and goes on after.
    Attach,
}

/// What comes from the client.
#[derive(Debug)]
pub(crate) struct FromClient {
    /// Input; closed without an end when the client is gone.
    pub(crate) stdin: mpsc::Receiver<Piece>,
    /// The size of its terminal; none before it has said it.
    pub(crate) sizes: watch::Receiver<Option<TerminalSize>>,
    pub(crate) gone: Gone,
}

/// What goes to the client.
pub(crate) trait ToClient: Send {
    /// Sends output; waits while the client does not read. What it does not want, or cannot get any more, is dropped.
    fn output(&mut self, stream: OutputStream, bytes: Bytes) -> impl Future<Output = ()> + Send;
}

/// Runs a session to its end; none when the client is gone before.
pub(crate) async fn run(
    opener: Box<dyn OpenProcess>,
    purpose: Purpose,
    streams: Streams,
    mut from: FromClient,
    to: &mut impl ToClient,
) -> Option<Outcome> {
    let size = if streams.terminal { first_size(&mut from).await } else { None };
    let Process { mut stdin, mut output, control } = match opener.open(size).await {
        Ok(process) => process,
        Err(failure) => return Some(Outcome::Failed(failure.0)),
    };
    let mut input = from.stdin;
    let feed = async {
        while let Some(piece) = input.recv().await {
            match piece {
                Piece::Data(bytes) => stdin.write(&bytes).await,
                Piece::End => break,
            }
        }
        stdin.close().await;
        std::future::pending::<()>().await;
    };
    let mut sizes = from.sizes;
    let resize = async {
        while sizes.changed().await.is_ok() {
            let size = *sizes.borrow_and_update();
            if let Some(size) = size {
                control.resize(size).await;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut gone = from.gone;
    let outcome = tokio::select! {
        outcome = deliver(purpose, streams, output.as_mut(), to) => Some(outcome),
        () = gone.heard() => None,
        () = feed => None,
        () = resize => None,
    };
    if outcome.is_none() {
        tracing::debug!("the client of a stream left before it ended");
        control.abandoned().await;
    }
    outcome
}

async fn first_size(from: &mut FromClient) -> Option<TerminalSize> {
    let said = from.sizes.wait_for(|size| size.is_some());
    let said = tokio::select! {
        said = timeout(Duration::from_millis(FIRST_SIZE_MS), said) => said.is_ok(),
        () = from.gone.heard() => false,
    };
    if said { *from.sizes.borrow_and_update() } else { None }
}

async fn deliver(
    purpose: Purpose,
    streams: Streams,
    output: &mut dyn ProcessOutput,
    to: &mut impl ToClient,
) -> Outcome {
    loop {
        match output.next().await {
            Ok(Item::Output { stream, bytes }) => {
                let is_wanted = match stream {
                    OutputStream::Stdout => streams.stdout,
                    OutputStream::Stderr => streams.stderr,
                };
                if is_wanted {
                    to.output(stream, bytes).await;
                }
            }
            Ok(Item::Exited(_)) if purpose == Purpose::Attach => return Outcome::Success,
            Ok(Item::Exited(exit)) => return Outcome::of(exit),
            Err(failure) => return Outcome::Failed(failure.0),
        }
    }
}
