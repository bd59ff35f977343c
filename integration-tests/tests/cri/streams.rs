//! Exec and attach as kubelet's clients do them, over both transports, on real processes.

use std::collections::BTreeMap;

use mainstay_cri_api::{AttachRequest, ContainerConfig, ContainerState, ExecRequest};
use mainstay_cri_streaming::testing::spdy::{Event, SpdyClient};
use mainstay_cri_streaming::testing::websocket::WebSocketClient;
use mainstay_integration_tests::wait;
use tonic::Code;

use crate::rig::Rig;
use crate::{assert_refused, busybox, rig};

const SUCCESS: &str = r#"{"status":"Success"}"#;
const V4: [&str; 1] = ["v4.channel.k8s.io"];
const V5: [&str; 1] = ["v5.channel.k8s.io"];

/// What a client got of a process.
#[derive(Debug, Default)]
struct Got {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    error: String,
}

impl Rig {
    async fn exec_url(&self, request: ExecRequest) -> String {
        let mut runtime = self.runtime();
        wait::finish("a URL is given", runtime.exec(request)).await.expect("a URL").into_inner().url
    }
}

fn command(id: &str, script: &str) -> ExecRequest {
    ExecRequest {
        container_id: id.to_owned(),
        cmd: ["sh", "-c", script].map(str::to_owned).to_vec(),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    }
}

fn terminal(id: &str, script: &str) -> ExecRequest {
    ExecRequest { stderr: false, tty: true, ..command(id, script) }
}

/// Sends input while it reads output, to the end of both.
async fn over_spdy(url: &str, input: Vec<u8>) -> Got {
    let (mut client, _) = SpdyClient::connect(url, &V4).await.expect("upgraded");
    let streams = client.open_process(&["error", "stdin", "stdout", "stderr"]).await;
    let SpdyClient { mut writer, mut reader } = client;
    let stdin = streams[1];
    let writing = tokio::spawn(async move {
        for piece in input.chunks(32_768) {
            writer.data(stdin, piece, false).await;
        }
        writer.data(stdin, b"", true).await;
        writer
    });
    let mut all = wait::finish("a stream ends", reader.collect()).await;
    drop(writing);
    let error = all.text(streams[0]);
    let mut take = |stream| all.bytes.remove(&stream).unwrap_or_default();
    Got { stdout: take(streams[2]), stderr: take(streams[3]), error }
}

/// Sends all of its input, which is little, before it reads.
async fn over_websocket(url: &str, input: &[u8]) -> Got {
    let (mut client, _) = WebSocketClient::connect(url, &V5).await.expect("upgraded");
    client.send(0, input).await;
    client.send(255, &[0]).await;
    let ([_, stdout, stderr, error, _], code) = wait::finish("a stream ends", client.collect()).await;
    assert_eq!(code, Some(1000));
    Got { stdout, stderr, error: String::from_utf8_lossy(&error).into_owned() }
}

async fn sleeper(rig: &Rig) -> String {
    let pod = rig.run_pod(&busybox::pod(rig, "web")).await;
    rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await
}

#[tokio::test]
async fn a_command_reads_its_input_to_the_end_and_its_exit_code_is_told() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    let script = "cat; echo err >&2; exit 3";
    let url = rig.exec_url(command(&id, script)).await;
    let spdy = over_spdy(&url, b"hello".to_vec()).await;
    let used_up = SpdyClient::connect(&url, &V4).await.err().expect("a URL is good once");
    assert_eq!(used_up.status, 404, "{used_up:?}");
    let websocket = over_websocket(&rig.exec_url(command(&id, script)).await, b"hello").await;
    for got in [spdy, websocket] {
        assert_eq!((got.stdout.as_slice(), got.stderr.as_slice()), (&b"hello"[..], &b"err\n"[..]));
        assert!(got.error.contains("NonZeroExitCode") && got.error.contains("\"message\":\"3\""), "{got:?}");
    }
    let url = rig.exec_url(command(&id, "kill -9 $$")).await;
    assert!(over_spdy(&url, Vec::new()).await.error.contains("\"message\":\"137\""));
    let mut nowhere = command(&id, "");
    nowhere.cmd = vec!["/nowhere".to_owned()];
    let got = over_spdy(&rig.exec_url(nowhere).await, Vec::new()).await;
    assert!(got.error.contains("InternalError") && got.error.contains("/nowhere"), "{got:?}");
    rig.finish().await;
}

