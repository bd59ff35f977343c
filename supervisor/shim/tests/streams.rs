//! Output, input and terminals of real processes.

mod rig;

use std::time::Duration;

use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::{Frame, OnLag, OpenRequest, StdinUse, StreamError, Streams};
use mainstay_task_api::task;
use rig::{DEADLINE, Plan, Rig, Runtime, context, possible, read_to_end, until};

async fn next(streams: &mut Streams) -> Frame {
    tokio::time::timeout(DEADLINE, streams.reader.next()).await.expect("in time").expect("a frame")
}

async fn expect_text(streams: &mut Streams, wanted: &str) {
    let mut text = String::new();
    while !text.contains(wanted) {
        match next(streams).await {
            Frame::Stdout(bytes) | Frame::Stderr(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} instead of {wanted:?}, after {text:?}"),
        }
    }
}

/// Case 36: the tail of an exec's output was lost at its exit.
#[tokio::test]
async fn a_mebibyte_of_exec_output_arrives_whole_with_its_exit_code() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    for _ in 0..20 {
        let (output, code) =
            rig.exec(&id, &["sh", "-c", "dd if=/dev/zero bs=1024 count=1024 2>/dev/null; exit 3"]).await;
        assert_eq!((output.len(), code), (1_048_576, 3));
    }
}

/// The output of an exec was thrown away when its caller, on a busy machine, took more than 10 s to open it. How long it
/// waits is for the request to say; until then the pipe is the only buffer, and nothing is lost.
#[tokio::test]
async fn output_waits_for_its_first_client_as_long_as_was_asked() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let script = ["sh", "-c", "dd if=/dev/zero bs=1024 count=1024 2>/dev/null; exit 5"];
    let patient =
        rig.register_exec_with(&id, &script, false, ["", "stream://hold/86400000"]).await.expect("made");
    let hasty = rig.register_exec_with(&id, &script, false, ["", "stream://hold/1"]).await.expect("made");
    for exec in [&patient, &hasty] {
        rig.start_task(&id, exec).await.expect("started");
    }
    // More than a pipe holds, and nobody reads it.
    assert_eq!(rig.wait(&id, &hasty).await, 5);
    let mut stream = rig.open(&id, &patient, StdinUse::No, OnLag::Block).await;
    let mut sum = 0;
    loop {
        match next(&mut stream).await {
            Frame::Stdout(bytes) => sum += bytes.len(),
            Frame::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sum, rig.wait(&id, &patient).await), (1 << 20, 5));
    let refused = rig.register_exec_with(&id, &script, false, ["", "stream://hold/x"]).await;
    assert!(refused.expect_err("no number").to_string().contains("stdout"));
}

/// Case 31: an exec hung on a pipe that a grandchild held.
#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_delays_nothing() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", rig.shim_pid())).expect("alive").count();
    assert_eq!(rig.exec(&id, &["sh", "-c", "sleep 1000 & echo hi"]).await, (b"hi\n".to_vec(), 0));
    let before = fds();
    for _ in 0..50 {
        assert_eq!(rig.exec(&id, &["sh", "-c", "sleep 1000 & echo hi"]).await, (b"hi\n".to_vec(), 0));
    }
    // One that floods the pipe for ever has an end, too.
    let (output, code) = rig.exec(&id, &["sh", "-c", "yes & exit 4"]).await;
    assert_eq!(code, 4);
    assert!(output.len() <= 2 << 20);
    until("no descriptor more than before", || fds() <= before).await;
    rig.kill(&id, "", 9).await.expect("sent");
    assert_eq!(rig.wait(&id, "").await, 137);
    // PID 1 with a child in a process id namespace of the host's, which the kernel does not end with it.
    let host_pids = |spec: &mut serde_json::Value| {
        spec["linux"]["namespaces"] = serde_json::json!([{ "type": "mount" }]);
    };
    let script = "yes > /dev/stdout & echo $!; exit 6";
    let id = rig.run(&Plan { args: &["sh", "-c", script], edit: &host_pids, ..Plan::default() }).await;
    assert_eq!(rig.wait(&id, "").await, 6);
    rig.delete(&id, "").await.expect("nothing is left in its cgroup");
}

