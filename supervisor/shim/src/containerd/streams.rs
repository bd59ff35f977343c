//! Where the streams of a process come from and go to, as containerd names them.
//!
//! | value | means |
//! |---|---|
//! | `""`, `/dev/null` | nothing: `/dev/null`, or discarded |
//! | a path, or `fifo://` and a path | a FIFO of whoever reads or writes; for output a regular file will do |
//! | `file://` and a path | both streams are appended to this file |
//! | `binary://` and a path with a query | both streams go to a program (see `program`) |
//!
//! Owns: reading these, and opening them. Never: waits for the other end of a FIFO.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mainstay_task_api::streams::Terminal;
use percent_encoding::percent_decode_str;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::program::{self, Program};
use crate::failure::Failure;
use crate::output::sink::{Sink, Target};
use crate::output::{Output, Stream};
use crate::process::StreamNames;
use crate::readiness::watch;
use crate::stdin::Stdin;

/// How much of standard input is read at a time, in bytes.
const INPUT_BUFFER_BYTES: usize = 4 * 1024;
/// The mode of a log file that is made.
const FILE_MODE: u32 = 0o640;

/// Where one stream goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Fifo(PathBuf),
    File(PathBuf),
    Program(Program),
}

/// The streams of one process.
#[derive(Debug)]
pub(super) struct Streams {
    stdin: Option<PathBuf>,
    stdout: Place,
    stderr: Place,
}

impl Streams {
    /// Reads the names of a request.
    pub(super) fn parse(names: &StreamNames, terminal: Terminal) -> Result<Self, Failure> {
        let stdin = match place("stdin", &names.stdin)? {
            Place::Nowhere => None,
            Place::Fifo(path) => Some(path),
            Place::File(_) | Place::Program(_) => {
                return Err(invalid("stdin", &names.stdin, "\"\" or the path of a FIFO"));
            }
        };
        let stdout = place("stdout", &names.stdout)?;
        let stderr = match (terminal, &stdout) {
            // A terminal's output is one stream; a program and a file have both from the same name.
            (Terminal::Yes, _) | (Terminal::No, Place::Program(_)) => Place::Nowhere,
            (Terminal::No, Place::File(path)) => Place::File(path.clone()),
            (Terminal::No, _) => place("stderr", &names.stderr)?,
        };
        if let Place::Program(_) = stderr {
            return Err(invalid("stderr", &names.stderr, "the same program as for stdout"));
        }
        Ok(Self { stdin, stdout, stderr })
    }

    /// Whether there is something to read from.
    pub(super) fn has_stdin(&self) -> bool {
        self.stdin.is_some()
    }

    /// Gives a process's output the places that were named for it: opens them, and starts the program that takes it.
    pub(super) async fn open(&self, output: &Rc<Output>, id: &str, namespace: &str) -> Result<(), Failure> {
        if let Place::Program(program) = &self.stdout {
            let (running, [stdout, stderr]) = program::start(program, id, namespace).await?;
            output.set_sinks(vec![Sink::new(Stream::Stdout, stdout), Sink::new(Stream::Stderr, stderr)]);
            tokio::task::spawn_local(running.see_out(output.clone()));
            return Ok(());
        }
        let mut sinks = Vec::new();
        for (stream, place) in [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)] {
            let target = match place {
                Place::Nowhere | Place::Program(_) => continue,
                Place::Fifo(path) => open_fifo(path).map_err(cannot_open(path))?,
                Place::File(path) => Target::File(Rc::new(open_file(path).map_err(cannot_open(path))?)),
            };
            sinks.push(Sink::new(stream, target));
        }
        output.set_sinks(sinks);
        Ok(())
    }

    /// Opens the FIFO of the input, and feeds the process from it for as long as it reads.
    pub(super) fn feed(&self, stdin: &Rc<Stdin>) -> Result<(), Failure> {
        let Some(path) = &self.stdin else { return Ok(()) };
        let open = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(path);
        // The reading end first: the writing end of a FIFO without a reader is an error.
        let ours = open(File::options().read(true)).map_err(cannot_open(path))?;
        if !ours.metadata().map_err(cannot_open(path))?.file_type().is_fifo() {
            return Err(cannot_open(path)(is_no("FIFO")));
        }
        stdin.hold_open(open(File::options().write(true)).map_err(cannot_open(path))?.into());
        let ours = watch(ours.into(), Interest::READABLE).map_err(cannot_open(path))?;
        tokio::task::spawn_local(copy(ours, stdin.clone()));
        Ok(())
    }
}

