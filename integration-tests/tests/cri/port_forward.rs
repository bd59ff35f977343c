//! Port-forward as kubelet's clients do it, to what listens inside of a pod alone.

use mainstay_cri_api::{NamespaceMode, PodSandboxConfig, PortForwardRequest};
use mainstay_cri_streaming::testing::spdy::{Collected, Event, SpdyClient};
use mainstay_cri_streaming::testing::websocket::{self, WebSocketClient};
use mainstay_integration_tests::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, busybox, rig};

/// Where the container's server listens, on the loopback of the pod.
const PORT: u16 = 8_080;
/// Where nothing does.
const CLOSED: u16 = 8_081;
const REQUEST: &[u8] = b"GET /hello HTTP/1.0\r\n\r\n";
const SERVER: &str = "mkdir -p /dev/shm/www; echo from inside > /dev/shm/www/hello; exec busybox httpd -f -h /dev/shm/www -p 127.0.0.1:8080";

/// A pod with a network of its own.
fn pod(rig: &Rig, name: &str) -> PodSandboxConfig {
    let mut config = busybox::pod(rig, name);
    let linux = config.linux.as_mut().expect("given");
    let context = linux.security_context.as_mut().expect("given");
    context.namespace_options.as_mut().expect("given").set_network(NamespaceMode::Pod);
    config
}

impl Rig {
    async fn ports_url(&self, pod: &str, port: Vec<i32>) -> String {
        let request = PortForwardRequest { pod_sandbox_id: pod.to_owned(), port };
        self.runtime().port_forward(request).await.expect("a URL").into_inner().url
    }
}

async fn ask(client: &mut SpdyClient, port: u16, request: u32) -> (u32, u32) {
    let (port, request) = (port.to_string(), request.to_string());
    let fields = |kind| [("streamType", kind), ("port", port.as_str()), ("requestID", request.as_str())];
    let error = client.writer.open(&fields("error")).await;
    client.writer.data(error, b"", true).await;
    let data = client.writer.open(&fields("data")).await;
    client.writer.data(data, REQUEST, false).await;
    (error, data)
}

/// Reads until so many streams have ended.
async fn read(client: &mut SpdyClient, ends: usize) -> Collected {
    let mut collected = Collected::default();
    while collected.ended.len() + collected.reset.len() < ends {
        match wait::finish("a stream moves", client.reader.next()).await {
            Event::Data(stream, bytes, is_last) => {
                collected.bytes.entry(stream).or_default().extend_from_slice(&bytes);
                collected.ended.extend(is_last.then_some(stream));
            }
            Event::Reset(stream, _) => collected.reset.push(stream),
            Event::Reply(_) | Event::Ping(_) => {}
            event => panic!("{event:?}"),
        }
    }
    collected
}

/// The server of the container takes a moment to be there.
async fn until_it_serves(rig: &Rig, pod: &str) {
    wait::until_async("the container serves", async || {
        let url = rig.ports_url(pod, Vec::new()).await;
        let (mut client, _) = SpdyClient::connect(&url, &["portforward.k8s.io"]).await.expect("upgraded");
        let (_, data) = ask(&mut client, PORT, 0).await;
        read(&mut client, 2).await.text(data).contains("from inside")
    })
    .await;
}

#[tokio::test]
async fn many_connections_reach_what_listens_on_the_loopback_of_a_pod() {
    const CONNECTIONS: u32 = 30;
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&pod(&rig, "web")).await;
    rig.run_container(&pod, &busybox::script("app", SERVER)).await;
    until_it_serves(&rig, &pod).await;

    let url = rig.ports_url(&pod, Vec::new()).await;
    let (client, _) = SpdyClient::connect(&url, &["portforward.k8s.io"]).await.expect("upgraded");
    let tunnelled = rig.ports_url(&pod, Vec::new()).await;
    let (tunnel, _) =
        WebSocketClient::connect(&tunnelled, &["SPDY/3.1+portforward.k8s.io"]).await.expect("upgraded");
    let (reading, writing) = tokio::io::split(tunnel.into_tunnel());
    for mut client in [client, SpdyClient::over(reading, writing)] {
        let mut asked = Vec::new();
        for request in 0..CONNECTIONS {
            asked.push(ask(&mut client, PORT, request).await);
        }
        let (error, broken) = ask(&mut client, CLOSED, CONNECTIONS).await;
        let all = read(&mut client, 2 * asked.len() + 2).await;
        for (error, data) in asked {
            assert!(all.text(data).ends_with("from inside\n"), "{:?}", all.text(data));
            assert_eq!(all.text(error), "");
        }
        assert_eq!(all.reset, [broken], "the others go on");
        let said = all.text(error);
        assert!(said.contains("port 8081") && said.contains(&pod), "{said:?}");
    }

    // A client that can name no ports itself has those of the request.
    let url = rig.ports_url(&pod, vec![i32::from(PORT)]).await;
    let (mut client, _) = WebSocketClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    client.send(0, REQUEST).await;
    let mut data = Vec::new();
    while let websocket::Event::Message(message) = wait::finish("a message", client.next()).await {
        if message[0] == 0 {
            data.extend_from_slice(&message[1..]);
        }
    }
    assert_eq!(data[..2], PORT.to_le_bytes());
    assert!(data.ends_with(b"from inside\n"), "{}", String::from_utf8_lossy(&data));
    rig.finish().await;
}

/// A pod in the host's network has the host's loopback, and what listens on IPv6 alone is found as well.
#[tokio::test]
async fn a_pod_in_the_network_of_the_host_is_reached_by_ipv6_too() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address).await else { continue };
        let port = listener.local_addr().expect("an address").port();
        let url = rig.ports_url(&pod, Vec::new()).await;
        let (mut client, _) = SpdyClient::connect(&url, &["portforward.k8s.io"]).await.expect("upgraded");
        let (_, data) = ask(&mut client, port, 0).await;
        let (mut stream, _) = wait::finish("it connects", listener.accept()).await.expect("accepted");
        let mut asked = vec![0; REQUEST.len()];
        wait::finish("the request comes", stream.read_exact(&mut asked)).await.expect("read");
        stream.write_all(b"hello").await.expect("written");
        drop(stream);
        assert_eq!(read(&mut client, 2).await.text(data), "hello");
    }
    rig.finish().await;
}

#[tokio::test]
async fn ports_of_a_pod_that_is_not_there_or_not_ready_are_refused() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let ask = |pod: &str, port: Vec<i32>| {
        let request = PortForwardRequest { pod_sandbox_id: pod.to_owned(), port };
        let mut runtime = rig.runtime();
        async move { runtime.port_forward(request).await }
    };
    assert_refused(ask("", Vec::new()).await, Code::InvalidArgument, &["pod_sandbox_id"]);
    assert_refused(ask("0123", Vec::new()).await, Code::NotFound, &["0123"]);
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    for port in [0, -1, 65_536] {
        assert_refused(ask(&pod, vec![port]).await, Code::InvalidArgument, &["port", &port.to_string()]);
    }
    let stop = mainstay_cri_api::StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
    rig.runtime().stop_pod_sandbox(stop).await.expect("stopped");
    assert_refused(ask(&pod, Vec::new()).await, Code::FailedPrecondition, &["stopped"]);
    rig.finish().await;
}