/// Readers that were cancelled by the clean-up lost the end of what a command wrote (case 36).
#[tokio::test]
async fn the_tail_of_output_is_never_lost() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    for round in 0..20 {
        let url = rig.exec_url(command(&id, "dd if=/dev/zero bs=1024 count=1024 2>/dev/null; exit 3")).await;
        let got =
            if round % 2 == 0 { over_spdy(&url, Vec::new()).await } else { over_websocket(&url, b"").await };
        assert_eq!(got.stdout.len(), 1_048_576, "round {round}");
        assert!(got.error.contains("\"message\":\"3\""), "{}", got.error);
    }
    rig.finish().await;
}

/// A size that was sent before the process existed was lost (case 36).
#[tokio::test]
async fn a_terminal_has_its_size_from_the_first_instruction_on_and_changes_it() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    for round in 0..10 {
        let url = rig.exec_url(terminal(&id, "busybox stty size")).await;
        let output = if round % 2 == 0 {
            let (mut client, _) = SpdyClient::connect(&url, &V4).await.expect("upgraded");
            let streams = client.open_process(&["error", "stdin", "stdout", "resize"]).await;
            client.writer.data(streams[3], b"{\"Width\":120,\"Height\":40}\n", false).await;
            let all = wait::finish("a stream ends", client.reader.collect()).await;
            assert_eq!(all.text(streams[0]), SUCCESS);
            all.text(streams[2])
        } else {
            let (mut client, _) = WebSocketClient::connect(&url, &V5).await.expect("upgraded");
            client.send(4, b"{\"Width\":120,\"Height\":40}").await;
            let ([_, stdout, ..], _) = wait::finish("a stream ends", client.collect()).await;
            String::from_utf8_lossy(&stdout).into_owned()
        };
        assert_eq!(output.trim(), "40 120", "round {round}");
    }
    let url = rig.exec_url(terminal(&id, "read line; busybox stty size; exit 7")).await;
    let (mut client, _) = SpdyClient::connect(&url, &V4).await.expect("upgraded");
    let streams = client.open_process(&["error", "stdin", "stdout", "resize"]).await;
    client.writer.data(streams[3], b"{\"Width\":120,\"Height\":40}", false).await;
    client.writer.data(streams[3], b"{\"Width\":81,\"Height\":25}", false).await;
    // Its echo says that the shell is there; the size is set before the line is read, or soon after.
    client.writer.data(streams[1], b"go\n", false).await;
    let all = wait::finish("a stream ends", client.reader.collect()).await;
    let text = all.text(streams[2]);
    assert!(text.contains("25 81") || text.contains("40 120"), "{text:?}");
    assert!(all.text(streams[0]).contains("\"message\":\"7\""), "{all:?}");
    rig.finish().await;
}

#[tokio::test]
async fn a_hundred_mebibytes_go_through_a_command_and_back() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    let input: Vec<u8> = (0..100 * 1024 * 1024 / 4u32).flat_map(u32::to_le_bytes).collect();
    let got = over_spdy(&rig.exec_url(command(&id, "cat")).await, input.clone()).await;
    assert!(got.stdout == input, "{} of {} bytes came back, or others", got.stdout.len(), input.len());
    assert_eq!(got.error, SUCCESS);
    rig.finish().await;
}