/// Copies what is written to the FIFO until nobody can write to it any more, or the process does not read.
async fn copy(fifo: AsyncFd<OwnedFd>, stdin: Rc<Stdin>) {
    let mut buffer = [0; INPUT_BUFFER_BYTES];
    loop {
        match rustix::io::read(fifo.as_fd(), &mut buffer) {
            Ok(0) => break,
            Ok(count) => stdin.write(&buffer[..count]).await,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => tokio::select! {
                // Cleared before the next read, so one that comes meanwhile is not lost.
                ready = fifo.ready(Interest::READABLE) => match ready {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => break,
                },
                () = stdin.closed() => break,
            },
            Err(_) => break,
        }
        if stdin.is_closed() {
            return;
        }
    }
    stdin.close();
}

fn place(field: &'static str, text: &str) -> Result<Place, Failure> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text {
            "" | "/dev/null" => Ok(Place::Nowhere),
            path if path.starts_with('/') => Ok(Place::Fifo(path.into())),
            _ => Err(invalid(field, text, EXPECTED)),
        };
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = percent_decode_str(path).decode_utf8().ok().filter(|path| path.starts_with('/'));
    let Some(path) = path.map(|path| PathBuf::from(path.into_owned())) else {
        return Err(invalid(field, text, EXPECTED));
    };
    match scheme {
        "fifo" => Ok(Place::Fifo(path)),
        "file" => Ok(Place::File(path)),
        "binary" => Ok(Place::Program(Program::new(path, query))),
        _ => Err(invalid(field, text, EXPECTED)),
    }
}

const EXPECTED: &str = "\"\", or an absolute path, alone or after fifo://, file:// or binary://";

fn invalid(field: &'static str, value: &str, expected: &'static str) -> Failure {
    Failure::Invalid { field, value: format!("{value:?}"), expected }
}

fn cannot_open(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { path: path.to_owned(), doing: "opened", source }
}

/// Opened for both directions it has a reader at all times: a process is held back while nobody reads, and not killed, so
/// that whoever reads may be restarted.
fn open_fifo(path: &Path) -> io::Result<Target> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).append(true).custom_flags(flags).open(path)?;
    match file.metadata()?.file_type() {
        kind if kind.is_fifo() => Ok(Target::Pipe(Rc::new(watch(file.into(), Interest::WRITABLE)?))),
        kind if kind.is_file() => Ok(Target::File(Rc::new(file))),
        // A terminal would lose what it has no room for.
        _ => Err(is_no("FIFO and no regular file")),
    }
}

fn is_no(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is no {what}"))
}

fn open_file(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().create(true).append(true).mode(FILE_MODE).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(is_no("regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stdin::StdinMode;

    fn streams(stdout: &str, stderr: &str) -> Result<Streams, Failure> {
        let names =
            StreamNames { stdin: String::new(), stdout: stdout.to_owned(), stderr: stderr.to_owned() };
        Streams::parse(&names, Terminal::No)
    }

    #[test]
    fn names_are_read_as_containerd_writes_them() {
        let fifos = streams("/run/fifo/1/web-stdout", "/run/fifo/1/web-stderr").expect("good");
        assert_eq!(fifos.stdout, Place::Fifo("/run/fifo/1/web-stdout".into()));
        assert_eq!(fifos.stderr, Place::Fifo("/run/fifo/1/web-stderr".into()));
        let file = streams("file:///var/log/a%20b", "file:///var/log/a%20b").expect("good");
        assert_eq!((&file.stdout, &file.stderr), (&Place::File("/var/log/a b".into()), &file.stdout));
        let program = streams("binary:///bin/log?-o=/x", "binary:///bin/log?-o=/x").expect("good");
        assert_eq!(program.stdout, Place::Program(Program::new("/bin/log".into(), "-o=/x")));
        assert_eq!(program.stderr, Place::Nowhere);
        for nothing in ["", "/dev/null"] {
            assert_eq!(streams(nothing, nothing).expect("good").stdout, Place::Nowhere);
        }
    }

    /// Input of a regular file could not be waited for, and a device lost what it had no room for.
    #[test]
    fn what_is_neither_fifo_nor_file_is_refused_by_name() {
        let error = open_fifo(Path::new("/dev/zero")).expect_err("a device").to_string();
        assert!(error.contains("no FIFO"), "{error}");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let names = StreamNames {
            stdin: file.path().display().to_string(),
            stdout: String::new(),
            stderr: String::new(),
        };
        let input = Streams::parse(&names, Terminal::No).expect("a path");
        let failure = input.feed(&Stdin::new(StdinMode::Open)).expect_err("a file");
        assert!(failure.sentence().contains("no FIFO"), "{}", failure.sentence());
    }

    #[test]
    fn others_are_refused_by_name() {
        for bad in ["relative", "npipe:///x", "file://relative"] {
            let failure = streams(bad, "").expect_err("not one");
            assert!(failure.sentence().contains(bad), "{}", failure.sentence());
        }
    }
}
