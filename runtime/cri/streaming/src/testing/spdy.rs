//! A client of SPDY/3.1.

use std::collections::BTreeMap;

use flate2::{Compress, Compression, FlushCompress};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Answer, request};
use crate::spdy::headers::spdy_dictionary;

/// A client.
pub struct SpdyClient {
    /// What it sends.
    pub writer: SpdyWriter,
    /// What it gets.
    pub reader: SpdyReader,
}

/// The sending half of a client.
pub struct SpdyWriter {
    io: Box<dyn AsyncWrite + Send + Unpin>,
    deflate: Compress,
    next: u32,
}

/// The reading half of a client.
pub struct SpdyReader {
    io: Box<dyn AsyncRead + Send + Unpin>,
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream is accepted.
    Reply(u32),
    /// Bytes of a stream, and whether they are the last.
    Data(u32, Vec<u8>, bool),
    /// A stream is reset, with this code.
    Reset(u32, u32),
    /// The answer to a ping.
    Ping(u32),
    /// The server goes away.
    GoAway,
    /// The connection is closed.
    Closed,
}

/// All that came on the streams of a connection.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The bytes of each stream.
    pub bytes: BTreeMap<u32, Vec<u8>>,
    /// Streams that have ended.
    pub ended: Vec<u32>,
    /// Streams that were reset.
    pub reset: Vec<u32>,
}

impl Collected {
    /// What came on a stream, as text.
    pub fn text(&self, stream: u32) -> String {
        String::from_utf8_lossy(self.bytes.get(&stream).map_or(&[], Vec::as_slice)).into_owned()
    }
}

impl SpdyClient {
    /// Comes for a URL with these versions of the protocol. The version that was chosen is in the head.
    pub async fn connect(url: &str, versions: &[&str]) -> Result<(Self, String), Answer> {
        let mut headers = vec![("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("Content-Length", "0")];
        headers.extend(versions.iter().map(|version| ("X-Stream-Protocol-Version", *version)));
        let (stream, head) = request("POST", url, &headers).await?;
        let (reader, writer) = stream.into_split();
        Ok((Self::over(reader, writer), head))
    }

    /// A client on a connection that is there.
    pub fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let mut deflate = Compress::new(Compression::best(), true);
        deflate.set_dictionary(&spdy_dictionary()).expect("a fresh stream takes a dictionary");
        let writer = SpdyWriter { io: Box::new(writer), deflate, next: 1 };
        Self { writer, reader: SpdyReader { io: Box::new(reader) } }
    }

    /// Opens a stream, and waits until it is accepted.
    ///
    /// # Panics
    /// When it is not.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let stream = self.writer.open(headers).await;
        assert_eq!(self.reader.next().await, Event::Reply(stream));
        stream
    }

    /// Opens the streams of a process, in the order of kubectl.
    pub async fn open_process(&mut self, kinds: &[&str]) -> Vec<u32> {
        let mut streams = Vec::new();
        for kind in kinds {
            streams.push(self.open(&[("streamType", kind)]).await);
        }
        streams
    }
}

impl SpdyWriter {
    /// Opens a stream; its number.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let mut block = Vec::from((headers.len() as u32).to_be_bytes());
        for (name, value) in headers {
            for text in [name.to_ascii_lowercase(), (*value).to_owned()] {
                block.extend_from_slice(&(text.len() as u32).to_be_bytes());
                block.extend_from_slice(text.as_bytes());
            }
        }
        let mut deflated = Vec::with_capacity(4_096);
        self.deflate.compress_vec(&block, &mut deflated, FlushCompress::Sync).expect("deflated");
        let stream = self.next;
        self.next += 2;
        let mut body = Vec::from(stream.to_be_bytes());
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&deflated);
        self.control(1, &body).await;
        stream
    }

    /// Sends bytes, and whether they are the last.
    pub async fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> bool {
        let mut frame = Vec::from(stream.to_be_bytes());
        frame.extend_from_slice(&((u32::from(is_last) << 24) | bytes.len() as u32).to_be_bytes());
        frame.extend_from_slice(bytes);
        self.io.write_all(&frame).await.is_ok()
    }

    /// Resets a stream.
    pub async fn reset(&mut self, stream: u32) {
        let mut body = Vec::from(stream.to_be_bytes());
        body.extend_from_slice(&5u32.to_be_bytes());
        self.control(3, &body).await;
    }

    /// Asks whether the server is there.
    pub async fn ping(&mut self, id: u32) {
        self.control(6, &id.to_be_bytes()).await;
    }

    /// Sends bytes that may be no frame.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.io.write_all(bytes).await;
    }

    async fn control(&mut self, kind: u16, body: &[u8]) {
        let mut frame = Vec::from([0x80, 3]);
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(body);
        let _ = self.io.write_all(&frame).await;
    }
}

impl SpdyReader {
    /// What comes next. Frames that tell a client nothing are skipped.
    pub async fn next(&mut self) -> Event {
        loop {
            let mut head = [0; 8];
            if self.io.read_exact(&mut head).await.is_err() {
                return Event::Closed;
            }
            let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let mut body = vec![0; (word(4) & 0x00ff_ffff) as usize];
            if self.io.read_exact(&mut body).await.is_err() {
                return Event::Closed;
            }
            let number = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
            if word(0) >> 31 == 0 {
                return Event::Data(word(0), body, head[4] & 1 == 1);
            }
            match word(0) & 0xffff {
                2 => return Event::Reply(number(0)),
                3 => return Event::Reset(number(0), number(4)),
                6 => return Event::Ping(number(0)),
                7 => return Event::GoAway,
                _ => {}
            }
        }
    }

    /// Reads until the server goes away.
    pub async fn collect(&mut self) -> Collected {
        let mut collected = Collected::default();
        loop {
            match self.next().await {
                Event::Data(stream, bytes, is_last) => {
                    collected.bytes.entry(stream).or_default().extend_from_slice(&bytes);
                    if is_last {
                        collected.ended.push(stream);
                    }
                }
                Event::Reset(stream, _) => collected.reset.push(stream),
                Event::Reply(_) | Event::Ping(_) => {}
                Event::GoAway | Event::Closed => return collected,
            }
        }
    }
}
