//! Processes and ports that are made up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::backend::{
    Exit, Failure, Item, OpenPort, OpenProcess, OutputStream, PortConnection, Process, ProcessControl,
    ProcessOutput, ProcessStdin, Streams, TerminalSize,
};
use crate::{Server, StreamingSettings};

/// Input, output and error.
pub(super) const PIPES: Streams = Streams { stdin: true, stdout: true, stderr: true, terminal: false };
/// A terminal.
pub(super) const TERMINAL: Streams = Streams { stdin: true, stdout: true, stderr: false, terminal: true };

pub(super) async fn server() -> Server {
    Server::bind(&StreamingSettings::default()).await.expect("bound")
}

/// What became of a process.
#[derive(Debug, Default)]
pub(super) struct Fate {
    pub(super) abandoned: AtomicBool,
    /// Bytes of output that were taken.
    pub(super) taken: AtomicU64,
}

/// What a process does.
#[derive(Clone, Debug)]
pub(super) enum Script {
    /// Writes what it reads, and ends with this code when its input ends.
    Cat { exit: Exit },
    /// Says which sizes its terminal has, one a line, until its input ends.
    Sizes,
    /// Reads nothing, and writes this much.
    Flood { bytes: u64 },
    /// Reads nothing and writes nothing.
    Sleep,
    /// Cannot be started.
    Broken,
}

pub(super) struct Fake {
    pub(super) script: Script,
    pub(super) fate: Arc<Fate>,
}

impl Fake {
    pub(super) fn new(script: Script) -> (Box<Self>, Arc<Fate>) {
        let fate = Arc::<Fate>::default();
        (Box::new(Self { script, fate: Arc::clone(&fate) }), fate)
    }
}

#[async_trait]
impl OpenProcess for Fake {
    async fn open(self: Box<Self>, size: Option<TerminalSize>) -> Result<Process, Failure> {
        let Self { script, fate } = *self;
        let (items, output) = mpsc::channel(1);
        let stdin: Box<dyn ProcessStdin> = match &script {
            Script::Broken => return Err(Failure("\"nope\" is not in the PATH of the container".into())),
            Script::Cat { .. } | Script::Sizes => {
                Box::new(Stdin { script: script.clone(), items: Some(items.clone()) })
            }
            Script::Flood { .. } | Script::Sleep => Box::new(Deaf),
        };
        if let Script::Flood { bytes } = script {
            let fate = Arc::clone(&fate);
            tokio::spawn(async move {
                while fate.taken.load(Ordering::Relaxed) < bytes {
                    let piece =
                        Item::Output { stream: OutputStream::Stdout, bytes: Bytes::from(vec![b'x'; 32_768]) };
                    if items.send(piece).await.is_err() {
                        return;
                    }
                    fate.taken.fetch_add(32_768, Ordering::Relaxed);
                }
                let _ = items.send(Item::Exited(Exit::Code(0))).await;
            });
        } else if let Script::Sizes = script {
            say_size(&items, size).await;
            return Ok(process(stdin, output, Control { items: Some(items), fate }));
        } else if let Script::Sleep = script {
            return Ok(process(stdin, output, Control { items: Some(items), fate }));
        }
        Ok(process(stdin, output, Control { items: None, fate }))
    }
}

fn process(stdin: Box<dyn ProcessStdin>, output: mpsc::Receiver<Item>, control: Control) -> Process {
    Process { stdin, output: Box::new(Output(output)), control: Box::new(control) }
}

async fn say_size(items: &mpsc::Sender<Item>, size: Option<TerminalSize>) {
    let text = size.map_or_else(|| "none\n".into(), |size| format!("{} {}\n", size.rows, size.columns));
    let _ = items.send(Item::Output { stream: OutputStream::Stdout, bytes: text.into() }).await;
}

struct Stdin {
    script: Script,
    items: Option<mpsc::Sender<Item>>,
}

#[async_trait]
impl ProcessStdin for Stdin {
    async fn write(&mut self, bytes: &[u8]) {
        if let (Script::Cat { .. }, Some(items)) = (&self.script, &self.items) {
            let bytes = Bytes::copy_from_slice(bytes);
            let _ = items.send(Item::Output { stream: OutputStream::Stdout, bytes }).await;
        }
    }

    async fn close(&mut self) {
        let Some(items) = self.items.take() else { return };
        let exit = if let Script::Cat { exit } = &self.script { exit.clone() } else { Exit::Code(0) };
        let bytes = Bytes::from_static(b"over");
        let _ = items.send(Item::Output { stream: OutputStream::Stderr, bytes }).await;
        let _ = items.send(Item::Exited(exit)).await;
    }
}

struct Deaf;

#[async_trait]
impl ProcessStdin for Deaf {
    async fn write(&mut self, _bytes: &[u8]) {
        std::future::pending().await
    }

    async fn close(&mut self) {}
}

struct Output(mpsc::Receiver<Item>);

#[async_trait]
impl ProcessOutput for Output {
    async fn next(&mut self) -> Result<Item, Failure> {
        self.0.recv().await.ok_or_else(|| Failure("the process is gone".into()))
    }
}

struct Control {
    items: Option<mpsc::Sender<Item>>,
    fate: Arc<Fate>,
}

#[async_trait]
impl ProcessControl for Control {
    async fn resize(&self, size: TerminalSize) {
        if let Some(items) = &self.items {
            say_size(items, Some(size)).await;
        }
    }

    async fn abandoned(&self) {
        self.fate.abandoned.store(true, Ordering::Relaxed);
    }
}

/// The ports of this machine.
pub(super) struct LocalPorts;

#[async_trait]
impl OpenPort for LocalPorts {
    async fn connect(&self, port: u16) -> Result<Box<dyn PortConnection>, Failure> {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(Failure(format!("port {port} cannot be reached: {error}"))),
        }
    }
}
