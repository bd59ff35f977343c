//! From our standard input to a process: a thread that reads, and a task that sends. It never decides when to
//! begin.

use std::io;

use mainstay_admin::InputSender;
use mainstay_messages::admin::Input;
use rustix::event::PollFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::output::wait_for;
use crate::terminal::{DetachKeys, KeyWatch, Typed};

/// Bytes that are read at once; far below what a frame of input may have.
const READ_BYTES: usize = 16_384;
/// Pieces that wait to be sent.
const PIECES_QUEUE_MAX: usize = 4;

/// Why no more input is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyboardEnd {
    /// It was at its end, or the process takes no more.
    Over,
    /// The keys that leave the session were typed.
    Detach,
}

/// Sends standard input. Dropped, it sends no more; what was read and not sent is lost, as it is with every
/// program that reads ahead.
#[derive(Debug)]
pub struct Keyboard {
    task: JoinHandle<KeyboardEnd>,
}

impl Keyboard {
    /// Starts to read and to send.
    pub fn start(process: InputSender, keys: DetachKeys) -> io::Result<Self> {
        let (sender, pieces) = mpsc::channel(PIECES_QUEUE_MAX);
        // The thread is left behind in read(2) when the session ends; it ends with the program.
        std::thread::Builder::new().name("input".to_owned()).spawn(move || read(&sender))?;
        Ok(Self { task: tokio::spawn(send(pieces, process, KeyWatch::new(keys))) })
    }

    /// Waits until no more is sent. Dropping this future loses nothing.
    pub async fn ended(&mut self) -> KeyboardEnd {
        (&mut self.task).await.unwrap_or(KeyboardEnd::Over)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn read(pieces: &mpsc::Sender<Vec<u8>>) {
    let stdin = rustix::stdio::stdin();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match rustix::io::read(stdin, &mut buffer) {
            // An input that cannot be read is at its end.
            Ok(0) => return,
            Ok(count) if pieces.blocking_send(buffer[..count].to_vec()).is_err() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait_for(stdin, PollFlags::IN).is_ok() => {}
            Err(_) => return,
        }
    }
}

async fn send(mut pieces: mpsc::Receiver<Vec<u8>>, process: InputSender, mut watch: KeyWatch) -> KeyboardEnd {
    while let Some(piece) = pieces.recv().await {
        let (input, end) = match watch.look(&piece) {
            Typed::Input(input) => (input, None),
            Typed::Detach(input) => (input, Some(KeyboardEnd::Detach)),
        };
        if !input.is_empty() && process.send(Input::Stdin(input)).await.is_err() {
            return KeyboardEnd::Over;
        }
        if let Some(end) = end {
            return end;
        }
    }
    // A process that is gone needs no end of its input.
    let _ = process.send(Input::StdinEnd).await;
    KeyboardEnd::Over
}
