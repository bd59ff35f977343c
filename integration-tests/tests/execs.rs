//! Execs and attached streams on real processes.

use std::time::Duration;

use mainstay::{
    AttachOptions, Attached, ExecSpec, OnLag, OutputStream, ProcessSpec, SessionItem, Stdin, Terminal,
    WindowSize,
};
use mainstay_integration_tests::{Shorthand, echoed, script_spec, wait, world};

/// cd PR#13931, moby#31223: the tail of the output was lost at exit.
#[tokio::test]
async fn a_mebibyte_arrives_whole_every_time() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    for _ in 0..50 {
        let output = runtime.sh(&container, "head -c 1048576 /dev/zero; exit 3").await;
        assert_eq!((output.stdout.len(), output.exit.code(), output.cut_bytes), (1_048_576, 3, 0));
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// cd PR#7832, CVE-2026-53495: a probe hung for as long as a grandchild held its pipe, and leaked.
#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_delays_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let shim = runtime.sandbox(&pod).expect("listed").record.shim.clone().expect("a shim").process.pid;
    let count =
        |what: &str| std::fs::read_dir(format!("/proc/{shim}/{what}")).expect("the shim is there").count();
    runtime.sh(&container, "true").await;
    let before = count("fd");
    for _ in 0..100 {
        let output = runtime.sh(&container, "sleep 600 & echo hi").await;
        assert_eq!((output.stdout.as_slice(), output.exit.code()), (&b"hi\n"[..], 0));
    }
    wait::until("the shim has as many descriptors as before", || (count("fd") <= before).then_some(())).await;
    assert_eq!(count("task"), 1, "the shim has one thread");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Found with the conformance suite of CRI: one `exec` in ten without input had no output. Its client ended the input that it had not
/// asked for, the shim took that for nonsense and let go of the client, and whatever the command wrote later was lost.
#[tokio::test]
async fn ending_an_input_that_there_is_not_costs_no_output() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    for stdin in [Stdin::Null, Stdin::Once] {
        let script = "while [ ! -e go ]; do sleep 0.01; done; rm go; echo hello";
        let spec = ExecSpec { stdin, ..ExecSpec::new(["sh", "-c", script]) };
        let session = runtime.exec(&container, spec).await.expect("it runs");
        let (mut reader, mut writer) = session.split();
        for _ in 0..2 {
            writer.close_stdin().await.expect("nothing is in the way");
            writer.write(b"to nobody").await.expect("it goes nowhere");
        }
        runtime.sh(&container, "touch go").await;
        let mut heard = Vec::new();
        while let Some(item) = reader.next().await.expect("it is told") {
            match item {
                SessionItem::Output { bytes, .. } => heard.extend(bytes),
                SessionItem::Exited(exit) => assert_eq!(exit.code(), 0),
                SessionItem::CutOff { bytes } => panic!("{bytes} bytes were cut off"),
            }
        }
        assert_eq!(heard, b"hello\n", "{stdin:?}");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// CVE-2022-31030, CVE-2022-1708: endless output of an exec ate the node's memory.
#[tokio::test]
async fn endless_output_is_cut_and_the_command_is_not_blocked() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let output = runtime.sh(&container, "head -c 100000000 /dev/zero; exit 5").await;
    assert_eq!(output.exit.code(), 5, "it ran to its end");
    assert_eq!(output.stdout.len(), mainstay::EXEC_OUTPUT_BYTES_MAX);
    assert_eq!(output.stdout.len() as u64 + output.cut_bytes, 100_000_000);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// podman#10560: the first size of a terminal was wrong, because it was set after the process had begun.
#[tokio::test]
async fn a_terminal_has_its_size_from_the_first_instruction_on() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    for _ in 0..50 {
        let mut spec = ExecSpec::new(["stty", "size"]);
        spec.process.terminal = Terminal::Tty(WindowSize { rows: 40, columns: 120 });
        let output =
            wait::finish("an exec ends", runtime.exec_output(&container, spec)).await.expect("it ran");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "40 120\r\n");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn input_goes_in_and_comes_out() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let mut spec = ExecSpec::new(["cat"]);
    spec.stdin = Stdin::Once;
    let session = runtime.exec(&container, spec).await.expect("it runs");
    let sent: Vec<u8> = (0..4_000_000u32).map(|n| (n % 251) as u8).collect();
    let (got, exit) = echoed(session, &sent).await;
    assert_eq!(exit.code(), 0);
    assert!(got == sent, "{} bytes of {} came back", got.len(), sent.len());
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn attaching_before_the_start_loses_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "read line; echo got $line; echo oops >&2; exit 4");
    spec.stdin = Stdin::Once;
    let container = runtime.create_container(&pod, spec).await.expect("created");
    let options = AttachOptions { stdin: Attached::Yes, on_lag: OnLag::Block };
    let session = runtime.attach(&container, options).await.expect("attached");
    runtime.start_container(&container).await.expect("started");
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
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn an_exec_has_the_containers_environment_and_its_own() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "exec sleep 1000");
    spec.process.env.insert("FROM".into(), "container".into());
    spec.process.workdir = Some("/tmp".into());
    spec.process.user = Some("1000:1001".into());
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    let inherited = runtime.sh(&container, "echo $FROM $PWD $(id -u):$(id -g)").await;
    assert_eq!(String::from_utf8_lossy(&inherited.stdout), "container /tmp 1000:1001\n");
    let spec = ExecSpec {
        process: ProcessSpec {
            command: vec!["sh".into(), "-c".into(), "echo $FROM $PWD $(id -u)".into()],
            env: [("FROM".to_owned(), "exec".to_owned())].into(),
            workdir: Some("/usr".into()),
            user: Some("0".into()),
            ..ProcessSpec::default()
        },
        stdin: Stdin::Null,
    };
    let own = runtime.exec_output(&container, spec).await.expect("it ran");
    assert_eq!(String::from_utf8_lossy(&own.stdout), "exec /usr 0\n");
    let missing =
        runtime.exec_output(&container, ExecSpec::new(["/nope"])).await.expect_err("no such program");
    assert!(missing.to_string().contains("/nope"), "{missing}");
    runtime.stop_sandbox(&pod, Some(Duration::ZERO)).await.expect("stopped");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}
