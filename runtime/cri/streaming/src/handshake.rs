//! Which protocol a client and this server speak, decided from the head of its request.
//!
//! | request | answered with |
//! |---|---|
//! | `Upgrade: SPDY/3.1`, `X-Stream-Protocol-Version` | the first version of the client's that is spoken here |
//! | `Upgrade: websocket`, `Sec-WebSocket-Protocol` or none | the same, of the WebSocket names |
//! | anything else | a refusal, in one sentence |
//!
//! Owns: that decision. Never: reads or writes a byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::status::Version;
use crate::websocket::channel::Encoding;

/// Versions that a client speaks over SPDY.
static STREAM_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Versions that it could have asked for.
static ACCEPTED_STREAM_PROTOCOL_VERSIONS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");
const SPDY: &str = "SPDY/3.1";
const PORT_FORWARD: &str = "portforward.k8s.io";
/// SPDY inside of WebSocket, as kubectl does it since 1.31.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// The only version of WebSocket.
const WEBSOCKET_VERSION: &str = "13";
/// Bytes of the key of a WebSocket handshake.
const KEY_BYTES: usize = 16;

const PROCESS_SPDY: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V2),
    ("channel.k8s.io", Version::V1),
];
const PROCESS_WEBSOCKET: [(&str, Version, Encoding); 7] = [
    ("v5.channel.k8s.io", Version::V5, Encoding::Binary),
    ("v4.channel.k8s.io", Version::V4, Encoding::Binary),
    ("v4.base64.channel.k8s.io", Version::V4, Encoding::Base64),
    ("v3.channel.k8s.io", Version::V3, Encoding::Binary),
    ("v2.channel.k8s.io", Version::V2, Encoding::Binary),
    ("channel.k8s.io", Version::V1, Encoding::Binary),
    ("base64.channel.k8s.io", Version::V1, Encoding::Base64),
];
const PORTS_WEBSOCKET: [(&str, Encoding); 2] =
    [("v4.channel.k8s.io", Encoding::Binary), ("v4.base64.channel.k8s.io", Encoding::Base64)];

/// What a client wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Exec or attach.
    Process,
    /// Port-forward.
    Ports,
}

/// What is spoken after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// SPDY. The version is of no meaning for ports.
    Spdy(Version),
    /// WebSocket with channels.
    WebSocket(Version, Encoding),
    /// SPDY inside of WebSocket.
    Tunnel,
}

/// An upgrade, and the head of its answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Upgrade {
    pub(crate) transport: Transport,
    pub(crate) headers: HeaderMap,
}

/// A request that is not answered with an upgrade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) sentence: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into(), headers: Vec::new() }
    }
}

/// Decides.
pub(crate) fn negotiate(wanted: Wanted, method: &Method, headers: &HeaderMap) -> Result<Upgrade, Refusal> {
    if !list(headers, &CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade")) {
        return Err(no_upgrade());
    }
    let mut protocols = list(headers, &UPGRADE);
    match protocols.find(|name| name.eq_ignore_ascii_case(SPDY) || name.eq_ignore_ascii_case("websocket")) {
        Some(name) if name.eq_ignore_ascii_case(SPDY) => spdy(wanted, headers),
        Some(_) => websocket(wanted, method, headers),
        None => Err(no_upgrade()),
    }
}

fn no_upgrade() -> Refusal {
    let sentence =
        "this is no upgrade to a stream; send Connection: Upgrade with Upgrade: SPDY/3.1 or websocket";
    let mut refusal = Refusal::new(StatusCode::BAD_REQUEST, sentence);
    refusal.headers.push((UPGRADE, HeaderValue::from_static("SPDY/3.1, websocket")));
    refusal
}

fn spdy(wanted: Wanted, headers: &HeaderMap) -> Result<Upgrade, Refusal> {
    let known: Vec<(&'static str, Version)> = match wanted {
        Wanted::Process => PROCESS_SPDY.to_vec(),
        Wanted::Ports => vec![(PORT_FORWARD, Version::V1)],
    };
    let mut asked = list(headers, &STREAM_PROTOCOL_VERSION).peekable();
    if asked.peek().is_none() {
        let sentence = format!("header X-Stream-Protocol-Version is missing; ask for {}", names(&known));
        return Err(Refusal::new(StatusCode::BAD_REQUEST, sentence));
    }
    let found = asked.find_map(|name| known.iter().find(|(spoken, _)| *spoken == name));
    let Some((name, version)) = found else {
        let asked: Vec<_> = list(headers, &STREAM_PROTOCOL_VERSION).collect();
        let sentence = format!("none of {asked:?} is spoken here; ask for {}", names(&known));
        let mut refusal = Refusal::new(StatusCode::FORBIDDEN, sentence);
        for (name, _) in known {
            refusal.headers.push((ACCEPTED_STREAM_PROTOCOL_VERSIONS.clone(), HeaderValue::from_static(name)));
        }
        return Err(refusal);
    };
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static(SPDY));
    answer.insert(&STREAM_PROTOCOL_VERSION, HeaderValue::from_static(name));
    Ok(Upgrade { transport: Transport::Spdy(*version), headers: answer })
}

fn websocket(wanted: Wanted, method: &Method, headers: &HeaderMap) -> Result<Upgrade, Refusal> {
    let bad = |sentence: &str| Refusal::new(StatusCode::BAD_REQUEST, sentence);
    if method != Method::GET {
        return Err(bad("a WebSocket is opened with GET"));
    }
    if !list(headers, &SEC_WEBSOCKET_VERSION).any(|version| version == WEBSOCKET_VERSION) {
        let sentence =
            "header Sec-WebSocket-Version is not 13, which is the only version that is spoken here";
        let mut refusal = Refusal::new(StatusCode::UPGRADE_REQUIRED, sentence);
        refusal.headers.push((SEC_WEBSOCKET_VERSION, HeaderValue::from_static(WEBSOCKET_VERSION)));
        return Err(refusal);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if STANDARD.decode(key).map(|bytes| bytes.len()) != Ok(KEY_BYTES) {
        return Err(bad("header Sec-WebSocket-Key has no key of 16 bytes"));
    }
    let known: Vec<(&'static str, Transport)> = match wanted {
        Wanted::Process => {
            let transport = |(name, version, encoding)| (name, Transport::WebSocket(version, encoding));
            PROCESS_WEBSOCKET.map(transport).to_vec()
        }
        Wanted::Ports => {
            let transport = |(name, encoding)| (name, Transport::WebSocket(Version::V4, encoding));
            let mut known = vec![(TUNNEL, Transport::Tunnel)];
            known.extend(PORTS_WEBSOCKET.map(transport));
            known
        }
    };
    let mut asked = list(headers, &SEC_WEBSOCKET_PROTOCOL).peekable();
    let (name, transport) = if asked.peek().is_none() {
        (None, Transport::WebSocket(Version::V1, Encoding::Binary))
    } else {
        let found = asked.find_map(|name| known.iter().find(|(spoken, _)| *spoken == name));
        let Some((name, transport)) = found else {
            let asked: Vec<_> = list(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
            let sentence = format!("none of {asked:?} is spoken here; ask for {}", names(&known));
            return Err(Refusal::new(StatusCode::FORBIDDEN, sentence));
        };
        (Some(*name), *transport)
    };
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    // It is base64, which a header can always have.
    let accept = HeaderValue::from_str(&derive_accept_key(key)).map_err(|_| bad("the key has no answer"))?;
    answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(name) = name {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(Upgrade { transport, headers: answer })
}

/// The members of a header that is a list, over several lines as well.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

fn names<T>(known: &[(&'static str, T)]) -> String {
    known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