/// The memory of a process that is of no file: pages of its program become private when other shims end, and are no use of memory.
fn anonymous_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Case 33: endless output of an exec was collected in memory.
#[tokio::test]
async fn endless_output_for_a_slow_client_takes_no_memory() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig.register_exec(&id, &["yes"], false, "").await.expect("registered");
    let mut lossless = rig.open(&id, &exec, StdinUse::No, OnLag::Block).await;
    rig.start_task(&id, &exec).await.expect("started");
    let before = anonymous_kib(rig.shim_pid());
    let mut sum = 0;
    while sum < 64 << 20 {
        match next(&mut lossless).await {
            Frame::Stdout(bytes) => sum += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    let after = anonymous_kib(rig.shim_pid());
    assert!(after < before + 1024, "{before} KiB became {after}");
    rig.kill(&id, &exec, 9).await.expect("sent");
    assert_eq!(rig.wait(&id, &exec).await, 137);
    while next(&mut lossless).await != Frame::End {}
}

#[tokio::test]
async fn an_attached_client_that_does_not_keep_up_is_cut_off_and_the_container_is_not() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); echo line $i; done";
    let id = rig.create(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    let mut slow = rig.open(&id, "", StdinUse::No, OnLag::Detach).await;
    rig.start_task(&id, "").await.expect("started");
    assert_eq!(rig.wait(&id, "").await, 0);
    let mut sum = 0;
    let dropped = loop {
        match next(&mut slow).await {
            Frame::Stdout(bytes) => sum += bytes.len() as u64,
            Frame::Lagged { dropped_bytes } => break dropped_bytes,
            other => panic!("{other:?}"),
        }
    };
    let log = rig::joined(&rig.log_path(&id), "stdout");
    assert!(log.ends_with(b"line 200000\n"));
    assert!(dropped > 0 && sum + dropped <= log.len() as u64);
    assert!(matches!(slow.reader.next().await, Err(StreamError::Cut)));
}

#[tokio::test]
async fn input_reaches_the_process_and_its_end_too() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig.register_exec(&id, &["cat"], false, "stream://once").await.expect("registered");
    let mut streams = rig.open(&id, &exec, StdinUse::Yes, OnLag::Block).await;
    rig.start_task(&id, &exec).await.expect("started");
    // More than all buffers on the way hold.
    let sent: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
    let Streams { mut reader, mut writer, .. } = streams;
    let write = async {
        writer.write(&sent).await.expect("written");
        writer.close_stdin().await.expect("written");
    };
    let read = async {
        let mut output = Vec::new();
        loop {
            match reader.next().await.expect("a frame") {
                Frame::Stdout(bytes) => output.extend_from_slice(&bytes),
                Frame::End => return output,
                other => panic!("{other:?}"),
            }
        }
    };
    let ((), output) =
        tokio::time::timeout(DEADLINE, async { tokio::join!(write, read) }).await.expect("in time");
    assert!(output == sent, "{} bytes of {}", output.len(), sent.len());
    assert_eq!(rig.wait(&id, &exec).await, 0);

    // One client leaves: an input that is open for once has its end.
    let exec = rig.register_exec(&id, &["cat"], false, "stream://once").await.expect("registered");
    streams = rig.open(&id, &exec, StdinUse::Yes, OnLag::Detach).await;
    rig.start_task(&id, &exec).await.expect("started");
    drop(streams);
    assert_eq!(rig.wait(&id, &exec).await, 0);

    // An input that stays open does not, until it is closed.
    let plan = Plan { args: &["sh", "-c", "cat; exit 9"], stdin: "stream://", ..Plan::default() };
    let id = rig.run(&plan).await;
    for text in ["one\n", "two\n"] {
        let mut streams = rig.open(&id, "", StdinUse::Yes, OnLag::Detach).await;
        streams.writer.write(text.as_bytes()).await.expect("written");
        expect_text(&mut streams, text).await;
    }
    let close = task::CloseIORequest { id: id.clone(), stdin: true, ..Default::default() };
    rig.task.close_io(context(), &close).await.expect("closed");
    assert_eq!(rig.wait(&id, "").await, 9);
    assert_eq!(rig::joined(&rig.log_path(&id), "stdout"), b"one\ntwo\n");
}

