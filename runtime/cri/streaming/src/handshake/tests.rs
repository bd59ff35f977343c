use super::*;

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

fn over_spdy(wanted: Wanted, versions: &[&'static str]) -> Result<Upgrade, Refusal> {
    let mut fields = vec![("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    fields.extend(versions.iter().map(|version| ("x-stream-protocol-version", *version)));
    negotiate(wanted, &Method::POST, &headers(&fields))
}

fn over_websocket(wanted: Wanted, protocols: &[&'static str]) -> Result<Upgrade, Refusal> {
    let mut fields = vec![
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    fields.extend(protocols.iter().map(|protocol| ("sec-websocket-protocol", *protocol)));
    negotiate(wanted, &Method::GET, &headers(&fields))
}

#[test]
fn the_first_version_of_the_client_that_is_spoken_is_taken() {
    let upgrade =
        over_spdy(Wanted::Process, &["v9.channel.k8s.io", "v3.channel.k8s.io", "v4.channel.k8s.io"]);
    let upgrade = upgrade.expect("negotiated");
    assert_eq!(upgrade.transport, Transport::Spdy(Version::V3));
    assert_eq!(upgrade.headers[&STREAM_PROTOCOL_VERSION], "v3.channel.k8s.io");
    assert_eq!(upgrade.headers[UPGRADE], "SPDY/3.1");
    let listed = over_spdy(Wanted::Process, &["v9.channel.k8s.io, channel.k8s.io"]).expect("negotiated");
    assert_eq!(listed.transport, Transport::Spdy(Version::V1));
    assert!(over_spdy(Wanted::Ports, &["portforward.k8s.io"]).is_ok());
    let websocket = over_websocket(Wanted::Process, &["v5.channel.k8s.io"]).expect("negotiated");
    assert_eq!(websocket.transport, Transport::WebSocket(Version::V5, Encoding::Binary));
    assert_eq!(websocket.headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
    // The example of RFC 6455.
    assert_eq!(websocket.headers[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let tunnel = over_websocket(Wanted::Ports, &["SPDY/3.1+portforward.k8s.io"]).expect("negotiated");
    assert_eq!(tunnel.transport, Transport::Tunnel);
    let unnamed = over_websocket(Wanted::Process, &[]).expect("negotiated");
    assert_eq!(unnamed.transport, Transport::WebSocket(Version::V1, Encoding::Binary));
    assert!(!unnamed.headers.contains_key(SEC_WEBSOCKET_PROTOCOL));
}

#[test]
fn a_refusal_says_what_would_be_right() {
    let refusal = over_spdy(Wanted::Process, &["v9.channel.k8s.io"]).expect_err("refused");
    assert_eq!(refusal.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refusal.headers.iter().filter(|(name, _)| *name == ACCEPTED_STREAM_PROTOCOL_VERSIONS).count(),
        4
    );
    assert!(refusal.sentence.contains("v4.channel.k8s.io"), "{}", refusal.sentence);
    assert_eq!(over_spdy(Wanted::Process, &[]).expect_err("refused").status, StatusCode::BAD_REQUEST);
    assert_eq!(
        over_websocket(Wanted::Ports, &["v5.channel.k8s.io"]).expect_err("refused").status,
        StatusCode::FORBIDDEN
    );
    let plain = negotiate(Wanted::Process, &Method::GET, &HeaderMap::new()).expect_err("refused");
    assert_eq!(plain.status, StatusCode::BAD_REQUEST);
    let websocket = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    let refusal = negotiate(Wanted::Process, &Method::GET, &headers(&websocket)).expect_err("no key");
    assert!(refusal.sentence.contains("Sec-WebSocket-Key"), "{}", refusal.sentence);
    assert!(negotiate(Wanted::Process, &Method::POST, &headers(&websocket)).is_err());
}
