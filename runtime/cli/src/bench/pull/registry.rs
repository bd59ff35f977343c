//! The registry of the benchmark: as much of one as a pull asks for, in a process of its own, so that neither its memory nor
//! its time counts as the pull's.
//!
//! Its first line of output says where it listens, and what it serves. It ends when its standard input does.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};

use super::image::{MANIFEST_TYPE, Made, file};
use super::{RegistryOptions, Shape};

/// The repository and tag of the image.
const NAME: &str = "bench/image";
/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// The registry, as the benchmark sees it. Killed when dropped.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    /// Closed with this value, which ends it as well.
    _input: Option<ChildStdin>,
    serving: Serving,
    directory: PathBuf,
}

/// What the registry says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Serving {
    address: SocketAddr,
    made: Made,
}

impl Registry {
    /// Starts one that makes an image in a new directory, and serves it.
    pub fn start(shape: &Shape, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let compression = serde_json::to_value(shape.compression)?;
        command.args(["bench", "registry", "--layers", &shape.layers.to_string()]);
        command.args(["--size-mib", &shape.size_mib.to_string(), "--files", &shape.files.to_string()]);
        command.args(["--compressible", &shape.compressible.to_string()]);
        command.args(["--compression", compression.as_str().unwrap_or_default(), "--directory"]);
        command.arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut line = String::new();
        let read = output.ok_or("no pipe").map(|output| BufReader::new(output).read_line(&mut line));
        let serving = match read {
            Ok(Ok(_)) => serde_json::from_str(&line).ok(),
            _ => None,
        };
        let Some(serving) = serving else {
            let _ = child.kill();
            child.wait()?;
            return Err("the registry of the benchmark could not be started".into());
        };
        Ok(Self { child, _input: input, serving, directory: directory.to_owned() })
    }

    /// The name of the image.
    pub fn name(&self) -> String {
        format!("{}/{NAME}:latest", self.serving.address)
    }

    /// The image.
    pub fn made(&self) -> &Made {
        &self.serving.made
    }

    /// A blob, document or archive of the image, as a file.
    pub fn open(&self, digest: &str) -> io::Result<File> {
        File::open(file(&self.directory, digest))
    }

    /// A blob over the network: what comes behind the head of the answer.
    pub fn fetch(&self, digest: &str) -> io::Result<impl Read + use<>> {
        let mut stream = TcpStream::connect(self.serving.address)?;
        let close = "Connection: close";
        write!(stream, "GET /v2/{NAME}/blobs/{digest} HTTP/1.1\r\nHost: bench\r\n{close}\r\n\r\n")?;
        let mut stream = BufReader::new(stream);
        let head = read_head(&mut stream)?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("the registry of the benchmark answered {head:?}")));
        }
        Ok(stream)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process: makes an image, and serves it until its input ends.
pub fn run(options: &RegistryOptions) -> ExitCode {
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mainstay: bench registry in {}: {error}", options.directory.display());
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &RegistryOptions) -> io::Result<()> {
    let made = Made::make(&options.shape, &options.directory)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let serving = Serving { address: listener.local_addr()?, made };
    println!("{}", serde_json::to_string(&serving)?);
    let (made, directory) = (serving.made, options.directory.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(io::Result::ok) {
            let (made, directory) = (made.clone(), directory.clone());
            // A connection that breaks off is the client's affair.
            std::thread::spawn(move || connection(stream, &made, &directory));
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

fn connection(stream: TcpStream, made: &Made, directory: &Path) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let head = read_head(&mut requests)?;
        let mut words = head.split_ascii_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(()) };
        answer(&stream, method, path, made, directory)?;
        if head.contains("Connection: close") {
            return Ok(());
        }
    }
}

fn answer(mut stream: &TcpStream, method: &str, path: &str, made: &Made, directory: &Path) -> io::Result<()> {
    let manifest = path.strip_prefix("/v2/bench/image/manifests/").map(|_| (&*made.manifest, MANIFEST_TYPE));
    let blob =
        || path.strip_prefix("/v2/bench/image/blobs/").map(|digest| (digest, "application/octet-stream"));
    let found = manifest.or_else(blob).filter(|(digest, _)| !digest.contains('/'));
    let opened =
        found.and_then(|(digest, kind)| Some((digest, kind, File::open(file(directory, digest)).ok()?)));
    let Some((digest, kind, file)) = opened else {
        let status = if path == "/v2/" { "200 OK" } else { "404 Not Found" };
        return write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
    };
    let mut left = file.metadata()?.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n\r\n"
    )?;
    while method == "GET" && left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(stream, &file, None, most)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            sent => left -= sent as u64,
        }
    }
    Ok(())
}

/// The head of a request or an answer, with its empty line; empty at the end of the connection.
fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    let mut lines = stream.take(HEAD_BYTES_MAX);
    while lines.read_line(&mut head)? > 0 {
        if head.ends_with("\r\n\r\n") {
            return Ok(head);
        }
    }
    Ok(String::new())
}