/// Case 36, second half: the first size of a terminal was wrong.
#[tokio::test]
async fn a_terminal_has_its_size_from_the_first_instruction_on() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    // `crun exec` gives a terminal its size after it has let the program run.
    let execs = if rig::runtime() == Runtime::Crun { 0 } else { 20 };
    for _ in 0..execs {
        let exec =
            rig.register_exec(&id, &["stty", "size"], true, "stream://once").await.expect("registered");
        let mut streams = rig.open(&id, &exec, StdinUse::Yes, OnLag::Block).await;
        let resize = task::ResizePtyRequest {
            id: id.clone(),
            exec_id: exec.clone(),
            width: 120,
            height: 40,
            ..Default::default()
        };
        rig.task.resize_pty(context(), &resize).await.expect("noted");
        rig.start_task(&id, &exec).await.expect("started");
        assert_eq!(String::from_utf8_lossy(&read_to_end(&mut streams).await), "40 120\r\n");
        assert_eq!(rig.wait(&id, &exec).await, 0);
    }
    let size = |spec: &mut serde_json::Value| {
        spec["process"]["consoleSize"] = serde_json::json!({ "height": 33, "width": 77 });
    };
    let plan = Plan { args: &["stty", "size"], terminal: true, edit: &size, ..Plan::default() };
    let id = rig.run(&plan).await;
    assert_eq!(rig.wait(&id, "").await, 0);
    assert_eq!(rig::joined(&rig.log_path(&id), "stdout"), b"33 77\r\n");
}

#[tokio::test]
async fn a_terminal_takes_input_and_a_new_size() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "while read line; do case $line in size) stty size;; *) echo got $line; exit 2;; esac; done";
    let plan =
        Plan { args: &["sh", "-c", script], terminal: true, stdin: "stream://once", ..Plan::default() };
    let id = rig.create(&plan).await;
    let mut streams = rig.open(&id, "", StdinUse::Yes, OnLag::Detach).await;
    rig.start_task(&id, "").await.expect("started");
    let resize = task::ResizePtyRequest { id: id.clone(), width: 90, height: 21, ..Default::default() };
    rig.task.resize_pty(context(), &resize).await.expect("resized");
    streams.writer.write(b"size\n").await.expect("written");
    expect_text(&mut streams, "21 90").await;
    streams.writer.write(b"bye\n").await.expect("written");
    expect_text(&mut streams, "got bye").await;
    assert_eq!(rig.wait(&id, "").await, 2);
}

/// An exec whose starter died before it opened the stream must not hang on a full pipe.
#[tokio::test]
async fn output_that_nobody_fetches_is_discarded_in_the_end() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run_idle().await;
    let exec = rig
        .register_exec(&id, &["dd", "if=/dev/zero", "bs=1M", "count=8"], false, "")
        .await
        .expect("registered");
    rig.start_task(&id, &exec).await.expect("started");
    assert_eq!(rig.wait(&id, &exec).await, 0);
    let key = ProcessKey::parse(&id, &exec).expect("good ids");
    let request =
        OpenRequest { container: key.container, exec: key.exec, stdin: StdinUse::No, on_lag: OnLag::Block };
    let path = rig.directory.join("streams.sock");
    match Streams::open(&path, &request).await {
        Err(StreamError::Refused(_)) => {}
        // The last pipe's worth is still there for a moment.
        Ok(mut streams) => assert!(read_to_end(&mut streams).await.len() <= 1 << 20),
        Err(error) => panic!("{error}"),
    }
}

