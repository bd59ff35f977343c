//! Writing to standard output and standard error: exactly, in order, and with an end when nobody reads any
//! more. It never decides what is written.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use mainstay_messages::admin::OutputStream;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::arguments::Format;
use crate::failure::Told;
use crate::view;

/// Pieces of output that wait for the writing thread. More make whoever sends them wait.
const PUMP_QUEUE_MAX: usize = 16;
/// Bytes that [`Console`] collects before it writes.
const CONSOLE_BUFFER_BYTES: usize = 65_536;

/// For whom standard error is. It is that of the process, and so is this.
static SPOKEN: OnceLock<Format> = OnceLock::new();

/// A piece of output.
pub type Piece = (OutputStream, Vec<u8>);

/// A thread that writes, so that a reader who stops reading stops nothing else here: signals, input and the
/// end of the container are still seen.
#[derive(Debug)]
pub struct Pump {
    /// Takes pieces; dropped, the thread ends after the last one.
    pub pieces: mpsc::Sender<Piece>,
    /// All was written, or why not.
    pub finished: oneshot::Receiver<io::Result<()>>,
}

/// What commands print, collected into large writes.
#[derive(Debug)]
pub struct Console {
    stream: OutputStream,
    pending: Vec<u8>,
}

impl Pump {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (pieces, mut queue) = mpsc::channel::<Piece>(PUMP_QUEUE_MAX);
        let (done, finished) = oneshot::channel();
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            let mut outcome = Ok(());
            while outcome.is_ok()
                && let Some((stream, bytes)) = queue.blocking_recv()
            {
                outcome = write_all(stream, &bytes);
            }
            // Whoever started the thread may have left without waiting.
            let _ = done.send(outcome);
        })?;
        Ok(Self { pieces, finished })
    }
}

impl Console {
    /// A console on which nothing was printed yet.
    pub fn new() -> Self {
        Self { stream: OutputStream::Stdout, pending: Vec::new() }
    }

    /// Prints, now or with what follows. What is printed to both streams keeps its order.
    pub fn print(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        if stream != self.stream {
            self.flush()?;
            self.stream = stream;
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= CONSOLE_BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what is waiting.
    pub fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        write_all(self.stream, &pending)
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes all of `bytes`, also when the file was made non-blocking by somebody who shares it.
pub fn write_all(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Stdout => write_all_to(rustix::stdio::stdout(), bytes),
        OutputStream::Stderr => write_all_to(rustix::stdio::stderr(), bytes),
    }
}

fn write_all_to(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(fd, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until a file that is non-blocking can be read or written.
pub fn wait_for(fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, events)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Prints to standard output.
pub fn print(text: &str) -> io::Result<()> {
    write_all(OutputStream::Stdout, text.as_bytes())
}

/// Says for whom standard error is, before anything is said; people, when nothing is said.
pub fn speak(format: Format) {
    // The first word stands: one process has one command line.
    let _ = SPOKEN.set(format);
}

/// Tells whoever reads standard error something that is not a result. Nobody may be there to read it.
pub fn tell(sentence: impl std::fmt::Display) {
    say(&sentence.to_string(), || json!({ "note": sentence.to_string() }));
}

/// Tells whoever reads standard error that something failed.
pub fn tell_failure(failure: &impl Told) {
    say(&failure.sentence(), || view::failure(failure));
}

fn say(sentence: &str, json: impl FnOnce() -> Value) {
    let line = match SPOKEN.get() {
        None | Some(Format::Text) => format!("mainstay: {}\n", crate::table::printable(sentence)),
        Some(Format::Json) => view::line(&json()),
    };
    let _ = write_all(OutputStream::Stderr, line.as_bytes());
}

/// Ends this process as `cat` ends when nobody reads its output: by SIGPIPE, without a word.
pub fn die_of_broken_pipe() -> ! {
    // SAFETY: setting a signal's disposition to the default and raising it touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    // Only reached where SIGPIPE is blocked by whoever started us.
    std::process::exit(128 + libc::SIGPIPE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn all_is_written_to_a_non_blocking_pipe_with_a_slow_reader() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
        let sent: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
        let copy = sent.clone();
        let thread = std::thread::spawn(move || write_all_to(writer.as_fd(), &copy));
        let mut received = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(reader), &mut received).expect("readable");
        thread.join().expect("no panic").expect("all is written");
        assert_eq!(received, sent);
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_not_the_end_of_us() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        drop(reader);
        let error = write_all_to(writer.as_fd(), b"x").expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
