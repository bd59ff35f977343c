//! What goes in and out of processes.

use std::collections::BTreeMap;
use std::fs;

use mainstay::{
    AttachOptions, Attached, ContainerId, ExecSpec, Follow, LineEnd, LogOptions, OnLag, OutputStream,
    Runtime, SessionItem, Stdin, Terminal, WindowSize,
};
use mainstay_integration_tests::{Shorthand, echoed, script_spec, wait};

use crate::stage::Stage;

/// The exact bytes that were written to each stream.
pub async fn logged(runtime: &Runtime, container: &ContainerId) -> BTreeMap<&'static str, Vec<u8>> {
    let options = LogOptions { follow: Follow::Yes, tail: None, since: None };
    let mut stream = runtime.logs(container, options).await.expect("there is a log");
    let mut streams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    while let Some(record) = wait::finish("a log record", stream.next()).await.expect("readable") {
        let name = match record.stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        let bytes = streams.entry(name).or_default();
        bytes.extend(&record.bytes);
        if record.ends == LineEnd::Newline {
            bytes.push(b'\n');
        }
    }
    streams
}

/// cd#4813, k8s#44976: long lines could not be joined again, and a last line without its newline confused parsers.
pub async fn logs_are_the_exact_bytes(stage: Stage) {
    let pod = stage.pod("p").await;
    let cases: [(&str, Vec<u8>, Vec<u8>); 4] = [
        ("printf hello", b"hello".to_vec(), vec![]),
        ("echo a; echo b >&2; echo c; printf d >&2", b"a\nc\n".to_vec(), b"b\nd".to_vec()),
        ("head -c 1048576 /dev/zero | tr '\\0' x", vec![b'x'; 1_048_576], vec![]),
        ("true", vec![], vec![]),
    ];
    for (n, (script, stdout, stderr)) in cases.into_iter().enumerate() {
        let container = stage.runtime.started(&pod, &format!("c{n}"), script).await;
        stage.runtime.exit_of(&container).await;
        let streams = logged(&stage.runtime, &container).await;
        let of = |name: &str| streams.get(name).cloned().unwrap_or_default();
        assert!(of("stdout") == stdout, "stdout of {script:?}: {} bytes", of("stdout").len());
        assert!(of("stderr") == stderr, "stderr of {script:?}: {} bytes", of("stderr").len());
    }
    stage.finish().await;
}

pub async fn an_exec_has_output_code_and_input(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "exec sleep 1000").await;
    let output = stage.runtime.sh(&container, "echo out; echo err >&2; exit 5").await;
    let said = (output.stdout.as_slice(), output.stderr.as_slice(), output.exit.code());
    assert_eq!(said, (&b"out\n"[..], &b"err\n"[..], 5));
    let missing = stage.runtime.exec_output(&container, ExecSpec::new(["/nope"])).await;
    let missing = missing.expect_err("no such program");
    assert!(missing.to_string().contains("/nope"), "{missing}");
    let spec = ExecSpec { stdin: Stdin::Once, ..ExecSpec::new(["cat"]) };
    let session = stage.runtime.exec(&container, spec).await.expect("it runs");
    let sent: Vec<u8> = (0..2_000_000u32).map(|n| (n % 251) as u8).collect();
    let (got, exit) = echoed(session, &sent).await;
    assert_eq!(exit.code(), 0);
    assert!(got == sent, "{} bytes of {} came back", got.len(), sent.len());
    stage.finish().await;
}

/// cd PR#13931, moby#31223: the tail of the output was lost at exit.
pub async fn a_mebibyte_of_an_exec_arrives_whole(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "exec sleep 1000").await;
    for _ in 0..5 {
        let output = stage.runtime.sh(&container, "head -c 1048576 /dev/zero; exit 3").await;
        assert_eq!((output.stdout.len(), output.exit.code(), output.cut_bytes), (1_048_576, 3, 0));
    }
    stage.finish().await;
}

/// podman#10560: the first size of a terminal was wrong, because it was set after the process had begun.
pub async fn a_terminal_has_its_size(stage: Stage) {
    let pod = stage.pod("p").await;
    let mut spec = script_spec("c", "stty size; exec sleep 1000");
    spec.process.terminal = Terminal::Tty(WindowSize { rows: 30, columns: 90 });
    let container = mainstay_integration_tests::run(&stage.runtime, &pod, spec).await.expect("it runs");
    let log = stage.runtime.container(&container).expect("listed").record.log_path.clone();
    wait::until("its size is in the log", || fs::read_to_string(&log).ok()?.contains("30 90").then_some(()))
        .await;
    stage.finish().await;
}

/// The same of an exec, whose program runs at once.
pub async fn a_terminal_of_an_exec_has_its_size(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "exec sleep 1000").await;
    let mut spec = ExecSpec::new(["stty", "size"]);
    spec.process.terminal = Terminal::Tty(WindowSize { rows: 40, columns: 120 });
    let output = wait::finish("an exec ends", stage.runtime.exec_output(&container, spec)).await;
    assert_eq!(String::from_utf8_lossy(&output.expect("it ran").stdout), "40 120\r\n");
    stage.finish().await;
}

pub async fn attaching_before_the_start_loses_nothing(stage: Stage) {
    let pod = stage.pod("p").await;
    let mut spec = script_spec("c", "read line; echo got $line; echo oops >&2; exit 4");
    spec.stdin = Stdin::Once;
    let container = stage.runtime.create_container(&pod, spec).await.expect("created");
    let options = AttachOptions { stdin: Attached::Yes, on_lag: OnLag::Block };
    let session = stage.runtime.attach(&container, options).await.expect("attached");
    stage.runtime.start_container(&container).await.expect("started");
    let (mut reader, mut writer) = session.split();
    writer.write(b"hello\n").await.expect("taken");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = loop {
        match wait::finish("output", reader.next()).await.expect("readable").expect("not over yet") {
            SessionItem::Output { stream: OutputStream::Stdout, bytes } => out.extend(bytes),
            SessionItem::Output { stream: OutputStream::Stderr, bytes } => err.extend(bytes),
            SessionItem::Exited(exit) => break exit,
            SessionItem::CutOff { .. } => panic!("it was to wait"),
        }
    };
    assert_eq!((out.as_slice(), err.as_slice(), exit.code()), (&b"got hello\n"[..], &b"oops\n"[..], 4));
    stage.finish().await;
}

/// Case 40 (k8s#81132, moby PR#40920): lines were lost around a rotation.
pub async fn a_log_is_reopened(stage: Stage) {
    let pod = stage.pod("p").await;
    let script = "n=0; while [ $n -lt 400 ]; do n=$((n+1)); echo $n; sleep 0.005; done";
    let container = stage.runtime.created(&pod, "c", script).await;
    let log = stage.runtime.container(&container).expect("listed").record.log_path.clone();
    stage.runtime.start_container(&container).await.expect("started");
    wait::until("something was logged", || (fs::metadata(&log).ok()?.len() > 0).then_some(())).await;
    let kept = stage.world.path().join("kept");
    fs::rename(&log, &kept).expect("renamed");
    stage.runtime.reopen_log(&container).await.expect("reopened");
    stage.runtime.exit_of(&container).await;
    wait::until("the last line is there", || {
        fs::read_to_string(&log).ok()?.lines().any(|line| line.ends_with(" 400")).then_some(())
    })
    .await;
    let text = fs::read_to_string(&kept).expect("kept") + &fs::read_to_string(&log).expect("new");
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert_eq!(numbers, (1..=400).collect::<Vec<_>>(), "each once, in order");
    stage.finish().await;
}