/// Case 40: lines were lost around a rotation.
#[tokio::test]
async fn a_log_is_rotated_without_losing_a_line() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo line$i; done";
    let id = rig.create(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    let log = rig.log_path(&id);
    let reopen =
        mainstay_task_api::extension::ReopenLogRequest { container: id.clone(), ..Default::default() };
    rig.start_task(&id, "").await.expect("started");
    let mut files = Vec::new();
    let running = async {
        rig.wait(&id, "").await;
    };
    tokio::pin!(running);
    loop {
        tokio::select! {
            () = &mut running => break,
            () = tokio::time::sleep(Duration::from_millis(3)) => {}
        }
        let moved = rig.scratch().join(format!("log.{}", files.len()));
        std::fs::rename(&log, &moved).expect("moved");
        files.push(moved);
        rig.extension.reopen_log(context(), &reopen).await.expect("reopened");
    }
    // Without its directory it is an error that says so, and the next one works.
    let logs = log.parent().expect("a directory");
    std::fs::rename(logs, rig.scratch().join("logs-away")).expect("moved");
    let error = rig.extension.reopen_log(context(), &reopen).await.expect_err("no directory");
    assert!(
        matches!(error, ttrpc::Error::RpcStatus(status) if status.code() == ttrpc::Code::FAILED_PRECONDITION)
    );
    std::fs::rename(rig.scratch().join("logs-away"), logs).expect("moved");
    rig.extension.reopen_log(context(), &reopen).await.expect("reopened");
    files.push(log);
    assert!(files.len() > 2, "it was never rotated");
    let text: Vec<u8> = files.iter().flat_map(|file| rig::joined(file, "stdout")).collect();
    let expected: String = (1..=100_000).map(|number| format!("line{number}\n")).collect();
    assert!(text == expected.as_bytes(), "{} bytes of {}", text.len(), expected.len());
}

/// Case 37: odd lines, both streams at once, and an end in the middle of a line.
#[tokio::test]
async fn odd_lines_are_logged_byte_by_byte() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let mut data = b"plain\ncr\r\nnul\0in\nbad \xff\xfe\xc0 utf\n\n".to_vec();
    data.extend(std::iter::repeat_n(b'x', 1 << 20));
    data.extend_from_slice(b"\ntail");
    let mut other = vec![b'z'; 20_000];
    other.extend_from_slice(b"\nend");
    std::fs::write(rig.rootfs.join("tmp/out"), &data).expect("written");
    std::fs::write(rig.rootfs.join("tmp/err"), &other).expect("written");
    let script = "cat /tmp/out & cat /tmp/err >&2; wait";
    let id = rig.run(&Plan { args: &["sh", "-c", script], ..Plan::default() }).await;
    assert_eq!(rig.wait(&id, "").await, 0);
    assert!(rig::joined(&rig.log_path(&id), "stdout") == data);
    assert!(rig::joined(&rig.log_path(&id), "stderr") == other);
}

/// Runs one exec after the other until the container has ended.
async fn storm(rig: &Rig, id: &str) -> u32 {
    let mut done = 0;
    loop {
        let Ok(exec) = rig.register_exec(id, &["true"], false, "").await else { return done };
        match rig.start_task(id, &exec).await {
            Ok(_) => {
                rig.wait(id, &exec).await;
                done += 1;
            }
            Err(ttrpc::Error::RpcStatus(status)) => {
                assert_ne!(status.code(), ttrpc::Code::DEADLINE_EXCEEDED, "{status:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Case 1: a stream of execs held back the exit of PID 1 for ever.
#[tokio::test]
async fn execs_do_not_hold_back_the_exit_of_pid_1() {
    if !possible() {
        return;
    }
    let rig = Rig::start().await;
    let id = rig.run(&Plan { args: &["sh", "-c", "sleep 1; exit 7"], ..Plan::default() }).await;
    let storms = (0..10).map(|_| storm(&rig, &id));
    let all = async { tokio::join!(futures::future::join_all(storms), rig.wait(&id, "")) };
    let (done, code) = tokio::time::timeout(DEADLINE, all).await.expect("in time");
    assert_eq!(code, 7);
    assert!(done.iter().sum::<u32>() > 0, "no exec ever ran");
    let error = rig.register_exec(&id, &["true"], false, "").await.expect_err("it has ended");
    assert!(error.to_string().contains("has exited"), "{error}");
}
