//! Logs on real processes: whole, in order, and never in the way of the container.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mainstay::{Follow, LineEnd, LogOptions, LogRecord, OutputStream, Runtime, Shutdown};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};

async fn records(runtime: &Runtime, container: &mainstay::ContainerId, follow: Follow) -> Vec<LogRecord> {
    let options = LogOptions { follow, tail: None, since: None };
    let mut stream = runtime.logs(container, options).await.expect("there is a log");
    let mut all = Vec::new();
    while let Some(record) = wait::finish("a log record", stream.next()).await.expect("readable") {
        all.push(record);
    }
    all
}

/// The exact bytes that were written to each stream.
fn joined(records: &[LogRecord]) -> BTreeMap<&'static str, Vec<u8>> {
    let mut streams = BTreeMap::new();
    for record in records {
        let name = match record.stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        let bytes: &mut Vec<u8> = streams.entry(name).or_default();
        bytes.extend(&record.bytes);
        if record.ends == LineEnd::Newline {
            bytes.push(b'\n');
        }
    }
    streams
}

/// cd#4813, k8s#44976: long lines could not be joined again, and a last line without its newline confused parsers.
#[tokio::test]
async fn joined_records_are_the_exact_bytes() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let long = "head -c 1048576 /dev/zero | tr '\\0' x";
    let cases: [(&str, Vec<u8>, Vec<u8>); 6] = [
        ("printf hello", b"hello".to_vec(), vec![]),
        ("echo a; echo b >&2; echo c; printf d >&2", b"a\nc\n".to_vec(), b"b\nd".to_vec()),
        ("printf 'a\\r\\n\\0b\\377\\n\\n\\n'", b"a\r\n\0b\xff\n\n\n".to_vec(), vec![]),
        (long, vec![b'x'; 1_048_576], vec![]),
        (&format!("{long}; echo"), [vec![b'x'; 1_048_576], b"\n".to_vec()].concat(), vec![]),
        ("true", vec![], vec![]),
    ];
    for (n, (script, stdout, stderr)) in cases.into_iter().enumerate() {
        let container = runtime.started(&pod, &format!("c{n}"), script).await;
        runtime.exit_of(&container).await;
        let streams = joined(&records(&runtime, &container, Follow::No).await);
        let of = |name: &str| streams.get(name).cloned().unwrap_or_default();
        assert!(of("stdout") == stdout, "stdout of {script:?}: {} bytes", of("stdout").len());
        assert!(of("stderr") == stderr, "stderr of {script:?}: {} bytes", of("stderr").len());
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Case 40 (k8s#81132, moby PR#40920): lines were lost around a rotation.
#[tokio::test]
async fn rotation_loses_and_repeats_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let stop = world.path().join("gate");
    fs::create_dir(&stop).expect("made");
    let script = format!("n=0; until [ -e {}/stop ]; do n=$((n+1)); echo $n; done", stop.display());
    let mut spec = script_spec("c", &script);
    spec.mounts.push(mainstay::Mount::bind(&stop, &stop, mainstay::Access::ReadOnly));
    let log = world.path().join("logs/c.log");
    spec.log_path = Some(log.clone());
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    for n in 0..100 {
        wait::until("something was logged", || (fs::metadata(&log).ok()?.len() > 0).then_some(())).await;
        fs::rename(&log, log.with_extension(format!("log.{n:03}"))).expect("renamed");
        runtime.reopen_log(&container).await.expect("reopened");
    }
    fs::write(stop.join("stop"), "").expect("written");
    runtime.exit_of(&container).await;
    assert_in_order(log.parent().expect("a directory"));
    runtime.remove_sandbox(&pod).await.expect("removed");
    fs::remove_dir_all(log.parent().expect("a directory")).expect("removed");
    world.finish(runtime).await;
}

/// All files together hold every number once, in order.
fn assert_in_order(directory: &Path) {
    let mut files: Vec<_> =
        fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path()).collect();
    // c.log.000, c.log.001, …, and c.log, the newest, at the end.
    files.sort_by_key(|path| (path.extension().is_some_and(|e| e == "log"), path.clone()));
    let text: String = files.iter().map(|path| fs::read_to_string(path).expect("text")).collect();
    let mut expected = 0u64;
    for line in text.lines() {
        expected += 1;
        assert_eq!(line.rsplit(' ').next().and_then(|n| n.parse().ok()), Some(expected), "{line}");
    }
    assert!(expected > 0);
}

/// Case 38 (cd#9342): with the daemon down, chatty containers froze in write(2). And nothing that they say is lost.
#[tokio::test]
async fn a_container_writes_on_while_nobody_is_there() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); echo \"line $n of a log that fills more than a pipe\"; done";
    let container = runtime.created(&pod, "c", script).await;
    let log = runtime.container(&container).expect("listed").record.log_path.clone();
    runtime.start_container(&container).await.expect("started");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    wait::until("the last line is in the log", || {
        fs::read_to_string(&log).ok()?.contains("line 20000 ").then_some(())
    })
    .await;
    let runtime = world.start().await;
    assert_eq!(runtime.exit_of(&container).await.code(), 0);
    let records = records(&runtime, &container, Follow::Yes).await;
    assert_eq!(records.len(), 20_000);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn following_ends_with_the_container_and_misses_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container =
        runtime.created(&pod, "c", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; printf end").await;
    let follow = tokio::spawn({
        let (runtime, container) = (runtime.clone(), container.clone());
        async move { records(&runtime, &container, Follow::Yes).await }
    });
    runtime.start_container(&container).await.expect("started");
    let streams = joined(&wait::finish("the stream ends", follow).await.expect("no panic"));
    assert_eq!(streams["stdout"], b"1\n2\n3\n4\n5\nend");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}
