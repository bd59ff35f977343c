use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rstest::rstest;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::exposition::Scrape;
use crate::{Format, Source, State};

#[derive(Debug)]
struct Nothing;

impl Source for Nothing {
    fn state(&self) -> State {
        State::default()
    }
}

struct Served {
    directory: TempDir,
    server: JoinHandle<Infallible>,
}

impl Served {
    fn new(settings: MetricsSettings) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("m.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
        let metrics = Arc::new(Metrics::new("1", Arc::new(Nothing)));
        Self { directory, server: tokio::spawn(serve(Listener::Unix(listener), metrics, settings)) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("m.sock")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn ask(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).await.expect("connected");
    // One who is refused may be so before all is said.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn a_scrape_is_answered_in_the_format_that_is_asked_for() {
    let served = Served::new(MetricsSettings::default());
    let plain = ask(&served.path(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (head, body) = plain.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    Scrape::parse(body, Format::Prometheus).expect("right");
    let open = "GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let open = ask(&served.path(), open.as_bytes()).await;
    let (head, body) = open.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    Scrape::parse(body, Format::OpenMetrics).expect("right");
}

#[rstest]
#[case("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 ")]
#[case("GET /metrics/../x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 ")]
#[case("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 ")]
#[case("rubbish\r\n\r\n", "HTTP/1.1 400 ")]
#[tokio::test]
async fn what_is_not_a_scrape_is_told_so(#[case] request: &str, #[case] status: &str) {
    let served = Served::new(MetricsSettings::default());
    let answer = ask(&served.path(), request.as_bytes()).await;
    assert!(answer.starts_with(status), "{answer}");
}

/// A head without an end would be kept in memory without an end.
#[tokio::test]
async fn a_head_that_does_not_end_is_cut_off() {
    let served = Served::new(MetricsSettings::default());
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(2 * HEAD_LENGTH_MAX));
    let answer = ask(&served.path(), long.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many: String = (0..2 * HEAD_FIELDS_MAX).map(|n| format!("X-{n}: 1\r\n")).collect();
    let answer = ask(&served.path(), format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(ask(&served.path(), b"GET /metrics HTTP/1.0\r\n\r\n").await.contains("200 OK"));
}

/// Scrapers that say nothing would take all places for ever.
#[tokio::test]
async fn who_says_nothing_is_cut_off_and_makes_room() {
    let settings =
        MetricsSettings { connections_max: 2, connection_timeout_ms: 200, ..MetricsSettings::default() };
    let served = Served::new(settings);
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(UnixStream::connect(served.path()).await.expect("connected"));
    }
    // Those two may not have been accepted yet when this one is; in the end all three are closed.
    let mut third = UnixStream::connect(served.path()).await.expect("connected");
    silent.push(UnixStream::connect(served.path()).await.expect("connected"));
    for stream in silent.iter_mut().chain([&mut third]) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.expect("closed, not broken"), 0);
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !ask(&served.path(), b"GET /metrics HTTP/1.0\r\n\r\n").await.contains("200 OK") {
        assert!(tokio::time::Instant::now() < deadline, "the places are free again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
