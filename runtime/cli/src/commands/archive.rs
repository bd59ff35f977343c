//! `image import` and `image export`: archives between a file here and the daemon. What is in them is the daemon's to read
//! and to write.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use mainstay_admin::InputSender;
use mainstay_messages::Error;
use mainstay_messages::admin::{End, Input, Item, OUTPUT_CHUNK_MAX, OutputStream, StreamRequest};
use serde_json::json;
use tokio::sync::mpsc;

use crate::arguments::Format;
use crate::arguments::image::{ExportArguments, ImportArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::output::Pump;
use crate::progress::{Progress, Shown};

/// Pieces of an archive that were read and not yet sent.
const PIECES_AHEAD_MAX: usize = 4;
/// The name of standard input on a command line.
const STANDARD_INPUT: &str = "-";
/// What is added to the name of an archive while it is being written.
const PARTIAL_SUFFIX: &str = ".partial";

/// `mainstay image import`
pub(super) async fn import(context: &Context, arguments: ImportArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let pieces = read(&arguments.file)?;
    let mut stream = client.open(StreamRequest::ImportImages { name: arguments.name }).await?;
    let sent = send(pieces, stream.input_sender(), &arguments.file);
    let shown = match context.format() {
        Format::Json => Shown::Json,
        Format::Text => Shown::ToPeople,
    };
    let mut progress = Progress::new(&arguments.file.to_string_lossy(), shown);
    let taken = async {
        while let Some(item) = stream.next().await {
            if let Item::Pull(step) = item {
                progress.show(&step)?;
            }
        }
        progress.end();
        Ok::<_, Failure>(stream.end().await?)
    };
    // What the daemon says of a bad archive counts more than that it has read no further.
    let (sent, end) = futures::join!(sent, taken);
    let End::Images(images) = end? else {
        return Err(Error::internal("the daemon", "it ended an import without images").into());
    };
    sent?;
    let ids: Vec<_> = images.iter().map(|id| &id.0).collect();
    let text = || ids.iter().map(|id| format!("{id}\n")).collect();
    super::print(context.format(), text, &json!({ "images": ids }))
}

/// The bytes of an archive, read by a thread of their own: standard input may never end.
fn read(path: &Path) -> Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let named = |source| Failure::machine(path.display().to_string(), source);
    let (pieces, queue) = mpsc::channel(PIECES_AHEAD_MAX);
    let mut file: Box<dyn Read + Send> = match path.to_str() {
        Some(STANDARD_INPUT) => Box::new(io::stdin()),
        _ => Box::new(File::open(path).map_err(named)?),
    };
    let directory = path.is_dir().then(|| path.to_path_buf());
    let work = move || match directory {
        Some(directory) => {
            let mut archive = tar::Builder::new(Pieces(pieces.clone()));
            archive.follow_symlinks(false);
            let written = archive.append_dir_all(".", &directory).and_then(|()| archive.finish());
            if let Err(error) = written {
                let _ = pieces.blocking_send(Err(error));
            }
        }
        None => loop {
            let mut piece = vec![0; OUTPUT_CHUNK_MAX];
            let read = file.read(&mut piece).map(|length| {
                piece.truncate(length);
                piece
            });
            let last = !matches!(&read, Ok(piece) if !piece.is_empty());
            // A daemon that wants no more has its reason, and says it.
            if pieces.blocking_send(read).is_err() || last {
                break;
            }
        },
    };
    thread::Builder::new().name("archive".to_owned()).spawn(work).map_err(named)?;
    Ok(queue)
}

/// Makes pieces of what is written.
struct Pieces(mpsc::Sender<io::Result<Vec<u8>>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(bytes.to_vec())).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn send(
    mut pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    sender: InputSender,
    path: &Path,
) -> Result<()> {
    while let Some(piece) = pieces.recv().await {
        let piece = piece.map_err(|source| Failure::machine(path.display().to_string(), source))?;
        if sender.send(Input::Stdin(piece)).await.is_err() {
            return Ok(());
        }
    }
    // The daemon may have seen the end of the archive already.
    let _ = sender.send(Input::StdinEnd).await;
    Ok(())
}

/// `mainstay image export`
pub(super) async fn export(context: &Context, arguments: ExportArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let stream = client.open(StreamRequest::ExportImages { images: arguments.images.images }).await?;
    match &arguments.output {
        Some(path) => to_file(stream, path).await?,
        None => to_standard_output(stream).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Under another name until it is whole.
async fn to_file(mut stream: mainstay_admin::StreamHandle, path: &Path) -> Result<()> {
    let partial = {
        let mut name = path.as_os_str().to_owned();
        name.push(PARTIAL_SUFFIX);
        std::path::PathBuf::from(name)
    };
    let named = |source| Failure::machine(path.display().to_string(), source);
    let mut file = File::create(&partial).map_err(named)?;
    let written = async {
        while let Some(item) = stream.next().await {
            if let Item::Output { bytes, .. } = item {
                file.write_all(&bytes).map_err(named)?;
            }
        }
        stream.end().await?;
        file.sync_all().and_then(|()| std::fs::rename(&partial, path)).map_err(named)
    };
    let outcome = written.await;
    if outcome.is_err() {
        // What is not whole is of no use, and its own failure counts less.
        let _ = std::fs::remove_file(&partial);
    }
    outcome
}

async fn to_standard_output(mut stream: mainstay_admin::StreamHandle) -> Result<()> {
    let pump = Pump::start().map_err(|source| Failure::machine("a thread for output", source))?;
    while let Some(item) = stream.next().await {
        if let Item::Output { bytes, .. } = item
            && pump.pieces.send((OutputStream::Stdout, bytes)).await.is_err()
        {
            break;
        }
    }
    drop(pump.pieces);
    match pump.finished.await {
        Ok(written) => written.map_err(Failure::Output)?,
        Err(_) => return Err(Error::internal("the output", "its thread ended early").into()),
    }
    stream.end().await?;
    Ok(())
}
