//! Who is not let in.

use std::sync::Arc;

use super::fakes::{Fake, LocalPorts, PIPES, Script, server};
use super::soon;
use crate::testing::request;
use crate::testing::spdy::SpdyClient;

const V4: [&str; 1] = ["v4.channel.k8s.io"];

#[tokio::test]
async fn a_token_is_good_for_one_client_and_one_purpose() {
    let server = server().await;
    let url = server.exec(Fake::new(Script::Sleep).0, PIPES).expect("issued");
    assert!(url.starts_with(&format!("http://{}/exec/", server.address())), "{url}");
    for other in
        [url.replace("/exec/", "/attach/"), url.replace("/exec/", "/portforward/"), format!("{url}x")]
    {
        let refused = SpdyClient::connect(&other, &V4).await.err().expect("refused");
        assert_eq!(refused.status, 404);
        assert!(refused.body.contains("ask for a new URL"), "{}", refused.body);
    }
    // What was refused can be asked for better.
    let refused = SpdyClient::connect(&url, &["v9.channel.k8s.io"]).await.err().expect("refused");
    assert_eq!(refused.status, 403);
    assert!(
        refused.head.to_ascii_lowercase().contains("x-accepted-stream-protocol-versions: v4.channel.k8s.io")
    );
    let refused = request("GET", &url, &[]).await.expect_err("no upgrade");
    assert_eq!(refused.status, 400);
    let refused = request("DELETE", &url, &[]).await.expect_err("no such method");
    assert_eq!(refused.status, 405);
    let (_client, _) = SpdyClient::connect(&url, &V4).await.expect("upgraded");
    assert_eq!(SpdyClient::connect(&url, &V4).await.err().expect("used up").status, 404);
    let ports = server.port_forward(Arc::new(LocalPorts), Vec::new()).expect("issued");
    assert_eq!(SpdyClient::connect(&ports, &V4).await.err().expect("refused").status, 403);
}

#[tokio::test]
async fn an_endless_head_is_not_read() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = server().await;
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.expect("connected");
    let _ = stream.write_all(b"GET /exec/x HTTP/1.1\r\n").await;
    soon(async { while stream.write_all(&[b'a'; 4_096]).await.is_ok() {} }).await;
    let mut rest = Vec::new();
    let _ = soon(stream.read_to_end(&mut rest)).await;
}
