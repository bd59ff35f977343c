//! A registry on the loopback network that answers as a test says: byte by byte, cut short, late or never.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// As in `GET`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What follows the `?`.
    pub query: String,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    /// How many requests with the same method and path came before it.
    pub nth: usize,
}

/// What to answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Headers beside the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How it ends.
    pub ending: Ending,
}

/// How an answer ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// As it should.
    Whole,
    /// The connection is closed after so many bytes of the body.
    Cut(usize),
    /// The connection is reset after so many bytes of the body.
    Reset(usize),
    /// Nothing comes after so many bytes of the body, and the connection stays.
    Stall(usize),
    /// The body comes in pieces of so many bytes, with a pause between them.
    Trickle(usize, Duration),
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// The registry. It ends with this value.
pub struct Stub {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    handler: Box<Handler>,
    seen: Mutex<Vec<Request>>,
    open: AtomicUsize,
}

impl Reply {
    /// With this status and body, whole.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), ending: Ending::Whole }
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// With another ending.
    pub fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }
}

impl Request {
    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

impl Stub {
    /// Starts one on this machine.
    pub async fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1", None, handler).await
    }

    /// Starts one on an address, with TLS where it is given.
    pub async fn start_on(
        ip: &str,
        tls: Option<ServerConfig>,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.expect("a port of this machine");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            seen: Mutex::default(),
            open: AtomicUsize::new(0),
        });
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let task = tokio::spawn(accept(listener, acceptor, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// The name of a repository here.
    pub fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().expect("not poisoned").clone()
    }

    /// Requests with this method whose path has this in it.
    pub fn count(&self, method: &str, part: &str) -> usize {
        self.seen().iter().filter(|request| request.method == method && request.path.contains(part)).count()
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Connections end with the task that accepts them.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            shared.open.fetch_add(1, Ordering::SeqCst);
            let _open = Open(Arc::clone(&shared));
            match tls {
                None => {
                    serve(stream, &shared, |stream: &TcpStream| {
                        // Where it does not work the connection is closed, which is nearly the same.
                        let _ = stream.set_zero_linger();
                    })
                    .await
                }
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &shared, |_| {}).await;
                    }
                }
            }
        });
    }
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers the requests of one connection, until either side ends it.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, shared: &Shared, before_reset: impl Fn(&S)) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, shared).await {
        let reply = (shared.handler)(&request);
        let length = reply.body.len().to_string();
        let mut head = format!("HTTP/1.1 {} Status\r\n", reply.status);
        let own_length =
            reply.headers.iter().any(|(name, _)| name == "content-length" || name == "transfer-encoding");
        let length = (!own_length).then(|| ("content-length".to_owned(), length));
        for (name, value) in reply.headers.iter().chain(&length) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        let body: &[u8] = if request.method == "HEAD" { &[] } else { &reply.body };
        let (sent, rest) = match reply.ending {
            Ending::Whole | Ending::Trickle(..) => (body, &[][..]),
            Ending::Cut(at) | Ending::Reset(at) | Ending::Stall(at) => body.split_at(at.min(body.len())),
        };
        let (piece, pause) = match reply.ending {
            Ending::Trickle(piece, pause) => (piece, pause),
            _ => (sent.len().max(1), Duration::ZERO),
        };
        for piece in sent.chunks(piece) {
            if stream.write_all(piece).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
        if stream.flush().await.is_err() {
            return;
        }
        match reply.ending {
            Ending::Whole | Ending::Trickle(..) => {}
            _ if rest.is_empty() && !body.is_empty() && !matches!(reply.ending, Ending::Cut(_)) => {}
            Ending::Cut(_) => {
                let _ = stream.shutdown().await;
                return;
            }
            Ending::Reset(_) => {
                before_reset(stream.get_ref());
                return;
            }
            Ending::Stall(_) => {
                // Until the other side ends it.
                let _ = stream.read_u8().await;
                return;
            }
        }
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut BufReader<S>, shared: &Shared) -> Option<Request> {
    // Whoever speaks TLS here is told that nobody does.
    stream.fill_buf().await.ok()?.first().filter(|first| first.is_ascii_alphabetic())?;
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut seen = shared.seen.lock().expect("not poisoned");
    let nth = seen.iter().filter(|earlier| earlier.method == method && earlier.path == path).count();
    let request = Request {
        path: path.to_owned(),
        query: query.to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
        method,
        headers,
        nth,
    };
    seen.push(request.clone());
    Some(request)
}