/// A client that goes away takes a terminal with it, as a line that drops, and leaves a command without one to its work.
#[tokio::test]
async fn a_client_that_leaves_ends_a_terminal_and_the_input_of_a_command() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    let url = rig
        .exec_url(terminal(
            &id,
            "trap 'echo hung > /dev/shm/up; exit' HUP; echo here; while :; do sleep 1; done",
        ))
        .await;
    let (mut client, _) = SpdyClient::connect(&url, &V4).await.expect("upgraded");
    client.open_process(&["error", "stdin", "stdout", "resize"]).await;
    wait::finish("it runs", async { while !matches!(client.reader.next().await, Event::Data(..)) {} }).await;
    drop(client);
    wait::until_async("the terminal hangs up", async || {
        rig.says(&id, "cat /dev/shm/up 2>/dev/null").await == "hung"
    })
    .await;

    let url = rig.exec_url(command(&id, "echo here; cat > /dev/null; echo read > /dev/shm/end")).await;
    let (mut client, _) = WebSocketClient::connect(&url, &V5).await.expect("upgraded");
    client.next().await;
    client.next().await;
    drop(client);
    wait::until_async("its input ends", async || {
        rig.says(&id, "cat /dev/shm/end 2>/dev/null").await == "read"
    })
    .await;
    rig.finish().await;
}

#[tokio::test]
async fn a_client_attaches_to_a_container_until_it_ends() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let config = ContainerConfig { stdin: true, stdin_once: true, ..busybox::script("app", "cat; exit 5") };
    let id = rig.run_container(&pod, &config).await;
    let request =
        AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    // One that looks on and reads nothing holds up nobody.
    let onlooker = AttachRequest { stdin: false, ..request.clone() };
    let url = rig.runtime().attach(onlooker).await.expect("a URL").into_inner().url;
    let (mut stalled, _) = SpdyClient::connect(&url, &V4).await.expect("upgraded");
    stalled.open_process(&["error", "stdout", "stderr"]).await;
    let url = rig.runtime().attach(request).await.expect("a URL").into_inner().url;
    // Less than a client may lag behind before it is cut off: this machine may be busy.
    let input = vec![b'x'; 200_000];
    let got = over_spdy(&url, input.clone()).await;
    assert_eq!(got.stdout.len(), input.len());
    assert_eq!(got.error, SUCCESS, "an attachment ends well however its container does");
    assert_eq!(rig.ended(&id).await.exit_code, 5);
    drop(stalled);
    rig.finish().await;
}

#[tokio::test]
async fn what_cannot_be_streamed_is_refused() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let pod = rig.run_pod(&busybox::pod(&rig, "web")).await;
    let id = rig.run_container(&pod, &busybox::script("app", "exec sleep 1000")).await;
    let refused = |request: ExecRequest| async { rig.runtime().exec(request).await };
    let none = ExecRequest { stdin: false, stdout: false, stderr: false, ..command(&id, "true") };
    assert_refused(refused(none).await, Code::InvalidArgument, &["stdin, stdout and stderr"]);
    let both = ExecRequest { tty: true, ..command(&id, "true") };
    assert_refused(refused(both).await, Code::InvalidArgument, &["stderr"]);
    assert_refused(refused(command("", "true")).await, Code::InvalidArgument, &["container_id"]);
    assert_refused(refused(command("0123", "true")).await, Code::NotFound, &["0123"]);
    let empty = ExecRequest { cmd: Vec::new(), ..command(&id, "") };
    assert_refused(refused(empty).await, Code::InvalidArgument, &["cmd"]);
    let ended = rig.run_container(&pod, &busybox::script("ended", "exit 0")).await;
    assert_eq!(rig.ended(&ended).await.state(), ContainerState::ContainerExited);
    assert_refused(refused(command(&ended, "true")).await, Code::FailedPrecondition, &["exited"]);
    rig.finish().await;
}

/// Many at once, each of which gets its own.
#[tokio::test]
async fn many_clients_do_not_meet() {
    let rig = rig!();
    if !busybox::import(&rig).await {
        return;
    }
    let id = sleeper(&rig).await;
    let mut clients = BTreeMap::new();
    for number in 0..20 {
        let url = rig.exec_url(command(&id, &format!("cat; echo {number}; exit {number}"))).await;
        clients.insert(number, tokio::spawn(async move { over_spdy(&url, vec![b'a'; 100_000]).await }));
    }
    for (number, client) in clients {
        let got = client.await.expect("it does not panic");
        assert!(got.stdout.ends_with(format!("a{number}\n").as_bytes()), "{number}");
        if number > 0 {
            assert!(got.error.contains(&format!("\"message\":\"{number}\"")), "{}", got.error);
        }
    }
    rig.finish().await;
}
